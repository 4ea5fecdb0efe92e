"""didact sample RUN."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from didact.cli.words import AS_JSON, answer, number


@click.command("sample")
@click.argument("run")
@click.option("--n", type=click.IntRange(1, 100_000), default=None, help="Images to draw, or texts to write (64, or 1 text, if not given).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same.")
@click.option("--label", default=None, help="Class to draw, by its name, of a run that was trained with --conditional.")
@click.option("--steps", type=click.IntRange(1), default=None, help="Steps from noise to image (the run's own if not given).")
@click.option("--eta", type=click.FloatRange(0, 1), default=None, help="New noise at each step of a diffusion: 0 DDIM, 1 DDPM.")
@click.option("--guidance", type=click.FloatRange(0), default=None, help="How much to insist on the class.")
@click.option("--complete", default=None, help="Image of which one half is kept and the other painted anew, in n ways (14 if not given).")
@click.option("--keep", type=click.Choice(("top", "left", "bottom", "right")), default=None, help="The half to keep (top if not given).")
@click.option("--to", "path", default=None, help="PNG file to write (samples.png in the run's folder if not given).")
@click.option("--judge", default=None, help="Run of a classifier of the same data: adds distances to the test images in its features.")
@click.option("--prompt", default=None, help="Text to be continued, for a run that writes (a new line if not given).")
@click.option("--tokens", type=click.IntRange(1, 1_000_000), default=500, show_default=True, help="Tokens to write.")
@click.option("--temperature", type=click.FloatRange(0), default=None, help="Below 1 more careful; 0: always the likeliest token or pixel.")
@click.option("--top-k", type=int, default=None, help="Choose among the k likeliest tokens only.")
@click.option("--top-p", type=float, default=None, help="Choose among the likeliest tokens that together have this probability.")
@click.option("--beam", type=int, default=1, show_default=True, help="Texts kept in view to find the likeliest whole.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@AS_JSON
def command(
    run: str, n: int | None, seed: int, label: str | None, steps: int | None, eta: float | None, guidance: float | None,
    complete: str | None, keep: str | None, path: str | None, judge: str | None, prompt: str | None, tokens: int, temperature: float | None,
    top_k: int | None, top_p: float | None, beam: int, device: str, runs: str, as_json: bool,
) -> None:
    """Draw new images from a run's model, on one sheet; or let it complete an image, or continue a text."""
    from didact.cli.catalogue import catalogue
    from didact.data.load import forbid
    from didact.errors import UsageError
    from didact.objectives.writing import Manner
    from didact.run import Run
    from didact.samplers.draw import completed, draw, save_sheet
    from didact.samplers.judging import judged
    from didact.samplers.text import continued

    catalogue()
    of = Run.open(run, runs)
    if "write" in of.facts.get("abilities", ()) or prompt is not None:
        pictured = {"label": label, "steps": steps, "eta": eta, "guidance": guidance, "complete": complete, "keep": keep}
        forbid(f"{of.folder} writes text", **pictured, to=path, judge=judge)
        manner = Manner(1.0 if temperature is None else temperature, top_k, top_p, beam)
        texts = continued(of, prompt or "\n", tokens=tokens, n=n or 1, manner=manner, seed=seed, device=device)
        result: dict[str, Any] = {"run": str(of.folder), "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": texts}
        answer(result, as_json, lambda: click.echo("\n\n".join((prompt or "") + text for text in texts)))
        return
    to = Path(path) if path else of.folder / "samples.png"
    if to.suffix.lower() != ".png":
        raise UsageError(f"--to expects a file that ends in .png, got {path}")
    way: dict[str, Any] = {"steps": steps, "eta": eta, "guidance": guidance, "temperature": temperature}
    if complete is None:
        forbid("no image is given to be completed", keep=keep)
        n = n or 64
        images = draw(of, n, seed=seed, label=label, device=device, **way)
    else:
        forbid("what is judged is drawn from noise alone", judge=judge)
        n = n or 14
        images = completed(of, complete, n, keep=keep or "top", seed=seed, label=label, device=device, **way)
    save_sheet(images, to)
    result = {"run": str(of.folder), "n": n, "seed": seed, "label": label, "file": str(to)}
    result |= {} if complete is None else {"completed": complete, "kept": keep or "top"}
    result |= {name: value for name, value in way.items() if value is not None}
    if judge is not None:
        result["judged"] = judged(of, Run.open(judge, runs), n, seed=seed, **way)
    answer(result, as_json, lambda: show(result))


def show(result: dict[str, Any]) -> None:
    """Where the images are, and how they were judged."""
    what = f"{result['n']} ways to go on from the {result['kept']} half" if "kept" in result else f"{result['n']} images"
    click.echo(f"{what} in {result['file']}")
    for name, value in result.get("judged", {}).items():
        click.echo(f"  {name.replace('_', ' '):<18}{number(value) if isinstance(value, float) else value}")
