"""Image folders for every generative or reconstructing recipe: without labels, too small, of an awkward size."""

import numpy as np
import pytest
import torch
from PIL import Image

import didact
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.registry import RECIPES
from didact.report import page
from didact.run import Run
from didact.training.prepare import prepare
from didact.training.restore import load_model
from didact.training.sweeps.parallel_sweep import DataCache
from didact.training.sweeps.sweep import sweep

SMALL = {
    "autoencoder": {"hidden": (16,)},
    "vae": {"hidden": (16,), "latent_dim": 3},
    "vqvae": {"channels": (8, 8), "codebook_size": 8, "code_dim": 4},
    "gan": {"hidden": (16,), "latent_dim": 4},
    "dcgan": {"channels": 4, "latent_dim": 4},
    "wgan": {"channels": 4, "latent_dim": 4, "discriminator_steps": 2},
    "stylegan": {"channels": 4, "latent_dim": 4, "style_dim": 8, "channels_discriminator": 8},
    "diffusion": {"channels": (8, 16), "time_dim": 8, "timesteps": 20, "sampling_steps": 2},
    "flow_matching": {"channels": (8, 16), "time_dim": 8, "sampling_steps": 1},
    "pixelcnn": {"channels": 4, "num_layers": 1, "levels": 4},
    "pixelrnn": {"channels": 4, "num_layers": 1, "levels": 4},
    "realnvp": {"hidden": 8, "num_couplings": 2},
    "denoising": {"channels": (8, 8)},
    "consistency": {
        "teacher": "diffusion channels=8,16 time_dim=8 timesteps=20 sampling_steps=2 prediction_type=velocity epochs=1",
        "num_intervals": 4,
    },
    "latent_diffusion": {
        "autoencoder": "vqvae channels=8,8 codebook_size=8 code_dim=4 epochs=1",
        "channels": (8,),
        "time_dim": 8,
        "timesteps": 20,
        "sampling_steps": 2,
    },
    "vqvae_prior": {
        "autoencoder": "vqvae channels=8,8 codebook_size=8 code_dim=4 epochs=1",
        "channels": 4,
        "num_layers": 1,
    },
}


def test_every_recipe_of_unlabeled_images_is_listed():
    """All recipes that learn from images without classes."""
    assert set(SMALL) == {
        r.name for r in RECIPES.values() if "images" in r.accepts and r.kind != "supervised" and not r.tasks
    }


def write_images(folder, n, size=(8, 8)):
    folder.mkdir()
    for i in range(n):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(
            folder / f"{i:02}.png"
        )


@pytest.mark.parametrize("name", SMALL)
def test_recipe_learns_unlabeled_images(name, workdir):
    write_images(workdir / "photos", 24)
    run = didact.train(RECIPES[name], data="photos", steps=2, batch_size=8, **SMALL[name])
    assert run.metadata["status"] == "finished" and run.metadata["data"]["task"] == "none"
    assert all(np.isfinite(value) for value in run.metadata["test"].values())
    assert "no class folders" in page.write_report(run).read_text(encoding="utf-8")
    objective, data = load_model(run)
    if "sample" in run.metadata["abilities"]:
        assert objective.sample(3, torch.Generator().manual_seed(0)).shape == (3, *data.shape) == (3, 3, 8, 8)
    with pytest.raises(UsageError, match=r"--conditional|no option"):
        prepare(name, {"data": "photos", "conditional": True, **SMALL[name]})


def write_class_folders(folder, classes=("cat", "dog"), n=12, unlabeled=6):
    """Photographs in class folders, and some that lie beside them."""
    (folder / "pets").mkdir()
    write_images(folder / "pets" / "new", unlabeled)
    for file in (folder / "pets" / "new").iterdir():
        file.rename(folder / "pets" / file.name)
    (folder / "pets" / "new").rmdir()
    for label in classes:
        write_images(folder / "pets" / label, n)


@pytest.mark.parametrize("name", SMALL)
def test_recipe_learns_images_outside_class_folders(name, workdir):
    write_class_folders(workdir)
    data = prepare(name, {"data": "pets", **SMALL[name]}).data
    assert data.task == "none" and sum(map(len, data.indices.values())) == 30
    assert data.notes[0].startswith("30 images, 24 in cat, dog and 6 beside")
    if "conditional" in RECIPES[name].options:
        labeled_data = prepare(name, {"data": "pets", "conditional": True, **SMALL[name]}).data
        assert (
            labeled_data.class_names == ("cat", "dog")
            and "left out: 6 images outside the class folders" in labeled_data.notes
        )


@pytest.mark.parametrize("name", ["mlp", "semi_supervised"])
def test_classifier_reads_only_class_folders(name, workdir):
    write_class_folders(workdir)
    assert sum(map(len, prepare(name, {"data": "pets"}).data.indices.values())) == 24


def test_run_on_unlabeled_images_is_evaluated_and_reused(workdir):
    write_class_folders(workdir)
    options = {"data": "pets", "steps": 2, "batch_size": 8, **SMALL["diffusion"], "prediction_type": "velocity"}
    run = didact.train(RECIPES["diffusion"], **options)
    assert evaluate(run)["test"]["loss"] == pytest.approx(run.metadata["test"]["loss"])
    assert (
        prepare("consistency", {"from_": str(run.folder), "num_intervals": 4}).data.fingerprint
        == run.metadata["data"]["fingerprint"]
    )
    conditional_run = didact.train(RECIPES["diffusion"], conditional=True, **options)
    # as its teacher learned
    assert prepare("consistency", {"from_": str(conditional_run.folder), "num_intervals": 4}).data.class_names == (
        "cat",
        "dog",
    )


def test_data_cache_reads_the_folder_as_each_training_asks(workdir):
    write_class_folders(workdir)
    cache = DataCache()
    for conditional, n in ((False, 30), (True, 24), (False, 30)):
        data = cache.prepare(RECIPES["vae"], {"data": "pets", "conditional": conditional, **SMALL["vae"]}).data
        assert sum(map(len, data.indices.values())) == n


@pytest.mark.parametrize("num_workers", [1, 2])
def test_sweep_cells_learn_from_the_same_images(workdir, num_workers):
    write_class_folders(workdir)
    options = {"data": "pets", "steps": 2, "batch_size": 8, "num_workers": num_workers, **SMALL["vae"]}
    _, rows = sweep(RECIPES["vae"], {"conditional": (False, True)}, **options)
    data_records = [Run.open(row["run"]).metadata["data"] for row in rows]
    assert [sum(record["rows"].values()) for record in data_records] == [24, 24] and len(
        {record["fingerprint"] for record in data_records}
    ) == 1
    for row in rows:
        assert evaluate(Run.open(row["run"]))["test"]["loss"] == pytest.approx(row["test"]["loss"])
    _, rows = sweep(RECIPES["vae"], {"beta": (1.0, 2.0)}, **options)               # without classes
    assert all(sum(Run.open(row["run"]).metadata["data"]["rows"].values()) == 30 for row in rows)


@pytest.mark.parametrize("n", [3, 5, 35, 47])
@pytest.mark.parametrize("name", ["autoencoder", "vae"])
def test_few_images_leave_a_small_test_split(name, n, workdir):
    """3 and 5 leave a single test image, 35 and 47 leave 5 and 7, whose halves differ."""
    write_images(workdir / "photos", n)
    run = didact.train(RECIPES[name], data="photos", steps=2, batch_size=8, **SMALL[name])
    test_count = len(run.load("test")["loss"])
    assert run.metadata["status"] == "finished" and test_count == {3: 1, 5: 1, 35: 5, 47: 7}[n]
    page.write_report(run)
    pictures = run.load("gallery")
    assert pictures["reconstructions"].shape[:2] == (2, test_count)
    assert ("interpolation" in pictures) == (test_count > 1) and all(
        grid.isfinite().all() for grid in pictures.values()
    )
    if test_count > 1:
        assert pictures["interpolation"].shape[:2] == (min(test_count // 2, 4), 8)


@pytest.mark.parametrize("name", SMALL)
def test_one_image_is_refused(name, workdir):
    write_images(workdir / "photos", 1)
    with pytest.raises(UsageError, match=r"^'photos' holds 1 examples, but three splits need at least 3$"):
        prepare(name, {"data": "photos", **SMALL[name]})


@pytest.mark.parametrize("size", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("name", SMALL)
def test_odd_image_size_is_learned_or_refused(name, size, workdir):
    write_images(workdir / "photos", 12)
    try:
        experiment = prepare(name, {"data": "photos", "size": size, **SMALL[name]}).experiment
        batch = experiment.data.train.batch(torch.arange(4))
        losses = [experiment.objective.loss(batch, player.name)["loss"] for player in experiment.objective.players()]
    except UsageError as refusal:
        assert "\n" not in str(refusal) and f"{size}×{size}" in str(refusal)
    else:
        assert all(loss.isfinite() for loss in losses)


@pytest.mark.parametrize(
    ("name", "size"),
    [("dcgan", 3), ("wgan", 4), ("stylegan", 2), ("gan", 1), ("diffusion", 1), ("pixelcnn", 1), ("realnvp", 1)],
)
def test_too_small_image_size_is_refused(name, size, workdir):
    write_images(workdir / "photos", 12)
    with pytest.raises(UsageError, match=f"{size}×{size}"):
        prepare(name, {"data": "photos", "size": size, **SMALL[name]})


@pytest.mark.parametrize("name", ["mlp", "cnn", "semi_supervised", "scratch_lenet", "bagging"])
def test_classifier_refuses_images_without_class_folders(name, workdir):
    write_images(workdir / "photos", 6)
    with pytest.raises(
        UsageError, match=r"'photos' has none; photos holds 6 images but no class folders: expected photos/<class>/"
    ):
        prepare(name, {"data": "photos"})


def test_class_folders_give_labels(workdir):
    for name in ("cat", "dog"):
        (workdir / "pets").mkdir(exist_ok=True)
        write_images(workdir / "pets" / name, 6)
    data = load("pets")
    assert data.task == "binary" and data.class_names == ("cat", "dog")
    objective = prepare("vae", {"data": "pets", "conditional": True, **SMALL["vae"]}).experiment.objective
    assert objective.network.num_classes == 2
