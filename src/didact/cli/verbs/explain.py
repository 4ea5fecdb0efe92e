"""didact explain RUN [INPUT…]"""

from pathlib import Path
from typing import Any

import click

from didact.cli.options import (
    DEVICE_OPTION,
    FROM_OPTION,
    JSON_OPTION,
    RUNS_OPTION,
    format_metric,
    make_output_option,
    print_result,
)
from didact.cli.terminal import echo


@click.command("explain")
@click.argument("run")
@click.argument("inputs", nargs=-1)
@FROM_OPTION
@click.option(
    "--method",
    default="all",
    show_default=True,
    help="One method, several with commas, or all. Images and tables: saliency, smooth_grad, grad_cam, "
    "gradient_times_input, occlusion, shapley, filters, feature_maps. Texts and time series: attention, alignment, "
    "gates, memory. heads: attention head ablation.",
)
@click.option("--class", "label", help="Class whose score is explained  [default: the predicted one]")
@click.option(
    "--layer", help="Layer of Grad-CAM and feature maps, as `didact show` names it  [default: the last feature maps]"
)
@click.option(
    "--patches",
    type=click.IntRange(1, 64),
    help="Patches per side for occlusion and Shapley values  [default: 4 or 7]",
)
@click.option(
    "--num-samples",
    type=click.IntRange(1, 100_000),
    default=32,
    show_default=True,
    help="Random permutations for Shapley values of more than 10 features.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="RUN",
    help="Another run in the same chart, with --method memory. Repeatable.",
)
@make_output_option("Folder of the page and its figures  [default: explanations/ in the run]")
@DEVICE_OPTION
@RUNS_OPTION
@JSON_OPTION
def command(
    run: str,
    inputs: tuple[str, ...],
    files: tuple[Path, ...],
    method: str,
    label: str | None,
    layer: str | None,
    patches: int | None,
    num_samples: int,
    compare: tuple[str, ...],
    output: Path | None,
    device: str,
    runs: str,
    as_json: bool,
) -> None:
    """Explain a model's predictions for images, table rows, texts or a time series.

    Without inputs: for the test examples with the largest losses. Inputs are read as `didact predict` reads them: for
    a text model each is a text, and files of texts are given with --from.

    Classifiers: attribution maps and Shapley values for a class. Sequence models (texts, translations, forecasts):
    attention by layer and head, alignment, gates over time, and ‖∂h_t/∂h_k‖ over distance.
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
        num_samples=num_samples,
        out_dir=output,
        device=device,
        other_runs=[Run.open(name, runs) for name in compare],
        on_message=lambda message: echo(message, err=True) if not as_json else None,
    )

    def show() -> None:
        if "all_heads" in result:
            metrics = (f"{name} {format_metric(value)}" for name, value in result["all_heads"].items())
            echo(f"all heads:  {', '.join(metrics)}")
        for row in result["explained"]:
            echo(_format_line(row))
        echo(f"page {result['page']}")

    print_result(result, as_json, show)


def _format_line(row: dict[str, Any]) -> str:
    """One explanation in one line or a few: the most important features of a row, the figures of a sequence."""
    if "memory" in row:
        from didact.explain.sequences import MIN_CHARTED_NORM

        norm = row["norms"][-1]
        norm_text = "below 1e-300" if norm < MIN_CHARTED_NORM else format_metric(norm)
        return f"{row['memory']}:  {norm_text} after {len(row['norms']) - 1} steps"
    if "head" in row:
        metrics = ", ".join(
            f"{name} {format_metric(value)}"
            for name, value in row.items()
            if name not in ("attention", "module", "head")
        )
        return f"{row['attention']} head {row['head']} off:  {metrics}"
    if "tokens" in row:
        predicted, p = row["predicted"], row["probability"]
        if predicted and p is not None:
            text = f"  {predicted!r} ({100 * p:.1f} %)"
        else:
            text = f"  {predicted}" if predicted else ""  # a text without <mask>: nothing was predicted
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
