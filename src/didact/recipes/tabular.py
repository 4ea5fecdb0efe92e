"""Tables: an ensemble over folds, with defaults that need no tuning."""

from math import ceil
from typing import Annotated, Literal

import torch

from didact.data.balance import class_weights
from didact.data.core import Data, TensorSplit
from didact.data.folds import pool_folds
from didact.errors import UsageError
from didact.models.tabular.ensemble import TabularEnsemble
from didact.objectives.distributions.base import Likelihood
from didact.objectives.distributions.regression import Regression
from didact.objectives.ensemble import FoldClassify, FoldRegress
from didact.objectives.supervised import likelihood_for
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import CLASSIFICATION_TASKS, SUPERVISED_TASKS
from didact.registry import recipe
from didact.training.experiment import BudgetNote, Experiment

_MIN_STEPS_BETWEEN_EVALUATIONS = 20
_TARGET_STEPS = 3_000
_MIN_EPOCHS, _MAX_EPOCHS = 12, 150


@recipe(
    data="breast_cancer",
    accepts=("table",),
    tasks=SUPERVISED_TASKS,
    chapter="foundations",
    abilities=("classify", "regress", "draw"),
    sources=("Gorishniy et al. 2022", "Holzmüller et al. 2024", "Gorishniy et al. 2025", "Gaba 3.8"),
)
def tabular(
    data: Data,
    *,
    members: Annotated[int, Range(1, 64), "members of the ensemble; each leaves out one fold"] = 8,
    hidden: a.HiddenSizes = (128, 128),
    activation: a.Activation = "relu",
    dropout: a.Dropout = 0.2,
    loss: Annotated[
        Literal["auto", "mse", "l1", "huber"], "regression loss: squared (auto), absolute or Huber"
    ] = "auto",
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: Annotated[
        Literal["none", "weights"], "class imbalance: weigh each class by its rarity in the loss"
    ] = "none",
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.01,
    ema: a.EMADecay = 0.998,
    patience: a.Patience = 14,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Tables by defaults alone: an ensemble of MLPs over folds.

    x -> piecewise linear encoding e(x) -> f_k(x) = MLP_k(e) + V_k e; p = mean of p_k.

    Member k of 8 learns from seven eighths of the training and validation rows; the eighth that it has not seen
    validates it, so that every row does both. AdamW at a constant rate, weights averaged, stopped early.
    """
    if balance != "none" and data.task not in CLASSIFICATION_TASKS:
        raise UsageError(f"--balance {balance} is for classes, but the targets of {data.name!r} are {data.task}")
    weights = class_weights(data) if balance == "weights" else None
    likelihood = likelihood_for(data, loss=loss, label_smoothing=label_smoothing, weights=weights)
    network = TabularEnsemble(
        data.bin_edges or ((0.0, 1.0),) * data.num_features,
        likelihood.num_outputs,
        members=members,
        hidden=hidden,
        activation=activation,
        dropout=dropout,
        mean=data.mean,
        std=data.std,
    )
    make_objective = FoldRegress if data.task == "regression" else FoldClassify
    objective = make_objective(network, likelihood, target_range=_find_target_range(data, likelihood))
    pooled = pool_folds(data, members) if members > 1 else data
    num_rows = len(pooled.train)
    batch_size = batch_size or min(1024 if num_rows > 200_000 else 256, max(32, num_rows // 8))
    steps_per_epoch = ceil(num_rows / batch_size)
    num_epochs = epochs or min(_MAX_EPOCHS, max(_MIN_EPOCHS, round(_TARGET_STEPS / steps_per_epoch)))
    return Experiment(
        data=pooled,
        objective=objective,
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule("constant"),
        ema=ema,
        patience=patience,
        epochs=num_epochs,
        batch_size=batch_size,
        evaluate_every=steps_per_epoch * ceil(_MIN_STEPS_BETWEEN_EVALUATIONS / steps_per_epoch),
        notes=_describe_folds(data, members, num_rows)
        + ((BudgetNote(f"at most {num_epochs} epochs, batches of {batch_size}"),) if not epochs else ()),
    )


def _describe_folds(data: Data, members: int, num_rows: int) -> tuple[str, ...]:
    if members == 1 or not isinstance(data.train, TensorSplit):
        return ()
    return (
        f"training and validation rows, {num_rows:,} together, make {members} folds: each member leaves one out and is "
        "validated on it; test metrics are of the mean of all members, validation metrics of one for each row",
    )


def _find_target_range(data: Data, likelihood: Likelihood) -> tuple[float, float]:
    """The smallest and the largest training target, standardized; of classes nothing."""
    if not (isinstance(likelihood, Regression) and isinstance(data.train, TensorSplit)):
        return 0.0, 0.0
    y: torch.Tensor = likelihood.standardize(data.train.columns["y"].cpu())
    return float(y.min()), float(y.max())
