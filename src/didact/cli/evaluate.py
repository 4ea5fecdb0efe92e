"""didact evaluate RUN."""

import click

from didact.cli.words import AS_JSON, answer, number


@click.command("evaluate")
@click.argument("run")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(run: str, device: str, runs: str, as_json: bool) -> None:
    """Compute the metrics of a run's best model anew, on its validation and test splits."""
    from didact.cli.catalogue import catalogue
    from didact.run import Run
    from didact.train.session import evaluate

    catalogue()
    result = evaluate(Run.open(run, runs), device=device)

    def show() -> None:
        for split in ("validation", "test"):
            metrics = "  ".join(f"{name} {number(value)}" for name, value in result[split].items())
            click.echo(f"{split:<11}{metrics}")

    answer(result, as_json, show)
