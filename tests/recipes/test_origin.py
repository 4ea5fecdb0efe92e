"""Runs that begin with another one: consistency and latent diffusion. What they take over, what they keep, what is refused."""

import shutil
from dataclasses import replace

import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.core import SPLITS, Resident
from didact.data.load import load
from didact.errors import UsageError
from didact.recipes.origin import origin
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.session import evaluate, restored

TEACHER = {"widths": (8, 16), "time": 16, "T": 50, "predict": "velocity", "conditional": True, "sampling_steps": 5}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("beginnings")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        didact.train(RECIPES["diffusion"], **TEACHER, steps=30)
        didact.train(RECIPES["vqvae"], widths=(8, 16), codes=16, dim=6, epochs=1)
        didact.train(RECIPES["vae"], latent=3, widths=(16,), conditional=True, steps=2)
    return where


@pytest.fixture
def there(place, monkeypatch):
    monkeypatch.chdir(place)


def test_a_student_begins_as_its_teacher_and_outlives_it(there):
    taught = Run.open("diffusion/latest")
    run = didact.train(RECIPES["consistency"], from_="diffusion/latest", intervals=10, steps=1, lr=1e-9)
    told = run.facts["arguments"]
    assert told["from_"] == str(taught.folder)
    words = "diffusion T=50 sampling_steps=5 widths=8,16 time=16 conditional=yes"   # velocity is the default
    assert told["teacher"] == words and any(words in note for note in run.facts["notes"])
    assert f"--from {taught.folder}" in run.facts["repeat"]
    network, weights = taught.load("model"), run.load("model")
    learned = {name.removeprefix("network."): value for name, value in network.items() if name.startswith("network.")}
    for part in ("network", "teacher", "target"):
        assert learned and all(torch.allclose(weights[f"{part}.{name}"], value, atol=1e-6) for name, value in learned.items())
    drawn = draw(run, 4, label="3", steps=2)
    away = taught.folder.rename(taught.folder.with_name("elsewhere"))
    try:
        assert torch.equal(drawn, draw(run, 4, label="3", steps=2))                 # rebuilt from its own folder alone
        assert evaluate(run)["test"]["loss"] == pytest.approx(run.facts["test"]["loss"], rel=1e-4)
    finally:
        away.rename(taught.folder)


def test_codes_of_a_run(there):
    run = didact.train(RECIPES["latent_diffusion"], from_="vqvae/latest", T=20, sampling_steps=4, widths=(16, 32), time=16, steps=3)
    coder, weights = Run.open("vqvae/latest").load("model"), run.load("model")
    assert all(torch.equal(weights[f"coder.learned.{k}"], v) for k, v in coder.items())
    assert weights["scale"].min() > 0.1 and weights["location"].abs().max() > 0
    assert "codes of 6 × 2 × 2 numbers" in " ".join(run.facts["notes"])
    objective, _ = restored(run)
    x = load("digits").train.columns["x"][:256] / 255
    assert objective.inside(x).std().item() == pytest.approx(1, abs=0.1)
    assert {"samples", "out of noise", "into noise", "interpolation", "schedule"} == set(run.load("gallery"))


def test_words_are_read_back():
    data = load("digits")
    of = origin(None, "vae network=conv latent=3 widths=8,16", data, known=("vqvae", "vae"))
    assert of.arguments == {"network": "conv", "latent": 3, "widths": (8, 16)} and of.words == "vae network=conv latent=3 widths=8,16"
    assert origin(None, None, data, known=("vqvae", "vae")).words == "vqvae"
    with pytest.raises(UsageError, match="no option of vae named 'latents'; did you mean 'latent'"):
        origin(None, "vae latents=3", data, known=("vqvae", "vae"))
    with pytest.raises(UsageError, match="no recipe named 'gan'"):
        origin(None, "gan", data, known=("vqvae", "vae"))


@pytest.mark.parametrize("words, told", [
    ("consistency --from vqvae/latest", "--from expects a run of diffusion, got"),
    ("consistency --from nowhere", "no run named 'nowhere' under runs"),
    ("consistency --from diffusion/latest --intervals 51", "--intervals are steps of the teacher, who has 50, got 51"),
    ("consistency --teacher vae", "no recipe named 'vae'"),
    ("latent_diffusion --from diffusion/latest", "--from expects a run of vqvae or vae, got"),
    ("latent_diffusion --from vae/latest", "the coder may not ask for a class"),
    ("latent_diffusion --T 10 --sampling-steps 11", "in 1 to 10 of them, got 11"),
    ("latent_diffusion --guidance 2", "with --conditional only"),
])
def test_refused_in_one_line(there, capsys, words, told):
    assert main(["train", *words.split()]) == 2
    err = capsys.readouterr().err
    assert told in err and err.strip().count("\n") == 0


def test_images_of_another_size_or_colour(there):
    data = load("digits")
    for other in ((1, 8, 10), (3, 8, 8)):
        columns = {part: {"x": torch.zeros(20, *other, dtype=torch.uint8), "y": torch.arange(20) % 10} for part in SPLITS}
        wrong = replace(data, shape=other, **{part: Resident(columns[part], data.train.decoders) for part in SPLITS})
        with pytest.raises(UsageError, match=r"learned images of 8×8 pixels, 1 channels, but those of .* give the same --data"):
            RECIPES["consistency"](wrong, from_="diffusion/latest")


@pytest.mark.slow
def test_one_step_of_the_student_beats_one_of_the_teacher(here):
    taught = didact.train(RECIPES["diffusion"], predict="velocity")
    run = didact.train(RECIPES["consistency"], from_=str(taught.folder))
    judge = didact.train(RECIPES["cnn"])
    from didact.samplers.judging import judged
    student, teacher = (judged(r, judge, draw(r, 500, steps=1))["frechet"] for r in (run, taught))
    assert student < 0.25 * teacher and run.facts["test"]["frechet"] < 0.8      # measured: 27 and 278; 0.36
    shutil.rmtree(taught.folder)
    assert draw(run, 2).shape == (2, 1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("coder", ["vqvae", "vae network=conv latent=16 beta=0.3 likelihood=gaussian"])
def test_codes_are_drawn_that_decode_to_digits(coder, here):
    test = didact.train(RECIPES["latent_diffusion"], coder=coder).facts["test"]
    assert test["frechet"] < 1.0 and test["class_coverage"] >= 0.9 and test["confidence"] > 0.75
