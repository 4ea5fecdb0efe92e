"""The same noise as training goes on: kept at the 1st, 2nd, 4th, … evaluation, and not lost when a run is stopped."""

import pytest
import torch

import didact
from didact.api import resume
from didact.inference.sample_images import sample_images
from didact.registry import RECIPES
from didact.report import page
from didact.run import Run
from didact.training.interrupts import Interrupted
from didact.training.loop import Trainer

SMALL = {"hidden": (8,), "latent_dim": 2, "epochs": 6, "batch_size": 256}


def test_training_samples_share_one_noise_and_survive_a_stop(workdir, monkeypatch):
    uninterrupted_run = didact.train(RECIPES["vae"], **SMALL)
    steps_per_epoch = uninterrupted_run.metadata["plan"]["rounds_per_epoch"]
    samples = uninterrupted_run.load("training_samples")
    assert set(map(int, samples)) == {
        steps_per_epoch,
        2 * steps_per_epoch,
        4 * steps_per_epoch,
        uninterrupted_run.metadata["best_step"],
    }
    assert all(images.shape == (8, 1, 8, 8) and images.dtype == torch.uint8 for images in samples.values())
    last = samples[str(uninterrupted_run.metadata["best_step"])]
    # the kept model, from seed 0
    assert torch.equal(last, (sample_images(uninterrupted_run, 8) * 255).round().byte())
    assert not torch.equal(samples[str(steps_per_epoch)], last)
    train_round = Trainer.train_round

    def stop_at_step(self, *args):
        train_round(self, *args)
        if self.state.step == 3 * steps_per_epoch:
            self.save()
            raise Interrupted(self.run, 3 * steps_per_epoch, 6 * steps_per_epoch)

    monkeypatch.setattr(Trainer, "train_round", stop_at_step)
    with pytest.raises(Interrupted):
        didact.train(RECIPES["vae"], **SMALL)
    monkeypatch.setattr(Trainer, "train_round", train_round)
    stopped_run = Run.open("vae/latest")
    assert set(map(int, stopped_run.load("training_samples"))) == {steps_per_epoch, 2 * steps_per_epoch}
    resumed_samples = resume(stopped_run).load("training_samples")
    assert resumed_samples.keys() == samples.keys() and all(
        torch.equal(resumed_samples[step], samples[step]) for step in samples
    )


def test_training_samples_do_not_change_the_weights(workdir, monkeypatch):
    run_with_samples = didact.train(RECIPES["gan"], hidden=(8,), epochs=2, batch_size=256)
    monkeypatch.setattr("didact.training.loop.save_training_samples", lambda *args: None)
    run_without_samples = didact.train(RECIPES["gan"], hidden=(8,), epochs=2, batch_size=256)
    a, b = run_with_samples.load("model"), run_without_samples.load("model")
    assert all(torch.equal(a[name], b[name]) for name in a) and len(run_with_samples.load("training_samples")) > len(
        run_without_samples.load("training_samples")
    )


def test_report_shows_training_samples_of_generative_runs(workdir):
    run = didact.train(RECIPES["vae"], **SMALL | {"epochs": 2})
    text = page.write_report(run).read_text(encoding="utf-8")
    assert "Samples over training" in text and text.count("samples at epoch") == len(run.load("training_samples"))
    assert not didact.train(RECIPES["mlp"], hidden=(4,), steps=2).has("training_samples.safetensors")
