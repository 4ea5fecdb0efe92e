"""Multi-layer perceptrons on whatever the data ask: classes, several labels, or a number."""

from typing import Annotated, Literal

from didact.data.balance import independent
from didact.data.core import Data
from didact.models.mlp import MLP
from didact.models.wide_deep import WideDeep
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.recipes import arguments as a
from didact.recipes.common import TARGETS, augmenting, balanced, budget, rate
from didact.registry import recipe
from didact.train.experiment import Experiment

Loss = Annotated[Literal["auto", "mse", "l1", "huber", "gaussian"], "of a number: squared, absolute, Huber, or a predicted deviation too"]
ACCEPTS, ABILITIES = ("table", "images", "text"), ("classify", "regress", "draw")


@recipe(
    data="digits", accepts=ACCEPTS, tasks=TARGETS, chapter="foundations", abilities=ABILITIES,
    sources=("Gaba 1.2", "Gaba 1.6", "Groudiev 1.3", "Van Schependom 1.1", "Fleuret 5.1", "Lhotte 3"),
)
def mlp(
    data: Data, *,
    hidden: a.Widths = (256, 128), activation: a.Activation = "relu", dropout: a.Dropout = 0.2,
    norm: a.Norm = "none", init: a.Init = "he_normal",
    loss: Loss = "auto", smoothing: a.Smoothing = 0.0, balance: a.Balance = "none", reweigh: a.Reweigh = None,
    augment: a.Augment = (),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, momentum: a.Momentum = 0.9,
    schedule: a.ScheduleName = "cosine", clip_norm: a.Clip = None, clip_value: a.ClipValue = None,
    ema: a.Average = None, patience: a.Patience = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """A multi-layer perceptron: classification or regression, whatever the data ask.

    h_l = act(W_l h_{l-1} + b_l), trained on cross-entropy for classes and squared error for numbers.
    """
    data = independent(data, reweigh) if reweigh else data
    data, weights = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, loss=loss, smoothing=smoothing, weights=weights)
    network = MLP(
        data.features, likelihood.outputs, hidden=hidden, activation=activation, dropout=dropout, norm=norm, init=init,
        mean=data.mean, std=data.std,
    )
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make(optimizer, lr=rate(data, optimizer, lr), weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        clip_norm=clip_norm, clip_value=clip_value, ema=ema, patience=patience,
        epochs=epochs, batch=batch, notes=notes,
    )


@recipe(data="adult", accepts=ACCEPTS, tasks=TARGETS, chapter="foundations", abilities=ABILITIES, sources=("Cheng et al. 2016",))
def mlp_wide_deep(
    data: Data, *,
    hidden: a.Widths = (128, 64), dropout: a.Dropout = 0.2, balance: a.Balance = "none",
    lr: a.Rate = 1e-3, weight_decay: a.Decay = 0.01, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Wide and deep: a linear model that memorises beside a deep one that generalises.

    f(x) = w·x + MLP(x), trained together (Cheng et al. 2016).
    """
    data, weights = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, weights=weights)
    network = WideDeep(data.features, likelihood.outputs, hidden=hidden, dropout=dropout, mean=data.mean, std=data.std)
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule("cosine"),
        epochs=epochs, batch=batch, notes=notes,
    )
