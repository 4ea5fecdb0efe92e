"""didact report RUN…"""

from pathlib import Path

import click

from didact.cli.options import JSON_OPTION, RUNS_OPTION, make_output_option, print_result
from didact.cli.terminal import echo
from didact.errors import UsageError


@click.command("report")
@click.argument("names", metavar="RUN…", nargs=-1, required=True)
@make_output_option("File of the comparison of several runs  [default: comparison.html]")
@RUNS_OPTION
@JSON_OPTION
def command(names: tuple[str, ...], output: Path | None, runs: str, as_json: bool) -> None:
    """Write a run's report again, or one page that compares several runs."""
    from didact import report
    from didact.run import Run

    if output is not None and len(names) == 1:
        raise UsageError(
            f"--output {output} is for a comparison of several runs; the report of one run stays in its folder"
        )
    opened_runs = [Run.open(name, runs) for name in names]
    page = (
        report.write_report(opened_runs[0])
        if len(opened_runs) == 1
        else report.compare_runs(opened_runs, output or Path("comparison.html"))
    )
    print_result(
        {"report": str(page), "runs": [str(r.folder) for r in opened_runs]}, as_json, lambda: echo(str(page))
    )
