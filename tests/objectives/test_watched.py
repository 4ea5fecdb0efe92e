"""Accuracy on the batches that are trained on, as they are trained on."""

import torch
from torch import nn

import didact
from didact.objectives.likelihoods import likelihood
from didact.objectives.supervised import Watched


def test_by_hand():
    out = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
    objective = Watched(nn.Identity(), likelihood("multiclass", classes=3))
    parts = objective.loss({"x": out, "y": torch.tensor([0, 1, 1, 0])})
    assert parts["accuracy"].item() == 0.75
    torch.testing.assert_close(parts["loss"], nn.functional.cross_entropy(out, torch.tensor([0, 1, 1, 0])))
    mixed = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.9, 0.0, 0.1], [0.8, 0.2, 0.0]])
    assert objective.loss({"x": out, "y": mixed})["accuracy"].item() == 0.75


def test_dropout_is_on_and_it_is_logged(tmp_path):
    run = didact.train(didact.recipes.cnn, data="digits", watch_training=True, epochs=3, runs=str(tmp_path))
    logged = [row["train"]["accuracy"] for row in run.metrics if "train" in row]
    assert 0.1 < logged[0] < logged[-1] <= 1 and logged[-1] > 0.5
