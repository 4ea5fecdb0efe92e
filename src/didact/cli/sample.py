"""didact sample RUN."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from didact.cli.words import AS_JSON, answer, number


@click.command("sample")
@click.argument("run")
@click.option("--n", type=click.IntRange(1, 100_000), default=None, help="Images to draw, or texts to write (64 or 1 if not given).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same.")
@click.option("--label", default=None, help="Class to draw, by its name, of a run that was trained with --conditional.")
@click.option("--steps", type=click.IntRange(1), default=None, help="Steps from noise to image (the run's own if not given).")
@click.option("--eta", type=click.FloatRange(0, 1), default=None, help="New noise at each step of a diffusion: 0 DDIM, 1 DDPM.")
@click.option("--guidance", type=click.FloatRange(0), default=None, help="How much to insist on the class.")
@click.option("--to", "path", default=None, help="PNG file to write (samples.png in the run's folder if not given).")
@click.option("--judge", default=None, help="Run of a classifier of the same data: adds distances to the test images in its features.")
@click.option("--prompt", default=None, help="Text to be continued, for a run that writes (a new line if not given).")
@click.option("--tokens", type=click.IntRange(1, 1_000_000), default=500, show_default=True, help="Tokens to write.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="Below 1 more careful; 0: always the likeliest token.")
@click.option("--top-k", type=int, default=None, help="Choose among the k likeliest tokens only.")
@click.option("--top-p", type=float, default=None, help="Choose among the likeliest tokens that together have this probability.")
@click.option("--beam", type=int, default=1, show_default=True, help="Texts kept in view to find the likeliest whole.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(
    run: str, n: int | None, seed: int, label: str | None, steps: int | None, eta: float | None, guidance: float | None,
    path: str | None, judge: str | None, prompt: str | None, tokens: int, temperature: float,
    top_k: int | None, top_p: float | None, beam: int, device: str, runs: str, as_json: bool,
) -> None:
    """Draw new images from a run's model, on one sheet; or let it continue a text."""
    from didact.cli.catalogue import catalogue
    from didact.data.load import forbid
    from didact.errors import UsageError
    from didact.objectives.writing import Manner
    from didact.run import Run
    from didact.samplers.draw import draw, save_sheet
    from didact.samplers.judging import judged
    from didact.samplers.text import continued

    catalogue()
    of = Run.open(run, runs)
    if "write" in of.facts.get("abilities", ()) or prompt is not None:
        forbid(f"{of.folder} writes text", label=label, steps=steps, eta=eta, guidance=guidance, to=path, judge=judge)
        manner = Manner(temperature, top_k, top_p, beam)
        texts = continued(of, prompt or "\n", tokens=tokens, n=n or 1, manner=manner, seed=seed, device=device)
        result: dict[str, Any] = {"run": str(of.folder), "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": texts}
        answer(result, as_json, lambda: click.echo("\n\n".join((prompt or "") + text for text in texts)))
        return
    n = n or 64
    to = Path(path) if path else of.folder / "samples.png"
    if to.suffix.lower() != ".png":
        raise UsageError(f"--to expects a file that ends in .png, got {path}")
    way: dict[str, Any] = {"steps": steps, "eta": eta, "guidance": guidance}
    save_sheet(draw(of, n, seed=seed, label=label, device=device, **way), to)
    result = {"run": str(of.folder), "n": n, "seed": seed, "label": label, "file": str(to)}
    result |= {name: value for name, value in way.items() if value is not None}
    if judge is not None:
        result["judged"] = judged(of, Run.open(judge, runs), n, seed=seed, **way)
    answer(result, as_json, lambda: show(result))


def show(result: dict[str, Any]) -> None:
    """Where the images are, and how they were judged."""
    click.echo(f"{result['n']} images in {result['file']}")
    for name, value in result.get("judged", {}).items():
        click.echo(f"  {name.replace('_', ' '):<18}{number(value) if isinstance(value, float) else value}")
