"""Ways through a run's codes, drawn ones or those of given images: from one to another, or one number of a code at a time."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from didact.data.core import Data
from didact.errors import UsageError
from didact.objectives.abilities import Encodes, Walks
from didact.objectives.walks import arcs, asked, between, traversal
from didact.run import Run
from didact.samplers.draw import able, accepted, wanted
from didact.train.machine import pick_device
from didact.train.session import restored

PLANE = 2  # numbers of a code up to which it is walked in a straight line: longer ones have all about the same length


def interpolated(
    run: Run, n: int, images: Sequence[str] = (), *, seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any
) -> Tensor:
    """n ways between two codes that are drawn, eight steps each: (n · 8, …). Both ends of a way are of one class.

    Where images are given, the ways lead straight from each one's code to the next one's.  Groudiev 10.2.7
    """
    objective, data = walker(run)
    place = pick_device(device)
    if images:
        if len(images) < 2:
            raise UsageError(f"--interpolate goes from image to image: give two or more, or none, got {images[0]}")
        z = encoded(run, objective, data, images, label, place)
        codes = between(z[:-1].flatten(1), z[1:].flatten(1)).unflatten(1, z.shape[1:])
        return drawn(run, objective, data, codes, len(images) - 1, label=label, **way)
    a, b = objective.codes(2 * n, torch.Generator(place).manual_seed(seed)).chunk(2)
    path = between if a[0].numel() <= PLANE else arcs
    return drawn(run, objective, data, path(a, b), n, label=label, **way)


def edited(
    run: Run, dims: str, images: Sequence[str] = (), *,
    reach: float = 3.0, seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any,
) -> Tensor:
    """One code, an image's or one that is drawn; in each row one of its numbers goes from −reach to reach in eight steps: (rows · 8, …)."""
    objective, data = walker(run)
    place = pick_device(device)
    if len(images) > 1:
        raise UsageError(f"--edit changes the code of one image, got {len(images)}; name one")
    if images:
        z = encoded(run, objective, data, images, label, place)[0]
    else:
        z = objective.codes(1, torch.Generator(place).manual_seed(seed))[0]
    chosen = dimensions(dims, z.numel())
    codes = traversal(z.flatten(), torch.tensor(chosen, device=place), reach=reach).unflatten(1, z.shape)
    return drawn(run, objective, data, codes, 1, label=label, **way)


def walker(run: Run) -> tuple[Walks, Data]:
    objective, data = restored(run)
    if not isinstance(objective, Walks):
        raise UsageError(f"recipe {run.facts['recipe']!r} has no codes to walk through; {able('walk')} have some")
    return objective, data


@torch.no_grad()
def encoded(run: Run, objective: Walks, data: Data, images: Sequence[str], label: str | None, place: torch.device) -> Tensor:
    """The codes of images in files."""
    if not isinstance(objective, Encodes):
        if data.kind == "table":
            raise UsageError(f"{run.folder} learned rows of a table, but {images[0]} is an image; leave it out")
        raise UsageError(f"recipe {run.facts['recipe']!r} finds no code of a given image; {able('encode')} do")
    if data.encoder is None:
        raise UsageError(f"the run learned from {data.name!r}, whose inputs cannot be read from files")
    if objective.classes and label is None:
        raise UsageError(f"this model was told the classes: say of which one {' and '.join(images)} are with --label")
    x = data.encoder.decoders["x"](data.encoder.read(images)[1]["x"]).to(place)
    y = asked(len(x), wanted(label, data, run), objective.classes, place)
    objective.to(place)  # type: ignore[attr-defined]
    return objective.encode({"x": x} if y is None else {"x": x, "y": y})


@torch.no_grad()
def drawn(run: Run, objective: Walks, data: Data, z: Tensor, ways: int, *, label: str | None, **way: Any) -> Tensor:
    """What the codes draw; of a model that knows classes, each of the ways is of one."""
    words = accepted(way, objective.walk, run)
    y = asked(ways, wanted(label, data, run), objective.classes, z.device)
    objective.to(z.device)  # type: ignore[attr-defined]
    each = len(z) // ways
    return objective.walk(z, None if y is None else y.repeat_interleave(each), **words).float().cpu()


def dimensions(words: str, size: int) -> list[int]:
    """The numbers of a code that are meant: dim=3, or dim=0,3,5."""
    name, _, listed = words.partition("=")
    numbers = listed.split(",")
    if name != "dim" or not all(number.strip().isdecimal() and int(number) < size for number in numbers):
        raise UsageError(f"--edit expects dim=k, or dim=k,l,…, of the {size} numbers of a code, 0 to {size - 1}, got {words!r}")
    return [int(number) for number in numbers]

