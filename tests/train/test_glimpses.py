"""The same noise as training goes on: kept at the 1st, 2nd, 4th, … evaluation, and not lost when a run is stopped."""

import pytest
import torch

import didact
from didact.registry import RECIPES
from didact.report import page
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.interrupt import Interrupted
from didact.train.loop import Training
from didact.train.session import resume

SMALL = {"widths": (8,), "latent": 2, "epochs": 6, "batch": 256}


def test_strips_come_from_one_noise_and_survive_a_stop(here, monkeypatch):
    whole = didact.train(RECIPES["vae"], **SMALL)
    each = whole.facts["plan"]["epoch"]
    kept = whole.load("glimpses")
    assert set(map(int, kept)) == {each, 2 * each, 4 * each, whole.facts["best_step"]}
    assert all(images.shape == (8, 1, 8, 8) and images.dtype == torch.uint8 for images in kept.values())
    last = kept[str(whole.facts["best_step"])]
    assert torch.equal(last, (draw(whole, 8) * 255).round().byte())                 # the kept model, from seed 0
    assert not torch.equal(kept[str(each)], last)
    advance = Training.advance

    def stop(self, *words):
        advance(self, *words)
        if self.state.step == 3 * each:
            self.save()
            raise Interrupted(self.run, 3 * each, 6 * each)

    monkeypatch.setattr(Training, "advance", stop)
    with pytest.raises(Interrupted):
        didact.train(RECIPES["vae"], **SMALL)
    monkeypatch.setattr(Training, "advance", advance)
    halved = Run.open("vae/latest")
    assert set(map(int, halved.load("glimpses"))) == {each, 2 * each}
    again = resume(halved).load("glimpses")
    assert again.keys() == kept.keys() and all(torch.equal(again[step], kept[step]) for step in kept)


def test_looking_does_not_change_what_is_learned(here, monkeypatch):
    seen = didact.train(RECIPES["gan"], widths=(8,), epochs=2, batch=256)
    monkeypatch.setattr("didact.train.loop.glimpse", lambda *words: None)
    unseen = didact.train(RECIPES["gan"], widths=(8,), epochs=2, batch=256)
    a, b = seen.load("model"), unseen.load("model")
    assert all(torch.equal(a[name], b[name]) for name in a) and len(seen.load("glimpses")) > len(unseen.load("glimpses"))


def test_the_report_shows_them_and_other_runs_have_none(here):
    run = didact.train(RECIPES["vae"], **SMALL | {"epochs": 2})
    text = page.write(run).read_text(encoding="utf-8")
    assert "Samples over training" in text and text.count("samples at epoch") == len(run.load("glimpses"))
    assert not didact.train(RECIPES["mlp"], hidden=(4,), steps=2).has("glimpses.safetensors")
