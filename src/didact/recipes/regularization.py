"""Regularization: everything of Gaba 3 in one recipe, and the grid of dropout and weight decay."""

from functools import partial
from typing import Annotated

from didact.data.core import Data
from didact.models.tabular.mlp import MLP
from didact.objectives.supervised import RDrop, likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.proximal import elastic_net
from didact.optim.schedule import Cosine
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import CLASSIFICATION_TASKS, choose_budget, make_image_augmentation
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="digits",
    accepts=("table", "images", "text"),
    tasks=CLASSIFICATION_TASKS,
    chapter="regularization",
    abilities=("classify", "draw"),
    sources=("Gaba 3.10", "Gaba 3.2", "Gaba 3.3", "Gaba 3.12", "Van Schependom 3.3", "Groudiev 7.1", "Fleuret 4.5"),
)
def regularized_mlp(
    data: Data,
    *,
    hidden: a.HiddenSizes = (256, 256),
    dropout: a.Dropout = 0.3,
    norm: a.Norm = "batch",
    label_smoothing: a.LabelSmoothing = 0.1,
    augment: a.ImageAugment = (),
    weight_decay: Annotated[float | None, Range(0), "weight decay"] = None,
    l1: Annotated[float, Range(0), "L1 penalty by proximal steps: weights become exactly zero"] = 0.0,
    l2: Annotated[float, Range(0), "L2 penalty by proximal steps; with --l1, the elastic net"] = 0.0,
    r_drop: Annotated[float, Range(0), "weight of R-Drop's KL divergence between two dropout passes"] = 0.0,
    lr: a.OptionalLearningRate = None,
    clip_norm: a.ClipNorm = 1.0,
    patience: a.Patience = 10,
    epochs: a.Epochs = 50,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """MLP with batch norm, dropout, label smoothing, decay, early stopping.

    [Linear, BN, ReLU, Dropout] x 2, AdamW (momentum where l1 or l2 take proximal steps), cosine. With `--augment rigid`
    on MNIST it is the loop of Gaba 3.10; unlike there, early stopping uses a validation split of its own.
    """
    _, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing)
    network = MLP(
        data.num_features,
        likelihood.num_outputs,
        hidden=hidden,
        dropout=dropout,
        norm=norm,
        mean=data.mean,
        std=data.std,
    )
    adamw = make_optimizer("adamw", lr=lr or 1e-3, weight_decay=1e-4 if weight_decay is None else weight_decay)
    # a proximal step belongs to a gradient step: its size is lr, which is not the size of AdamW's steps
    momentum_sgd = make_optimizer("momentum", lr=lr or 0.02, weight_decay=weight_decay or 0.0)
    return Experiment(
        data=data,
        objective=RDrop(network, likelihood, alpha=r_drop) if r_drop else make_supervised(network, likelihood),
        optimizer=partial(elastic_net, base=momentum_sgd, l1=l1, l2=l2) if l1 or l2 else adamw,
        schedule=Cosine(),
        augment=make_image_augmentation(data, augment),
        clip_norm=clip_norm, patience=patience, min_delta=1e-4,
        epochs=epochs, batch_size=batch_size, notes=notes,
    )


@recipe(
    data="digits",
    accepts=("table", "images"),
    tasks=CLASSIFICATION_TASKS,
    chapter="regularization",
    abilities=("classify", "draw"),
    sources=("Gaba 3.11",),
    grid={"dropout": (0.0, 0.1, 0.3, 0.5, 0.7), "weight_decay": (0.0, 1e-5, 1e-4, 1e-3, 1e-2)},
)
def dropout_weight_decay(
    data: Data,
    *,
    dropout: a.Dropout = 0.3,
    weight_decay: a.WeightDecay = 1e-4,
    lr: a.LearningRate = 1e-3,
    epochs: a.Epochs = 20,
    batch_size: a.BatchSize = 128,
) -> Experiment:
    """One cell of the grid of dropout and weight decay.

    The network of Gaba 3.10 with label smoothing, AdamW at a constant rate. `didact sweep dropout_weight_decay` trains
    all 25 cells; the table of Gaba 3.11 is on MNIST (`--data mnist`).
    """
    likelihood = likelihood_for(data, label_smoothing=0.1)
    network = MLP(
        data.num_features,
        likelihood.num_outputs,
        hidden=(256, 256),
        dropout=dropout,
        norm="batch",
        mean=data.mean,
        std=data.std,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        epochs=epochs, batch_size=batch_size,
    )
