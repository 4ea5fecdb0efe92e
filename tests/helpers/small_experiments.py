"""Small experiments for the tests of the loop."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.objectives.distributions.classification import Categorical
from didact.objectives.distributions.regression import Normal
from didact.objectives.supervised import Classify, Regress
from didact.training.experiment import Experiment, Settings
from didact.training.loop import Trainer


def make_blobs(rows: int = 300, classes: int = 3, features: int = 5, seed: int = 0) -> Data:
    """Points around one centre a class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = 2 * torch.randn(classes, features, generator=generator)[y] + torch.randn(rows, features, generator=generator)
    return build_data(
        Examples(
            "blobs",
            "table",
            {"x": x, "y": y},
            task="multiclass",
            class_names=[str(k) for k in range(classes)],
        ),
    )


def make_line(rows: int = 300, seed: int = 0) -> Data:
    """y = x·w + noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 3.0]) + 0.1 * torch.randn(rows, generator=generator)
    return build_data(Examples("line", "table", {"x": x, "y": y}, task="regression"))


def make_network(features: int, outputs: int, *, dropout: float = 0.0, hidden: int = 16) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Dropout(dropout), nn.Linear(hidden, outputs))


def make_classifier(data: Data | None = None, *, dropout: float = 0.0, **changes: object) -> Experiment:
    data = data or make_blobs()
    objective = Classify(
        make_network(data.num_features, data.num_classes, dropout=dropout), Categorical(data.num_classes)
    )
    experiment = Experiment(
        data=data, objective=objective, optimizer=partial(torch.optim.AdamW, lr=1e-2), batch_size=32, epochs=5
    )
    return replace(experiment, **changes)


def make_regressor(**changes: object) -> Experiment:
    data = make_line()
    objective = Regress(make_network(4, 1), Normal(mean=data.target_mean, std=data.target_std))
    experiment = Experiment(
        data=data, objective=objective, optimizer=partial(torch.optim.SGD, lr=0.05), batch_size=32, epochs=5
    )
    return replace(experiment, **changes)


def make_trainer(experiment: Experiment, **settings: object) -> Trainer:
    return Trainer(experiment, Settings(**settings), device=torch.device("cpu"))


def flatten_weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.objective.parameters()])
