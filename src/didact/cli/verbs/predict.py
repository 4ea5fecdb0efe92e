"""didact predict RUN INPUT…"""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import FROM_OPTION, JSON_OPTION, RUNS_OPTION, format_metric, make_output_option, print_result
from didact.cli.terminal import echo


@click.command("predict")
@click.argument("run")
@click.argument("inputs", nargs=-1)
@FROM_OPTION
@click.option(
    "--mc-passes",
    type=click.IntRange(0, 10_000),
    default=0,
    help="MC dropout: number of stochastic forward passes; adds the standard deviation of the predictions.",
)
@click.option(
    "--num-samples",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Number of samples from the predictive distribution of each input.",
)
@click.option(
    "--num-beams",
    "--beam",
    "--beams",
    "num_beams",
    type=int,
    default=1,
    show_default=True,
    help="Beam search for a translation: beam width.",
)
@click.option("--min-score", type=click.FloatRange(0, 1), help="Minimum confidence of a bounding box  [default: 0.3]")
@make_output_option("Folder of predicted images: masks, boxes, restored images  [default: predictions]")
@RUNS_OPTION
@JSON_OPTION
def command(
    run: str,
    inputs: tuple[str, ...],
    files: tuple[Path, ...],
    mc_passes: int,
    num_samples: int,
    num_beams: int,
    min_score: float | None,
    output: Path | None,
    runs: str,
    as_json: bool,
) -> None:
    """Predict with a run's model: for image files, a table, one row written a=1,b=2, or a text.

    Inputs are encoded as in training. Image models read an INPUT as a file. Table and time-series models read it as a
    file if it ends as tables do (.csv, .xlsx, .json, .parquet, …; - is standard input), else as a row or values. Text
    models read it as the text itself (bert fills in <mask>); files of texts are given with --from.
    """
    from didact.cli.recipes import load_recipes
    from didact.inference.predict import draws_pictures, predict
    from didact.run import Run

    if not inputs and not files:
        raise click.MissingParameter(ctx=click.get_current_context(), param_type="argument", param_hint="'INPUTS...'")
    load_recipes()
    opened_run = Run.open(run, runs)
    has_pictures = draws_pictures(opened_run.metadata.get("abilities", ()))
    predictions = predict(
        opened_run,
        [*inputs, *files],
        mc_passes=mc_passes,
        num_samples=num_samples,
        num_beams=num_beams,
        min_score=min_score,
        out_dir=output or (Path("predictions") if has_pictures else None),
        warn=_print_warning,
    )
    offset = opened_run.metadata["data"].get("target_offset", 0.0)
    print_result(
        predictions, as_json, lambda: echo("\n".join(format_prediction(row, offset) for row in predictions))
    )


def _print_warning(warning: str) -> None:
    """On stderr: stdout may be read by a program."""
    echo(f"didact: {warning}", err=True)


def format_prediction(row: dict[str, Any], offset: float = 0.0) -> str:
    """One prediction in one line or a few; `offset` was subtracted from the target in training."""
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
    """A number or a name; several labels in parentheses."""
    from didact.data.tables.offsets import format_exact

    if isinstance(value, list):
        return f"({', '.join(_format_value(v, offset) for v in value)})"
    # a date in seconds: dates differ only behind the first digits
    if isinstance(value, float) and (offset or 1e7 <= abs(value) < 1e15):
        return format_exact(value, offset)
    return format_metric(value) if isinstance(value, float) else str(value)
