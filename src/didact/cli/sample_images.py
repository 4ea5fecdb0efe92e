"""The image half of `didact sample`: new images or table rows, inpainting, latent interpolation and traversal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from didact.inference.evaluate_samples import QualityScorer
    from didact.run import Run

_SAMPLING_OPTIONS = ("steps", "eta", "solver_order", "guidance")
_QUALITY_OPTIONS = ("classifier", "inception")
IMAGE_OPTIONS = (
    "class",
    *_SAMPLING_OPTIONS,
    "inpaint",
    "keep",
    "interpolate",
    "traverse",
    "traverse_range",
    "output",
    *_QUALITY_OPTIONS,
)
_TEXT_OPTIONS = ("max_tokens", "top_k", "top_p", "num_beams")
_DEFAULT_NUM_IMAGES = 64       # images or rows
_DEFAULT_NUM_COMPLETIONS = 14  # with the image and its half, two rows of eight
_DEFAULT_TRAVERSE_RANGE = 3.0


def select_given(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """The values of these options as typed; None for an option that was not given."""
    values = options | {"class": options["label"]}
    return {name: values[name] if values[name] is not False else None for name in names}


def sample_to_file(run: "Run", images: Sequence[str], options: dict[str, Any], runs: str) -> dict[str, Any]:
    """Sample images to a PNG sheet, or rows to a CSV file; what was sampled, where it is and how good it is."""
    from didact.cli.progress import SlowTaskProgress
    from didact.errors import UsageError
    from didact.inference.sample_images import save_image_grid, save_rows
    from didact.progress import use_progress_callback

    is_table = run.metadata["data"]["kind"] == "table"
    suffix = ".csv" if is_table else ".png"
    path = Path(options["output"]) if options["output"] else run.folder / f"samples{suffix}"
    if path.suffix.lower() != suffix:
        raise UsageError(f"--output expects a file that ends in {suffix}, got {options['output']}")
    _check_options(run, options, is_table)
    score_quality = _make_quality_scorer(run, options, runs)
    sampling = {name: options[name] for name in (*_SAMPLING_OPTIONS, "temperature") if options[name] is not None}
    with SlowTaskProgress("sampling steps") as progress, use_progress_callback(progress):
        result_fields, samples, columns = _sample(
            run, images, options, {name: options[name] for name in ("seed", "label", "device")} | sampling
        )
    if is_table:
        result_fields["columns"] = save_rows(run, samples, path)
    else:
        save_image_grid(samples, path, columns=columns)
    result = {
        "run": str(run.folder),
        "seed": options["seed"],
        "class": options["label"],
        "file": str(path),
        **result_fields,
        **sampling,
    }
    return result | ({} if score_quality is None else {"quality": score_quality(samples)})


def _check_options(run: "Run", options: dict[str, Any], is_table: bool) -> None:
    """Refuse every option that would be ignored."""
    from didact.data.load import reject_options

    quality_options = select_given(options, *_QUALITY_OPTIONS)
    what = "rows of a table" if is_table else "images"
    reject_options(f"{run.folder} generates {what}", **select_given(options, *_TEXT_OPTIONS))
    if options["inpaint"] is None:
        reject_options("it is for --inpaint", **select_given(options, "keep"))
    if options["traverse"] is None:
        reject_options("it is for --traverse", **select_given(options, "traverse_range"))
    if options["traverse"] is not None or options["interpolate"]:
        reject_options(
            "latent codes are decoded as they are", **select_given(options, "eta", "temperature"), **quality_options
        )
    if options["inpaint"] is not None:
        reject_options("--inpaint samples half an image", **select_given(options, "interpolate", "traverse"))
        reject_options("only new images are evaluated, not those of --inpaint", **quality_options)
    if options["traverse"] is not None:
        reject_options("--traverse varies a single code", **select_given(options, "num_samples", "interpolate"))
    if is_table:
        reject_options(f"{run.folder} generates {what}", **quality_options)
    if options["classifier"] is not None:
        reject_options("--classifier evaluates the samples", **select_given(options, "inception"))


def _sample(
    run: "Run", images: Sequence[str], options: dict[str, Any], sampling: dict[str, Any]
) -> tuple[dict[str, Any], "Tensor", int | None]:
    """The fields of the answer, the samples, and in how many columns they are shown."""
    from didact.data.load import reject_options
    from didact.inference.latent_walks import interpolate_latents, traverse_latents
    from didact.inference.sample_images import inpaint_image, sample_images
    from didact.samplers.latent import GRID_SIZE

    n, image_fields = options["num_samples"], {"images": list(images)} if images else {}
    if options["inpaint"] is not None:
        n, keep = n or _DEFAULT_NUM_COMPLETIONS, options["keep"] or "top"
        fields = {"num_samples": n, "inpainted": options["inpaint"], "keep": keep}
        return fields, inpaint_image(run, options["inpaint"], n, keep=keep, **sampling), None
    if options["traverse"] is not None:
        extent = options["traverse_range"] or _DEFAULT_TRAVERSE_RANGE
        samples = traverse_latents(run, options["traverse"], images, extent=extent, **sampling)
        fields = {"num_samples": len(samples), "traversed": options["traverse"], "range": extent}
        return fields | image_fields, samples, GRID_SIZE
    if options["interpolate"]:
        if images:
            reject_options("--interpolate goes from image to image", **select_given(options, "num_samples"))
        samples = interpolate_latents(run, n or GRID_SIZE, images, **sampling)
        fields = {"num_samples": len(samples) // GRID_SIZE, "interpolated": True}
        return fields | image_fields, samples, GRID_SIZE
    n = n or _DEFAULT_NUM_IMAGES
    return {"num_samples": n}, sample_images(run, n, **sampling), None


def _make_quality_scorer(run: "Run", options: dict[str, Any], runs: str) -> "QualityScorer | None":
    """The classifier that evaluates the samples, if one is given: opened first, so that mistakes cost no sampling."""
    from didact.inference.evaluate_samples import classifier_quality, inception_quality
    from didact.run import Run

    n = options["num_samples"] or _DEFAULT_NUM_IMAGES
    sampling = {"label": options["label"], "device": options["device"]}
    if options["classifier"] is not None:
        return classifier_quality(run, Run.open(options["classifier"], runs), n, **sampling)
    return None if options["inception"] is None else inception_quality(run, options["inception"], n, **sampling)
