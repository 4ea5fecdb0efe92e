"""Against over-fitting: everything of Gaba 3 in one recipe, and the grid that tells its parts apart."""

from functools import partial
from typing import Annotated

from didact.data.core import Data
from didact.models.mlp import MLP
from didact.objectives.supervised import RDrop, likelihood_of, supervised
from didact.optim.named import make
from didact.optim.proximal import elastic_net
from didact.optim.schedule import cosine
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import CLASSES, augmenting, budget
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="digits", accepts=("table", "images", "text"), tasks=CLASSES, chapter="regularisation", abilities=("classify", "draw"),
    sources=("Gaba 3.10", "Gaba 3.2", "Gaba 3.3", "Gaba 3.12", "Van Schependom 3.3", "Groudiev 7.1", "Fleuret 4.5"),
)
def regularised_mlp(
    data: Data, *,
    hidden: a.Widths = (256, 256), dropout: a.Dropout = 0.3, norm: a.Norm = "batch", smoothing: a.Smoothing = 0.1, augment: a.Augment = (),
    weight_decay: Annotated[float | None, Range(0), "weight decay (0.0001, or none with l1 or l2, if not given)"] = None,
    l1: Annotated[float, Range(0), "L1 penalty by proximal step: weights become exactly zero"] = 0.0,
    l2: Annotated[float, Range(0), "L2 penalty by proximal step; with l1, the elastic net"] = 0.0,
    r_drop: Annotated[float, Range(0), "weight of the disagreement between two dropout passes (R-Drop)"] = 0.0,
    lr: a.OptionalRate = None, clip_norm: a.Clip = 1.0, patience: a.Patience = 10, epochs: a.Epochs = 50, batch: a.OptionalBatch = None,
) -> Experiment:
    """A perceptron with every brake of the course: batch norm, dropout, smoothing, decay, clipping, early stopping.

    [Linear, BN, ReLU, Dropout] x 2, AdamW (momentum where l1 or l2 take proximal steps), cosine. With `--augment rigid` on MNIST
    it is the loop of Gaba 3.10; unlike there, early stopping looks at a validation split of its own.
    """
    _, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing)
    network = MLP(data.features, likelihood.outputs, hidden=hidden, dropout=dropout, norm=norm, mean=data.mean, std=data.std)
    adaptive = make("adamw", lr=lr or 1e-3, weight_decay=1e-4 if weight_decay is None else weight_decay)
    # a proximal step answers a gradient step; AdamW's are of another size
    descent = make("momentum", lr=lr or 0.02, weight_decay=weight_decay or 0.0)
    return Experiment(
        data=data,
        objective=RDrop(network, likelihood, alpha=r_drop) if r_drop else supervised(network, likelihood),
        optimizer=partial(elastic_net, base=descent, l1=l1, l2=l2) if l1 or l2 else adaptive,
        schedule=cosine(),
        augment=augmenting(data, augment),
        clip_norm=clip_norm, patience=patience, min_delta=1e-4,
        epochs=epochs, batch=batch, notes=notes,
    )


@recipe(
    data="digits", accepts=("table", "images"), tasks=CLASSES, chapter="regularisation", abilities=("classify", "draw"),
    sources=("Gaba 3.11",),
    grid={"dropout": (0.0, 0.1, 0.3, 0.5, 0.7), "weight_decay": (0.0, 1e-5, 1e-4, 1e-3, 1e-2)},
)
def dropout_weight_decay(
    data: Data, *,
    dropout: a.Dropout = 0.3, weight_decay: a.Decay = 1e-4,
    lr: a.Rate = 1e-3, epochs: a.Epochs = 20, batch: a.BatchSize = 128,
) -> Experiment:
    """One cell of the dropout and weight-decay grid; `didact sweep dropout_weight_decay` runs all 25.

    The network of Gaba 3.10 with label smoothing, AdamW at a constant rate; the table of 3.11 is on MNIST (`--data mnist`).
    """
    likelihood = likelihood_of(data, smoothing=0.1)
    network = MLP(data.features, likelihood.outputs, hidden=(256, 256), dropout=dropout, norm="batch", mean=data.mean, std=data.std)
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        epochs=epochs, batch=batch,
    )
