"""MC dropout: several forward passes with dropout on; the spread of the predictions is the model's uncertainty."""

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.layers.dropout import dropout_enabled
from didact.objectives.abilities import CanClassify, CanRegress, MeanAndStd
from didact.objectives.base import Objective


@torch.no_grad()
def mc_dropout(objective: Objective, batch: Batch, *, passes: int) -> MeanAndStd:
    """Mean and standard deviation over T dropout masks: (B,) numbers or (B, K) probabilities.  Gal 2016; Gaba Ex 3.3.

    Where the network also predicts noise, both variances add up: Var = Var_t[mean_t] + E_t[std_t²].
    """
    with dropout_enabled(objective):
        predictions = [predict_batch(objective, batch) for _ in range(passes)]
    means = torch.stack([a.mean for a in predictions])
    variance = means.var(0, unbiased=False)
    noise = [a.std for a in predictions if a.std is not None]
    if noise:
        variance = variance + torch.stack(noise).square().mean(0)
    return MeanAndStd(means.mean(0), variance.sqrt())


def predict_batch(objective: Objective, batch: Batch) -> MeanAndStd:
    """The mean and, where it is predicted, the standard deviation of each example."""
    if isinstance(objective, CanRegress):
        return objective.regress(batch)
    assert isinstance(objective, CanClassify)
    probabilities: Tensor = objective.classify(batch)
    return MeanAndStd(probabilities, None)
