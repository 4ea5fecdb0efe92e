"""didact evaluate RUN."""

from typing import Any

import click

from didact.cli.words import AS_JSON, answer, number, size
from didact.errors import UsageError


@click.command("evaluate")
@click.argument("run")
@click.option("--int8", is_flag=True, help="Also with weights in eight bits: what they save, and what they cost.")
@click.option("--by", metavar="COLUMN", help="Also for each group of a table's rows; of two classes, how fairly they are told.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(run: str, int8: bool, by: str | None, device: str, runs: str, as_json: bool) -> None:
    """Compute the metrics of a run's best model anew, on its validation and test splits."""
    from didact.cli.catalogue import catalogue
    from didact.report.words import formula, said_of
    from didact.run import Run
    from didact.train.eight_bits import eight_bits
    from didact.train.session import evaluate

    catalogue()
    opened = Run.open(run, runs)
    if by is not None:
        from didact.trust.audit import by_group

        if int8:
            raise UsageError("--by and --int8 are two questions; ask one after the other")
        result = by_group(opened, by, device=device)
    else:
        result = (eight_bits if int8 else evaluate)(opened, device=device)

    def told(scores: dict[str, Any], behind: str = "") -> None:
        for split in ("validation", "test"):
            metrics = "  ".join(f"{name} {number(value)}" for name, value in scores[split].items())
            click.echo(f"{split + behind:<{11 + len(behind)}}{metrics}")
            for name in scores[split]:
                if how := formula(name, scores[split]):
                    click.echo(f"{'':<{11 + len(behind)}}{name} = {how}")

    def show() -> None:
        told(result)
        for note in said_of(result["test"], opened.facts.get("notes", ())):
            click.echo(f"  {note}")
        if by is not None:
            show_groups(result)
        if int8:
            few = result["int8"]
            told(few, " in int8")
            share = few["after"] / few["before"]
            click.echo(
                f"weights    {few['layers']} layers: {size(few['before'])} -> {size(few['after'])} ({100 * share:.0f} %),"
                f" relative error {few['error']:.4f}"
            )

    answer(result, as_json, show)


def show_groups(result: dict[str, Any]) -> None:
    """The test split, group by group, and what lies between them."""
    from rich.markup import escape
    from rich.table import Table

    from didact.cli.progress import paper

    groups: dict[str, dict[str, float]] = result["test_by_group"]
    columns = list(next(iter(groups.values())))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"test by {escape(result['by'])}")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for name, scores in groups.items():
        table.add_row(escape(name), *(f"{scores[c]:,}" if c == "rows" else number(scores[c]) for c in columns))
    paper().print(table)
    for name, gap in result.get("test_gaps", {}).items():
        click.echo(f"{name.replace('_', ' ') + ' gap':<26}{number(gap)}")
    if "test_gaps" in result:
        click.echo(f"yes: the answer {result['labels'][1]!r}; a gap is the largest difference between two groups, 0 is fair")
