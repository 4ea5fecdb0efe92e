"""didact train RECIPE [--option value …], or didact train FILE [--option value …]."""

from collections.abc import Callable
from typing import Any

import click

from didact.cli.options import format_metric, parse_options, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("train", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Train a recipe; `didact train RECIPE --help` lists its options. In place of the recipe, data: one is chosen."""
    from didact.cli.recipes import choose_recipe_name, get_recipe
    from didact.training.prepare import known_options
    from didact.training.run_training import train

    name, options = choose_recipe_name("train", arguments)
    recipe = get_recipe(name)
    user_options, as_json = parse_options(
        f"didact train {name}",
        known_options(recipe),
        options,
        about=recipe.function.__doc__ or "",
        own_names=recipe.options,
    )
    run_with_progress(lambda on_event: train(recipe, on_event=on_event, **user_options), as_json)


def run_with_progress(start_run: Callable[[Any], Any], as_json: bool) -> None:
    """Train or resume with progress on the terminal, write the report, and print the metrics."""
    from didact import report
    from didact.cli.progress import TrainingProgress
    from didact.progress import ignore_progress, use_progress_callback
    from didact.training.distributed.process_group import join_group, leave_group
    from didact.training.experiment import ignore_events
    from didact.training.interrupts import Interrupted

    group, screen = join_group(), TrainingProgress()
    try:
        with use_progress_callback(screen.show_sampling if group.is_main else ignore_progress):
            run = start_run(screen if group.is_main else ignore_events)
        if group.is_main:
            page = report.write_report(run)
            result = {"run": str(run.folder), "report": str(page), **_select_results(run.metadata)}
            print_result(result, as_json, lambda: _show(result))
        group.barrier()  # to torchrun, a process that exits while others still write looks like a failure
    except Interrupted as stop:
        raise UsageError(str(stop)) from None
    finally:
        screen.close()
        leave_group()


def _select_results(metadata: dict[str, Any]) -> dict[str, Any]:
    keys = ("recipe", "arguments", "seconds", "validation", "test", "baselines", "stop_reason", "best_step", "steps")
    return {key: metadata[key] for key in keys}


def _show(result: dict[str, Any]) -> None:
    """Print the test metrics of the best model, and the paths of run and report."""
    from didact.charts.format import MAIN_METRICS, format_metric_formula

    metrics = "  ".join(f"{name} {format_metric(value)}" for name, value in result["test"].items())
    echo(f"test   {metrics}")
    for name in result["test"]:
        if formula := format_metric_formula(name, result["test"]):
            echo(f"       {name} = {formula}")
    for baseline in result["baselines"]:
        scores = baseline["metrics"]
        shown = "  ".join(f"{name} {format_metric(scores[name])}" for name in MAIN_METRICS if name in scores)
        echo(f"       {baseline['name']:<20} {shown}")
    echo(f"run    {result['run']}")
    echo(f"report {result['report']}")
