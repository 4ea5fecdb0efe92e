"""Multi-layer perceptrons for classes, several labels or a number."""

from typing import Annotated, Literal

from didact.data.balance import reweigh_groups
from didact.data.core import Data
from didact.models.tabular.mlp import MLP
from didact.models.tabular.wide_deep import WideDeep
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SUPERVISED_TASKS, apply_balance, choose_budget, choose_lr, make_image_augmentation
from didact.registry import recipe
from didact.training.experiment import Experiment

_RegressionLoss = Annotated[
    Literal["auto", "mse", "l1", "huber", "gaussian"],
    "regression loss: squared, absolute, Huber, or Gaussian negative log-likelihood with a predicted standard "
    "deviation",
]
ACCEPTS, ABILITIES = ("table", "images", "text"), ("classify", "regress", "draw")


@recipe(
    data="digits",
    accepts=ACCEPTS,
    tasks=SUPERVISED_TASKS,
    chapter="foundations",
    abilities=ABILITIES,
    sources=("Gaba 1.2", "Gaba 1.6", "Groudiev 1.3", "Van Schependom 1.1", "Fleuret 5.1", "Lhotte 3"),
)
def mlp(
    data: Data,
    *,
    hidden: a.HiddenSizes = (256, 128),
    activation: a.Activation = "relu",
    dropout: a.Dropout = 0.2,
    norm: a.Norm = "none",
    init: a.Init = "he_normal",
    loss: _RegressionLoss = "auto",
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: a.Balance = "none",
    reweigh: a.Reweigh = None,
    augment: a.ImageAugment = (),
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 0.01,
    momentum: a.Momentum = 0.9,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "cosine",
    clip_norm: a.ClipNorm = None,
    clip_value: a.ClipValue = None,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Multi-layer perceptron: classification or regression, on any data.

    h_l = act(W_l h_{l-1} + b_l), trained on cross-entropy for classes and squared error for numbers.
    """
    data = reweigh_groups(data, reweigh) if reweigh else data
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, loss=loss, label_smoothing=label_smoothing, weights=class_weights)
    if data.kind == "table" and "path" in data.source:
        notes = (*notes, "the recipe tabular is made for tables of one's own: it needs no tuning")
    network = MLP(
        data.num_features,
        likelihood.num_outputs,
        hidden=hidden,
        activation=activation,
        dropout=dropout,
        norm=norm,
        init=init,
        mean=data.mean,
        std=data.std,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer(
            optimizer, lr=choose_lr(data, optimizer, lr), weight_decay=weight_decay, momentum=momentum, rho=rho
        ),
        schedule=make_schedule(schedule),
        augment=make_image_augmentation(data, augment),
        clip_norm=clip_norm,
        clip_value=clip_value,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        notes=notes,
    )


@recipe(
    data="adult",
    accepts=ACCEPTS,
    tasks=SUPERVISED_TASKS,
    chapter="foundations",
    abilities=ABILITIES,
    sources=("Cheng et al. 2016",),
)
def mlp_wide_deep(
    data: Data,
    *,
    hidden: a.HiddenSizes = (128, 64),
    dropout: a.Dropout = 0.2,
    balance: a.Balance = "none",
    lr: a.LearningRate = 1e-3,
    weight_decay: a.WeightDecay = 0.01,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Wide & deep: a linear model and an MLP, trained together.

    f(x) = w·x + MLP(x): the wide part memorizes, the deep part generalizes (Cheng et al. 2016).
    """
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, weights=class_weights)
    network = WideDeep(
        data.num_features, likelihood.num_outputs, hidden=hidden, dropout=dropout, mean=data.mean, std=data.std
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule("cosine"),
        epochs=epochs, batch_size=batch_size, notes=notes,
    )
