"""What goes on inside a model that draws: how much each number of a code says, and how an image drowns in noise."""

from collections.abc import Mapping

import torch
from torch import Tensor

from didact.metrics.generative import ACTIVE, active_units
from didact.report import svg
from didact.report.figures import Figure
from didact.report.svg import Series


def inside_figures(rows: Mapping[str, Tensor], grids: Mapping[str, Tensor]) -> list[Figure]:
    """Of a VAE its KL, of a diffusion its schedule; none of others."""
    found = [kl_figure(rows["kl_each"], rows["latent"])] if "kl_each" in rows else []
    return found + (schedule_figures(grids["schedule"]) if "schedule" in grids else [])


def kl_figure(each: Tensor, mu: Tensor) -> Figure:
    """KL(q(z_j | x) ‖ p(z_j)), a mean over the test split: those at 0 have collapsed onto the prior.  Gaba 9.9."""
    mean = each.double().mean(0).sort(descending=True).values
    bars = Series("", list(range(1, len(mean) + 1)), mean.tolist(), "bars", width=0.8)
    told = (
        f"{int(active_units(mu))} of {len(mean)} numbers of a code are active: their mean varies from example to example, by a variance"
        f" above {ACTIVE}; the others say the same of all: they have collapsed onto the prior. Together {float(mean.sum()):.4g} nats."
    )
    return Figure("kl_of_each_dimension", svg.chart("KL of each dimension", [bars], x="dimension, the largest first", y="nats"), told)


def schedule_figures(schedule: Tensor) -> list[Figure]:
    """β_t and ᾱ_t over t = 1 … T, (2, T).  Gaba eq. 10.17-10.18, Ex 10.4."""
    T = schedule.shape[1]
    few = torch.linspace(0, T - 1, min(T, 200)).round().long()          # as many points as a curve of this width can show
    t = (few + 1).tolist()
    beta, alpha_bar = (Series("", t, values[few].tolist()) for values in schedule.double())
    return [
        Figure("beta", svg.chart("β_t", [beta], x="t", y="noise added"), "The share of noise that each step adds, as a variance."),
        Figure(
            "alpha_bar", svg.chart("ᾱ_t", [alpha_bar], x="t", y="image left", y_range=(0.0, 1.0)),
            "What is left of the image's variance after t steps, Π (1 − β); at the end there should be next to nothing.",
        ),
    ]
