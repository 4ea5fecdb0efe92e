"""didact resume RUN."""

import click

from didact.cli.words import AS_JSON


@click.command("resume")
@click.argument("run")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(run: str, runs: str, as_json: bool) -> None:
    """Go on with a run that was stopped or killed. RUN is its folder, the end of its name, or `latest`."""
    from didact.cli.catalogue import catalogue
    from didact.cli.train import watched
    from didact.run import Run
    from didact.train.session import resume

    catalogue()
    opened = Run.open(run, runs)
    watched(lambda tell: resume(opened, tell=tell), as_json)
