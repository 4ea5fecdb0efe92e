"""Two engines, one network: the same weights and batches in `didact.scratch` and in PyTorch, side by side."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from didact import scratch
from didact.data.core import Batch
from didact.errors import UsageError, pick
from didact.objectives.from_scratch import FromScratch
from didact.registry import RECIPES, Recipe
from didact.scratch import optim
from didact.train.experiment import Experiment
from didact.train.loop import Plan
from didact.train.session import prepare

# the same rule in both engines, by name
OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sgd": (optim.SGD, torch.optim.SGD),
    "momentum": (lambda p, lr: optim.SGD(p, lr, momentum=0.9), lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)),
    "adagrad": (optim.AdaGrad, torch.optim.Adagrad),
    "rmsprop": (optim.RMSProp, torch.optim.RMSprop),
    "adam": (optim.Adam, torch.optim.Adam),
    "adamw": (optim.AdamW, torch.optim.AdamW),
}
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}


def compare(recipe: Recipe, given: Mapping[str, Any], *, steps: int = 10, optimizer: str = "adam", lr: float = 1e-3) -> dict[str, Any]:
    """Forward value, loss, every gradient, then every parameter after `steps` steps: the largest difference of each."""
    ours_of, theirs_of = pick("optimizer", optimizer, OPTIMIZERS)
    dtype = str(given.get("dtype", "float64"))
    objective, experiment = scratch_objective(recipe, {**given, "dtype": dtype})
    network, twin = objective.engine, twin_of(objective, dtype)
    batches = training_batches(experiment, steps, dtype)
    rows = [row("forward", logits(objective, batches[0]).data, twin(torch_input(batches[0], dtype)))]
    optimizers = ours_of(list(network.parameters()), lr), theirs_of(twin.parameters(), lr)
    for number, batch in enumerate(batches):
        loss = one_step(objective, twin, batch, dtype, optimizers)
        if number == 0:
            rows.append(row("loss", *loss))
            rows += [row(f"gradient of {name}", p.grad, q.grad) for name, p, q in pairs(network, twin)]
    rows += [row(f"{name} after {steps} steps", p.data, q) for name, p, q in pairs(network, twin)]
    worst = max(r["difference"] for r in rows)
    return {
        "recipe": recipe.name, "dtype": dtype, "optimizer": optimizer, "steps": steps, "rows": rows,
        "max_difference": worst, "tolerance": TOLERANCE[dtype], "equal": worst <= TOLERANCE[dtype],
    }


def on_scratch(recipe: Recipe) -> bool:
    """Whether a recipe runs on the NumPy engine: those alone choose its numbers."""
    return "dtype" in recipe.options


def scratch_objective(recipe: Recipe, given: Mapping[str, Any]) -> tuple[FromScratch, Experiment]:
    """The objective of a recipe that runs on the NumPy engine; any other is refused by name."""
    if not on_scratch(recipe):
        known = [name for name, other in RECIPES.items() if on_scratch(other)]
        raise UsageError(f"recipe {recipe.name!r} has no network on the NumPy engine; choose from: {', '.join(known)}")
    experiment = prepare(recipe, given).experiment
    assert isinstance(experiment.objective, FromScratch)
    return experiment.objective, experiment


def twin_of(objective: FromScratch, dtype: str) -> nn.Module:
    twin = objective.twin().to(getattr(torch, dtype))
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in objective.engine.state_dict().items()})
    return twin


def training_batches(experiment: Experiment, steps: int, dtype: str) -> list[Batch]:
    """The first batches that training would see, over as many epochs as it takes."""
    plan = Plan.of(experiment)
    found: list[Batch] = []
    for epoch in range(-(-steps // plan.epoch)):
        chunks = [chunk for chunks in plan.rounds(0, epoch) for chunk in chunks]
        for stored in islice(experiment.data.train.batches(chunks), steps - len(found)):
            batch = experiment.data.train.decode(stored)
            found.append({k: v.to(getattr(torch, dtype)) if v.is_floating_point() else v for k, v in batch.items()})
    return found


def one_step(objective: FromScratch, twin: nn.Module, batch: Batch, dtype: str, optimizers: tuple[Any, Any]) -> tuple[Any, Any]:
    """Forward, backward and one update in each engine."""
    ours, theirs = optimizers
    ours.zero_grad()
    loss = objective.surprise(logits(objective, batch), batch)
    loss.backward()
    ours.step()
    theirs.zero_grad()
    scores = twin(torch_input(batch, dtype)).reshape(-1, objective.classes)
    reference = nn.functional.cross_entropy(scores, batch["y"].reshape(-1))
    reference.backward()
    theirs.step()
    return loss.data, reference


def logits(objective: FromScratch, batch: Batch) -> scratch.Tensor:
    scores: scratch.Tensor = objective.engine(objective.input(batch))
    return scores


def torch_input(batch: Batch, dtype: str) -> Tensor:
    x = batch["x"]
    return x.to(getattr(torch, dtype)) if x.is_floating_point() else x


def pairs(network: Any, twin: nn.Module) -> list[tuple[str, Any, Tensor]]:
    theirs = dict(twin.named_parameters())
    return [(name, p, theirs[name]) for name, p in network.named_parameters()]


def row(what: str, ours: Any, theirs: Tensor | None) -> dict[str, Any]:
    """A line of the table: how large both are, and how far apart at most. NaN counts as infinitely far."""
    assert theirs is not None
    a, b = np.asarray(ours), theirs.detach().numpy()
    apart = float(np.abs(a - b).max()) if a.size else 0.0
    return {"what": what, "shape": list(a.shape), "largest": float(np.abs(b).max()) if b.size else 0.0,
            "difference": apart if apart == apart else float("inf")}


def check_gradients(recipe: Recipe, *, samples: int = 5, h: float = 1e-6, seed: int = 0) -> dict[str, Any]:
    """∂L/∂θ of the NumPy engine against (L(θ + h) − L(θ − h)) / 2h, at `samples` entries of every parameter (Gaba Ex 2.3)."""
    objective, experiment = scratch_objective(recipe, {"dtype": "float64"})
    (batch,) = training_batches(experiment, 1, "float64")
    batch = {name: column[:32] for name, column in batch.items()}
    network, rng = objective.engine, np.random.default_rng(seed)

    def loss() -> scratch.Tensor:
        return objective.surprise(logits(objective, batch), batch)

    parameters = dict(network.named_parameters())
    gradients = dict(zip(parameters, scratch.grad(loss(), list(parameters.values())), strict=True))
    rows = []
    for name, p in parameters.items():
        places = rng.choice(p.data.size, size=min(samples, p.data.size), replace=False)
        slopes = [central(loss, p.data.reshape(-1), int(i), h) for i in places]
        ours = gradients[name].data.reshape(-1)[places]
        rows.append({"what": name, "largest": float(np.abs(ours).max()), "difference": float(np.abs(ours - slopes).max())})
    worst = max(r["difference"] for r in rows)
    return {"recipe": recipe.name, "rows": rows, "max_difference": worst, "passed": worst < 1e-6}


def central(loss: Callable[[], scratch.Tensor], flat: Any, i: int, h: float) -> float:
    """The slope along one entry, which is put back as it was."""
    before = flat[i]
    values = []
    with scratch.no_grad():
        for moved in (before + h, before - h):
            flat[i] = moved
            values.append(loss().item())
    flat[i] = before
    return float(values[0] - values[1]) / (2 * h)
