"""didact report RUN…"""

from pathlib import Path

import click

from didact.cli.options import JSON_OPTION, print_result
from didact.errors import UsageError


@click.command("report")
@click.argument("names", metavar="RUN…", nargs=-1, required=True)
@click.option(
    "--to", type=click.Path(path_type=Path), help="File of the comparison of several runs  [default: comparison.html]"
)
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@JSON_OPTION
def command(names: tuple[str, ...], to: Path | None, runs: str, as_json: bool) -> None:
    """Write a run's report anew; of several runs, one page that compares them."""
    from didact import report
    from didact.run import Run

    if to is not None and len(names) == 1:
        raise UsageError(f"--to {to} is for a comparison of several runs; one run's report lies in its folder")
    opened_runs = [Run.open(name, runs) for name in names]
    page = (
        report.write_report(opened_runs[0])
        if len(opened_runs) == 1
        else report.compare_runs(opened_runs, to or Path("comparison.html"))
    )
    print_result(
        {"report": str(page), "runs": [str(r.folder) for r in opened_runs]}, as_json, lambda: click.echo(str(page))
    )
