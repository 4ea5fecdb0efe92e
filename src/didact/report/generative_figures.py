"""KL per latent dimension of a VAE; noise schedule of a diffusion model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.svg import Series
from didact.metrics.generative import MIN_ACTIVE_VARIANCE, active_units
from didact.report.figures import Figure


def make_generative_figures(outputs: Mapping[str, Tensor], grids: Mapping[str, Tensor]) -> list[Figure]:
    """KL per dimension of a VAE, the noise schedule of a diffusion model; none for others."""
    figures = [make_kl_figure(outputs["kl_each"], outputs["latent"])] if "kl_each" in outputs else []
    return figures + (make_schedule_figures(grids["schedule"]) if "schedule" in grids else [])


def make_kl_figure(kl_per_dim: Tensor, mu: Tensor) -> Figure:
    """KL(q(z_j | x) ‖ p(z_j)), a mean over the test split: those at 0 have collapsed onto the prior.  Gaba 9.9."""
    mean = kl_per_dim.double().mean(0).sort(descending=True).values
    bars = Series("", list(range(1, len(mean) + 1)), mean.tolist(), "bars", width=0.8)
    caption = (
        f"{int(active_units(mu))} of {len(mean)} latent dimensions are active: their mean varies from example to "
        "example, by a variance"
        f" above {MIN_ACTIVE_VARIANCE}; the others have collapsed onto the prior. In total "
        f"{float(mean.sum()):.4g} nats."
    )
    return Figure(
        "kl_of_each_dimension",
        svg.draw_chart("KL of each dimension", [bars], x="dimension, largest first", y="nats"),
        caption,
    )


def make_schedule_figures(schedule: Tensor) -> list[Figure]:
    """β_t and ᾱ_t over t = 1 … T, (2, T).  Gaba eq. 10.17-10.18, Ex 10.4."""
    T = schedule.shape[1]
    # as many points as the curve can show
    steps = torch.linspace(0, T - 1, min(T, 200)).round().long()
    t = (steps + 1).tolist()
    beta, alpha_bar = (Series("", t, values[steps].tolist()) for values in schedule.double())
    return [
        Figure(
            "beta",
            svg.draw_chart("β_t", [beta], x="t", y="noise variance"),
            "Variance of the noise added at each step.",
        ),
        Figure(
            "alpha_bar",
            svg.draw_chart("ᾱ_t", [alpha_bar], x="t", y="signal variance", y_range=(0.0, 1.0)),
            "Fraction of the image's variance left after t steps, Π (1 − β); near 0 at the end.",
        ),
    ]
