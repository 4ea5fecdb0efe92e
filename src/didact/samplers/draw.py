"""New images out of a run's model, and pictures of them."""

import inspect
from pathlib import Path

import torch
from torch import Tensor

from didact import files
from didact.data.pictures import png
from didact.errors import UsageError, pick
from didact.objectives.abilities import Samples
from didact.objectives.walks import SHOWN
from didact.report.gallery import sheet
from didact.run import Run
from didact.train.evaluation import gallery
from didact.train.machine import pick_device
from didact.train.session import rebuild, restored

BATCH = 512  # images drawn at a time


@torch.no_grad()
def draw(
    run: Run, n: int, *, seed: int = 0, label: str | None = None, device: str = "cpu",
    steps: int | None = None, eta: float | None = None, guidance: float | None = None,
) -> Tensor:
    """n images in [0, 1] from the run's model, (n, C, H, W); of one class, by its name, where the model was told the classes.

    Steps, eta and guidance are for models that draw step by step; the run's own where not given.
    """
    objective, data = restored(run)
    if not isinstance(objective, Samples):
        raise UsageError(f"recipe {run.facts['recipe']!r} draws nothing; `didact list` shows which recipes can sample")
    way = {"steps": steps, "eta": eta, "guidance": guidance}
    asked = {name: value for name, value in way.items() if value is not None}
    if unknown := asked.keys() - inspect.signature(objective.sample).parameters.keys():
        raise UsageError(f"--{min(unknown)} is for models that draw step by step, but {run.folder} is {run.facts['recipe']}; leave it out")
    place = pick_device(device)
    generator = torch.Generator(place).manual_seed(seed)
    wanted = None if label is None else pick("class", label, {name: k for k, name in enumerate(data.labels)})
    objective.to(place)
    parts = [objective.sample(min(BATCH, n - k), generator, label=wanted, **asked).float().cpu() for k in range(0, n, BATCH)]
    return torch.cat(parts).clamp(0, 1)


def save_sheet(images: Tensor, path: Path) -> None:
    """All of them on one PNG, as nearly square as eight a row or more make it."""
    columns = min(len(images), max(SHOWN, round(len(images) ** 0.5)))
    missing = -len(images) % columns
    whole = torch.cat([images, images.new_zeros(missing, *images.shape[1:])]).unflatten(0, (-1, columns))
    files.write_bytes(path, png(sheet(whole)))


def hang(run: Run) -> dict[str, Tensor]:
    """The run's pictures made anew, from its model and its test split, and kept in gallery.safetensors for the report."""
    objective, _ = restored(run)
    found = gallery(objective, rebuild(run, with_data=True).experiment.data.test)
    if found:
        run.save("gallery", found)
    return found
