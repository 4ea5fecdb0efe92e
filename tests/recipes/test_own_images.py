"""A folder of images for every family that draws or gives back images: without labels, too small, or of an awkward size."""

import numpy as np
import pytest
import torch
from PIL import Image

import didact
from didact.data.load import load
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.report import page
from didact.run import Run
from didact.train.beside import Shelf
from didact.train.session import evaluate, prepare, restored
from didact.train.sweep import sweep

SMALL = {
    "autoencoder": {"widths": (16,)}, "vae": {"widths": (16,), "latent": 3}, "vqvae": {"widths": (8, 8), "codes": 8, "dim": 4},
    "gan": {"widths": (16,), "latent": 4}, "dcgan": {"width": 4, "latent": 4}, "wgan": {"width": 4, "latent": 4, "turns": 2},
    "stylegan": {"width": 4, "latent": 4, "style": 8, "width_discriminator": 8},
    "diffusion": {"widths": (8, 16), "time": 8, "T": 20, "sampling_steps": 2},
    "flow_matching": {"widths": (8, 16), "time": 8, "sampling_steps": 1},
    "pixelcnn": {"width": 4, "depth": 1, "levels": 4}, "pixelrnn": {"width": 4, "depth": 1, "levels": 4},
    "realnvp": {"hidden": 8, "couplings": 2}, "denoising": {"widths": (8, 8)},
    "consistency": {"teacher": "diffusion widths=8,16 time=8 T=20 sampling_steps=2 predict=velocity epochs=1", "intervals": 4},
    "latent_diffusion": {"coder": "vqvae widths=8,8 codes=8 dim=4 epochs=1", "widths": (8,), "time": 8, "T": 20, "sampling_steps": 2},
    "vqvae_prior": {"coder": "vqvae widths=8,8 codes=8 dim=4 epochs=1", "width": 4, "depth": 1},
}


def test_every_family_is_here():
    """Whatever learns from images and asks for no class."""
    assert set(SMALL) == {r.name for r in RECIPES.values() if "images" in r.accepts and r.kind != "supervised" and not r.tasks}


def photographs(folder, n, size=(8, 8)):
    folder.mkdir()
    for i in range(n):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(folder / f"{i:02}.png")


@pytest.mark.parametrize("name", SMALL)
def test_photographs_without_labels(name, here):
    photographs(here / "photos", 24)
    run = didact.train(RECIPES[name], data="photos", steps=2, batch=8, **SMALL[name])
    assert run.facts["status"] == "finished" and run.facts["data"]["task"] == "none"
    assert all(np.isfinite(value) for value in run.facts["test"].values())
    assert "no class folders" in page.write(run).read_text(encoding="utf-8")
    objective, data = restored(run)
    if "sample" in run.facts["abilities"]:
        assert objective.sample(3, torch.Generator().manual_seed(0)).shape == (3, *data.shape) == (3, 3, 8, 8)
    with pytest.raises(UsageError, match=r"--conditional|no option"):
        prepare(name, {"data": "photos", "conditional": True, **SMALL[name]})


def pets(here, classes=("cat", "dog"), n=12, beside=6):
    """Photographs in class folders, and some that lie beside them."""
    (here / "pets").mkdir()
    photographs(here / "pets" / "new", beside)
    for file in (here / "pets" / "new").iterdir():
        file.rename(here / "pets" / file.name)
    (here / "pets" / "new").rmdir()
    for label in classes:
        photographs(here / "pets" / label, n)


@pytest.mark.parametrize("name", SMALL)
def test_photographs_beside_class_folders_are_learned_from_too(name, here):
    pets(here)
    data = prepare(name, {"data": "pets", **SMALL[name]}).data
    assert data.task == "none" and sum(map(len, data.indices.values())) == 30
    assert data.notes[0].startswith("30 images, 24 in cat, dog and 6 beside")
    if "conditional" in RECIPES[name].options:
        told = prepare(name, {"data": "pets", "conditional": True, **SMALL[name]}).data
        assert told.labels == ("cat", "dog") and "left out: 6 images outside the class folders" in told.notes


@pytest.mark.parametrize("name", ["mlp", "semi_supervised"])
def test_who_learns_classes_reads_their_folders_alone(name, here):
    pets(here)
    assert sum(map(len, prepare(name, {"data": "pets"}).data.indices.values())) == 24


def test_a_run_on_all_of_them_is_loaded_again_and_handed_on(here):
    pets(here)
    how = {"data": "pets", "steps": 2, "batch": 8, **SMALL["diffusion"], "predict": "velocity"}
    run = didact.train(RECIPES["diffusion"], **how)
    assert evaluate(run)["test"]["loss"] == pytest.approx(run.facts["test"]["loss"])
    assert prepare("consistency", {"from_": str(run.folder), "intervals": 4}).data.fingerprint == run.facts["data"]["fingerprint"]
    told = didact.train(RECIPES["diffusion"], conditional=True, **how)
    assert prepare("consistency", {"from_": str(told.folder), "intervals": 4}).data.labels == ("cat", "dog")   # as its teacher learned


def test_a_shelf_reads_the_folder_as_each_training_asks(here):
    pets(here)
    shelf = Shelf()
    for conditional, n in ((False, 30), (True, 24), (False, 30)):
        data = shelf.prepare(RECIPES["vae"], {"data": "pets", "conditional": conditional, **SMALL["vae"]}).data
        assert sum(map(len, data.indices.values())) == n


@pytest.mark.parametrize("beside", [1, 2])
def test_cells_that_are_compared_learn_from_the_same_images(here, beside):
    pets(here)
    how = {"data": "pets", "steps": 2, "batch": 8, "beside": beside, **SMALL["vae"]}
    _, rows = sweep(RECIPES["vae"], {"conditional": (False, True)}, **how)
    facts = [Run.open(row["run"]).facts["data"] for row in rows]
    assert [sum(each["rows"].values()) for each in facts] == [24, 24] and len({each["fingerprint"] for each in facts}) == 1
    for row in rows:
        assert evaluate(Run.open(row["run"]))["test"]["loss"] == pytest.approx(row["test"]["loss"])
    _, rows = sweep(RECIPES["vae"], {"beta": (1.0, 2.0)}, **how)               # nobody is told a class
    assert all(sum(Run.open(row["run"]).facts["data"]["rows"].values()) == 30 for row in rows)


@pytest.mark.parametrize("n", [3, 5, 35, 47])
@pytest.mark.parametrize("name", ["autoencoder", "vae"])
def test_few_photographs_leave_one_or_an_odd_number_to_look_at(name, n, here):
    """3 and 5 leave a single test image, 35 and 47 leave 5 and 7, whose halves differ."""
    photographs(here / "photos", n)
    run = didact.train(RECIPES[name], data="photos", steps=2, batch=8, **SMALL[name])
    tests = len(run.load("test")["loss"])
    assert run.facts["status"] == "finished" and tests == {3: 1, 5: 1, 35: 5, 47: 7}[n]
    page.write(run)
    pictures = run.load("gallery")
    assert pictures["reconstructions"].shape[:2] == (2, tests)
    assert ("interpolation" in pictures) == (tests > 1) and all(grid.isfinite().all() for grid in pictures.values())
    if tests > 1:
        assert pictures["interpolation"].shape[:2] == (min(tests // 2, 4), 8)


@pytest.mark.parametrize("name", SMALL)
def test_one_photograph_is_too_few(name, here):
    photographs(here / "photos", 1)
    with pytest.raises(UsageError, match=r"^'photos' holds 1 examples, but three splits need at least 3$"):
        prepare(name, {"data": "photos", **SMALL[name]})


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("name", SMALL)
def test_sizes_that_cannot_be_halved_are_learned_or_refused(name, size, here):
    photographs(here / "photos", 12)
    try:
        experiment = prepare(name, {"data": "photos", "size": size, **SMALL[name]}).experiment
        batch = experiment.data.train.batch(torch.arange(4))
        losses = [experiment.objective.loss(batch, player.name)["loss"] for player in experiment.objective.players()]
    except UsageError as refusal:
        assert "\n" not in str(refusal) and f"{size}×{size}" in str(refusal)
    else:
        assert all(loss.isfinite() for loss in losses)


@pytest.mark.parametrize(("name", "size"), [("dcgan", 3), ("wgan", 4), ("stylegan", 2), ("gan", 1), ("diffusion", 1), ("pixelcnn", 1),
                                            ("realnvp", 1)])
def test_sizes_too_small_to_draw(name, size, here):
    photographs(here / "photos", 12)
    with pytest.raises(UsageError, match=f"{size}×{size}"):
        prepare(name, {"data": "photos", "size": size, **SMALL[name]})


@pytest.mark.parametrize("name", ["mlp", "cnn", "semi_supervised", "scratch_lenet", "bagging"])
def test_who_learns_classes_says_what_is_missing(name, here):
    photographs(here / "photos", 6)
    with pytest.raises(UsageError, match=r"'photos' does not say; photos holds 6 images but no class folders: expected photos/<class>/"):
        prepare(name, {"data": "photos"})


def test_with_class_folders_there_are_labels(here):
    for name in ("cat", "dog"):
        (here / "pets").mkdir(exist_ok=True)
        photographs(here / "pets" / name, 6)
    data = load("pets")
    assert data.task == "binary" and data.labels == ("cat", "dog")
    made = prepare("vae", {"data": "pets", "conditional": True, **SMALL["vae"]}).experiment.objective
    assert made.network.classes == 2
