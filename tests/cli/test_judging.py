"""Who judges drawn images says how good it is; and the published Inception v3, from a file of random weights in its layout."""

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
from didact.models.inception import InceptionV3
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.judging import Inception, listening


def weights(classes: int) -> dict[str, torch.Tensor]:
    """Kernels that keep the signal's size, so that features differ; and the helping head that published files hold."""
    torch.manual_seed(0)
    network = InceptionV3(classes=classes)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight)
    return network.state_dict() | {"AuxLogits.fc.weight": torch.zeros(classes, 768), "AuxLogits.fc.bias": torch.zeros(classes)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("judging")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        for kind, low in (("dark", 0), ("light", 128)):
            for i in range(40):
                (where / "photos" / kind).mkdir(parents=True, exist_ok=True)
                pixels = np.random.default_rng(i).integers(low, low + 128, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(where / "photos" / kind / f"{i}.png")
        (where / "loose").mkdir()
        for k, file in enumerate((where / "photos").rglob("*.png")):
            (where / "loose" / f"{k}.png").write_bytes(file.read_bytes())
        didact.train(RECIPES["mlp"], data="photos", hidden=(16,), epochs=10)
        didact.train(RECIPES["vae"], data="photos", widths=(16,), latent=3, epochs=3)
        didact.train(RECIPES["vae"], data="loose", widths=(16,), latent=3, epochs=3, runs="unlabelled")
        didact.train(RECIPES["optimizers"], data="digits", steps=1)
        save_file(weights(10), "inception.safetensors")
        torch.save(weights(1008), "first.pth")
        broken = weights(10)
        del broken["Mixed_7c.branch1x1.conv.weight"]
        save_file(broken, "broken.safetensors")
    return where


@pytest.fixture
def said(place, monkeypatch, capsys):
    monkeypatch.chdir(place)

    def run(words: str, code: int = 0) -> str:
        assert main(shlex.split(words + " --device cpu")) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err
    return run


def test_it_has_as_many_parameters_as_the_published_one():
    network = InceptionV3()
    assert sum(p.numel() for p in network.parameters()) == 27_161_264 - 3_326_696   # torchvision's, less the head that helped training
    assert network.state_dict()["Mixed_6e.branch7x7dbl_5.conv.weight"].shape == (192, 192, 1, 7)
    assert network.state_dict()["Mixed_7b.branch_pool.conv.weight"].shape == (192, 1280, 1, 1)


def test_sizes_on_the_way():
    network, sizes = InceptionV3(classes=4).eval(), {}
    for name in ("Conv2d_2b_3x3", "Conv2d_4a_3x3", "Mixed_5d", "Mixed_6e", "Mixed_7c"):
        network.get_submodule(name).register_forward_hook(lambda _, x, y, name=name: sizes.update({name: tuple(y.shape[1:])}))
    with torch.no_grad():
        assert network(torch.rand(1, 3, 299, 299)).shape == (1, 4)
    assert sizes == {"Conv2d_2b_3x3": (64, 147, 147), "Conv2d_4a_3x3": (192, 71, 71), "Mixed_5d": (288, 35, 35), "Mixed_6e": (768, 17, 17),
                     "Mixed_7c": (2048, 8, 8)}                                     # Szegedy et al. 2016, table 1


@pytest.mark.slow   # the square root of 2048×2048 numbers
@pytest.mark.parametrize("file", ["inception.safetensors", "first.pth"])
def test_inception_judges(said, file):
    told = json.loads(said(f"sample vae/latest --n 6 --judge-weights {file} --json"))["judged"]
    assert told["judge"] == f"Inception v3 of {file}" and told["features"] == 2048 and told["judge_accuracy"] == "not measured"
    assert (told["drawn"], told["real"], told["split"]) == (6, 12, "test") and told["frechet"] > 0


@pytest.mark.parametrize("file", ["inception.safetensors", "first.pth"])
def test_grey_images_are_read_as_three_like_channels(place, monkeypatch, file):
    monkeypatch.chdir(place)
    judge = Inception(Path(file)).eval()
    x = torch.rand(1, 1, 8, 8)
    with torch.no_grad(), listening(judge) as heard:
        a, b = judge.classify({"x": x}), judge.classify({"x": x.expand(-1, 3, -1, -1)})
    assert torch.equal(a, b) and heard[0].shape == (1, 2048) and a.sum() == pytest.approx(1)


def test_the_judges_accuracy_goes_with_every_score(said):
    told = json.loads(said("sample vae/latest --n 40 --judge mlp/latest --json"))["judged"]
    assert told["judge_accuracy"] > 0.9 and told["accuracy_on"] == "the real images" and told["real"] == 12
    (loose,) = Path("unlabelled/vae").iterdir()
    told = json.loads(said(f"sample {loose} --n 40 --judge mlp/latest --json"))["judged"]
    assert told["judge_accuracy"] > 0.9 and told["accuracy_on"] == "the test split of photos" and "class_coverage" not in told
    printed = said("sample vae/latest --n 40 --judge mlp/latest")
    assert all(word in printed for word in ("judge accuracy", "accuracy on", "drawn", "real", "split", "frechet", "kernel distance"))


@pytest.mark.parametrize(("words", "complaint"), [
    ("sample vae/latest --n 4 --judge mlp/latest", "at least 5 drawn and 5 test images can be compared, got 4 and 12; raise --n"),
    ("sample vae/latest --judge-weights nowhere.pth", "no weights file nowhere.pth"),
    ("sample vae/latest --judge-weights broken.safetensors", "broken.safetensors is not Inception v3"),
    ("sample vae/latest --judge mlp/latest --judge-weights first.pth", "--judge-weights does not apply: a run judges"),
    ("sample vae/latest --interpolate --judge-weights first.pth", "--judge-weights does not apply: a code is drawn as it is"),
    ("sample vae/latest --judge optimizers/latest", "the judge learned images of (1, 8, 8), but these are (3, 8, 8)"),
    ("sample vae/latest --judge nope", "no run named 'nope' under runs"),
    ("sample vae/latest --judge vae/latest", "does not classify; train one with: didact train cnn --data photos"),
    ("sample vae/latest --judge-weights photos", "photos"),
    ("sample vae/latest --judge mlp/latest --label red", "no class named 'red'"),
    ("sample vae/latest --judge mlp/latest --runs elsewhere", "there is no run under elsewhere yet"),
])
def test_refused_in_one_line_and_before_anything_is_drawn(said, monkeypatch, words, complaint):
    def never(*_, **__):
        raise AssertionError("it was drawn")

    for place in ("didact.samplers.draw.draw", "didact.samplers.walk.interpolated"):
        monkeypatch.setattr(place, never)
    before = set(Path.cwd().rglob("samples.*")), Run.open("vae/latest").folder.stat().st_mtime_ns
    err = said(words, code=2)
    assert err.count("\n") == 1 and complaint in err
    assert (set(Path.cwd().rglob("samples.*")), Run.open("vae/latest").folder.stat().st_mtime_ns) == before


@pytest.mark.parametrize("words", ["--label red", "--label red --judge mlp/latest", "--interpolate --label red"])
def test_a_model_of_images_without_classes_cannot_be_asked_for_one(said, words):
    (loose,) = Path("unlabelled/vae").iterdir()
    err = said(f"sample {loose} {words}", code=2)
    assert err.count("\n") == 1 and f"{loose} was trained without classes: 'loose' has none" in err
    assert "got --label red; leave it out, or train with --conditional on data that have classes" in err


def test_evaluate_says_what_its_scores_are_of(said, place):
    didact.train(RECIPES["dcgan"], data="digits", steps=1, runs="game")
    shown = said("evaluate dcgan/latest --runs game")
    assert shown.count("frechet: of 8×8 thumbnails, 269 drawn") == 1 and "by a referee" in shown
