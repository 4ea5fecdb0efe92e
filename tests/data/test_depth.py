"""Images of more than 8 bits: one range for a set, found in its training files and kept for new ones."""

import json

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
    assert torch.equal(held(reload(data.source, data.indices)), held(data))


def test_a_run_that_was_read_file_by_file_is_not_judged_on_other_pixels(tmp_path):
    data = load_data(str(make(tmp_path, "tiff", 0, 1)))
    old = {**data.source, "fingerprint": "0" * 16}
    with pytest.raises(UsageError, match="or an older didact read it in another way: put the old data back, or train anew"):
        reload(old, data.indices)


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
