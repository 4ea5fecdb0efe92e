"""The report of a VAE draws the KL of each dimension, that of a diffusion its schedule."""

import math

import pytest
import torch

import didact
from didact.registry import RECIPES
from didact.report import page
from didact.report.generative_figures import make_kl_figure, make_schedule_figures
from didact.training.restore import load_model


def test_kl_per_dimension_sums_to_the_kl_of_the_code(workdir):
    run = didact.train(RECIPES["vae"], hidden=(16,), latent_dim=6, beta=0.5, epochs=2, batch_size=128, lr=5e-3)
    rows = run.load("test")
    assert rows["kl_each"].shape[1] == 6 and rows["kl_each"].mean(0).sum().item() == pytest.approx(
        run.metadata["test"]["kl"], rel=1e-4
    )
    # the sentence and the metric go by one rule
    active_units = int(run.metadata["test"]["active_units"])
    assert "kl_each" not in run.metadata["test"] and active_units > 0
    text = page.write_report(run).read_text(encoding="utf-8")
    assert "KL of each dimension" in text and f"{active_units} of 6 latent dimensions are active" in text
    assert (run.folder / "figures" / "kl_of_each_dimension.svg").exists()


def test_kl_figure_of_codes_by_hand():
    """The third says 0.5 nats, the same of every example: its variance is 0, and it is not active."""
    mu = torch.tensor([[0.0, 1.0, 1.0], [0.05, -1.0, 1.0]])
    figure = make_kl_figure(torch.tensor([[0.0, 2.0, 0.5], [0.0, 1.0, 0.5]]), mu)
    assert "1 of 3 latent dimensions are active" in figure.caption and "variance above 0.01" in figure.caption
    assert "In total 2 nats" in figure.caption
    empty_figure = make_kl_figure(torch.zeros(4, 1), torch.zeros(4, 1))
    # one bar for each that is not 0
    assert figure.svg.count("<rect") - empty_figure.svg.count("<rect") in (1, 2)


@pytest.mark.parametrize("noise", ["linear", "cosine"])
def test_schedule_figure_shows_the_noise_schedule_of_the_run(noise, workdir):
    sizes = {"channels": (4,), "time_dim": 4, "timesteps": 30, "sampling_steps": 2, "steps": 1}
    run = didact.train(RECIPES["diffusion"], noise_schedule=noise, **sizes)
    beta, alpha_bar = run.load("gallery")["schedule"]
    assert beta.shape == (30,) and torch.allclose((1 - beta.double()).cumprod(0), alpha_bar.double(), atol=1e-6)
    # ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2), its first value over that at 0
    if noise == "cosine":
        f = [math.cos((t / 30 + 0.008) / 1.008 * math.pi / 2) ** 2 for t in (0, 1)]
        assert alpha_bar[0].item() == pytest.approx(f[1] / f[0], rel=1e-5)
    text = page.write_report(run).read_text(encoding="utf-8")
    assert "β_t" in text and "ᾱ_t" in text and (run.folder / "figures" / "alpha_bar.svg").exists()
    assert torch.equal(load_model(run)[0].noise_schedule.alpha_bar[1:], alpha_bar)


def test_schedule_figure_of_many_steps_is_small(workdir):
    beta, alpha_bar = make_schedule_figures(torch.rand(2, 1000))
    assert max(len(beta.svg), len(alpha_bar.svg)) < 20_000
    run = didact.train(RECIPES["mlp"], hidden=(4,), steps=2)
    assert "<h2>Inside</h2>" not in page.write_report(run).read_text(encoding="utf-8")
