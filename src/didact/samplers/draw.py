"""New images out of a run's model, the rest of an image that is half there, and pictures of them."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.data.core import Data
from didact.data.pictures import png
from didact.data.rows import as_csv
from didact.errors import UsageError, pick
from didact.objectives.abilities import Completes, Samples, Tabulates
from didact.objectives.pace import share
from didact.objectives.walks import SHOWN, side_of
from didact.registry import RECIPES
from didact.report.gallery import sheet
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored

BATCH = 512  # images drawn at a time
SIDES = ("top", "left", "bottom", "right")
MEANT_FOR = {"temperature": "models that draw pixel by pixel, and flows"}  # the other words of a way: for those that draw step by step


@torch.no_grad()
def draw(run: Run, n: int, *, seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any) -> Tensor:
    """n images in [0, 1] from the run's model, (n, C, H, W), or encoded rows of its table; of one class, by its name, where it knows them.

    Steps, eta, order and guidance are for models that draw step by step, temperature is for those that draw pixel by pixel, and for flows;
    the run's own where not given.
    """
    objective, data = restored(run)
    if not isinstance(objective, Samples):
        raise UsageError(f"recipe {run.facts['recipe']!r} draws nothing; {instead(run)}")
    asked = accepted(way, objective.sample, run)
    place = pick_device(device)
    generator = torch.Generator(place).manual_seed(seed)
    k = wanted(label, data, run)
    objective.to(place)
    sizes, parts = [min(BATCH, n - i) for i in range(0, n, BATCH)], []
    for part, size in enumerate(sizes):
        with share(part, len(sizes)):
            parts.append(objective.sample(size, generator, label=k, **asked).float().cpu())
    whole = torch.cat(parts)
    return whole if data.kind == "table" else whole.clamp(0, 1)


@torch.no_grad()
def completed(
    run: Run, image: str, n: int, *, keep: str = "top", seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any
) -> Tensor:
    """The image, the half of it that is kept, and n ways in which the run's model goes on from there: (2 + n, C, H, W) in [0, 1]."""
    objective, data = restored(run)
    if not isinstance(objective, Completes):
        raise UsageError(f"recipe {run.facts['recipe']!r} completes no image; {able('complete')} do")
    pick("side", keep, dict.fromkeys(SIDES))
    if keep != "top" and "side" not in inspect.signature(objective.complete).parameters:
        raise UsageError(f"{run.folder} paints from the top down, so what it goes on from is above: --keep top, got --keep {keep}")
    if data.encoder is None:
        raise UsageError(f"the run learned from {data.name!r}, whose inputs cannot be read from files")
    k = wanted(label, data, run)
    if label is not None and not getattr(objective, "classes", 0):
        raise UsageError(f"this model was not told the classes, so none can be asked of it, got label {label}; train with --conditional")
    asked = accepted(way, objective.complete, run) | ({"side": keep} if keep != "top" else {})
    place = pick_device(device)
    x = data.encoder.decoders["x"](data.encoder.read([image])[1]["x"]).to(place)
    known = x.shape[2 if keep in ("top", "bottom") else 3] // 2
    y = None if k is None else torch.full((n,), k, device=place)
    objective.to(place)
    ends = objective.complete(x.expand(n, -1, -1, -1), known, torch.Generator(place).manual_seed(seed), y, **asked).float().clamp(0, 1)
    half = x * side_of((x.shape[2], x.shape[3]), known, keep, place)
    return torch.cat([x, half, ends]).cpu()


def wanted(label: str | None, data: Data, run: Run) -> int | None:
    """The number of a class, by its name."""
    if label is not None and not data.labels:
        told = f"{run.folder} was trained without classes: {data.name!r} has none, so none can be asked of it, got --label {label}"
        raise UsageError(f"{told}; leave it out, or train with --conditional on data that have classes (of images, a folder for each)")
    return None if label is None else pick("class", label, {name: k for k, name in enumerate(data.labels)})


def able(ability: str) -> str:
    """The recipes that have an ability, as words."""
    *most, last = [name for name, recipe in RECIPES.items() if ability in recipe.abilities]
    return f"{', '.join(most)} and {last}"


def instead(run: Run) -> str:
    """What draws where this run does not: of a coder, one that learns which of its codes there are."""
    if run.facts["recipe"] == "vqvae":
        return f"draw from its codes with: didact train vqvae_prior --from {run.folder}"
    return "`didact list` shows which recipes can sample"


def accepted(way: Mapping[str, Any], method: Callable[..., Tensor], run: Run) -> dict[str, Any]:
    """What was asked for; refused where the model has no such thing."""
    asked = {name: value for name, value in way.items() if value is not None}
    if unknown := asked.keys() - inspect.signature(method).parameters.keys():
        name = min(unknown)
        whom = MEANT_FOR.get(name, "models that draw step by step")
        raise UsageError(f"--{name} is for {whom}, but {run.folder} is {run.facts['recipe']}; leave it out")
    return asked


def save_sheet(images: Tensor, path: Path, columns: int | None = None) -> None:
    """All of them on one PNG, as nearly square as eight a row or more make it where no number of columns is given."""
    columns = columns or min(len(images), max(SHOWN, round(len(images) ** 0.5)))
    missing = -len(images) % columns
    whole = torch.cat([images, images.new_zeros(missing, *images.shape[1:])]).unflatten(0, (-1, columns))
    files.write_bytes(path, png(sheet(whole)))


def save_rows(run: Run, x: Tensor, path: Path) -> list[str]:
    """Encoded rows as a CSV file, in the columns and units of the run's table; the columns' names."""
    objective, _ = restored(run)
    assert isinstance(objective, Tabulates)
    names, rows = objective.tabulate(x)
    files.write_text(path, as_csv(names, rows))
    return names
