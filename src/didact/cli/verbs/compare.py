"""didact compare DATA."""

from typing import Any

import click

from didact.cli.options import format_metric, parse_options, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("compare", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Compare recipes and baselines on one dataset by cross-validation: a leaderboard with 95 % intervals.

    Every model is trained and tested on the same folds. The best recipe is trained once more, on the usual split: its
    run can be used. Example: didact compare houses.csv --target price --recipes tabular,mlp
    """
    import didact.recipes  # noqa: F401  fills the registry
    from didact.api import train
    from didact.cli.sweep_progress import SweepProgress
    from didact.data.tables.table_file import STANDARD_INPUT, keep_standard_input
    from didact.options import Option, Range, read_options
    from didact.report.leaderboard import write_leaderboard
    from didact.training.experiment import Settings
    from didact.training.interrupts import Interrupted
    from didact.training.sweeps.cross_validation import cross_validate

    has_name = bool(arguments) and (arguments[0] == STANDARD_INPUT or not arguments[0].startswith("-"))
    name = arguments[0] if has_name else None
    own_options = {
        "recipes": Option(
            "recipes", str, None, "recipes, as tabular,mlp (chosen for the kind of data if not given)", is_optional=True
        ),
        "folds": Option("folds", int, 5, "number of folds", range=Range(2, 100)),
        "metric": Option("metric", str, None, "metric of the leaderboard (chosen if not given)", is_optional=True),
    }
    settings = {k: o for k, o in read_options(Settings).items() if k != "data"}
    user_options, as_json = parse_options(
        "didact compare DATA",
        own_options | settings,
        list(arguments[1:] if name else arguments),
        about=command.help or "",
        own_names=set(own_options),
    )
    if name is None:
        raise UsageError("expected a dataset, as in: didact compare houses.csv --target price")
    name = str(keep_standard_input(name, user_options.get("runs", "runs")))
    recipes = tuple(filter(None, (user_options.pop("recipes", None) or "").split(",")))
    folds, metric = user_options.pop("folds", 5), user_options.pop("metric", None)
    screen = SweepProgress()
    try:
        comparison = cross_validate(
            name, recipes, folds=folds, metric=metric, on_event=screen, on_row=screen.report_row, **user_options
        )
        page = write_leaderboard(comparison)
        best = train(comparison.best_recipe, data=name, on_event=screen, **user_options)
    except Interrupted:
        raise UsageError(
            "stopped; finished trainings are saved, unfinished ones start again: the same command continues"
        ) from None
    finally:
        screen.close()
    result = {
        "data": comparison.data,
        "metric": comparison.metric,
        "folds": folds,
        "leaderboard": [
            {**vars(standing), "is_level": standing.is_level} for standing in comparison.standings
        ],
        "report": str(page),
        "run": str(best.folder),
    }
    print_result(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    metric, rows = result["metric"], result["leaderboard"]
    width = max(len(row["model"]) for row in rows)
    echo(f"{'':<{width}}  {metric + ', ' + str(result['folds']) + ' folds':>22}   behind the best")
    for row in rows:
        score = f"{format_metric(row['mean'])} ± {format_metric(row['interval'])}"
        behind = "" if row is rows[0] else f"{format_metric(row['behind'])} ± {format_metric(row['behind_interval'])}"
        level = "" if row is rows[0] or not row["is_level"] else "  level"
        echo(f"{row['model']:<{width}}  {score:>22}   {behind}{level}".rstrip())
    recipe = next(row["model"] for row in rows if row["kind"] == "recipe")
    if rows[0]["kind"] == "baseline" and not next(row for row in rows if row["model"] == recipe)["is_level"]:
        echo(f"{rows[0]['model']} is better than every recipe on these data")
    echo(f"run    {result['run']}  ({recipe})")
    echo(f"report {result['report']}")
