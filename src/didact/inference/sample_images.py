"""Samples of a run's generative model as images or table rows, inpainting, and PNG sheets of them."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.data.core import Data
from didact.data.images.render import encode_png
from didact.data.tables.row_decoder import rows_to_csv
from didact.errors import UsageError, look_up
from didact.objectives.abilities import CanDecodeRows, CanInpaint, CanSample
from didact.progress import subtask
from didact.registry import RECIPES
from didact.report.gallery import make_image_sheet
from didact.run import Run
from didact.samplers.latent import GRID_SIZE, side_mask
from didact.training.device import resolve_device
from didact.training.restore import load_model

_BATCH_SIZE = 512  # images sampled at a time
_SIDES = ("top", "left", "bottom", "right")
# which models have a sampling option; all others belong to diffusion and flow matching
_MODELS_WITH_OPTION = {"temperature": "autoregressive models and normalizing flows"}


@torch.no_grad()
def sample_images(
    run: Run, n: int, *, seed: int = 0, label: str | None = None, device: str = "cpu", **sampling_options: Any
) -> Tensor:
    """n images in [0, 1] from the run's model, (n, C, H, W), or encoded rows of its table; of one class if given.

    Steps, eta, solver_order and guidance are for diffusion and flow matching, temperature is for autoregressive models
    and normalizing flows; the run's own values where not given.
    """
    objective, data = load_model(run)
    if not isinstance(objective, CanSample):
        raise UsageError(f"recipe {run.metadata['recipe']!r} cannot sample; {_alternative_note(run)}")
    options = check_sampling_options(sampling_options, objective.sample, run)
    torch_device = resolve_device(device)
    generator = torch.Generator(torch_device).manual_seed(seed)
    k = class_index(label, data, run)
    objective.to(torch_device)
    sizes, batches = [min(_BATCH_SIZE, n - i) for i in range(0, n, _BATCH_SIZE)], []
    for index, size in enumerate(sizes):
        with subtask(index, len(sizes)):
            batches.append(objective.sample(size, generator, label=k, **options).float().cpu())
    samples = torch.cat(batches)
    return samples if data.kind == "table" else samples.clamp(0, 1)


@torch.no_grad()
def inpaint_image(
    run: Run,
    image: str,
    n: int,
    *,
    keep: str = "top",
    seed: int = 0,
    label: str | None = None,
    device: str = "cpu",
    **sampling_options: Any,
) -> Tensor:
    """The image, the half of it that is kept, and n completions by the run's model: (2 + n, C, H, W) in [0, 1]."""
    objective, data = load_model(run)
    if not isinstance(objective, CanInpaint):
        raise UsageError(f"recipe {run.metadata['recipe']!r} cannot inpaint; {recipes_with('complete')} can")
    look_up("side", keep, dict.fromkeys(_SIDES))
    if keep != "top" and "side" not in inspect.signature(objective.complete).parameters:
        raise UsageError(
            f"{run.folder} samples pixels from the top down and can keep only the top: --keep top, got --keep {keep}"
        )
    if data.encoder is None:
        raise UsageError(f"the run was trained on {data.name!r}, whose inputs cannot be read from files")
    k = class_index(label, data, run)
    if label is not None and not getattr(objective, "num_classes", 0):
        raise UsageError(
            f"this model is not class-conditional, so no class can be sampled, got {label}; train with --conditional"
        )
    options = check_sampling_options(sampling_options, objective.complete, run) | (
        {"side": keep} if keep != "top" else {}
    )
    torch_device = resolve_device(device)
    x = data.encoder.decoders["x"](data.encoder.read([image])[1]["x"]).to(torch_device)
    num_known = x.shape[2 if keep in ("top", "bottom") else 3] // 2
    y = None if k is None else torch.full((n,), k, device=torch_device)
    objective.to(torch_device)
    completions = (
        objective.complete(
            x.expand(n, -1, -1, -1), num_known, torch.Generator(torch_device).manual_seed(seed), y, **options
        )
        .float()
        .clamp(0, 1)
    )
    masked = x * side_mask((x.shape[2], x.shape[3]), num_known, keep, torch_device)
    return torch.cat([x, masked, completions]).cpu()


def class_index(label: str | None, data: Data, run: Run) -> int | None:
    """The index of a class name."""
    if label is not None and not data.class_names:
        problem = (
            f"{run.folder} was trained without classes: {data.name!r} has none, so no class can be sampled, got "
            f"--class {label}"
        )
        raise UsageError(
            f"{problem}; leave it out, or train with --conditional on data with classes (images: one folder per class)"
        )
    return None if label is None else look_up("class", label, {name: k for k, name in enumerate(data.class_names)})


def recipes_with(ability: str) -> str:
    """The recipes that have an ability, as a phrase."""
    *others, last = [name for name, recipe in RECIPES.items() if ability in recipe.abilities]
    return f"{', '.join(others)} and {last}"


def _alternative_note(run: Run) -> str:
    """What to do where a run cannot sample: for a VQ-VAE, train a prior over its codes."""
    if run.metadata["recipe"] == "vqvae":
        return f"train a prior over its codes with: didact train vqvae_prior --from {run.folder}"
    return "`didact list` shows which recipes can sample"


def check_sampling_options(
    sampling_options: Mapping[str, Any], method: Callable[..., Tensor], run: Run
) -> dict[str, Any]:
    """The given options; refused where the model has no such option."""
    options = {name: value for name, value in sampling_options.items() if value is not None}
    if unknown := options.keys() - inspect.signature(method).parameters.keys():
        name = min(unknown)
        owners = _MODELS_WITH_OPTION.get(name, "diffusion and flow matching")
        option = f"--{name.replace('_', '-')}"
        raise UsageError(f"{option} is for {owners}, but {run.folder} is {run.metadata['recipe']}; leave it out")
    return options


def save_image_grid(images: Tensor, path: Path, columns: int | None = None) -> None:
    """All images on one PNG; without `columns` a nearly square sheet, at least eight images wide."""
    columns = columns or min(len(images), max(GRID_SIZE, round(len(images) ** 0.5)))
    num_missing = -len(images) % columns
    grid = torch.cat([images, images.new_zeros(num_missing, *images.shape[1:])]).unflatten(0, (-1, columns))
    files.write_bytes(path, encode_png(make_image_sheet(grid)))


def save_rows(run: Run, x: Tensor, path: Path) -> list[str]:
    """Write encoded rows as a CSV file, in the columns and units of the run's table; returns the columns' names."""
    objective, _ = load_model(run)
    assert isinstance(objective, CanDecodeRows)
    names, rows = objective.tabulate(x)
    files.write_text(path, rows_to_csv(names, rows))
    return names
