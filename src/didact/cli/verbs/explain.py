"""didact explain RUN [INPUT…]"""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import FROM_OPTION, JSON_OPTION, format_metric, print_result


@click.command("explain")
@click.argument("run")
@click.argument("inputs", nargs=-1)
@FROM_OPTION
@click.option(
    "--method",
    default="all",
    show_default=True,
    help="Of saliency, smooth_grad, grad_cam, gradient_times_input, occlusion, "
    "shapley, filters and feature_maps; of texts and forecasts, read in order, attention, alignment, gates and memory: "
    "one, "
    "several with commas, or all. heads: what each attention head is worth.",
)
@click.option("--class", "label", help="Class whose score is explained  [default: the predicted one]")
@click.option("--layer", help="Layer of Grad-CAM and feature maps, as `didact show` names it  [default: the last maps]")
@click.option(
    "--patches",
    type=click.IntRange(1, 64),
    help="Patches on a side for occlusion and Shapley values  [default: 4 or 7]",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 100_000),
    default=32,
    show_default=True,
    help="Random orders that Shapley values of more than 10 parts are taken from.",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="RUN",
    help="With --method memory: a further run in the same chart; more than once.",
)
@click.option(
    "--to", type=click.Path(path_type=Path), help="Folder of page and figures  [default: explanations/ in the run]"
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@JSON_OPTION
def command(
    run: str,
    inputs: tuple[str, ...],
    files: tuple[Path, ...],
    method: str,
    label: str | None,
    layer: str | None,
    patches: int | None,
    samples: int,
    beside: tuple[str, ...],
    to: Path | None,
    device: str,
    runs: str,
    as_json: bool,
) -> None:
    """Show why a model answers as it does: image files, rows, texts or a series; without any, the test examples it
    got most wrong.

    Inputs are read as `didact predict` reads them: of a run of texts each is a text, and files of texts are given
    with --from.

    Of a classifier, what speaks for a class. Of what reads in order (texts, translations, forecasts), what happens
    inside meanwhile.
    """
    from didact.cli.recipes import load_recipes
    from didact.explain.explain_run import explain_run
    from didact.run import Run

    load_recipes()
    methods = tuple(word.strip() for word in method.split(","))
    result = explain_run(
        Run.open(run, runs),
        [*inputs, *files],
        methods=methods,
        label=label,
        layer=layer,
        patches=patches,
        samples=samples,
        out_dir=to,
        device=device,
        other_runs=[Run.open(name, runs) for name in beside],
        on_message=lambda words: click.echo(words, err=True) if not as_json else None,
    )

    def show() -> None:
        if "whole" in result:
            click.echo(
                "as it is:  " + ", ".join(f"{name} {format_metric(value)}" for name, value in result["whole"].items())
            )
        for row in result["explained"]:
            click.echo(_format_line(row))
        click.echo(f"page {result['page']}")

    print_result(result, as_json, show)


def _format_line(row: dict[str, Any]) -> str:
    """One explanation as people read it; of a row, the parts that count most; of a text read in order, where its
    figures are."""
    if "memory" in row:
        last_norm = row["norms"][-1]
        return f"{row['memory']}:  {format_metric(last_norm)} after {len(row['norms']) - 1} steps"
    if "head" in row:
        metrics = ", ".join(
            f"{name} {format_metric(value)}"
            for name, value in row.items()
            if name not in ("attention", "module", "head")
        )
        return f"{row['attention']} head {row['head']} off:  {metrics}"
    if "tokens" in row:
        predicted, p = row["predicted"], row["probability"]
        # of no mask nothing is said
        text = (
            f"  {predicted!r} ({100 * p:.1f} %)"
            if predicted and p is not None
            else f"  {predicted}"
            if predicted
            else ""
        )
        return "\n  ".join([f"{row['input']}:{text}", *row["figures"]])
    text = (
        f"{row['input']}:  {row['predicted']} ({100 * row['probability']:.1f} %)  why {row['class']}: score "
        f"{format_metric(row['score'])}"
    )
    part_lines = []
    for name, values in row["methods"].items():
        if "peak" not in values:
            top_parts = sorted(values, key=lambda part: -abs(values[part]))[:3]
            part_lines.append(f"\n  {name:<21}" + ", ".join(f"{part} {values[part]:+.3g}" for part in top_parts))
    return text + "".join(part_lines)
