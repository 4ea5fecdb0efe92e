"""didact predict RUN INPUT…"""

from pathlib import Path
from typing import Any

import click

from didact.cli.words import AS_JSON, FROM, answer, number


@click.command("predict")
@click.argument("run")
@click.argument("inputs", nargs=-1)
@FROM
@click.option("--passes", type=click.IntRange(0, 10_000), default=0, help="Ask so often with dropout on: adds the spread of the answers.")
@click.option("--draws", type=click.IntRange(0, 10_000), default=0, help="Random answers from the predicted distribution, for each input.")
@click.option("--beam", type=int, default=1, show_default=True, help="Translations kept in view to find the likeliest whole.")
@click.option("--sure", type=click.FloatRange(0, 1), help="Least score of a box that is told and drawn  [default: 0.3]")
@click.option("--to", help="Folder for answers that are pictures: masks, boxes, restored images  [default: predictions]")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(
    run: str, inputs: tuple[str, ...], files: tuple[Path, ...], passes: int, draws: int, beam: int, sure: float | None, to: str | None,
    runs: str, as_json: bool,
) -> None:
    """Use a run's model on new inputs: image files, a CSV, one row written a=1,b=2, or a text (of bert with <mask>).

    What the run learned from decides how an input is read. Of images it is a path; of tables and series a CSV file where it ends in
    .csv or .tsv (packed: .gz, .xz), else a row or values; of texts it is a text, whatever it looks like: files of texts are given
    with --from.
    """
    from didact.cli.catalogue import catalogue
    from didact.run import Run
    from didact.train.use import pictures, predict

    if not inputs and not files:
        raise click.MissingParameter(ctx=click.get_current_context(), param_type="argument", param_hint="'INPUTS...'")
    catalogue()
    opened = Run.open(run, runs)
    folder = to or ("predictions" if pictures(opened.facts.get("abilities", ())) else None)
    found = predict(opened, [*inputs, *files], passes=passes, draws=draws, beam=beam, sure=sure, to=folder, warn=told)
    shift = opened.facts["data"].get("target_shift", 0.0)
    answer(found, as_json, lambda: click.echo("\n".join(line(row, shift) for row in found)))


def told(doubt: str) -> None:
    """Beside the answers, which may be read by a program."""
    click.echo(f"didact: {doubt}", err=True)


def line(row: dict[str, Any], shift: float = 0.0) -> str:
    """One prediction as people read it; `shift` had been subtracted from the numbers that were learned."""
    from didact.data.hiding import MASK

    words = []
    for name, value in row.items():
        if name == "input":
            words.append(f"{value}:")
        elif name == "boxes":
            words.append("".join(f"\n  {b['label']} {b['score']:.3f} at {', '.join(map(str, b['box']))}" for b in value) or "nothing")
        elif name == "frames":
            words.append(f"\n  drawn in {value}")
        elif name == "guesses":
            words += [f"\n  {MASK} {k}: " + ", ".join(f"{token!r} {p:.3f}" for token, p in row.items()) for k, row in enumerate(value, 1)]
        elif isinstance(value, list):
            words.append(f"{name} " + (", ".join(shown(v, shift) for v in value) or "none"))
        elif isinstance(value, dict):
            words.append("(" + ", ".join(f"{k} {v:.3f}" for k, v in value.items()) + ")")
        else:
            words.append(f"{name} {shown(value, 0.0 if name == 'std' else shift)}")
    return "  ".join(words)


def shown(value: Any, shift: float = 0.0) -> str:
    """A number or a name; of several labels drawn at once, all of them."""
    from didact.data.centring import full

    if isinstance(value, list):
        return f"({', '.join(shown(v, shift) for v in value)})"
    if isinstance(value, float) and (shift or 1e7 <= abs(value) < 1e15):    # a date: what differs stands behind the first digits
        return full(value, shift)
    return number(value) if isinstance(value, float) else str(value)
