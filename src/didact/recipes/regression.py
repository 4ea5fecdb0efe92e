"""Regression: universal approximation, uncertainty of predictions, ensembles."""

from typing import Annotated, Literal

from torch import nn

from didact.data.core import Data
from didact.models.tabular.mlp import MLP
from didact.objectives.bagging import BaggedClassify, BaggedRegress
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.schedule import Cosine
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SUPERVISED_TASKS, choose_budget, choose_lr
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="sine",
    accepts=("table",),
    tasks=("regression",),
    chapter="foundations",
    abilities=("regress", "draw"),
    sources=("Gaba 1.4", "Van Schependom 1.6", "Fleuret 5.1", "Lhotte 5.1"),
    grid={"width": (1, 2, 4, 8, 16, 32, 64)},
)
def approximate(
    data: Data,
    *,
    width: Annotated[int, Range(1), "hidden units: n in the theorem", Aliases("hidden_size")] = 32,
    activation: a.Activation = "tanh",
    lr: a.LearningRate = 1e-2,
    steps: Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")] = 2000,
    batch_size: a.BatchSize = 128,
) -> Experiment:
    """Universal approximation: fit a curve with one hidden layer.

    f(x) = Σ_j c_j act(w_j·x + b_j) + c_0 comes as close as one likes to any continuous function, with enough units.
    `didact sweep approximate` shows how the error falls with the width.
    """
    likelihood = likelihood_for(data)
    network = MLP(
        data.num_features, likelihood.num_outputs, hidden=(width,), activation=activation, init="xavier_uniform",
        mean=data.mean, std=data.std,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adam", lr=lr),
        schedule=Cosine(),
        steps=steps,
        batch_size=batch_size,
    )


@recipe(
    data="sine_hetero",
    accepts=("table",),
    tasks=("regression",),
    chapter="uncertainty",
    abilities=("regress", "draw"),
    sources=("Gaba Ex 3.3", "Van Schependom 1.2"),
    grid={"method": ("noise", "dropout", "both")},
)
def uncertain_regression(
    data: Data,
    *,
    method: Annotated[
        Literal["noise", "dropout", "both"], "uncertainty: predicted noise (heteroscedastic), MC dropout, or both"
    ] = "both",
    hidden: a.HiddenSizes = (64, 64),
    dropout: a.Dropout = 0.05,
    lr: a.LearningRate = 5e-3,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Regression with uncertainty: predicted noise and MC dropout.

    min of mean ½ log σ²(x) + (y - μ(x))² / 2σ²(x) predicts the noise; `didact predict RUN --mc-passes 50` adds the
    standard deviation over dropout masks (MC dropout).
    """
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, loss="mse" if method == "dropout" else "gaussian")
    network = MLP(
        data.num_features,
        likelihood.num_outputs,
        hidden=hidden,
        activation="tanh",
        dropout=0.0 if method == "noise" else dropout,
        mean=data.mean,
        std=data.std,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr),
        schedule=Cosine(),
        epochs=epochs, batch_size=batch_size, notes=notes,
    )


@recipe(
    data="breast_cancer",
    accepts=("table", "images", "text"),
    tasks=SUPERVISED_TASKS,
    chapter="regularization",
    abilities=("classify", "regress", "draw"),
    sources=("Van Schependom 3.3.3", "Gaba Ex 3.3"),
    grid={"members": (1, 2, 5, 10, 20)},
)
def bagging(
    data: Data,
    *,
    members: Annotated[
        int, Range(1, 1000), "number of ensemble members, each trained on a bootstrap sample", Aliases("n_estimators")
    ] = 10,
    hidden: a.HiddenSizes = (64,),
    dropout: a.Dropout = 0.0,
    lr: a.OptionalLearningRate = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Bagging: an ensemble of MLPs on bootstrap samples.

    Each of M networks minimizes the loss of its own bootstrap sample; the variance of their mean is at most that of
    one. Where they disagree, the prediction is uncertain.
    """
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data)

    def make_member() -> nn.Module:
        return MLP(
            data.num_features, likelihood.num_outputs, hidden=hidden, dropout=dropout, mean=data.mean, std=data.std
        )

    objective_class = BaggedRegress if data.task == "regression" else BaggedClassify
    return Experiment(
        data=data,
        objective=objective_class([make_member() for _ in range(members)], likelihood, num_examples=len(data.train)),
        optimizer=make_optimizer("adamw", lr=choose_lr(data, "adamw", lr)),
        schedule=Cosine(),
        epochs=epochs,
        batch_size=batch_size,
        notes=notes,
    )
