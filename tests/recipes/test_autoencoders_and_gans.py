"""Autoencoders and GANs: the effect of their options on small data."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import didact
from didact.api import resume
from didact.data.core import SPLITS, TensorSplit
from didact.data.load import load
from didact.inference.evaluate import evaluate
from didact.objectives.generative.gan import GANObjective
from didact.registry import RECIPES
from didact.run import Run
from didact.training.interrupts import DivergedError, Interrupted
from didact.training.loop import Trainer


def test_denoising_autoencoder_improves_its_input(workdir):
    run = didact.train(RECIPES["autoencoder"], network="conv", input_noise=0.3, epochs=6)
    # the noise, clipped, leaves 12.9, the mean image 11.4
    assert run.metadata["test"]["psnr"] > 14


@pytest.mark.parametrize("arguments", [
    {"likelihood": "gaussian", "network": "conv", "hidden": (8, 16)},
    {"likelihood": "categorical", "levels": 5},
    {"num_samples": 3, "hidden": (64,)},
    {"kl_warmup": 20, "free_bits": 0.1, "hidden": (64,)},
])
def test_vae_learns_with_every_likelihood_and_bound(arguments, workdir):
    run = didact.train(RECIPES["vae"], latent_dim=4, epochs=3, **arguments)
    first, *_, last = [row["validation"]["loss"] for row in run.metrics if "validation" in row]
    assert last < first - 0.5 and run.metadata["test"]["active_units"] <= 4


@pytest.mark.parametrize("accumulate", [1, 4])
def test_kl_warmup_counts_optimizer_steps(accumulate, workdir):
    run = didact.train(RECIPES["vae"], latent_dim=4, hidden=(16,), kl_warmup=20, steps=10, accumulate=accumulate)
    assert run.load_state()["model"]["steps_taken"].item() == 10


def test_large_beta_causes_posterior_collapse(workdir):
    low_beta, high_beta = (
        didact.train(RECIPES["vae"], latent_dim=6, hidden=(64,), epochs=8, beta=b).metadata["test"] for b in (0.2, 30.0)
    )
    assert low_beta["active_units"] > high_beta["active_units"] == 0
    assert low_beta["kl"] > 20 * high_beta["kl"] and low_beta["reconstruction"] < high_beta["reconstruction"] - 1


def test_weight_clipping_bounds_the_critic(workdir):
    run = didact.train(
        RECIPES["wgan"], lipschitz="clip", weight_clip=0.03, steps=10, discriminator_steps=2, channels=8, batch_size=256
    )
    weights = run.load("model")
    largest_weights = [
        v.abs().max() for k, v in weights.items() if k.startswith("discriminator.") and k.endswith("weight")
    ]
    assert max(largest_weights) <= 0.03 + 1e-7
    assert max(v.abs().max() for k, v in weights.items() if k.startswith("generator.")) > 0.1


def test_critic_takes_several_steps_with_its_own_learning_rate(workdir):
    run = didact.train(
        RECIPES["wgan"], steps=4, discriminator_steps=3, channels=4, lr=1e-9, lr_discriminator=1e-2, conditional=True
    )
    assert run.metadata["plan"]["batches_per_round"] == 3
    parts = next(row["train"] for row in run.metrics if "train" in row)
    assert set(parts) == {"discriminator/loss", "discriminator/penalty", "generator/loss", "referee/loss"}
    start = didact.train(
        RECIPES["wgan"], steps=1, discriminator_steps=3, channels=4, lr=1e-9, lr_discriminator=1e-9, conditional=True
    )
    a, b = run.load("model"), start.load("model")
    differences = {
        side: max(
            (a[k] - b[k]).abs().max() for k in a if k.startswith(side) and "running" not in k and "batches" not in k
        )
        for side in ("generator", "discriminator")
    }
    assert differences["generator"] < 1e-6 < 1e-3 < differences["discriminator"]


def test_resumed_gan_ends_with_the_same_weights(workdir, monkeypatch):
    arguments = {"hidden": (16,), "steps": 12, "batch_size": 256, "conditional": True}
    uninterrupted_run = didact.train(RECIPES["gan"], **arguments)
    train_round = Trainer.train_round

    def stop_at_step(self, *args):
        train_round(self, *args)
        if self.state.step == 5:
            self.save()
            raise Interrupted(self.run, 5, 12)

    monkeypatch.setattr(Trainer, "train_round", stop_at_step)
    with pytest.raises(Interrupted):
        didact.train(RECIPES["gan"], **arguments)
    monkeypatch.setattr(Trainer, "train_round", train_round)
    resumed_run = resume(Run.open("gan/latest"))
    a, b = uninterrupted_run.load("model"), resumed_run.load("model")
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert evaluate(resumed_run)["test"] == pytest.approx(resumed_run.metadata["test"], rel=1e-4)


def test_gan_vae_and_autoencoder_learn_unlabeled_images(workdir):
    data = load("digits")
    splits = {
        part: TensorSplit({"x": data.split(part).columns["x"][:200]}, data.split(part).decoders) for part in SPLITS
    }
    unlabeled = replace(data, task="none", class_names=(), **splits)
    for name, arguments in {"gan": {"hidden": (16,)}, "vae": {"hidden": (16,)}, "autoencoder": {}}.items():
        run = didact.train(RECIPES[name], data=unlabeled, steps=5, **arguments)
        assert "class_coverage" not in run.metadata["test"] and run.metadata["test"]["loss"] != 0
    with pytest.raises(
        ValueError, match="--conditional needs the class of each image, but 'digits' has none"
    ):
        RECIPES["vae"](unlabeled, conditional=True)


def has_mnist() -> bool:
    return (Path(os.environ.get("DIDACT_DATA", "nowhere")) / "mnist").is_dir()


@pytest.mark.slow
@pytest.mark.skipif(not has_mnist(), reason="DIDACT_DATA holds no mnist")
def test_vae_on_mnist_reaches_the_loss_of_the_course(workdir):
    run = didact.train(RECIPES["vae"], data="mnist")
    last = [row["train"]["loss"] for row in run.metrics if "train" in row][-1]
    # Gaba 9.8 prints 106.58
    assert run.metadata["plan"]["total_rounds"] == 30 * run.metadata["plan"]["rounds_per_epoch"] and last <= 106.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
def test_compiled_wgan_equals_eager(workdir, monkeypatch):
    """Each round has the losses and gradients of the eager one."""
    monkeypatch.setattr("torch._inductor.config.fallback_random", True)  # compiled random numbers would differ
    eager_run, compiled_run = (didact.train(RECIPES["wgan"], steps=2, channels=8, compile=c) for c in (False, True))
    assert [row["step"] for row in eager_run.metrics if "train" in row] == [1, 2]
    for one, other in zip(eager_run.metrics, compiled_run.metrics, strict=True):
        for part in {"train", "gradients", "validation"} & one.keys():
            assert other[part] == pytest.approx(one[part], rel=1e-3, abs=1e-6)
    assert compiled_run.metadata["test"] == pytest.approx(eager_run.metadata["test"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="more than an hour on a CPU; the games below are played there on digits"
)
@pytest.mark.skipif(not has_mnist(), reason="DIDACT_DATA holds no mnist")
def test_wgan_covers_every_digit(workdir):
    run = didact.train(RECIPES["wgan"], data="mnist", channels=32, steps=3000)
    assert run.metadata["test"]["class_coverage"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["gan", "dcgan", "wgan", "stylegan"])
def test_gans_neither_diverge_nor_collapse(name, seed, workdir):
    run = didact.train(RECIPES[name], seed=seed)
    assert run.metadata["test"]["class_coverage"] >= 0.7 and run.metadata["test"]["frechet"] < 2


@pytest.mark.slow
def test_pixelrnn_trains_in_two_minutes(workdir):
    start = time.process_time()
    run = didact.train(RECIPES["pixelrnn"])
    assert run.metadata["steps"] <= 1100 and time.process_time() - start < 120      # seconds of one core
    # 2.37 if pixels were independent
    assert run.metadata["test"]["bits_per_dim"] < 1.79


@pytest.mark.parametrize("player", ["discriminator", "generator"])
def test_nan_in_one_player_stops_the_gan_and_is_named(player, workdir, monkeypatch):
    original_init, original_loss = GANObjective.__init__, GANObjective.loss

    def init_with_fuse(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        # part of the state, so that a replay meets the same turn
        self.register_buffer("fuse", torch.zeros(()))

    def fail_after_three_calls(self, batch, who="generator"):
        parts = original_loss(self, batch, who)
        if who != player:
            return parts
        self.fuse.add_(1)
        weight = next(getattr(self, player).parameters())
        # the root of 0 has no gradient
        return {**parts, "loss": parts["loss"] + (0 * weight.sum() + (self.fuse < 4)).sqrt()}

    monkeypatch.setattr(GANObjective, "__init__", init_with_fuse)
    monkeypatch.setattr(GANObjective, "loss", fail_after_three_calls)
    with pytest.raises(DivergedError, match=rf"not a finite number at step \d, first in the gradient of {player}"):
        didact.train(RECIPES["gan"], hidden=(8,), steps=30, batch_size=256)
    run = Run.open("gan/latest")
    assert run.metadata["status"] == "diverged" and all(v.isfinite().all() for v in run.load_state()["model"].values())
