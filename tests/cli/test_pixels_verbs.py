"""Segmentation and denoising as people use them: train on a folder of one's own, predict, report."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from didact.cli.main import main
from didact.data.folder import ImageEncoder
from didact.data.pictures import colours
from didact.train.use import pictured


def folder(root, n=24, size=(20, 28)):
    """Photographs of a bright block on dark ground, and masks of where it is."""
    rng = np.random.default_rng(0)
    for part in ("images", "masks"):
        (root / part).mkdir(parents=True)
    for i in range(n):
        mask = np.zeros(size, np.uint8)
        top, left = rng.integers(0, 10), rng.integers(0, 14)
        mask[top : top + 9, left : left + 12] = 255
        noise = rng.integers(0, 60, (*size, 3))
        Image.fromarray(np.where(mask[..., None] > 0, 190 + noise, noise).astype(np.uint8)).save(root / "images" / f"{i}.jpg", quality=95)
        Image.fromarray(mask).save(root / "masks" / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two runs on one's own folder, trained from the command line."""
    root = tmp_path_factory.mktemp("pixels")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        folder(root / "blocks")
        common = ["--data", "blocks", "--size", "16", "--device", "cpu", "--batch", "4"]
        assert main(["train", "segmentation", *common, "--widths", "4,8", "--epochs", "12", "--json"]) == 0
        assert main(["train", "denoising", *common, "--widths", "8", "--epochs", "8", "--strength", "0.2", "--json"]) == 0
        yield root


def test_a_block_is_found(place, capsys):
    assert main(["predict", "segmentation/latest", "blocks/images/3.jpg", "--json"]) == 0
    answer, = json.loads(capsys.readouterr().out)
    shares = answer["shares"]
    assert list(shares) == ["background", "foreground"] and sum(shares.values()) == pytest.approx(1)
    true = np.asarray(Image.open("blocks/masks/3.png")) > 0
    assert shares["foreground"] == pytest.approx(true.mean(), abs=0.06)
    assert answer["mask"] == "predictions/3-mask.png"
    numbers = np.asarray(Image.open(answer["classes"]))
    assert numbers.shape == true.shape and set(np.unique(numbers)) <= {0, 1}
    assert (numbers == 1).mean() == pytest.approx(answer["shares"][list(answer["shares"])[1]], abs=0.02)
    drawn, image = (np.asarray(Image.open(p)).astype(float) for p in (answer["mask"], "blocks/images/3.jpg"))
    assert drawn.shape == (20, 28, 3)                                        # as large as the photograph, not as the network's input
    expected = np.where(true[..., None], 0.5 * image + 127.5 * colours(2)[1].numpy(), image)
    assert (abs(drawn - expected).max(-1) < 3).mean() > 0.9


def test_names_that_meet_are_numbered(place, capsys):
    for name in ("a", "b"):
        (place / name).mkdir()
        Image.open("blocks/images/5.jpg").save(place / name / "same.png")
    before = (place / "a" / "same.png").read_bytes()
    assert main(["predict", "segmentation/latest", "a/same.png", "b", "--to", "a"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in told] == ["a/same-mask.png", "a/same-2-mask.png"]
    assert (place / "a" / "same.png").read_bytes() == before and (place / "a" / "same-2-mask.png").is_file()


def test_noise_is_taken_out(place, capsys):
    clean = np.asarray(Image.open("blocks/images/7.jpg").resize((16, 16), Image.Resampling.BILINEAR)).astype(float)
    noisy = (clean + np.random.default_rng(1).normal(0, 51, clean.shape)).clip(0, 255)
    Image.fromarray(noisy.astype(np.uint8)).save("noisy.png")
    assert main(["predict", "denoising/latest", "noisy.png", "--to", "given/back", "--json"]) == 0
    answer, = json.loads(capsys.readouterr().out)
    restored = np.asarray(Image.open(answer["restored"])).astype(float)
    assert answer["restored"] == "given/back/noisy-restored.png" and restored.shape == (16, 16, 3)
    assert ((restored - clean) ** 2).mean() < 0.5 * ((noisy - clean) ** 2).mean()


def test_the_reports_show_pictures(place):
    page, other = (next((place / "runs" / name).glob("*/report.html")).read_text() for name in ("segmentation", "denoising"))
    shown = re.findall(r'<span><img src="data:image/png[^"]+" alt="images/\d+\.jpg: (\w+)"', page)
    tests = 3                                                                # of 24 images; fewer than twelve: worst and best are the same
    assert shown == ["image", "true", "predicted"] * 2 * tests
    assert re.search(r'<ul class="key"><li style="--c:rgb\(\d+, \d+, \d+\)">background</li>', page)
    assert re.search(r"<th[^>]*>foreground</th><td[^>]*>(<span[^>]*>)?\d+\.\d %", page), "no IoU of each class"
    assert re.findall(r'alt="images/\d+\.jpg: (\w+)"', other)[:3] == ["damaged", "restored", "original"]
    assert "→" in other and "Masks" not in other


@pytest.mark.parametrize(("call", "words"), [
    ("predict segmentation/latest blocks/masks/none.png", "no image at"),
    ("predict segmentation/latest cut.jpg", "cannot be read"),
    ("predict segmentation/latest blocks/images/1.jpg --draws 2", "draws none; leave it out"),
    ("predict segmentation/latest blocks/images/1.jpg --passes 2", "this run's network has none"),
    ("predict segmentation/latest blocks/images/1.jpg --to cut.jpg", "cannot write"),
    ("train segmentation --data blocks --size 20 --widths 4,8,8,8", "multiples of 8, got 20"),
    ("train segmentation --data blocks --augment rotate", "did you mean"),
    ("train segmentation --data digits", "learns from masks, but 'digits' is images"),
    ("train segmentation --data blocks --widths 4", "at least two levels"),
    ("train denoising --data digits --damage greyscale", "takes colours away"),
    ("train denoising --damage greyscale --strength 1", "has no --strength"),
])
def test_one_line(place, capsys, call, words):
    raw = (place / "blocks" / "images" / "1.jpg").read_bytes()
    (place / "cut.jpg").write_bytes(raw[: len(raw) // 2])
    assert main(call.split()) == 2
    told = capsys.readouterr().err.strip()
    assert words in told and told.splitlines()[-1].startswith("didact: ") and "Traceback" not in told


def test_boxes_are_drawn_on_the_file(place):
    """What a detector adds: rows of box, score and class, as shares of the sides."""
    Image.new("RGB", (40, 20)).save("dark.png")
    data = SimpleNamespace(encoder=ImageEncoder((3, 8, 8)), labels=("a", "b"))
    answer, = pictured([{"input": "dark.png", "frames": torch.tensor([[0.25, 0.2, 0.75, 0.8, 0.9, 1.0]])}], data, place / "drawn")
    drawn = np.asarray(Image.open(answer["frames"])) / 255
    assert drawn.shape == (140, 280, 3) and abs(drawn[100, 70] - colours(3)[2].numpy()).max() < 0.01 and drawn[70, 140].max() == 0
