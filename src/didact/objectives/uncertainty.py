"""MC dropout: leave dropout on and ask often; the spread of the answers is how unsure the network is."""

import torch
from torch import Tensor

from didact.data.core import Batch
from didact.layers.dropout import keep_dropout
from didact.objectives.abilities import Classifies, Predictive, Regresses
from didact.objectives.core import Objective


@torch.no_grad()
def mc_dropout(objective: Objective, batch: Batch, *, passes: int) -> Predictive:
    """Mean and deviation over T passes with fresh masks, (B,) numbers or (B, K) probabilities.  Gal 2016; Gaba Ex 3.3.

    Where the network also predicts noise, both add up: Var = Var_t[mean_t] + E_t[std_t²].
    """
    with keep_dropout(objective):
        answers = [ask(objective, batch) for _ in range(passes)]
    means = torch.stack([a.mean for a in answers])
    variance = means.var(0, unbiased=False)
    noise = [a.std for a in answers if a.std is not None]
    if noise:
        variance = variance + torch.stack(noise).square().mean(0)
    return Predictive(means.mean(0), variance.sqrt())


def ask(objective: Objective, batch: Batch) -> Predictive:
    if isinstance(objective, Regresses):
        return objective.regress(batch)
    assert isinstance(objective, Classifies)
    probabilities: Tensor = objective.classify(batch)
    return Predictive(probabilities, None)
