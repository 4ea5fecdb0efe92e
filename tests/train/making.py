"""Small experiments for the tests of the loop."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.objectives.likelihoods import Categorical
from didact.objectives.regressions import Normal
from didact.objectives.supervised import Classify, Regress
from didact.train.experiment import Experiment, Settings
from didact.train.loop import Training


def blobs(rows: int = 300, classes: int = 3, features: int = 5, seed: int = 0) -> Data:
    """Points around one centre a class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = 2 * torch.randn(classes, features, generator=generator)[y] + torch.randn(rows, features, generator=generator)
    return assemble("blobs", "table", {"x": x, "y": y}, task="multiclass", labels=[str(k) for k in range(classes)])


def line(rows: int = 300, seed: int = 0) -> Data:
    """y = x·w + noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 3.0]) + 0.1 * torch.randn(rows, generator=generator)
    return assemble("line", "table", {"x": x, "y": y}, task="regression")


def network(features: int, outputs: int, *, dropout: float = 0.0, hidden: int = 16) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Dropout(dropout), nn.Linear(hidden, outputs))


def classify(data: Data | None = None, *, dropout: float = 0.0, **changes: object) -> Experiment:
    data = data or blobs()
    objective = Classify(network(data.features, data.classes, dropout=dropout), Categorical(data.classes))
    experiment = Experiment(data=data, objective=objective, optimizer=partial(torch.optim.AdamW, lr=1e-2), batch=32, epochs=5)
    return replace(experiment, **changes)


def regress(**changes: object) -> Experiment:
    data = line()
    objective = Regress(network(4, 1), Normal(mean=data.target_mean, std=data.target_std))
    experiment = Experiment(data=data, objective=objective, optimizer=partial(torch.optim.SGD, lr=0.05), batch=32, epochs=5)
    return replace(experiment, **changes)


def training(experiment: Experiment, **settings: object) -> Training:
    return Training(experiment, Settings(**settings), device=torch.device("cpu"))


def weights(training: Training) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in training.objective.parameters()])
