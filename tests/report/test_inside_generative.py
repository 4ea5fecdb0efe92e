"""The report of a VAE draws the KL of each dimension, that of a diffusion its schedule."""

import math

import pytest
import torch

import didact
from didact.registry import RECIPES
from didact.report import page
from didact.report.inside import kl_figure, schedule_figures
from didact.train.session import restored


def test_the_kl_of_each_dimension_sums_to_that_of_the_code(here):
    run = didact.train(RECIPES["vae"], widths=(16,), latent=6, beta=0.5, epochs=2, batch=128, lr=5e-3)
    rows = run.load("test")
    assert rows["kl_each"].shape[1] == 6 and rows["kl_each"].mean(0).sum().item() == pytest.approx(run.facts["test"]["kl"], rel=1e-4)
    awake = int(run.facts["test"]["active_units"])                       # the sentence and the metric go by one rule
    assert "kl_each" not in run.facts["test"] and awake > 0
    text = page.write(run).read_text(encoding="utf-8")
    assert "KL of each dimension" in text and f"{awake} of 6 numbers of a code are active" in text
    assert (run.folder / "figures" / "kl_of_each_dimension.svg").exists()


def test_bars_by_hand():
    """The third says 0.5 nats, the same of every example: its variance is 0, and it is not active."""
    mu = torch.tensor([[0.0, 1.0, 1.0], [0.05, -1.0, 1.0]])
    told = kl_figure(torch.tensor([[0.0, 2.0, 0.5], [0.0, 1.0, 0.5]]), mu)
    assert "1 of 3 numbers of a code are active" in told.caption and "variance above 0.01" in told.caption
    assert "Together 2 nats" in told.caption
    none = kl_figure(torch.zeros(4, 1), torch.zeros(4, 1))
    assert told.svg.count("<rect") - none.svg.count("<rect") in (1, 2)                # one bar for each that is not 0


@pytest.mark.parametrize("noise", ["linear", "cosine"])
def test_the_schedule_is_that_of_the_run(noise, here):
    run = didact.train(RECIPES["diffusion"], widths=(4,), time=4, T=30, noise=noise, sampling_steps=2, steps=1)
    beta, alpha_bar = run.load("gallery")["schedule"]
    assert beta.shape == (30,) and torch.allclose((1 - beta.double()).cumprod(0), alpha_bar.double(), atol=1e-6)
    if noise == "cosine":                                              # ᾱ_t ~ cos²((t/T + s)/(1 + s) π/2), its first value over that at 0
        f = [math.cos((t / 30 + 0.008) / 1.008 * math.pi / 2) ** 2 for t in (0, 1)]
        assert alpha_bar[0].item() == pytest.approx(f[1] / f[0], rel=1e-5)
    text = page.write(run).read_text(encoding="utf-8")
    assert "β_t" in text and "ᾱ_t" in text and (run.folder / "figures" / "alpha_bar.svg").exists()
    assert torch.equal(restored(run)[0].noising.alpha_bar[1:], alpha_bar)


def test_a_curve_of_a_thousand_steps_stays_small_and_others_have_none(here):
    beta, alpha_bar = schedule_figures(torch.rand(2, 1000))
    assert max(len(beta.svg), len(alpha_bar.svg)) < 20_000
    run = didact.train(RECIPES["mlp"], hidden=(4,), steps=2)
    assert "<h2>Inside</h2>" not in page.write(run).read_text(encoding="utf-8")
