"""Two engines, one network: the same weights and batches in `didact.scratch` and in PyTorch."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from didact import scratch
from didact.data.core import Batch
from didact.errors import UsageError, look_up
from didact.objectives.numpy_engine import NumpyEngineObjective
from didact.registry import RECIPES, Recipe
from didact.scratch import optim
from didact.training.experiment import Experiment
from didact.training.plan import TrainingPlan
from didact.training.prepare import prepare

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


def compare_engines(
    recipe: Recipe, user_options: Mapping[str, Any], *, steps: int = 10, optimizer: str = "adam", lr: float = 1e-3
) -> dict[str, Any]:
    """Largest differences between the engines: output, loss, every gradient, and every parameter after `steps` steps.
    """
    our_optimizer, their_optimizer = look_up("optimizer", optimizer, OPTIMIZERS)
    dtype = str(user_options.get("dtype", "float64"))
    objective, experiment = build_scratch_objective(recipe, {**user_options, "dtype": dtype})
    network, twin = objective.engine, _build_twin(objective, dtype)
    batches = _first_batches(experiment, steps, dtype)
    rows = [
        _difference_row("forward", _engine_logits(objective, batches[0]).data, twin(_to_torch_input(batches[0], dtype)))
    ]
    optimizers = our_optimizer(list(network.parameters()), lr), their_optimizer(twin.parameters(), lr)
    for number, batch in enumerate(batches):
        loss = _step_both(objective, twin, batch, dtype, optimizers)
        if number == 0:
            rows.append(_difference_row("loss", *loss))
            rows += [
                _difference_row(f"gradient of {name}", p.grad, q.grad)
                for name, p, q in _paired_parameters(network, twin)
            ]
    rows += [
        _difference_row(f"{name} after {steps} steps", p.data, q) for name, p, q in _paired_parameters(network, twin)
    ]
    max_difference = max(r["difference"] for r in rows)
    return {
        "recipe": recipe.name, "dtype": dtype, "optimizer": optimizer, "steps": steps, "rows": rows,
        "max_difference": max_difference, "tolerance": TOLERANCE[dtype], "equal": max_difference <= TOLERANCE[dtype],
    }


def is_scratch_recipe(recipe: Recipe) -> bool:
    """Whether a recipe runs on the NumPy engine."""
    return "dtype" in recipe.options


def build_scratch_objective(recipe: Recipe, user_options: Mapping[str, Any]) -> tuple[NumpyEngineObjective, Experiment]:
    """The objective of a recipe that runs on the NumPy engine; other recipes are refused."""
    if not is_scratch_recipe(recipe):
        names = [name for name, other in RECIPES.items() if is_scratch_recipe(other)]
        raise UsageError(f"recipe {recipe.name!r} has no network on the NumPy engine; choose from: {', '.join(names)}")
    experiment = prepare(recipe, user_options).experiment
    assert isinstance(experiment.objective, NumpyEngineObjective)
    return experiment.objective, experiment


def _build_twin(objective: NumpyEngineObjective, dtype: str) -> nn.Module:
    twin = objective.make_twin().to(getattr(torch, dtype))
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in objective.engine.state_dict().items()})
    return twin


def _first_batches(experiment: Experiment, steps: int, dtype: str) -> list[Batch]:
    """The first batches of training, over as many epochs as needed."""
    plan = TrainingPlan.from_experiment(experiment)
    batches: list[Batch] = []
    for epoch in range(-(-steps // plan.rounds_per_epoch)):
        chunks = [chunk for chunks in plan.epoch_rounds(0, epoch) for chunk in chunks]
        for stored in islice(experiment.data.train.batches(chunks), steps - len(batches)):
            batch = experiment.data.train.decode(stored)
            batches.append({k: v.to(getattr(torch, dtype)) if v.is_floating_point() else v for k, v in batch.items()})
    return batches


def _step_both(
    objective: NumpyEngineObjective, twin: nn.Module, batch: Batch, dtype: str, optimizers: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Forward, backward and one update in each engine."""
    our_optimizer, their_optimizer = optimizers
    our_optimizer.zero_grad()
    loss = objective.engine_loss(_engine_logits(objective, batch), batch)
    loss.backward()
    our_optimizer.step()
    their_optimizer.zero_grad()
    logits = twin(_to_torch_input(batch, dtype)).reshape(-1, objective.num_classes)
    their_loss = nn.functional.cross_entropy(logits, batch["y"].reshape(-1))
    their_loss.backward()
    their_optimizer.step()
    return loss.data, their_loss


def _engine_logits(objective: NumpyEngineObjective, batch: Batch) -> scratch.Tensor:
    logits: scratch.Tensor = objective.engine(objective.to_engine_input(batch))
    return logits


def _to_torch_input(batch: Batch, dtype: str) -> Tensor:
    x = batch["x"]
    return x.to(getattr(torch, dtype)) if x.is_floating_point() else x


def _paired_parameters(network: Any, twin: nn.Module) -> list[tuple[str, Any, Tensor]]:
    torch_parameters = dict(twin.named_parameters())
    return [(name, p, torch_parameters[name]) for name, p in network.named_parameters()]


def _difference_row(name: str, ours: Any, theirs: Tensor | None) -> dict[str, Any]:
    """A row of the table: the size of both values and their largest difference. NaN counts as infinitely far."""
    assert theirs is not None
    a, b = np.asarray(ours), theirs.detach().numpy()
    difference = float(np.abs(a - b).max()) if a.size else 0.0
    return {"name": name, "shape": list(a.shape), "largest": float(np.abs(b).max()) if b.size else 0.0,
            "difference": difference if difference == difference else float("inf")}


def check_gradients(recipe: Recipe, *, samples: int = 5, h: float = 1e-6, seed: int = 0) -> dict[str, Any]:
    """Numerical gradient check of the NumPy engine: ∂L/∂θ against (L(θ + h) − L(θ − h)) / 2h.  Gaba Ex 2.3.

    Checked at `samples` entries of every parameter.
    """
    objective, experiment = build_scratch_objective(recipe, {"dtype": "float64"})
    (batch,) = _first_batches(experiment, 1, "float64")
    batch = {name: column[:32] for name, column in batch.items()}
    network, rng = objective.engine, np.random.default_rng(seed)

    def compute_loss() -> scratch.Tensor:
        return objective.engine_loss(_engine_logits(objective, batch), batch)

    parameters = dict(network.named_parameters())
    gradients = dict(zip(parameters, scratch.grad(compute_loss(), list(parameters.values())), strict=True))
    rows = []
    for name, p in parameters.items():
        indices = rng.choice(p.data.size, size=min(samples, p.data.size), replace=False)
        numerical = [_central_difference(compute_loss, p.data.reshape(-1), int(i), h) for i in indices]
        analytic = gradients[name].data.reshape(-1)[indices]
        rows.append(
            {
                "name": name,
                "largest": float(np.abs(analytic).max()),
                "difference": float(np.abs(analytic - numerical).max()),
            }
        )
    max_difference = max(r["difference"] for r in rows)
    return {"recipe": recipe.name, "rows": rows, "max_difference": max_difference, "passed": max_difference < 1e-6}


def _central_difference(loss: Callable[[], scratch.Tensor], flat: Any, i: int, h: float) -> float:
    """(L(θ + h) − L(θ − h)) / 2h along one entry, which is restored afterwards."""
    original = flat[i]
    values = []
    with scratch.no_grad():
        for shifted in (original + h, original - h):
            flat[i] = shifted
            values.append(loss().item())
    flat[i] = original
    return float(values[0] - values[1]) / (2 * h)
