"""A model of one's own in the same loop: `didact.fit(module, (x, y), loss=F.mse_loss)`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from didact.data.assemble import assemble
from didact.data.core import Batch, Data
from didact.errors import UsageError
from didact.layers.penalty import penalty
from didact.objectives.core import Objective
from didact.train.distributed import join
from didact.train.evaluation import judge
from didact.train.experiment import Experiment, MakeOptimizer, Settings
from didact.train.loop import State, Tell, Training, silent
from didact.train.machine import pick_device

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor | float]
ASIDE = 0.01      # weight of what layers want beside the task, as Fedus et al. 2022 balance experts


class Own(Objective):
    """mean over the batch of loss(module(x), y), with what layers want beside it, and metrics(module(x), y) of a whole split."""

    def __init__(self, module: nn.Module, loss: Loss, metrics: dict[str, Metric] | None = None):
        super().__init__()
        self.module, self.criterion, self.metrics = module, loss, metrics or {}
        self.unreduced: Loss | None = None
        if inspect.isfunction(loss) and "reduction" in inspect.signature(loss).parameters:
            self.unreduced = partial(loss, reduction="none")

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        loss, aside = self.criterion(self.module(batch["x"]), batch["y"]).mean(), penalty(self.module)
        return {"loss": loss} if aside is None else {"loss": loss + ASIDE * aside, "penalty": aside}

    def judge(self, batch: Batch) -> Batch:
        out = self.module(batch["x"])
        return {"loss": self.each(out, batch["y"]), "output": out, "y": batch["y"]}

    def each(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of each example: at once where the function knows `reduction`, else one by one."""
        if self.unreduced is not None:
            return self.unreduced(out, y).reshape(len(y), -1).mean(1)
        return torch.stack([self.criterion(o[None], t[None]).mean() for o, t in zip(out, y, strict=True)])

    def score(self, rows: Batch) -> dict[str, float]:
        found = {name: float(metric(rows["output"], rows["y"])) for name, metric in self.metrics.items()}
        return super().score(rows) | found


@dataclass(frozen=True)
class Fitted:
    """The module with the weights of its best validation state, and how it did."""

    module: nn.Module
    state: State
    validation: dict[str, float]
    test: dict[str, float]


def fit(
    module: nn.Module, data: Data | tuple[Tensor, Tensor], *, loss: Loss, metrics: dict[str, Metric] | None = None,
    optimizer: MakeOptimizer | None = None, lr: float = 1e-3, tell: Tell = silent, **keywords: Any,
) -> Fitted:
    """Train any module on Data or on (x, y); further keywords are those of Experiment and Settings, `epochs=20` for one."""
    ours, theirs = ({f.name for f in fields(kind)} for kind in (Experiment, Settings))
    unknown = set(keywords) - ours - theirs
    if unknown:
        raise UsageError(f"didact.fit knows no {min(unknown)!r}; it takes the fields of Experiment and Settings")
    if "steps" not in keywords:
        keywords.setdefault("epochs", 10)
    experiment = Experiment(
        data=data if isinstance(data, Data) else from_tensors(*data),
        objective=Own(module, loss, metrics),
        optimizer=optimizer or partial(torch.optim.AdamW, lr=lr),
        **{name: value for name, value in keywords.items() if name in ours},
    )
    settings = Settings(**{name: value for name, value in keywords.items() if name in theirs - ours})
    group = join()
    training = Training(experiment, settings, device=pick_device(settings.device, group.local), group=group, tell=tell)
    state = training.train()
    training.objective.load_state_dict(training.best)
    rows = judge(training.objective, training.data.test, batch=training.judging_batch, precision=training.precision, group=group)
    return Fitted(module, state, state.validation, training.objective.score(rows))


def from_tensors(x: Tensor, y: Tensor, *, name: str = "own tensors", seed: int = 0) -> Data:
    """Data from tensors of equal length: class numbers as integers, anything else is a regression."""
    if len(x) != len(y):
        raise UsageError(f"x and y must have as many rows, got {len(x)} and {len(y)}")
    classes = y.ndim == 1 and not y.is_floating_point()
    labels = [str(k) for k in range(int(y.max()) + 1)] if classes else []
    task = ("binary" if len(labels) == 2 else "multiclass") if classes else "regression"
    kind = "images" if x.ndim == 4 else "table"
    return assemble(name, kind, {"x": x, "y": y}, task=task, labels=labels, source={"given": name}, seed=seed)
