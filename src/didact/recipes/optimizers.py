"""Optimizers, compared on one network."""

from typing import Annotated

from didact.data.core import Data
from didact.models.tabular.mlp import MLP
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import WITH_DECAY, make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SUPERVISED_TASKS
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="digits",
    accepts=("table", "images", "text"),
    tasks=SUPERVISED_TASKS,
    chapter="optimization",
    abilities=("classify", "regress", "draw"),
    sources=("Gaba 2.8", "Gaba 2.4", "Gaba 2.9", "Groudiev 3", "Van Schependom 2", "Lhotte 4"),
    grid={"optimizer": ("sgd", "momentum", "adam", "adamw")},
)
def optimizers(
    data: Data,
    *,
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: Annotated[
        float | None,
        Range(0),
        f"weight decay (if not given, 0.01 with {', '.join(WITH_DECAY)}, which decouple it from the gradient, else 0)",
    ] = None,
    momentum: a.Momentum = 0.9,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "constant",
    hidden: a.HiddenSizes = (256, 128),
    epochs: a.Epochs = 10,
    batch_size: a.BatchSize = 128,
) -> Experiment:
    """Thirteen optimizers on the MLP of Gaba 1.6.

    `didact sweep optimizers` compares the four of Gaba 2.8. As in the course, SGD and Adam run without weight decay;
    where --weight-decay is given, they add it to the gradient (L2).
    """
    likelihood = likelihood_for(data)
    network = MLP(data.num_features, likelihood.num_outputs, hidden=hidden, mean=data.mean, std=data.std)
    default_decay = 0.01 if optimizer in WITH_DECAY else 0.0
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer(
            optimizer,
            lr=lr,
            weight_decay=default_decay if weight_decay is None else weight_decay,
            momentum=momentum,
            rho=rho,
        ),
        schedule=make_schedule(schedule),
        epochs=epochs,
        batch_size=batch_size,
    )
