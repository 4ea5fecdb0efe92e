"""Segmentation and denoising reach their quality within the minute that the recipes promise."""

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import torch
from PIL import Image

import didact
from didact import recipes
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.predict import predict
from didact.layers.conv.reflect_pad import ReflectPadded
from didact.models.vision.unet import UNet
from didact.objectives.vision.restoration import AddBlur
from didact.recipes.denoising import MIN_BLUR_STD
from didact.registry import MODELS
from didact.training.prepare import prepare
from didact.training.restore import load_model
from helpers.public_data import has_public_data


@pytest.mark.slow
def test_segmentation_learns_the_synthetic_shapes(workdir):
    test = [didact.train(recipes.segmentation, seed=seed).metadata["test"] for seed in range(3)]
    assert mean(scores["mean_iou"] for scores in test) >= 0.90
    # the rarest
    assert min(scores["mean_iou"] for scores in test) >= 0.87 and min(scores["iou_triangle"] for scores in test) >= 0.80


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "gain"), [("noise", 6.0), ("blur", 1.0), ("grayscale", 0.5)])
def test_denoising_improves_psnr_and_ssim(damage, gain, workdir):
    test = didact.train(recipes.denoising, degradation=damage).metadata["test"]
    assert test["psnr_gain"] > gain and test["ssim"] > test["ssim_damaged"] + 0.01


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("pennfudan"), reason="DIDACT_DATA holds no pennfudan")
def test_segmentation_finds_pedestrians(workdir):
    run = didact.train(
        recipes.segmentation,
        data="pennfudan",
        channels=(8, 16, 32, 64, 128),
        augment=("flip", "zoom", "jitter"),
        epochs=12,
    )
    assert run.metadata["test"]["mean_iou"] > 0.55                         # all street gives 0.41


@pytest.mark.parametrize("damage", ["blur", pytest.param("grayscale", marks=pytest.mark.slow)])
def test_denoising_learns_every_degradation(damage, workdir):
    run = didact.train(recipes.denoising, data="shapes", degradation=damage, channels=(4,), epochs=1, batch_size=64)
    assert (
        run.metadata["test"]["psnr_damaged"] > 10 and {"worst_damaged", "best_restored"} <= run.load("examples").keys()
    )


def test_denoising_learns_gray_digits(workdir):
    run = didact.train(recipes.denoising, data="digits", strength=0.3, channels=(8, 16), epochs=4, batch_size=32)
    assert run.metadata["test"]["psnr_gain"] > 1.5


@pytest.mark.parametrize(("damage", "strength", "minimum"), [("blur", 0.1, 0.3), ("noise", 1e-4, 0.002)])
def test_degradation_without_effect_is_refused(damage, strength, minimum):
    with pytest.raises(
        UsageError, match=f"{damage} expects at least {minimum}: less changes no gray level, got {strength:g}"
    ):
        prepare("denoising", {"degradation": damage, "strength": strength})
    x = torch.zeros(1, 1, 9, 9)
    x[..., 4] = 1
    # both neighbours of a line, a grey level each
    assert (255 * (AddBlur(MIN_BLUR_STD)(x, x) - x).abs().max()).round() == 2


def test_denoised_photos_keep_their_size(workdir):
    run = didact.train(recipes.denoising, data="shapes", channels=(4, 6), epochs=1, batch_size=64)
    x = torch.rand(61, 107, 3)
    Image.fromarray((255 * x).byte().numpy()).save("photo.png")
    assert main(["predict", str(run.folder), "photo.png", "--output", "drawn"]) == 0
    with Image.open("drawn/photo-restored.png") as image:
        assert image.size == (107, 61)
    assert predict(run, ["photo.png"])[0]["restored"].shape == (3, 61, 107)
    for size in ((2500, 40), (10_000, 10)):                                 # larger than a screen, and than a tile
        Image.effect_noise(size, 60).convert("RGB").save("large.jpg", quality=95)
        restored_file = predict(run, ["large.jpg"], out_dir="drawn")[0]["restored"]
        with Image.open(restored_file) as image, Image.open("large.jpg") as original:
            assert image.size == size
            # its own pixels, none averaged away
            assert np.abs(np.asarray(image).astype(float) - np.asarray(original)).max() < 100
            assert np.asarray(image).std() > 0.7 * np.asarray(original).std()
    with pytest.raises(
        UsageError, match=r"--min-score 0\.5 is for bounding boxes, but this run's model predicts none"
    ):
        predict(run, ["photo.png"], min_score=0.5)


@pytest.mark.parametrize(
    ("name", "images", "epochs"),
    [
        ("segmentation", 900, 12),
        ("denoising", 900, 8),
        ("segmentation", 20, 450),
        ("denoising", 20, 300),
        ("segmentation", 9000, 12),
    ],
)
def test_small_datasets_get_more_epochs(name, images, epochs):
    data = load("shapes")
    data = replace(data, train=data.train.subset(torch.arange(images) % 900))
    experiment = prepare(name, {}, data=data).experiment
    steps_per_epoch = -(-images // 8)
    assert (
        experiment.epochs == epochs and f"chosen from {images:,} training examples: {epochs} epochs" in experiment.notes
    )
    assert experiment.evaluate_every == (None if images > 20 else epochs * steps_per_epoch // 50)
    assert prepare(name, {"epochs": 3}, data=data).experiment.epochs == 3


@pytest.mark.slow
def test_denoising_learns_images_with_boxes(workdir):
    run = didact.train(recipes.denoising, data="scatter", channels=(4, 6), steps=2, batch_size=16)
    assert run.metadata["status"] == "finished" and run.metadata["test"]["psnr_damaged"] > 10
    assert "restored" in didact.report.write_report(run).read_text()


def write_segmentation_folder(folder, *, void=False):
    """Images whose bright pixels are class 1; with `void` the right half of each mask is 255, and what lies there
    would mislead."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for i in range(24):
        left = torch.rand(8, 8, generator=torch.Generator().manual_seed(i)) > 0.5
        bright = torch.cat([left, ~left], 1).repeat_interleave(4, 0).repeat_interleave(2, 1)     # (32, 32)
        mask = torch.where(torch.arange(32) < 16, bright.long(), 255) if void else bright
        Image.fromarray((255 * bright).byte().numpy()).save(folder / "images" / f"{i:02}.png")
        Image.fromarray(mask.byte().numpy()).save(folder / "masks" / f"{i:02}.png")
    return str(folder)


def test_large_unet_gets_a_smaller_learning_rate():
    """31 million parameters at the rate of the small ones are at a loss of a million after two steps."""
    rates = {}
    for model in ("unet_mini", "unet"):
        experiment = prepare("segmentation", {"model": model}).experiment
        rates[model] = experiment.optimizer(experiment.objective.parameters()).param_groups[0]["lr"]
    assert rates == {"unet_mini": 5e-3, "unet": 1e-3}


@pytest.mark.parametrize(("model", "widths"), [("unet_tiny", None), ("unet", (4, 6)), ("unet_2015", (4, 6, 8))])
def test_course_unets_learn(model, widths, workdir):
    run = didact.train(
        recipes.segmentation,
        data=write_segmentation_folder(workdir / "own"),
        model=model,
        channels=widths,
        epochs=20,
        batch_size=4,
    )
    assert run.metadata["test"]["mean_iou"] > 0.9                              # one class alone gives 0.25
    objective, _ = load_model(run)
    assert isinstance(objective.network, ReflectPadded if model == "unet_2015" else UNet)
    assert run.load("examples")["worst_mask"].shape[1:] == (32, 32)         # every pixel, without padding too


def test_default_unet_is_that_of_older_runs():
    assert MODELS["unet_mini"].keywords == {"widths": (8, 16, 32, 64), "norm": "batch"}


def test_void_pixels_are_left_out_of_training_and_report(workdir):
    run = didact.train(
        recipes.segmentation,
        data=write_segmentation_folder(workdir / "own", void=True),
        channels=(4, 8),
        augment=("flip", "crop", "zoom"),
        epochs=30,
        batch_size=4,
    )
    assert run.metadata["test"]["mean_iou"] > 0.9
    assert set(run.load("test")["confusion"].sum((1, 2)).tolist()) == {16 * 32}
    assert "no class, not judged" in didact.report.write_report(run).read_text()
