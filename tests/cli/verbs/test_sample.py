"""`didact sample`: images, wrong options, sample quality by a classifier, the gallery of the report."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import didact
from didact.inference.sample_images import sample_images
from didact.registry import RECIPES
from didact.report import page
from didact.report.gallery import make_image_sheet
from didact.run import Run
from didact.training.restore import load_model


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        didact.train(RECIPES["vae"], conditional=True, latent_dim=2, hidden=(64,), epochs=12)
        didact.train(RECIPES["mlp"], hidden=(32,), epochs=5)
    return folder


def test_sample_writes_a_sheet_of_images(run_cli):
    assert "12 images in a.png" in run_cli("sample vae/latest --num-samples 12 --output a.png")
    with Image.open("a.png") as image:
        assert image.size == (8 * 9 - 1, 2 * 9 - 1) and image.mode == "RGBA"     # eight a row, a pixel between them
    result = json.loads(run_cli("sample vae/latest --n 3 --seed 5 --class 7 --json"))
    assert (result["num_samples"], result["seed"], result["class"]) == (3, 5, "7") and Path(result["file"]).is_file()


def test_seed_and_label_decide_the_samples(run_cli):
    run = Run.open("vae/latest")
    x = sample_images(run, 600, seed=1, label="3")
    assert x.shape == (600, 1, 8, 8) and torch.equal(x, sample_images(run, 600, seed=1, label="3"))
    assert not torch.equal(x, sample_images(run, 600, seed=2, label="3"))
    judge, _ = load_model(Run.open("mlp/latest"))
    with torch.no_grad():
        for k in ("0", "3", "6"):
            guess = judge.classify({"x": sample_images(run, 200, label=k)}).argmax(1)
            assert (guess == int(k)).float().mean() > 0.5                           # chance is 0.1


def test_quality_metrics_name_the_accuracy_of_the_classifier(run_cli):
    quality = json.loads(run_cli("sample vae/latest --n 200 --classifier mlp/latest --json"))["quality"]
    assert (
        quality["classifier_accuracy"] > 0.8
        and quality["samples"] == 200
        and quality["real_images"] == 269
        and quality["split"] == "test"
    )
    assert quality["features"] == 32 and quality["class_coverage"] > 0.7 and quality["frechet"] > 0
    assert "classifier accuracy" in run_cli("sample vae/latest --n 200 --classifier mlp/latest")


def test_classifier_evaluates_the_samples_that_are_written(run_cli, monkeypatch):
    quality_by_label = {
        label: json.loads(run_cli(f"sample vae/latest --n 60 --class {label} --classifier mlp/latest --json"))[
            "quality"
        ]
        for label in "06"
    }
    for label, quality in quality_by_label.items():
        assert quality["split"] == f"test, {label} only" and 20 < quality["real_images"] < 35
        assert quality["class_accuracy"] > 0.5          # chance is 0.1
        assert "class_coverage" not in quality
    assert quality_by_label["0"]["frechet"] != quality_by_label["6"]["frechet"]
    calls = []
    monkeypatch.setattr(
        "didact.inference.sample_images.sample_images",
        lambda *args, **words: calls.append(1) or sample_images(*args, **words),
    )
    run_cli("sample vae/latest --n 60 --classifier mlp/latest")
    assert len(calls) == 1


@pytest.mark.parametrize(("words", "complaint"), [
    ("sample vae/latest --top-k 3", "generates images, got --top-k 3"),
    ("sample vae/latest --beam 2", "--num-beams does not apply"),
    ("sample vae/latest --tokens 5", "--max-tokens does not apply"),
    ("sample vae/latest --temperature 0.5", "--temperature is for autoregressive models and normalizing flows, but"),
    (
        "train wgan --lipschitz clip --gradient-penalty 5",
        "--gradient-penalty does not apply: --lipschitz clip has no penalty",
    ),
    ("train wgan --weight-clip 0.1", "--weight-clip does not apply: it is for --lipschitz clip"),
    ("train dcgan --conditioning batch_norm", "--conditioning does not apply: it is for --conditional"),
    ("train vae --data iris --levels 8", "--levels does not apply: it is for --likelihood categorical"),
    ("train vae --levels 8", "--levels does not apply: it is for --likelihood categorical"),
    ("train realnvp --levels 8", "--levels does not apply: 'moons' is a table"),
    ("train vae --data diabetes --conditional", "the class of each row, but 'diabetes' has none"),
    ("sample mlp/latest", "recipe 'mlp' cannot sample; `didact list` shows which recipes can sample"),
    ("sample vae/latest --class 11", "no class named '11'; did you mean '1'?"),
    ("sample vae/latest --output a.jpg", "--output expects a file that ends in .png, got a.jpg"),
    ("sample vae/latest --n 0", "0 is not in the range 1<=x<=100000"),
    ("sample vae/latest --classifier vae/latest", "is no classifier; train one with: didact train cnn --data digits"),
    (
        "train vae --num-samples 5 --beta 2",
        "--num-samples 5 maximizes the importance-weighted bound, which has no --beta",
    ),
    ("train vae --latent-dim 0", "--latent-dim expects int at least 1, got 0"),
    ("train dcgan --data iris", "recipe 'dcgan' learns from images, but 'iris' is table"),
    (
        "train semi_supervised --labels-per-class 900",
        "--labels-per-class 900 of each class, but a class of 'digits' has",
    ),
])
def test_sample_refuses_bad_options_in_one_line(run_cli, words, complaint):
    err = run_cli(words, code=2)
    assert err.count("\n") == 1 and complaint in err


def test_report_shows_the_gallery_of_a_run(run_cli):
    run = Run.open("vae/latest")
    gallery = run.load("gallery")
    assert gallery["samples"].shape == (10, 8, 1, 8, 8) and gallery["reconstructions"].shape == (2, 8, 1, 8, 8)
    text = page.write_report(run).read_text(encoding="utf-8")
    assert "Interpolation" in text and "Latent traversal" in text and "Latent space" in text
    assert not Run.open("mlp/latest").has("gallery.safetensors")


def test_image_sheet_is_transparent_between_images():
    grid = torch.rand(2, 3, 1, 5, 7)
    sheet_image = make_image_sheet(grid)
    assert sheet_image.shape == (4, 11, 23)
    assert torch.equal(sheet_image[0, 6:, 8:15], grid[1, 1, 0]) and torch.equal(sheet_image[2], sheet_image[0])
    assert (sheet_image[3, 5] == 0).all() and sheet_image[3, 0, 0] == 1
