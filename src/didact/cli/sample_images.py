"""What `didact sample` draws: images on a sheet, rows of a table, ways through codes, the other half of an image."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from didact.inference.evaluate_samples import QualityScorer
    from didact.run import Run

SAMPLING_OPTIONS = ("steps", "eta", "solver_order", "guidance")
IMAGE_OPTIONS = (
    "label",
    *SAMPLING_OPTIONS,
    "complete",
    "keep",
    "interpolate",
    "edit",
    "reach",
    "to",
    "judge",
    "judge_weights",
)
DEFAULT_NUM_IMAGES = 64       # images or rows, where no number is given
TEXT_OPTIONS = ("tokens", "top_k", "top_p", "beam")


def options_as_typed(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """The options of these names as they are typed; None for one that was not."""
    return {name.replace("_", "-"): options[name] if options[name] is not False else None for name in names}


def draw_samples(run: "Run", images: Sequence[str], options: dict[str, Any], runs: str) -> dict[str, Any]:
    """A sheet of images or rows of a table: from noise, from code to code, or the other half of an image."""
    from didact.cli.progress import SlowTaskProgress
    from didact.errors import UsageError
    from didact.inference.sample_images import save_image_grid, save_rows
    from didact.progress import use_progress_callback

    is_table = run.metadata["data"]["kind"] == "table"
    suffix = ".csv" if is_table else ".png"
    path = Path(options["to"]) if options["to"] else run.folder / f"samples{suffix}"
    if path.suffix.lower() != suffix:
        raise UsageError(f"--to expects a file that ends in {suffix}, got {options['to']}")
    _check_options(run, options, is_table)
    score_quality = _make_quality_scorer(run, options, runs)
    sampling = {name: options[name] for name in (*SAMPLING_OPTIONS, "temperature") if options[name] is not None}
    with SlowTaskProgress("steps of drawing") as progress, use_progress_callback(progress):
        result_fields, samples, columns = _draw(
            run, images, options, {name: options[name] for name in ("seed", "label", "device")} | sampling
        )
    if is_table:
        result_fields["columns"] = save_rows(run, samples, path)
    else:
        save_image_grid(samples, path, columns=columns)
    result = {
        "run": str(run.folder),
        "seed": options["seed"],
        "label": options["label"],
        "file": str(path),
        **result_fields,
        **sampling,
    }
    return result | ({} if score_quality is None else {"judged": score_quality(samples)})


def _check_options(run: "Run", options: dict[str, Any], is_table: bool) -> None:
    """An option that would be passed over in silence is a mistake."""
    from didact.data.load import reject_options

    judge_options = options_as_typed(options, "judge", "judge_weights")
    reject_options(f"{run.folder} draws {'rows' if is_table else 'images'}", **options_as_typed(options, *TEXT_OPTIONS))
    if options["complete"] is None:
        reject_options("no image is given to be completed", **options_as_typed(options, "keep"))
    if options["edit"] is None:
        reject_options("no number of a code is to be changed", **options_as_typed(options, "reach"))
    if options["edit"] is not None or options["interpolate"]:
        reject_options(
            "a code is drawn as it is, and alone", **options_as_typed(options, "eta", "temperature"), **judge_options
        )
    if options["complete"] is not None:
        reject_options("an image is to be completed", **options_as_typed(options, "interpolate", "edit"))
        reject_options("what is judged is drawn from noise alone", **judge_options)
    if options["edit"] is not None:
        reject_options("--edit changes one code", **options_as_typed(options, "n", "interpolate"))
    if is_table:
        reject_options(f"{run.folder} draws rows of a table", **judge_options)
    if options["judge"] is not None:
        reject_options("a run judges", **options_as_typed(options, "judge_weights"))


def _draw(
    run: "Run", images: Sequence[str], options: dict[str, Any], sampling: dict[str, Any]
) -> tuple[dict[str, Any], "Tensor", int | None]:
    """What to tell, what was drawn, and in how many columns it is shown."""
    from didact.data.load import reject_options
    from didact.inference.latent_walks import interpolate_latents, traverse_latents
    from didact.inference.sample_images import inpaint_image, sample_images
    from didact.samplers.latent import GRID_SIZE

    n, image_fields = options["n"], {"images": list(images)} if images else {}
    if options["complete"] is not None:
        n, keep = n or 14, options["keep"] or "top"
        return (
            {"n": n, "completed": options["complete"], "kept": keep},
            inpaint_image(run, options["complete"], n, keep=keep, **sampling),
            None,
        )
    if options["edit"] is not None:
        extent = options["reach"] or 3.0
        samples = traverse_latents(run, options["edit"], images, extent=extent, **sampling)
        return {"n": len(samples), "edited": options["edit"], "reach": extent, **image_fields}, samples, GRID_SIZE
    if options["interpolate"]:
        if images:
            reject_options("the way leads from image to image", **options_as_typed(options, "n"))
        samples = interpolate_latents(run, n or GRID_SIZE, images, **sampling)
        return {"n": len(samples) // GRID_SIZE, "interpolated": True, **image_fields}, samples, GRID_SIZE
    return {"n": n or DEFAULT_NUM_IMAGES}, sample_images(run, n or DEFAULT_NUM_IMAGES, **sampling), None


def _make_quality_scorer(run: "Run", options: dict[str, Any], runs: str) -> "QualityScorer | None":
    """The classifier that is to judge the very images that will be drawn, where one is asked: whether it can is
    known before they are."""
    from didact.inference.evaluate_samples import classifier_quality, inception_quality
    from didact.run import Run

    n, sampling = options["n"] or DEFAULT_NUM_IMAGES, {"label": options["label"], "device": options["device"]}
    if options["judge"] is not None:
        return classifier_quality(run, Run.open(options["judge"], runs), n, **sampling)
    return None if options["judge_weights"] is None else inception_quality(run, options["judge_weights"], n, **sampling)
