"""didact evaluate RUN."""

from typing import Any

import click

from didact.cli.options import DEVICE_OPTION, JSON_OPTION, RUNS_OPTION, format_bytes, format_metric, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("evaluate")
@click.argument("run")
@click.option("--int8", is_flag=True, help="Also with int8-quantized weights: bytes saved and change of the metrics.")
@click.option(
    "--by", metavar="COLUMN", help="Also by group of a table's rows; for two classes, fairness metrics (gaps)."
)
@DEVICE_OPTION
@RUNS_OPTION
@JSON_OPTION
def command(run: str, int8: bool, by: str | None, device: str, runs: str, as_json: bool) -> None:
    """Evaluate a run's best model again, on its validation and test splits."""
    from didact.charts.format import format_metric_formula, select_metric_notes
    from didact.cli.progress import SlowTaskProgress
    from didact.cli.recipes import load_recipes
    from didact.inference.evaluate import evaluate
    from didact.inference.evaluate_int8 import evaluate_int8
    from didact.run import Run

    load_recipes()
    opened_run = Run.open(run, runs)
    if by is not None:
        from didact.inference.evaluate_by_group import evaluate_by_group

        if int8:
            raise UsageError("--by and --int8 exclude each other; give one of them")
        result = evaluate_by_group(opened_run, by, device=device)
    elif int8:
        result = evaluate_int8(opened_run, device=device)
    else:
        with SlowTaskProgress("examples evaluated") as progress:
            result = evaluate(opened_run, device=device, on_progress=progress)

    def print_scores(scores: dict[str, Any], suffix: str = "") -> None:
        for split in ("validation", "test"):
            metrics = "  ".join(f"{name} {format_metric(value)}" for name, value in scores[split].items())
            echo(f"{split + suffix:<{11 + len(suffix)}}{metrics}")
            for name in scores[split]:
                if formula := format_metric_formula(name, scores[split]):
                    echo(f"{'':<{11 + len(suffix)}}{name} = {formula}")

    def show() -> None:
        print_scores(result)
        for note in select_metric_notes(result["test"], opened_run.metadata.get("notes", ())):
            echo(f"  {note}")
        if by is not None:
            _show_groups(result)
        if int8:
            int8_result = result["int8"]
            print_scores(int8_result, " in int8")
            fraction = int8_result["bytes_after"] / int8_result["bytes_before"]
            echo(
                f"weights    {int8_result['num_layers']} layers: {format_bytes(int8_result['bytes_before'])} -> "
                f"{format_bytes(int8_result['bytes_after'])} ({100 * fraction:.0f} %),"
                f" relative error {int8_result['relative_error']:.4f}"
            )

    print_result(result, as_json, show)


def _show_groups(result: dict[str, Any]) -> None:
    """The metrics of the test split by group, and the gaps between groups."""
    from rich.markup import escape
    from rich.table import Table

    from didact.cli.console import make_console

    groups: dict[str, dict[str, float]] = result["test_by_group"]
    columns = list(next(iter(groups.values())))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"test by {escape(result['by'])}")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for name, scores in groups.items():
        table.add_row(escape(name), *(f"{scores[c]:,}" if c == "rows" else format_metric(scores[c]) for c in columns))
    make_console().print(table)
    for name, gap in result.get("test_gaps", {}).items():
        echo(f"{name.replace('_', ' ') + ' gap':<26}{format_metric(gap)}")
    if "test_gaps" in result:
        echo(
            f"positive class: {result['labels'][1]!r}; a gap is the largest difference between two groups, 0 is fair"
        )
