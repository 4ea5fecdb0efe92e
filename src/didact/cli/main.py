"""The command `didact`: finds the verb, runs it, and prints errors as one line. Fast: torch is not imported here."""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from didact import __version__
from didact.cli.other_names import explain_unknown_verb
from didact.cli.terminal import echo
from didact.errors import UsageError

VERBS = {  # module and summary of each command, in the order of --help
    "list": "all recipes; --data: all datasets; --runs: your runs",
    "show": "one recipe: equation, sources, options, layers",
    "train": "train a recipe: a folder with model, metrics and report",
    "resume": "continue a run that was stopped or killed",
    "evaluate": "compute a run's metrics again, also by group or in int8",
    "predict": "predict with a run's model: images, table rows, texts",
    "sample": "sample images, table rows or text from a run's model",
    "search": "semantic search in a text; nearest words of a word",
    "explain": "explain predictions: saliency, Grad-CAM, Shapley, attention",
    "report": "write a run's report again, or compare several runs",
    "sweep": "train a recipe over a grid of options: table and heat map",
    "compare": "compare recipes and baselines on one dataset, by cross-validation",
    "engines": "compare a network in two engines, NumPy and PyTorch",
    "graph": "draw a computation graph with values and gradients",
    "gradcheck": "check the gradients of an expression or a NumPy network",
    "check": "check the claims of the courses: stated, computed, verdict",
    "reproduce": "measure the tables of the courses again, cell by cell",
    "doctor": "what this machine can and cannot do, and why",
}


class _LazyGroup(click.Group):
    """A click group that imports a verb only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UsageError(explain_unknown_verb(args[0], args[1:], list(VERBS)))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            raise UsageError(explain_unknown_verb(name, [], list(VERBS)))
        command: click.Command = importlib.import_module(f"didact.cli.verbs.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_LazyGroup,
    options_metavar="",
    subcommand_metavar="COMMAND …",
    epilog="`didact COMMAND --help` and `didact train RECIPE --help` list all options.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="didact %(version)s")
def didact() -> None:
    """The deep-learning syllabus as software that runs.

    \b
    The first minute:
      didact train mlp                               digits in seconds, and a report
      didact predict latest digit.png                use the trained model
      didact train my.csv --target price             your own file or folder: a recipe is chosen
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 2 the caller's mistake in one line, 1 our bug."""
    try:
        code = didact.main(args=arguments, prog_name="didact", standalone_mode=False)
        code = code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        code = 0
    except click.UsageError as error:
        code = _print_error(
            f"{error.format_message().rstrip('.')}; see {error.ctx.command_path if error.ctx else 'didact'} --help"
        )
    except click.ClickException as error:
        code = _print_error(error.format_message())
    except UsageError as error:
        code = _print_error(str(error))
    except (KeyboardInterrupt, click.Abort):
        code = _print_error("stopped")
    except (BrokenPipeError, SystemExit) as error:  # `didact list | head`: the reader has gone, which is no error
        # click turns a broken pipe into SystemExit, and marks stdout
        if isinstance(error, SystemExit) and not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    return code


def _print_error(message: str) -> int:
    """Print one line on stderr and return the exit code of a caller's mistake."""
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of the processes that torchrun starts, only the first prints
        echo("didact: " + " ".join(message.split()), err=True)
    return 2


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
