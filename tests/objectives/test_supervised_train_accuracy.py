"""The accuracy of training batches, as they are trained on."""

import torch
from torch import nn

import didact
from didact.objectives.distributions.classification import make_likelihood
from didact.objectives.supervised import ClassifyWithTrainAccuracy


def test_training_accuracy_matches_hand_values():
    out = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
    objective = ClassifyWithTrainAccuracy(nn.Identity(), make_likelihood("multiclass", num_classes=3))
    parts = objective.loss({"x": out, "y": torch.tensor([0, 1, 1, 0])})
    assert parts["accuracy"].item() == 0.75
    torch.testing.assert_close(parts["loss"], nn.functional.cross_entropy(out, torch.tensor([0, 1, 1, 0])))
    soft_targets = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.9, 0.0, 0.1], [0.8, 0.2, 0.0]])
    assert objective.loss({"x": out, "y": soft_targets})["accuracy"].item() == 0.75


def test_training_accuracy_is_logged_during_training(tmp_path):
    run = didact.train(didact.recipes.cnn, data="digits", train_accuracy=True, epochs=3, runs=str(tmp_path))
    accuracies = [row["train"]["accuracy"] for row in run.metrics if "train" in row]
    assert 0.1 < accuracies[0] < accuracies[-1] <= 1 and accuracies[-1] > 0.5
