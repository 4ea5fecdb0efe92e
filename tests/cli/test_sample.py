"""Drawing from a run: the verb, its refusals, the judge, the pictures in the report."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import didact
from didact.registry import RECIPES
from didact.report import page
from didact.report.gallery import sheet
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.session import restored


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("drawing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        didact.train(RECIPES["vae"], conditional=True, latent=2, widths=(64,), epochs=12)
        didact.train(RECIPES["mlp"], hidden=(32,), epochs=5)
    return where


def test_a_sheet_of_images(said):
    assert "12 images in a.png" in said("sample vae/latest --n 12 --to a.png")
    with Image.open("a.png") as picture:
        assert picture.size == (8 * 9 - 1, 2 * 9 - 1) and picture.mode == "RGBA"     # eight a row, a pixel between them
    told = json.loads(said("sample vae/latest --n 3 --seed 5 --label 7 --json"))
    assert (told["n"], told["seed"], told["label"]) == (3, 5, "7") and Path(told["file"]).is_file()


def test_the_seed_and_the_class_decide(said):
    run = Run.open("vae/latest")
    x = draw(run, 600, seed=1, label="3")
    assert x.shape == (600, 1, 8, 8) and torch.equal(x, draw(run, 600, seed=1, label="3"))
    assert not torch.equal(x, draw(run, 600, seed=2, label="3"))
    judge, _ = restored(Run.open("mlp/latest"))
    with torch.no_grad():
        for k in ("0", "3", "6"):
            guess = judge.classify({"x": draw(run, 200, label=k)}).argmax(1)
            assert (guess == int(k)).float().mean() > 0.5                           # chance is 0.1


def test_a_judge_says_who_it_is(said):
    told = json.loads(said("sample vae/latest --n 200 --judge mlp/latest --json"))["judged"]
    assert told["judge_accuracy"] > 0.8 and told["drawn"] == 200 and told["real"] == 269 and told["split"] == "test"
    assert told["features"] == 32 and told["class_coverage"] > 0.7 and told["frechet"] > 0
    assert "judge accuracy" in said("sample vae/latest --n 200 --judge mlp/latest")


def test_what_is_judged_is_what_was_drawn(said, monkeypatch):
    told = {label: json.loads(said(f"sample vae/latest --n 60 --label {label} --judge mlp/latest --json"))["judged"] for label in "06"}
    for label, found in told.items():
        assert found["split"] == f"test, {label} alone" and 20 < found["real"] < 35 and found["recognised"] > 0.5    # chance is 0.1
        assert "class_coverage" not in found
    assert told["0"]["frechet"] != told["6"]["frechet"]
    times = []
    monkeypatch.setattr("didact.samplers.draw.draw", lambda *args, **words: times.append(1) or draw(*args, **words))
    said("sample vae/latest --n 60 --judge mlp/latest")
    assert len(times) == 1


@pytest.mark.parametrize(("words", "complaint"), [
    ("sample vae/latest --top-k 3", "draws images, got --top-k 3"),
    ("sample vae/latest --beam 2", "--beam does not apply"),
    ("sample vae/latest --tokens 5", "--tokens does not apply"),
    ("sample vae/latest --temperature 0.5", "--temperature is for models that draw pixel by pixel, and flows, but"),
    ("train wgan --lipschitz clip --penalty 5", "--penalty does not apply: --lipschitz clip keeps weights in a box"),
    ("train wgan --bound 0.1", "--bound does not apply: --lipschitz penalty clips no weights"),
    ("train dcgan --condition batch_norm", "--condition does not apply: no class is told without --conditional"),
    ("train vae --data iris --levels 8", "--levels does not apply: only --likelihood categorical"),
    ("train vae --levels 8", "--levels does not apply: only --likelihood categorical"),
    ("train realnvp --levels 8", "--levels does not apply: 'moons' is a table"),
    ("train vae --data diabetes --conditional", "the class of each row, but 'diabetes' has none"),
    ("sample mlp/latest", "recipe 'mlp' draws nothing; `didact list` shows which recipes can sample"),
    ("sample vae/latest --label 11", "no class named '11'; did you mean '1'?"),
    ("sample vae/latest --to a.jpg", "--to expects a file that ends in .png, got a.jpg"),
    ("sample vae/latest --n 0", "0 is not in the range 1<=x<=100000"),
    ("sample vae/latest --judge vae/latest", "does not classify; train one with: didact train cnn --data digits"),
    ("train vae --samples 5 --beta 2", "--samples 5 maximises the importance-weighted bound, which has no --beta"),
    ("train vae --latent 0", "--latent expects int at least 1, got 0"),
    ("train dcgan --data iris", "recipe 'dcgan' learns from images, but 'iris' is table"),
    ("train semi_supervised --labels 900", "--labels 900 of each class, but a class of 'digits' has"),
])
def test_refused_in_one_line(said, words, complaint):
    err = said(words, code=2)
    assert err.count("\n") == 1 and complaint in err


def test_pictures_reach_the_report(said):
    run = Run.open("vae/latest")
    found = run.load("gallery")
    assert found["samples"].shape == (10, 8, 1, 8, 8) and found["reconstructions"].shape == (2, 8, 1, 8, 8)
    text = page.write(run).read_text(encoding="utf-8")
    assert "Interpolation" in text and "One dimension at a time" in text and "The plane of codes" in text
    assert not Run.open("mlp/latest").has("gallery.safetensors")


def test_a_sheet_is_clear_between_the_pictures():
    grid = torch.rand(2, 3, 1, 5, 7)
    whole = sheet(grid)
    assert whole.shape == (4, 11, 23)
    assert torch.equal(whole[0, 6:, 8:15], grid[1, 1, 0]) and torch.equal(whole[2], whole[0])
    assert (whole[3, 5] == 0).all() and whole[3, 0, 0] == 1
