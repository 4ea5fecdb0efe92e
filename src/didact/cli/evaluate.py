"""didact evaluate RUN."""

from typing import Any

import click

from didact.cli.words import AS_JSON, answer, number, size


@click.command("evaluate")
@click.argument("run")
@click.option("--int8", is_flag=True, help="Also with weights in eight bits: what they save, and what they cost.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(run: str, int8: bool, device: str, runs: str, as_json: bool) -> None:
    """Compute the metrics of a run's best model anew, on its validation and test splits."""
    from didact.cli.catalogue import catalogue
    from didact.report.words import formula, said_of
    from didact.run import Run
    from didact.train.eight_bits import eight_bits
    from didact.train.session import evaluate

    catalogue()
    opened = Run.open(run, runs)
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
        if int8:
            few = result["int8"]
            told(few, " in int8")
            share = few["after"] / few["before"]
            click.echo(
                f"weights    {few['layers']} layers: {size(few['before'])} -> {size(few['after'])} ({100 * share:.0f} %),"
                f" relative error {few['error']:.4f}"
            )

    answer(result, as_json, show)
