"""Images of more than 8 bits: one range for a set, found in its training files and kept for new ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data import boxes, masks
from didact.data.core import SPLITS
from didact.data.folder import ImageEncoder, load
from didact.data.load import load as load_data
from didact.data.load import reload
from didact.data.spec import from_spec, spec
from didact.errors import UsageError

TYPES = {"png": np.uint16, "tif": np.int32, "tiff": np.float32}


def paint(path, values, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, kind)).save(path)


def bright(i, n, low, high):
    """Image i of n: values all over the range, brighter from file to file."""
    return np.linspace(low, low + (high - low) * (i + 1) / n, 64).reshape(8, 8)


def make(root, suffix, low, high, n=12):
    for i in range(2 * n):
        paint(root / "ab"[i % 2] / f"{i:02}.{suffix}", bright(i, 2 * n, low, high), TYPES[suffix])
    return root


def held(data):
    """What is stored of each file, in the order of the files' names."""
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    return torch.cat([data.split(part).columns["x"] for part in SPLITS])[order]


def test_twelve_bits_in_files_of_sixteen_keep_their_levels(tmp_path):
    data = load(make(tmp_path, "png", 0, 4095))
    assert held(data).max() == 255 and len(held(data).unique()) > 200
    assert any("24 images have more than 8 bits: 0 … 40" in note and "becomes 0 … 255" in note for note in data.notes)


@pytest.mark.parametrize(("suffix", "low", "high"), [
    ("png", 0, 4095), ("png", 30000, 31000), ("tif", 0, 70000), ("tif", -1024, 3071),
    ("tiff", 0, 1), ("tiff", -2.5, 7000), ("tiff", 0, 1e-4),
])
def test_a_value_means_the_same_in_every_file(tmp_path, suffix, low, high):
    data = load(make(tmp_path, suffix, low, high))
    files = sorted(tmp_path.rglob(f"*.{suffix}"))
    values = np.stack([np.asarray(Image.open(f)).astype(np.float64) for f in files])
    train = values[data.indices["train"].numpy()]
    assert data.encoder.span == (train.min(), train.max())
    share = (values.clip(train.min(), train.max()) - train.min()) / (train.max() - train.min())
    np.testing.assert_allclose(held(data)[:, 0], 255 * share, atol=0.5 + 1e-9)


def test_new_files_are_read_in_the_range_of_training(tmp_path):
    data = load_data(str(make(tmp_path / "set", "png", 0, 4000)))
    again = from_spec(json.loads(json.dumps(spec(data))))
    assert again.encoder == data.encoder and again.encoder.span is not None
    low, high = again.encoder.span
    paint(tmp_path / "new.png", [[low, (low + high) / 2, high, 65535]], np.uint16)
    x = ImageEncoder((1, 1, 4), again.encoder.span).open(tmp_path / "new.png")
    assert x.flatten().tolist() in ([0, 127, 255, 255], [0, 128, 255, 255])
    assert torch.equal(held(reload(data, data.indices)), held(data))


def test_a_run_that_was_read_file_by_file_is_not_judged_on_other_pixels(tmp_path):
    data = load_data(str(make(tmp_path, "tiff", 0, 1)))
    old = replace(data, source={**data.source, "fingerprint": "0" * 16})
    with pytest.raises(UsageError, match="or an older didact read it in another way: put the old data back, or train anew"):
        reload(old, data.indices)


def test_a_run_that_was_read_file_by_file_is_read_so_again(tmp_path, monkeypatch):
    monkeypatch.setattr("didact.data.folder.span_of", lambda files: None)
    data = load_data(str(make(tmp_path, "tiff", 0, 1)))
    monkeypatch.undo()
    old = from_spec(json.loads(json.dumps(spec(data))))
    assert old.encoder.span is None and load_data(str(tmp_path)).encoder.span
    assert torch.equal(held(reload(old, data.indices)), held(data))


def test_bytes_stay_as_they_are_beside_others(tmp_path):
    pixels = {}
    for i in range(20):
        pixels[f"{i:02}"] = np.random.default_rng(i).integers(10, 90, (8, 8), dtype=np.uint8)
        paint(tmp_path / "ab"[i % 2] / f"{i:02}.png", pixels[f"{i:02}"], np.uint8)
    plain = load(tmp_path)
    assert plain.encoder == ImageEncoder((1, 8, 8)) and plain.encoder.spec() == {"kind": "images", "shape": [1, 8, 8]}
    paint(tmp_path / "a" / "deep.png", bright(0, 1, 0, 4095), np.uint16)
    mixed = load(tmp_path)
    files = sorted(tmp_path.rglob("*.png"))
    for x, file in zip(held(mixed), files, strict=True):
        if file.stem != "deep":
            np.testing.assert_array_equal(x[0], pixels[file.stem])


def test_what_is_no_number_is_dark_and_a_single_value_is_no_error(tmp_path):
    for i in range(12):
        values = bright(i, 12, 1, 2)
        values[0, :2] = np.nan, np.inf
        paint(tmp_path / f"{i}.tiff", values, np.float32)
    x = held(load(tmp_path))
    assert x[:, 0, 0, 0].tolist() == [0] * 12 and x[:, 0, 0, 1].tolist() == [255] * 12
    for i in range(12):
        paint(tmp_path / "same" / f"{i}.png", np.full((4, 4), 700), np.uint16)
    assert held(load(tmp_path / "same")).unique().tolist() == [0]


def test_images_with_masks_and_with_boxes_too(tmp_path):
    for i in range(12):
        paint(tmp_path / "m" / "images" / f"{i:02}.png", bright(i, 12, 0, 4095), np.uint16)
        paint(tmp_path / "m" / "masks" / f"{i:02}.png", np.eye(8), np.uint8)
    found = masks.load(tmp_path / "m", size=8)
    assert found.encoder.span and len(held(found).unique()) > 150 and any("more than 8 bits" in note for note in found.notes)
    images = [{"id": i, "file_name": f"{i:02}.tif", "width": 8, "height": 8} for i in range(12)]
    things = [{"image_id": i, "category_id": 1, "bbox": [1, 1, 4, 4]} for i in range(12)]
    for i in range(12):
        paint(tmp_path / "b" / f"{i:02}.tif", bright(i, 12, -500, 500), np.int32)
    about = {"images": images, "annotations": things, "categories": [{"id": 1, "name": "cell"}]}
    (tmp_path / "b" / "boxes.json").write_text(json.dumps(about))
    found = boxes.load(tmp_path / "b", size=8)
    assert found.encoder.span[0] == -500 and any("more than 8 bits" in note for note in found.notes)
    again = from_spec(json.loads(json.dumps(spec(found)))).encoder
    assert again == found.encoder and isinstance(again, boxes.BoxEncoder)


def painted(root, draw, kind, suffix="tiff", n=40, side=32):
    """n images of what draw(rng, i) gives, all in training but for a few."""
    for i in range(n):
        paint(root / "ab"[i % 2] / f"{i:02}.{suffix}", draw(np.random.default_rng(i), i).reshape(side, side), kind)
    return load(root)


def cut(data):
    return next((note for note in data.notes if "lie far off" in note), "")


@pytest.mark.parametrize("share", [0.001, 0.3])
def test_no_data_does_not_decide_the_range(tmp_path, share):
    def draw(rng, i):
        values = rng.random(1024)
        if i % 10 == 0:
            values[: int(1024 * share)] = -9999
        if i in range(1, 4) and share > 0.1:
            values[:2] = -3.4e38, 1e6
        return values

    data = painted(tmp_path, draw, np.float32)
    low, high = data.encoder.span
    assert 0 <= low < 0.01 and 0.99 < high <= 1 and len(held(data).unique()) == 256
    assert "below it as 0 (down to -" in cut(data) and ("up to 1e+06" in cut(data)) == (share > 0.1)


@pytest.mark.parametrize("hot", [1, 5])
def test_hot_pixels_do_not_decide_the_range(tmp_path, hot):
    def draw(rng, i):
        values = rng.integers(0, 4096, 1024)
        if i < hot:
            values[i] = 65535 - 1000 * i
        return values

    data = painted(tmp_path, draw, np.uint16, "png", n=100)
    assert data.encoder.span[1] <= 4095 and len(held(data).unique()) == 256 and "above it as 255 (up to 6" in cut(data)


def sky(rng, i):
    """Noise, and a few stars of very different brightness."""
    values = rng.normal(100, 10, 1024)
    values[rng.integers(0, 1024, 8)] += rng.exponential(8000, 8)
    return values.clip(0, 65535)


def dots(rng, i):
    values = np.zeros(1024)
    values[:1 if i % 2 else 0] = rng.uniform(500, 4000)
    return values


@pytest.mark.parametrize("draw", [
    lambda rng, i: rng.integers(0, 4096, 1024), lambda rng, i: rng.normal(2000, 100, 1024).clip(0, 4095), sky, dots,
    lambda rng, i: np.where(np.arange(1024) == i, 4000, 0), lambda rng, i: np.where(np.arange(1024) == i, 60000, i % 2),
    lambda rng, i: np.where(np.arange(1024) < 400, 0, rng.integers(500, 4000, 1024)),
    lambda rng, i: np.where(np.arange(1024) < 900, 0, rng.integers(3900, 4000, 1024)), lambda rng, i: np.full(1024, 7),
], ids=["even", "normal", "sky", "dots", "alike", "counts", "masked", "dark", "constant"])
def test_few_bright_pixels_and_an_even_ground_keep_the_whole_range(tmp_path, draw):
    data = painted(tmp_path, draw, np.uint16, "png", n=60)
    files = sorted(tmp_path.rglob("*.png"))
    train = np.stack([np.asarray(Image.open(files[i])) for i in data.indices["train"].tolist()])
    assert data.encoder.span == (train.min(), train.max()) and not cut(data)


def test_many_files_are_looked_at_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr("didact.data.depth.PIXELS", 4000)

    def draw(rng, i):
        values = rng.integers(0, 4096, 1024)
        values[:3] = 65535 * (i == 7)
        return values

    first, again = (painted(tmp_path, draw, np.uint16, "png") for _ in range(2))
    assert first.encoder.span == again.encoder.span and 4000 < first.encoder.span[1] < 4096
