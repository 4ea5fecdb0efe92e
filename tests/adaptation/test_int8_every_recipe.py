"""Every recipe's networks in int8: they evaluate, and the metrics are near those of full precision."""

import math

import pytest
import torch

from didact import recipes  # noqa: F401  fills the registry
from didact.adaptation.int8 import Int8Embedding, Int8Linear, quantize_module
from didact.objectives.abilities import CanTranslate
from didact.registry import RECIPES
from didact.training.prepare import prepare, take_examples
from helpers.smallest_runs import SMALLEST_RUNS


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_evaluates_in_int8(name):
    experiment = prepare(RECIPES[name], SMALLEST_RUNS[name]).experiment
    objective = experiment.objective.eval()
    batch = take_examples(experiment.data.validation, 8)
    with torch.no_grad():
        torch.manual_seed(0)
        full = objective.evaluate_batch(batch)
        num_layers = quantize_module(objective).num_layers
        torch.manual_seed(0)
        quantized = objective.evaluate_batch(batch)
    assert num_layers or not any(isinstance(m, torch.nn.Linear | torch.nn.Embedding) for m in objective.modules())
    if isinstance(objective, CanTranslate):                   # of an evaluation, some examples alone are
        assert len(objective.translate({"x": batch["x"]})) == 8
    assert full.keys() == quantized.keys()
    if "loss" in full and full["loss"].isfinite().all():
        assert math.isclose(float(quantized["loss"].mean()), float(full["loss"].mean()), rel_tol=0.2, abs_tol=0.2)


def test_layers_keep_their_sizes():
    linear, table = Int8Linear(torch.nn.Linear(3, 5)), Int8Embedding(torch.nn.Embedding(7, 2))
    assert (linear.in_features, linear.out_features, table.num_embeddings, table.embedding_dim) == (3, 5, 7, 2)
