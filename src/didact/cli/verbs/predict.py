"""didact predict RUN INPUT…"""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import FROM_OPTION, JSON_OPTION, format_metric, print_result


@click.command("predict")
@click.argument("run")
@click.argument("inputs", nargs=-1)
@FROM_OPTION
@click.option(
    "--passes",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Ask so often with dropout on: adds the spread of the answers.",
)
@click.option(
    "--draws",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Random answers from the predicted distribution, for each input.",
)
@click.option(
    "--beam", type=int, default=1, show_default=True, help="Translations kept in view to find the likeliest whole."
)
@click.option("--sure", type=click.FloatRange(0, 1), help="Least score of a box that is told and drawn  [default: 0.3]")
@click.option(
    "--to", help="Folder for answers that are pictures: masks, boxes, restored images  [default: predictions]"
)
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@JSON_OPTION
def command(
    run: str,
    inputs: tuple[str, ...],
    files: tuple[Path, ...],
    passes: int,
    draws: int,
    beam: int,
    sure: float | None,
    to: str | None,
    runs: str,
    as_json: bool,
) -> None:
    """Use a run's model on new inputs: image files, a CSV, one row written a=1,b=2, or a text (of bert with <mask>).

    What the run learned from decides how an input is read. Of images it is a path; of tables and series a CSV file
    where it ends in
    .csv or .tsv (packed: .gz, .xz), else a row or values; of texts it is a text, whatever it looks like: files of
    texts are given
    with --from.
    """
    from didact.cli.recipes import load_recipes
    from didact.inference.predict import draws_pictures, predict
    from didact.run import Run

    if not inputs and not files:
        raise click.MissingParameter(ctx=click.get_current_context(), param_type="argument", param_hint="'INPUTS...'")
    load_recipes()
    opened_run = Run.open(run, runs)
    folder = to or ("predictions" if draws_pictures(opened_run.metadata.get("abilities", ())) else None)
    predictions = predict(
        opened_run,
        [*inputs, *files],
        passes=passes,
        draws=draws,
        beam=beam,
        min_score=sure,
        out_dir=folder,
        warn=_print_warning,
    )
    offset = opened_run.metadata["data"].get("target_offset", 0.0)
    print_result(
        predictions, as_json, lambda: click.echo("\n".join(format_prediction(row, offset) for row in predictions))
    )


def _print_warning(warning: str) -> None:
    """Beside the answers, which may be read by a program."""
    click.echo(f"didact: {warning}", err=True)


def format_prediction(row: dict[str, Any], offset: float = 0.0) -> str:
    """One prediction as people read it; `offset` had been subtracted from the numbers that were learned."""
    from didact.data.text.masked_lm import MASK_TOKEN

    parts = []
    for name, value in row.items():
        if name == "input":
            parts.append(f"{value}:")
        elif name == "boxes":
            parts.append(
                "".join(f"\n  {b['label']} {b['score']:.3f} at {', '.join(map(str, b['box']))}" for b in value)
                or "nothing"
            )
        elif name == "frames":
            parts.append(f"\n  drawn in {value}")
        elif name == "guesses":
            parts += [
                f"\n  {MASK_TOKEN} {k}: " + ", ".join(f"{token!r} {p:.3f}" for token, p in row.items())
                for k, row in enumerate(value, 1)
            ]
        elif isinstance(value, list):
            parts.append(f"{name} " + (", ".join(_format_value(v, offset) for v in value) or "none"))
        elif isinstance(value, dict):
            parts.append("(" + ", ".join(f"{k} {v:.3f}" for k, v in value.items()) + ")")
        else:
            parts.append(f"{name} {_format_value(value, 0.0 if name == 'std' else offset)}")
    return "  ".join(parts)


def _format_value(value: Any, offset: float = 0.0) -> str:
    """A number or a name; of several labels drawn at once, all of them."""
    from didact.data.tables.offsets import format_exact

    if isinstance(value, list):
        return f"({', '.join(_format_value(v, offset) for v in value)})"
    # a date: what differs stands behind the first digits
    if isinstance(value, float) and (offset or 1e7 <= abs(value) < 1e15):
        return format_exact(value, offset)
    return format_metric(value) if isinstance(value, float) else str(value)
