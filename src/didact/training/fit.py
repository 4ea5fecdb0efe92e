"""Train any nn.Module in the same loop: `didact.fit(module, (x, y), loss=F.mse_loss)`."""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from didact.data.build import Examples, build_data
from didact.data.core import Batch, Data
from didact.errors import UsageError
from didact.layers.auxiliary_loss import pop_auxiliary_loss
from didact.objectives.base import Objective
from didact.optim.schedule import Constant, Schedule
from didact.options import Range, bind_arguments, read_options
from didact.training.checkpoint import TrainingState
from didact.training.device import deterministic_kernels, resolve_device
from didact.training.distributed.process_group import join_group
from didact.training.evaluation import evaluate_split
from didact.training.experiment import Augment, EventCallback, Experiment, OptimizerFactory, Settings, ignore_events
from didact.training.loop import Trainer

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor | float]
AUXILIARY_LOSS_WEIGHT = 0.01      # weight of auxiliary losses, as Fedus et al. 2022 balance experts
# Settings that apply here. The others name data and the run's folder, and `fit` has neither.
FIT_SETTINGS = (
    "seed",
    "split_seed",
    "epochs",
    "steps",
    "device",
    "precision",
    "accumulate",
    "compile",
    "graph",
    "deterministic",
    "log_every",
)


class _ModuleObjective(Objective):
    """mean over the batch of loss(module(x), y), plus auxiliary losses of layers; metrics(module(x), y) of a whole
    split.
    """

    def __init__(self, module: nn.Module, loss: Loss, metrics: dict[str, Metric] | None = None):
        super().__init__()
        self.module, self.criterion, self.metrics = module, loss, metrics or {}
        self.reduction = _loss_reduction(loss)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        out, y = self.module(batch["x"]), batch["y"]
        # would broadcast to all pairs
        if self.reduction is not None and y.is_floating_point() and out.shape != y.shape and out.numel() == y.numel():
            raise UsageError(
                f"the module returns {tuple(out.shape)} where y is {tuple(y.shape)}; give y the shape of the output"
            )
        loss, auxiliary = self.criterion(out, y).mean(), pop_auxiliary_loss(self.module)
        return (
            {"loss": loss}
            if auxiliary is None
            else {"loss": loss + AUXILIARY_LOSS_WEIGHT * auxiliary, "penalty": auxiliary}
        )

    def evaluate_batch(self, batch: Batch) -> Batch:
        out, y = self.module(batch["x"]), batch["y"]
        outputs = {"output": out, "y": y}
        if self.reduction is None:  # its reduction is unknown: one example at a time
            outputs["loss"] = torch.stack(
                [self.criterion(o[None], t[None]).mean() for o, t in zip(out, y, strict=True)]
            )
        return outputs

    @torch.no_grad()
    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        out, y = outputs["output"], outputs["y"]
        scores = {name: float(metric(out, y)) for name, metric in self.metrics.items()}
        return (
            super().compute_metrics(outputs) if self.reduction is None else {"loss": self._split_loss(out, y)}
        ) | scores

    def _split_loss(self, out: Tensor, y: Tensor) -> float:
        """The loss of a whole split at once, since it may weigh classes or ignore labels; a sum is divided by the
        examples.
        """
        loss = self.criterion
        if isinstance(loss, nn.Module):
            loss = deepcopy(loss).float().eval()  # outputs are stored in single precision
        return float(loss(out, y).mean()) / (len(y) if self.reduction == "sum" else 1)


def _loss_reduction(loss: Loss) -> str | None:
    """The reduction of a loss, where it has one: a module's attribute, or the default of a function's keyword."""
    if (name := getattr(loss, "reduction", None)) is not None:
        return str(name)
    try:
        keyword = inspect.signature(loss).parameters.get("reduction")
    except ValueError:  # functions written in C may have no signature
        return None
    return None if keyword is None else str(keyword.default)


@dataclass(frozen=True)
class FitOptions:
    """Options of an experiment that `fit` accepts, with the ranges they have in recipes."""

    lr: Annotated[float, Range(0, open_low=True), "learning rate of AdamW, where no optimizer is given"] = 1e-3
    batch_size: Annotated[int, Range(1), "examples in a batch"] = 128
    clip_norm: Annotated[float | None, Range(0, open_low=True), "largest norm of the gradient"] = None
    clip_value: Annotated[float | None, Range(0, open_low=True), "largest size of any entry of the gradient"] = None
    ema: Annotated[
        float | None, Range(0, 0.99999), "decay of an average of the weights, which is judged and kept instead"
    ] = None
    patience: Annotated[int | None, Range(1), "evaluations without improvement before it stops"] = None
    min_delta: Annotated[float, Range(0), "improvement that patience asks for"] = 0.0
    evaluate_every: Annotated[
        int | None, Range(1), "steps between evaluations (an epoch, or a tenth of the steps, if not given)"
    ] = None


@dataclass(frozen=True)
class FitResult:
    """The module with the weights of its best validation state, and its metrics."""

    module: nn.Module
    state: TrainingState
    validation: dict[str, float]
    test: dict[str, float]


def fit(
    module: nn.Module,
    data: Data | tuple[Tensor, Tensor],
    *,
    loss: Loss,
    metrics: dict[str, Metric] | None = None,
    optimizer: OptimizerFactory | None = None,
    schedule: Schedule | None = None,
    augment: Augment | None = None,
    on_event: EventCallback = ignore_events,
    **user_options: Any,
) -> FitResult:
    """Train any module on Data or on (x, y), for 10 epochs by default.

    Further keywords are those of FitOptions and FIT_SETTINGS, for example `epochs=20`.
    """
    fit_options, settings = _validate_options(user_options)
    if optimizer is not None and "lr" in user_options:
        raise UsageError(
            f"lr={user_options['lr']} is that of AdamW, but another optimizer is given; give it its own: partial(SGD, "
            "lr=0.1)"
        )
    if isinstance(data, Data) and "split_seed" in user_options:
        raise UsageError(
            f"split_seed={user_options['split_seed']} divides (x, y), but {data.name!r} is Data, "
            "which is split already; leave it out"
        )
    if not isinstance(schedule, Schedule | None):
        raise UsageError(f"schedule expects one of didact.optim.schedule, cosine() for one, got {schedule!r}")
    lr = fit_options.pop("lr")
    experiment = Experiment(
        data=data if isinstance(data, Data) else from_tensors(*data, seed=settings.split_seed),
        objective=_ModuleObjective(module, loss, metrics),
        optimizer=optimizer or partial(torch.optim.AdamW, lr=lr),
        schedule=schedule or Constant(), augment=augment,
        epochs=10 if settings.epochs is None and settings.steps is None else settings.epochs, steps=settings.steps,
        accumulate=settings.accumulate or 1,
        **fit_options,
    )
    group = join_group()
    with deterministic_kernels(settings.deterministic):
        trainer = Trainer(
            experiment,
            settings,
            device=resolve_device(settings.device, group.local_rank),
            group=group,
            on_event=on_event,
        )
        state = trainer.train()
        trainer.objective.load_state_dict(trainer.best_weights)
        outputs = evaluate_split(
            trainer.objective,
            trainer.data.test,
            batch_size=trainer.eval_batch_size,
            precision=trainer.precision,
            group=group,
        )
    return FitResult(module, state, state.validation, trainer.objective.compute_metrics(outputs))


def _validate_options(user_options: Mapping[str, Any]) -> tuple[dict[str, Any], Settings]:
    """Check every value as the command line does; options without an effect here are refused."""
    fit_options, settings_options = read_options(FitOptions), read_options(Settings)
    known_options = fit_options | {name: settings_options[name] for name in FIT_SETTINGS}
    if unknown := sorted(set(user_options) - set(known_options)):
        raise UsageError(
            f"didact.fit knows no {', '.join(map(repr, unknown))};"
            f" beside loss, metrics, optimizer, schedule, augment and on_event it takes {', '.join(known_options)}"
        )
    values = bind_arguments(known_options, user_options, owner="didact.fit")
    if values["epochs"] is not None and values["steps"] is not None:
        raise UsageError(
            f"the budget is either epochs or steps, not both, got {values['epochs']} and {values['steps']}"
        )
    return {name: values[name] for name in fit_options}, Settings(**{name: values[name] for name in FIT_SETTINGS})


def from_tensors(x: Tensor, y: Tensor, *, name: str = "own tensors", seed: int = 0) -> Data:
    """Data from tensors of equal length: integer targets are classes, others are a regression."""
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if len(x) != len(y):
        raise UsageError(f"x and y must have the same length, got {len(x)} and {len(y)}")
    is_classification = y.ndim == 1 and not y.is_floating_point()
    if is_classification and y.min() < 0:
        raise UsageError(
            f"integer y are class numbers from 0 on, got {int(y.min())}; for a regression give y.float()"
        )
    class_names = [str(k) for k in range(int(y.max()) + 1)] if is_classification else []
    task = ("binary" if len(class_names) == 2 else "multiclass") if is_classification else "regression"
    kind = "images" if x.ndim == 4 else "table"
    return build_data(
        Examples(
            name,
            kind,
            {"x": x, "y": y},
            task=task,
            class_names=class_names,
            source={"given": name},
        ),
        seed=seed,
    )
