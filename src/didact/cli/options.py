"""Options of the command line, read off a recipe's signature, and how results are printed."""

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from didact.cli.terminal import echo, escape_control_in_json
from didact.errors import UsageError
from didact.options import Option, format_value, to_json_value

HELP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_MAX_METAVAR_LENGTH = 40
_JSON_HELP = "Print the result as JSON, alone on stdout."
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
DEVICE_OPTION = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps.")
RUNS_OPTION = click.option(
    "--runs", default="runs", show_default=True, metavar="FOLDER", help="Folder in which names of runs are looked up."
)
FROM_OPTION = click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of inputs: an image, a CSV file; of a text model, a text file or a CSV file of texts. Repeatable.",
)


def make_output_option(help_text: str, **keywords: Any) -> Callable[[Any], Any]:
    """The option --output of a verb."""
    names = ("-o", "--output", "--out", "output")
    return click.option(*names, metavar="PATH", type=click.Path(path_type=Path), help=help_text, **keywords)


class _OptionType(click.ParamType[Any]):
    """click's view of an Option, which parses its own text."""

    def __init__(self, option: Option):
        self.option, self.name = option, option.value_syntax

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "NAME" if _has_long_syntax(self.option) else self.option.value_syntax

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.option.parse(value) if isinstance(value, str) else value


def _has_long_syntax(option: Option) -> bool:
    """Many choices are listed in the help text, where lines can break, not as the metavar."""
    return option.kind is not bool and len(option.value_syntax) > _MAX_METAVAR_LENGTH


class _RecipeCommand(click.Command):
    """A command with the options of a recipe first and those of every recipe in a section of their own."""

    def __init__(self, *args: Any, own_names: Collection[str] = (), **keywords: Any):
        super().__init__(*args, **keywords)
        self.own_names = own_names

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Options of every recipe": []}
        for param in self.get_params(ctx):
            is_own = not self.own_names or param.name in self.own_names
            if (record := param.get_help_record(ctx)) is not None:
                sections["Options" if is_own else "Options of every recipe"].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _make_click_options(options: Iterable[Option]) -> list[click.Parameter]:
    """The options as click has them, without defaults: those stay in the recipe's signature."""
    parameters: list[click.Parameter] = []
    for o in options:
        default_note = "" if o.default is None else f"  [default: {o.default_text or 'none'}]"
        flags = [o.flag, *(alias.replace("_", "-") for alias in o.aliases)]
        if o.kind is bool:
            names = [f"--{flag}/--no-{flag}" for flag in flags]
            parameters.append(click.Option([*names, o.name], is_flag=True, default=None, help=o.help + default_note))
        else:
            names = [flag if flag.startswith("-") else f"--{flag}" for flag in flags]  # -j stays as it is
            choices = f": {' | '.join(map(str, o.choices))}" if _has_long_syntax(o) and o.choices else ""
            help_text = o.help + choices + default_note
            parameters.append(click.Option([*names, o.name], type=_OptionType(o), default=None, help=help_text))
    return parameters


def parse_options(
    name: str,
    options: Mapping[str, Option],
    arguments: list[str],
    *,
    about: str,
    own_names: Collection[str] = (),
    usage: str = "",
) -> tuple[dict[str, Any], bool]:
    """The values set on the command line by option name, and whether JSON is asked for. `--help` prints and exits.

    In the help, options of `own_names` come first.
    """
    as_json = click.Option(["--json", "as_json"], is_flag=True, help=_JSON_HELP)
    command = _RecipeCommand(
        name,
        params=[*_make_click_options(options.values()), as_json],
        help=inspect.cleandoc(about),
        own_names=own_names,
        context_settings=HELP_SETTINGS,
        options_metavar=f"{usage} [--option value …]".strip(),
    )
    context = command.make_context(name, arguments)
    command_line = click.core.ParameterSource.COMMANDLINE
    # by source, not by value: `none` is a value, too
    values = {key: value for key, value in context.params.items() if context.get_parameter_source(key) is command_line}
    return values, bool(values.pop("as_json", False))


def print_result(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print a result as JSON, or let `show` print it for people."""
    if as_json:
        text = json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False, default=str)
        echo(escape_control_in_json(text))
    else:
        show()


def parse_assignments(arguments: tuple[str, ...]) -> dict[str, float]:
    """Numbers by name: x=1 y=-2.5 -> {"x": 1.0, "y": -2.5}."""
    values = {}
    for text in arguments:
        name, _, value = text.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            raise UsageError(f"a value is written name=number, got {text!r}") from None
    return values


def format_metric(value: float | None) -> str:
    """A metric as people read it: 0.9741, 207,535, 1.2e-05; a dash where it is not defined."""
    if value is None or value != value:
        return "–"
    if 1e4 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.4g}"


def format_short(value: float, digits: int = 3) -> str:
    """A number without powers of ten: 1,500, 12.5, 0.033."""
    if 0 < abs(value) < 1e-3:
        return "less than 0.001"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def format_bytes(num_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit in ("bytes", "KiB") else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


def format_cell(cell: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={format_value(value)}" for name, value in cell.items())
