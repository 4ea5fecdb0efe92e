"""Segmentation and denoising on a folder of images: train, predict, report."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from didact.cli.main import main
from didact.data.images.image_folder import ImageEncoder
from didact.data.images.render import make_palette
from didact.inference.predict import save_pictures


def make_image_folder(root, n=24, size=(20, 28)):
    """Photographs of a bright block on dark ground, and masks of where it is."""
    rng = np.random.default_rng(0)
    for part in ("images", "masks"):
        (root / part).mkdir(parents=True)
    for i in range(n):
        mask = np.zeros(size, np.uint8)
        top, left = rng.integers(0, 10), rng.integers(0, 14)
        mask[top : top + 9, left : left + 12] = 255
        noise = rng.integers(0, 60, (*size, 3))
        Image.fromarray(np.where(mask[..., None] > 0, 190 + noise, noise).astype(np.uint8)).save(
            root / "images" / f"{i}.jpg", quality=95
        )
        Image.fromarray(mask).save(root / "masks" / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Two runs on a folder of images, trained from the command line."""
    root = tmp_path_factory.mktemp("pixels")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_image_folder(root / "blocks")
        common_options = ["--data", "blocks", "--size", "16", "--device", "cpu", "--batch-size", "4"]
        assert main(["train", "segmentation", *common_options, "--channels", "4,8", "--epochs", "12", "--json"]) == 0
        options = ["--channels", "8", "--epochs", "8", "--strength", "0.2"]
        assert main(["train", "denoising", *common_options, *options, "--json"]) == 0
        yield root


def test_predict_segments_a_block(workdir, capsys):
    assert main(["predict", "segmentation/latest", "blocks/images/3.jpg", "--json"]) == 0
    prediction, = json.loads(capsys.readouterr().out)
    shares = prediction["shares"]
    assert list(shares) == ["background", "foreground"] and sum(shares.values()) == pytest.approx(1)
    true_mask = np.asarray(Image.open("blocks/masks/3.png")) > 0
    assert shares["foreground"] == pytest.approx(true_mask.mean(), abs=0.06)
    assert prediction["mask"] == "predictions/3-mask.png"
    class_indices = np.asarray(Image.open(prediction["classes"]))
    assert class_indices.shape == true_mask.shape and set(np.unique(class_indices)) <= {0, 1}
    assert (class_indices == 1).mean() == pytest.approx(prediction["shares"][list(prediction["shares"])[1]], abs=0.02)
    overlay, image = (np.asarray(Image.open(p)).astype(float) for p in (prediction["mask"], "blocks/images/3.jpg"))
    # as large as the photograph, not as the network's input
    assert overlay.shape == (20, 28, 3)
    expected = np.where(true_mask[..., None], 0.5 * image + 127.5 * make_palette(2)[1].numpy(), image)
    assert (abs(overlay - expected).max(-1) < 3).mean() > 0.9


def test_predict_numbers_equal_output_names(workdir, capsys):
    for name in ("a", "b"):
        (workdir / name).mkdir()
        Image.open("blocks/images/5.jpg").save(workdir / name / "same.png")
    before = (workdir / "a" / "same.png").read_bytes()
    assert main(["predict", "segmentation/latest", "a/same.png", "b", "--output", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["a/same-mask.png", "a/same-2-mask.png"]
    assert (workdir / "a" / "same.png").read_bytes() == before and (workdir / "a" / "same-2-mask.png").is_file()


def test_predict_denoises_an_image(workdir, capsys):
    clean = np.asarray(Image.open("blocks/images/7.jpg").resize((16, 16), Image.Resampling.BILINEAR)).astype(float)
    noisy = (clean + np.random.default_rng(1).normal(0, 51, clean.shape)).clip(0, 255)
    Image.fromarray(noisy.astype(np.uint8)).save("noisy.png")
    assert main(["predict", "denoising/latest", "noisy.png", "--output", "given/back", "--json"]) == 0
    prediction, = json.loads(capsys.readouterr().out)
    restored_image = np.asarray(Image.open(prediction["restored"])).astype(float)
    assert prediction["restored"] == "given/back/noisy-restored.png" and restored_image.shape == (16, 16, 3)
    assert ((restored_image - clean) ** 2).mean() < 0.5 * ((noisy - clean) ** 2).mean()


def test_reports_show_input_target_and_prediction(workdir):
    segmentation_page, denoising_page = (
        next((workdir / "runs" / name).glob("*/report.html")).read_text() for name in ("segmentation", "denoising")
    )
    captions = re.findall(r'<span><img src="data:image/png[^"]+" alt="images/\d+\.jpg: (\w+)"', segmentation_page)
    # of 24 images; fewer than twelve: worst and best are the same
    test_count = 3
    assert captions == ["image", "true", "predicted"] * 2 * test_count
    assert re.search(r'<ul class="key"><li style="--c:rgb\(\d+, \d+, \d+\)">background</li>', segmentation_page)
    assert re.search(r"<th[^>]*>foreground</th><td[^>]*>(<span[^>]*>)?\d+\.\d %", segmentation_page), (
        "no IoU of each class"
    )
    assert re.findall(r'alt="images/\d+\.jpg: (\w+)"', denoising_page)[:3] == ["damaged", "restored", "original"]
    assert "→" in denoising_page and "Masks" not in denoising_page


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("predict segmentation/latest blocks/masks/none.png", "no image at"),
        ("predict segmentation/latest cut.jpg", "cannot be read"),
        (
            "predict segmentation/latest blocks/images/1.jpg --num-samples 2",
            "this run's model predicts neither; leave it out",
        ),
        ("predict segmentation/latest blocks/images/1.jpg --mc-passes 2", "this run's network has none"),
        ("predict segmentation/latest blocks/images/1.jpg --output cut.jpg", "cannot write"),
        ("train segmentation --data blocks --size 20 --channels 4,8,8,8", "multiples of 8, got 20"),
        ("train segmentation --data blocks --augment rotate", "did you mean"),
        ("train segmentation --data digits", "learns from masks, but 'digits' is images"),
        ("train segmentation --data blocks --channels 4", "at least two levels"),
        ("train denoising --data digits --degradation grayscale", "is for color images"),
        ("train denoising --degradation grayscale --strength 1", "has no --strength"),
    ],
)
def test_segmentation_and_denoising_refuse_bad_input_in_one_line(workdir, capsys, command, message):
    raw = (workdir / "blocks" / "images" / "1.jpg").read_bytes()
    (workdir / "cut.jpg").write_bytes(raw[: len(raw) // 2])
    assert main(command.split()) == 2
    stderr = capsys.readouterr().err.strip()
    assert message in stderr and stderr.splitlines()[-1].startswith("didact: ") and "Traceback" not in stderr


def test_predicted_boxes_are_drawn_on_the_file(workdir):
    """What a detector adds: rows of box, score and class, as shares of the sides."""
    Image.new("RGB", (40, 20)).save("dark.png")
    data = SimpleNamespace(encoder=ImageEncoder((3, 8, 8)), class_names=("a", "b"))
    (prediction,) = save_pictures(
        [{"input": "dark.png", "frames": torch.tensor([[0.25, 0.2, 0.75, 0.8, 0.9, 1.0]])}], data, workdir / "drawn"
    )
    image = np.asarray(Image.open(prediction["frames"])) / 255
    assert (
        image.shape == (140, 280, 3)
        and abs(image[100, 70] - make_palette(3)[2].numpy()).max() < 0.01
        and image[70, 140].max() == 0
    )
