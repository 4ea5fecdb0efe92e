"""A class for every pixel, and images given back, in the minute that the recipes promise."""

import pytest

import didact
from conftest import has_public
from didact import recipes


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shapes_are_told_apart(seed, here):
    run = didact.train(recipes.segmentation, seed=seed)
    assert run.facts["test"]["mean_iou"] >= 0.90
    assert run.facts["test"]["iou_triangle"] >= 0.85                    # the rarest


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "gain"), [("noise", 6.0), ("blur", 1.0), ("greyscale", 0.5)])
def test_images_come_back(damage, gain, here):
    test = didact.train(recipes.denoising, damage=damage).facts["test"]
    assert test["psnr_gain"] > gain and test["ssim"] > test["ssim_damaged"] + 0.01


@pytest.mark.slow
@pytest.mark.skipif(not has_public("pennfudan"), reason="DIDACT_DATA holds no pennfudan")
def test_pedestrians_are_found(here):
    run = didact.train(recipes.segmentation, data="pennfudan", widths=(8, 16, 32, 64, 128), augment=("flip", "zoom", "jitter"), epochs=12)
    assert run.facts["test"]["mean_iou"] > 0.55                         # all street gives 0.41


@pytest.mark.parametrize("damage", ["blur", "greyscale"])
def test_every_damage_is_a_word(damage, here):
    run = didact.train(recipes.denoising, data="shapes", damage=damage, widths=(4,), epochs=1, batch=64)
    assert run.facts["test"]["psnr_damaged"] > 10 and {"worst_damaged", "best_restored"} <= run.load("examples").keys()


def test_grey_digits_are_given_back(here):
    run = didact.train(recipes.denoising, data="digits", strength=0.3, widths=(8, 16), epochs=4, batch=32)
    assert run.facts["test"]["psnr_gain"] > 1.5
