"""Ways through a run's codes: from one to another, or one number of a code at a time."""

from typing import Any

import torch
from torch import Tensor

from didact.data.core import Data
from didact.errors import UsageError, pick
from didact.objectives.abilities import Walks
from didact.objectives.walks import arcs, asked, between, traversal
from didact.run import Run
from didact.samplers.draw import accepted
from didact.train.machine import pick_device
from didact.train.session import restored

PLANE = 2  # numbers of a code up to which it is walked in a straight line: longer ones have all about the same length


def interpolated(run: Run, n: int, *, seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any) -> Tensor:
    """n ways between two codes that are drawn, eight steps each: (n · 8, …). Both ends of a way are of one class."""
    objective, data = walker(run)
    place = pick_device(device)
    a, b = objective.codes(2 * n, torch.Generator(place).manual_seed(seed)).chunk(2)
    path = between if a[0].numel() <= PLANE else arcs
    return drawn(run, objective, data, path(a, b), n, label=label, **way)


def edited(
    run: Run, dims: str, *, reach: float = 3.0, seed: int = 0, label: str | None = None, device: str = "cpu", **way: Any
) -> Tensor:
    """One code that is drawn, and in each row one of its numbers from −reach to reach in eight steps: (rows · 8, …)."""
    objective, data = walker(run)
    place = pick_device(device)
    z = objective.codes(1, torch.Generator(place).manual_seed(seed))[0]
    chosen = dimensions(dims, z.numel())
    codes = traversal(z.flatten(), torch.tensor(chosen, device=place), reach=reach).unflatten(1, z.shape)
    return drawn(run, objective, data, codes, 1, label=label, **way)


def walker(run: Run) -> tuple[Walks, Data]:
    objective, data = restored(run)
    if not isinstance(objective, Walks):
        raise UsageError(
            f"recipe {run.facts['recipe']!r} has no codes to walk through; vae, gan, realnvp, diffusion and their kin have some"
        )
    return objective, data


@torch.no_grad()
def drawn(run: Run, objective: Walks, data: Data, z: Tensor, ways: int, *, label: str | None, **way: Any) -> Tensor:
    """What the codes draw; of a model that knows classes, each of the ways is of one."""
    words = accepted(way, objective.walk, run)
    wanted = None if label is None else pick("class", label, {name: k for k, name in enumerate(data.labels)})
    y = asked(ways, wanted, objective.classes, z.device)
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

