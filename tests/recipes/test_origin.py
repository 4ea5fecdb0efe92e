"""Runs that begin with another one: consistency and latent diffusion. What they take over, what they keep, what is refused."""

import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

import didact
from didact.cli.main import main
from didact.data.core import SPLITS, Resident
from didact.data.load import load
from didact.errors import UsageError
from didact.recipes.origin import origin
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.beside import Shelf
from didact.train.session import evaluate, prepare, restored

TEACHER = {"widths": (8, 16), "time": 16, "T": 50, "predict": "velocity", "conditional": True, "sampling_steps": 5}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("beginnings")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        didact.train(RECIPES["diffusion"], **TEACHER, steps=30)
        didact.train(RECIPES["vqvae"], widths=(8, 16), codes=16, dim=6, epochs=1)
        didact.train(RECIPES["vae"], latent=3, widths=(16,), conditional=True, steps=2)
        for k in range(40):                                                         # in colour, and twice as large as they are learned
            (where / "own" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (6 * k, 99, 255 - 6 * k)).save(where / "own" / "ab"[k % 2] / f"{k}.png")
        own = {"data": "own", "size": 8, "split_seed": 3, "runs": "of own", "steps": 2}
        didact.train(RECIPES["diffusion"], **TEACHER, **own)
        didact.train(RECIPES["vqvae"], widths=(8, 16), codes=16, dim=6, **own)
    return where


@pytest.fixture
def there(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


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


@pytest.mark.parametrize("name, first, more", [
    ("consistency", "diffusion", {"intervals": 5}), ("vqvae_prior", "vqvae", {"width": 4, "depth": 1}),
    ("latent_diffusion", "vqvae", {"T": 20, "sampling_steps": 4, "widths": (8,), "time": 8}),
])
def test_the_data_of_the_run_are_gone_on_with(there, name, first, more):
    theirs = Run.open(f"{first}/latest", "of own")
    run = didact.train(RECIPES[name], from_=f"{first}/latest", runs="of own", steps=1, **more)
    ours, facts = run.facts["data"], theirs.facts["data"]
    assert ours["source"] == facts["source"] and ours["fingerprint"] == facts["fingerprint"] and ours["shape"] == [3, 8, 8]
    assert (ours["source"]["size"], ours["source"]["seed"]) == (8, 3)
    assert all(torch.equal(run.load_indices()[part], theirs.load_indices()[part]) for part in SPLITS)
    again = run.facts["repeat"]
    assert f"--data {there / 'own'}" in again and "--size 8" in again and "--split-seed 3" in again and f"--from '{theirs.folder}'" in again


def test_what_is_given_counts(there):
    asked = {"from_": "vqvae/latest", "runs": "of own"}
    prepared = prepare("vqvae_prior", asked | {"split_seed": 4})
    assert prepared.settings.split_seed == 4 and prepared.settings.size == 8 and prepared.data.name == "own"
    with pytest.raises(UsageError, match="of 8×8 pixels, 3 channels, but those of 'own' have 16×16 pixels, 3 channels; leave out --data"):
        prepare("vqvae_prior", asked | {"data": "own"})
    with pytest.raises(UsageError, match="of 8×8 pixels, 3 channels, but those of 'digits' have 8×8 pixels, 1 channel; leave out --data"):
        prepare("vqvae_prior", asked | {"data": "digits"})
    assert prepare("vqvae_prior", {}).data.name == "digits"                         # begins with no run: the recipe's own


def test_each_cell_of_a_sweep_reads_the_data_of_its_run(there):
    shelf, runs = Shelf(), [Run.open("vqvae/latest", root).folder for root in ("runs", "of own", "runs")]
    assert [shelf.prepare(RECIPES["vqvae_prior"], {"from_": str(run)}).data.name for run in runs] == ["digits", "own", "digits"]


def test_data_that_cannot_be_loaded_again(there):
    shutil.copytree("own", "moved")
    run = didact.train(RECIPES["vqvae"], widths=(8,), codes=4, dim=2, data="moved", runs="of moved", steps=1)
    shutil.rmtree("moved")
    with pytest.raises(UsageError, match=r"learned from .*moved, which is no longer there; say with --data where it is"):
        prepare("vqvae_prior", {"from_": str(run.folder)})
    assert prepare("vqvae_prior", {"from_": str(run.folder), "data": "own"}).data.name == "own"
    given = replace(load("digits"), source={"given": "mine"})
    run = didact.train(RECIPES["vqvae"], data=given, widths=(8,), codes=4, dim=2, runs="of given", steps=1)
    with pytest.raises(UsageError, match="handed over in Python; give --data"):
        prepare("vqvae_prior", {"from_": str(run.folder)})


def test_a_run_that_does_not_fit_is_refused_in_one_line(there):
    with pytest.raises(UsageError, match=r"is not vqvae codes=5 on 'digits' .*; give --from alone"):
        didact.train(RECIPES["vqvae_prior"], from_="vqvae/latest", coder="vqvae codes=5", steps=1)


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
        with pytest.raises(UsageError, match=r"learned images of 8×8 pixels, 1 channel, but those of .*; leave out --data and --size"):
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
