"""Curves: how well a width can fit one, and how sure a network can be of its answer."""

from typing import Annotated, Literal

from torch import nn

from didact.data.core import Data
from didact.models.mlp import MLP
from didact.objectives.bagging import BaggedClassify, BaggedRegress
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import cosine
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import TARGETS, budget, rate
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="sine", accepts=("table",), tasks=("regression",), chapter="foundations", abilities=("regress", "draw"),
    sources=("Gaba 1.4", "Van Schependom 1.6", "Fleuret 5.1", "Lhotte 5.1"),
    grid={"width": (1, 2, 4, 8, 16, 32, 64)},
)
def approximate(
    data: Data, *,
    width: Annotated[int, Range(1), "hidden units: the n of the theorem"] = 32, activation: a.Activation = "tanh",
    lr: a.Rate = 1e-2, steps: Annotated[int, Range(1), "optimizer steps"] = 2000, batch: a.BatchSize = 128,
) -> Experiment:
    """Fit a curve with one hidden layer; `didact sweep approximate` shows the error fall with its width.

    f(x) = Σ_j c_j act(w_j·x + b_j) + c_0 comes as close as one likes to any continuous function, with enough units.
    """
    likelihood = likelihood_of(data)
    network = MLP(
        data.features, likelihood.outputs, hidden=(width,), activation=activation, init="xavier_uniform",
        mean=data.mean, std=data.std,
    )
    return Experiment(
        data=data, objective=supervised(network, likelihood), optimizer=make("adam", lr=lr), schedule=cosine(), steps=steps, batch=batch
    )


@recipe(
    data="sine_hetero", accepts=("table",), tasks=("regression",), chapter="uncertainty", abilities=("regress", "draw"),
    sources=("Gaba Ex 3.3", "Van Schependom 1.2"), grid={"method": ("noise", "dropout", "both")},
)
def uncertain_regression(
    data: Data, *,
    method: Annotated[Literal["noise", "dropout", "both"], "predict the noise, keep dropout on when asked, or both"] = "both",
    hidden: a.Widths = (64, 64), dropout: a.Dropout = 0.05, lr: a.Rate = 5e-3,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """A number and how far off it may be: the noise in the data, and what the network does not know.

    min of mean ½ log σ²(x) + (y - μ(x))² / 2σ²(x); `didact predict RUN --passes 50` keeps dropout on and adds its spread.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, loss="mse" if method == "dropout" else "gaussian")
    network = MLP(
        data.features, likelihood.outputs, hidden=hidden, activation="tanh", dropout=0.0 if method == "noise" else dropout,
        mean=data.mean, std=data.std,
    )
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr),
        schedule=cosine(),
        epochs=epochs, batch=batch, notes=notes,
    )


@recipe(
    data="breast_cancer", accepts=("table", "images", "text"), tasks=TARGETS, chapter="regularisation",
    abilities=("classify", "regress", "draw"),
    sources=("Van Schependom 3.3.3", "Gaba Ex 3.3"), grid={"members": (1, 2, 5, 10, 20)},
)
def bagging(
    data: Data, *,
    members: Annotated[int, Range(1, 1000), "networks, each on its own bootstrap of the rows"] = 10,
    hidden: a.Widths = (64,), dropout: a.Dropout = 0.0, lr: a.OptionalRate = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Many networks on redrawn data, averaged; where they disagree, the answer is unsure.

    Each of M networks minimises its own bootstrap's loss; their mean has at most the variance of one.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data)

    def member() -> nn.Module:
        return MLP(data.features, likelihood.outputs, hidden=hidden, dropout=dropout, mean=data.mean, std=data.std)

    bagged = BaggedRegress if data.task == "regression" else BaggedClassify
    return Experiment(
        data=data,
        objective=bagged([member() for _ in range(members)], likelihood, rows=len(data.train)),
        optimizer=make("adamw", lr=rate(data, "adamw", lr)), schedule=cosine(), epochs=epochs, batch=batch, notes=notes,
    )
