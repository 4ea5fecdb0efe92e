"""didact report RUN…"""

from pathlib import Path

import click

from didact.cli.words import AS_JSON, answer
from didact.errors import UsageError


@click.command("report")
@click.argument("names", metavar="RUN…", nargs=-1, required=True)
@click.option("--to", type=click.Path(path_type=Path), help="File of the comparison of several runs  [default: comparison.html]")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(names: tuple[str, ...], to: Path | None, runs: str, as_json: bool) -> None:
    """Write a run's report anew; of several runs, one page that compares them."""
    from didact import report
    from didact.run import Run

    if to is not None and len(names) == 1:
        raise UsageError(f"--to {to} is for a comparison of several runs; one run's report lies in its folder")
    opened = [Run.open(name, runs) for name in names]
    page = report.write(opened[0]) if len(opened) == 1 else report.compare(opened, to or Path("comparison.html"))
    answer({"report": str(page), "runs": [str(r.folder) for r in opened]}, as_json, lambda: click.echo(str(page)))
