"""Autoencoders and games on the one loop: what their arguments change, on small data."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import didact
from didact.data.core import SPLITS, Resident
from didact.data.load import load
from didact.objectives.adversarial import Adversarial
from didact.registry import RECIPES
from didact.run import Run
from didact.train.interrupt import DivergedError, Interrupted
from didact.train.loop import Training
from didact.train.session import evaluate, resume


def test_a_damaged_image_comes_back_better_than_it_went_in(here):
    run = didact.train(RECIPES["autoencoder"], network="conv", noise=0.3, epochs=6)
    assert run.facts["test"]["psnr"] > 14                               # the noise, clipped, leaves 12.9, the mean image 11.4


@pytest.mark.parametrize("arguments", [
    {"likelihood": "gaussian", "network": "conv", "widths": (8, 16)},
    {"likelihood": "categorical", "levels": 5},
    {"samples": 3, "widths": (64,)},
    {"warmup": 20, "free_bits": 0.1, "widths": (64,)},
])
def test_every_vae_learns(arguments, here):
    run = didact.train(RECIPES["vae"], latent=4, epochs=3, **arguments)
    first, *_, last = [row["validation"]["loss"] for row in run.metrics if "validation" in row]
    assert last < first - 0.5 and run.facts["test"]["active_units"] <= 4


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_warm_up_counts_steps_in_however_many_parts(accumulate, here):
    run = didact.train(RECIPES["vae"], latent=4, widths=(16,), warmup=20, steps=10, accumulate=accumulate)
    assert run.load_state()["model"]["taken"].item() == 10


def test_a_large_beta_collapses_the_codes(here):
    light, heavy = (didact.train(RECIPES["vae"], latent=6, widths=(64,), epochs=8, beta=b).facts["test"] for b in (0.2, 30.0))
    assert light["active_units"] > heavy["active_units"] == 0
    assert light["kl"] > 20 * heavy["kl"] and light["reconstruction"] < heavy["reconstruction"] - 1


def test_clipping_keeps_the_critic_in_its_box(here):
    run = didact.train(RECIPES["wgan"], lipschitz="clip", bound=0.03, steps=10, turns=2, width=8, batch=256)
    weights = run.load("model")
    inside = [v.abs().max() for k, v in weights.items() if k.startswith("discriminator.") and k.endswith("weight")]
    assert max(inside) <= 0.03 + 1e-7
    assert max(v.abs().max() for k, v in weights.items() if k.startswith("generator.")) > 0.1


def test_the_critic_takes_its_turns_and_each_player_its_rate(here):
    run = didact.train(RECIPES["wgan"], steps=4, turns=3, width=4, lr=1e-9, lr_discriminator=1e-2, conditional=True)
    assert run.facts["plan"]["turns"] == 3
    parts = next(row["train"] for row in run.metrics if "train" in row)
    assert set(parts) == {"discriminator/loss", "discriminator/penalty", "generator/loss", "referee/loss"}
    start = didact.train(RECIPES["wgan"], steps=1, turns=3, width=4, lr=1e-9, lr_discriminator=1e-9, conditional=True)
    a, b = run.load("model"), start.load("model")
    apart = {side: max((a[k] - b[k]).abs().max() for k in a if k.startswith(side) and "running" not in k and "batches" not in k)
             for side in ("generator", "discriminator")}
    assert apart["generator"] < 1e-6 < 1e-3 < apart["discriminator"]


def test_a_game_that_was_stopped_ends_as_if_it_had_not_been(here, monkeypatch):
    arguments = {"widths": (16,), "steps": 12, "batch": 256, "conditional": True}
    whole = didact.train(RECIPES["gan"], **arguments)
    advance = Training.advance

    def stop(self, *words):
        advance(self, *words)
        if self.state.step == 5:
            self.save()
            raise Interrupted(self.run, 5, 12)

    monkeypatch.setattr(Training, "advance", stop)
    with pytest.raises(Interrupted):
        didact.train(RECIPES["gan"], **arguments)
    monkeypatch.setattr(Training, "advance", advance)
    half = resume(Run.open("gan/latest"))
    a, b = whole.load("model"), half.load("model")
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert evaluate(half)["test"] == pytest.approx(half.facts["test"], rel=1e-4)


def test_images_without_labels(here):
    data = load("digits")
    bare = {part: Resident({"x": data.split(part).columns["x"][:200]}, data.split(part).decoders) for part in SPLITS}
    unlabelled = replace(data, task="none", labels=(), **bare)
    for name, arguments in {"gan": {"widths": (16,)}, "vae": {"widths": (16,)}, "autoencoder": {}}.items():
        run = didact.train(RECIPES[name], data=unlabelled, steps=5, **arguments)
        assert "class_coverage" not in run.facts["test"] and run.facts["test"]["loss"] != 0
    with pytest.raises(ValueError, match="--conditional tells the model the class of each image, but 'digits' has none"):
        RECIPES["vae"](unlabelled, conditional=True)


def has_mnist() -> bool:
    return (Path(os.environ.get("DIDACT_DATA", "nowhere")) / "mnist").is_dir()


@pytest.mark.slow
@pytest.mark.skipif(not has_mnist(), reason="DIDACT_DATA holds no mnist")
def test_vae_on_mnist_reaches_gabas_loss(here):
    run = didact.train(RECIPES["vae"], data="mnist")
    last = [row["train"]["loss"] for row in run.metrics if "train" in row][-1]
    assert run.facts["plan"]["total"] == 30 * run.facts["plan"]["epoch"] and last <= 106.6      # Gaba 9.8 prints 106.58


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
def test_a_game_with_a_penalty_can_be_compiled(here, monkeypatch):
    """Round by round it has the losses and gradients of the game as it stands."""
    monkeypatch.setattr("torch._inductor.config.fallback_random", True)            # compiled draws would be others
    plain, compiled = (didact.train(RECIPES["wgan"], steps=2, width=8, compile=c) for c in (False, True))
    assert [row["step"] for row in plain.metrics if "train" in row] == [1, 2]
    for one, other in zip(plain.metrics, compiled.metrics, strict=True):
        for what in {"train", "gradients", "validation"} & one.keys():
            assert other[what] == pytest.approx(one[what], rel=1e-3, abs=1e-6)
    assert compiled.facts["test"] == pytest.approx(plain.facts["test"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="more than an hour on a CPU; the games below are played there on digits")
@pytest.mark.skipif(not has_mnist(), reason="DIDACT_DATA holds no mnist")
def test_wgan_covers_every_digit(here):
    run = didact.train(RECIPES["wgan"], data="mnist", width=32, steps=3000)
    assert run.facts["test"]["class_coverage"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["gan", "dcgan", "wgan", "stylegan"])
def test_no_game_diverges_and_none_collapses(name, seed, here):
    run = didact.train(RECIPES[name], seed=seed)
    assert run.facts["test"]["class_coverage"] >= 0.7 and run.facts["test"]["frechet"] < 2


@pytest.mark.slow
def test_pixelrnn_ends_in_time(here):
    start = time.process_time()
    run = didact.train(RECIPES["pixelrnn"])
    assert run.facts["steps"] <= 1100 and time.process_time() - start < 120      # seconds of one core
    assert run.facts["test"]["bits_per_dim"] < 1.79                            # 2.37 where each pixel is told by itself


@pytest.mark.parametrize("player", ["discriminator", "generator"])
def test_nan_in_one_player_stops_the_game_and_is_named(player, here, monkeypatch):
    begin, loss = Adversarial.__init__, Adversarial.loss

    def fused(self, *words, **more):
        begin(self, *words, **more)
        self.register_buffer("fuse", torch.zeros(()))                # part of the state, so that a replay meets the same turn

    def broken(self, batch, who="generator"):
        found = loss(self, batch, who)
        if who != player:
            return found
        self.fuse.add_(1)
        weight = next(getattr(self, player).parameters())
        return {**found, "loss": found["loss"] + (0 * weight.sum() + (self.fuse < 4)).sqrt()}     # the root of 0 has no gradient

    monkeypatch.setattr(Adversarial, "__init__", fused)
    monkeypatch.setattr(Adversarial, "loss", broken)
    with pytest.raises(DivergedError, match=rf"not a finite number at step \d, first in the gradient of {player}"):
        didact.train(RECIPES["gan"], widths=(8,), steps=30, batch=256)
    run = Run.open("gan/latest")
    assert run.facts["status"] == "diverged" and all(v.isfinite().all() for v in run.load_state()["model"].values())
