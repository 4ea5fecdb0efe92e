"""Sample quality in the features of a run's classifier, and of an Inception v3 with random weights."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import didact
from didact.cli.main import main
from didact.inference.evaluate_samples import InceptionFeatures, capture_features
from didact.models.vision.inception import InceptionV3
from didact.registry import RECIPES
from didact.run import Run


def make_inception_weights(classes: int) -> dict[str, torch.Tensor]:
    """Kernels that keep the signal's size, so that features differ; and the auxiliary head of published files."""
    torch.manual_seed(0)
    network = InceptionV3(num_classes=classes)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight)
    return network.state_dict() | {
        "AuxLogits.fc.weight": torch.zeros(classes, 768),
        "AuxLogits.fc.bias": torch.zeros(classes),
    }


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judging")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for class_name, low in (("dark", 0), ("light", 128)):
            for i in range(40):
                (folder / "photos" / class_name).mkdir(parents=True, exist_ok=True)
                pixels = np.random.default_rng(i).integers(low, low + 128, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "photos" / class_name / f"{i}.png")
        (folder / "loose").mkdir()
        for k, file in enumerate((folder / "photos").rglob("*.png")):
            (folder / "loose" / f"{k}.png").write_bytes(file.read_bytes())
        didact.train(RECIPES["mlp"], data="photos", hidden=(16,), epochs=10)
        didact.train(RECIPES["vae"], data="photos", hidden=(16,), latent_dim=3, epochs=3)
        didact.train(RECIPES["vae"], data="loose", hidden=(16,), latent_dim=3, epochs=3, runs="unlabelled")
        didact.train(RECIPES["optimizers"], data="digits", steps=1)
        save_file(make_inception_weights(10), "inception.safetensors")
        torch.save(make_inception_weights(1008), "first.pth")
        incomplete_weights = make_inception_weights(10)
        del incomplete_weights["Mixed_7c.branch1x1.conv.weight"]
        save_file(incomplete_weights, "broken.safetensors")
    return folder


@pytest.fixture
def run_cli(workdir, monkeypatch, capsys):
    monkeypatch.chdir(workdir)

    def run(words: str, code: int = 0) -> str:
        assert main(shlex.split(words + " --device cpu")) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err
    return run


def test_inception_v3_has_as_many_parameters_as_torchvision():
    network = InceptionV3()
    # torchvision's, without the auxiliary head
    assert sum(p.numel() for p in network.parameters()) == 27_161_264 - 3_326_696
    assert network.state_dict()["Mixed_6e.branch7x7dbl_5.conv.weight"].shape == (192, 192, 1, 7)
    assert network.state_dict()["Mixed_7b.branch_pool.conv.weight"].shape == (192, 1280, 1, 1)


def test_inception_v3_feature_sizes():
    network, sizes = InceptionV3(num_classes=4).eval(), {}
    for name in ("Conv2d_2b_3x3", "Conv2d_4a_3x3", "Mixed_5d", "Mixed_6e", "Mixed_7c"):
        network.get_submodule(name).register_forward_hook(
            lambda _, x, y, name=name: sizes.update({name: tuple(y.shape[1:])})
        )
    with torch.no_grad():
        assert network(torch.rand(1, 3, 299, 299)).shape == (1, 4)
    assert sizes == {
        "Conv2d_2b_3x3": (64, 147, 147),
        "Conv2d_4a_3x3": (192, 71, 71),
        "Mixed_5d": (288, 35, 35),
        "Mixed_6e": (768, 17, 17),
        "Mixed_7c": (2048, 8, 8),
    }  # Szegedy et al. 2016, table 1


@pytest.mark.slow   # the square root of 2048×2048 numbers
@pytest.mark.parametrize("file", ["inception.safetensors", "first.pth"])
def test_inception_weights_evaluate_samples(run_cli, file):
    quality = json.loads(run_cli(f"sample vae/latest --n 6 --inception {file} --json"))["quality"]
    assert (
        quality["classifier"] == f"Inception v3 of {file}"
        and quality["features"] == 2048
        and quality["classifier_accuracy"] == "not measured"
    )
    assert (quality["samples"], quality["real_images"], quality["split"]) == (6, 12, "test") and quality["frechet"] > 0


@pytest.mark.parametrize("file", ["inception.safetensors", "first.pth"])
def test_inception_reads_gray_images_as_three_equal_channels(workdir, monkeypatch, file):
    monkeypatch.chdir(workdir)
    network = InceptionFeatures(Path(file)).eval()
    x = torch.rand(1, 1, 8, 8)
    with torch.no_grad(), capture_features(network) as features:
        a, b = network.classify({"x": x}), network.classify({"x": x.expand(-1, 3, -1, -1)})
    assert torch.equal(a, b) and features[0].shape == (1, 2048) and a.sum() == pytest.approx(1)


def test_classifier_accuracy_is_reported_with_every_score(run_cli):
    quality = json.loads(run_cli("sample vae/latest --n 40 --classifier mlp/latest --json"))["quality"]
    assert quality["classifier_accuracy"] > 0.9 and quality["accuracy_on"] == "the real images"
    assert quality["real_images"] == 12
    (unlabeled_run,) = Path("unlabelled/vae").iterdir()
    quality = json.loads(run_cli(f"sample {unlabeled_run} --n 40 --classifier mlp/latest --json"))["quality"]
    assert (
        quality["classifier_accuracy"] > 0.9
        and quality["accuracy_on"] == "the test split of photos"
        and "class_coverage" not in quality
    )
    output = run_cli("sample vae/latest --n 40 --classifier mlp/latest")
    assert all(
        word in output
        for word in ("classifier accuracy", "accuracy on", "samples", "real images", "split", "frechet", "kernel dist")
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "sample vae/latest --n 4 --classifier mlp/latest",
            "expected at least 5 samples and 5 test images, got 4 and 12; raise --n",
        ),
        ("sample vae/latest --inception nowhere.pth", "no weights file nowhere.pth"),
        ("sample vae/latest --inception broken.safetensors", "broken.safetensors is not Inception v3"),
        (
            "sample vae/latest --classifier mlp/latest --inception first.pth",
            "--inception does not apply: --classifier evaluates the samples",
        ),
        (
            "sample vae/latest --interpolate --inception first.pth",
            "--inception does not apply: latent codes are decoded as they are",
        ),
        (
            "sample vae/latest --classifier optimizers/latest",
            "the classifier was trained on images of (1, 8, 8), but these are (3, 8, 8)",
        ),
        ("sample vae/latest --classifier nope", "no run named 'nope' under runs"),
        (
            "sample vae/latest --classifier vae/latest",
            "is no classifier; train one with: didact train cnn --data photos",
        ),
        ("sample vae/latest --inception photos", "photos"),
        ("sample vae/latest --classifier mlp/latest --class red", "no class named 'red'"),
        ("sample vae/latest --classifier mlp/latest --runs elsewhere", "there is no run under elsewhere yet"),
    ],
)
def test_bad_classifier_is_refused_before_sampling(run_cli, monkeypatch, words, complaint):
    def fail_if_sampled(*_, **__):
        raise AssertionError("something was sampled")

    for function_path in (
        "didact.inference.sample_images.sample_images",
        "didact.inference.latent_walks.interpolate_latents",
    ):
        monkeypatch.setattr(function_path, fail_if_sampled)
    before = set(Path.cwd().rglob("samples.*")), Run.open("vae/latest").folder.stat().st_mtime_ns
    err = run_cli(words, code=2)
    assert err.count("\n") == 1 and complaint in err
    assert (set(Path.cwd().rglob("samples.*")), Run.open("vae/latest").folder.stat().st_mtime_ns) == before


@pytest.mark.parametrize("words", ["--class red", "--class red --classifier mlp/latest", "--interpolate --class red"])
def test_unlabeled_run_refuses_a_label(run_cli, words):
    (unlabeled_run,) = Path("unlabelled/vae").iterdir()
    err = run_cli(f"sample {unlabeled_run} {words}", code=2)
    assert err.count("\n") == 1 and f"{unlabeled_run} was trained without classes: 'loose' has none" in err
    assert "got --class red; leave it out, or train with --conditional on data with classes" in err


def test_evaluate_says_what_its_scores_are_computed_on(run_cli, workdir):
    didact.train(RECIPES["dcgan"], data="digits", steps=1, runs="game")
    output = run_cli("evaluate dcgan/latest --runs game")
    assert output.count("frechet: of 8×8 thumbnails, 269 samples") == 1 and "by a referee" in output
