"""didact resume RUN."""

import click

from didact.cli.options import JSON_OPTION, RUNS_OPTION


@click.command("resume")
@click.argument("run")
@RUNS_OPTION
@JSON_OPTION
def command(run: str, runs: str, as_json: bool) -> None:
    """Continue a run that was stopped or killed. RUN is its folder, the end of its name, or `latest`."""
    from didact.cli.recipes import load_recipes
    from didact.cli.verbs.train import run_with_progress
    from didact.run import Run
    from didact.training.resume import resume

    load_recipes()
    opened_run = Run.open(run, runs)
    run_with_progress(lambda on_event: resume(opened_run, on_event=on_event), as_json)
