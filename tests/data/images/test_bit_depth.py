"""Images of more than 8 bits: one range for a dataset, of its training files, also for new files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.core import SPLITS
from didact.data.images import boxes, masks
from didact.data.images.image_folder import ImageEncoder, load_image_folder
from didact.data.load import load as load_data
from didact.data.load import reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.errors import UsageError

DTYPE_OF_SUFFIX = {"png": np.uint16, "tif": np.int32, "tiff": np.float32}


def write_image(path, values, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, kind)).save(path)


def make_gradient(i, n, low, high):
    """Image i of n: values over the whole range, brighter from file to file."""
    return np.linspace(low, low + (high - low) * (i + 1) / n, 64).reshape(8, 8)


def write_image_folder(root, suffix, low, high, n=12):
    for i in range(2 * n):
        write_image(
            root / "ab"[i % 2] / f"{i:02}.{suffix}", make_gradient(i, 2 * n, low, high), DTYPE_OF_SUFFIX[suffix]
        )
    return root


def concat_stored_pixels(data):
    """The stored pixels of each file, in the order of the names."""
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    return torch.cat([data.split(part).columns["x"] for part in SPLITS])[order]


def test_12_bit_images_in_16_bit_files_keep_their_levels(tmp_path):
    data = load_image_folder(write_image_folder(tmp_path, "png", 0, 4095))
    assert concat_stored_pixels(data).max() == 255 and len(concat_stored_pixels(data).unique()) > 200
    assert any("24 images have more than 8 bits: 0 … 40" in note and "becomes 0 … 255" in note for note in data.notes)


@pytest.mark.parametrize(("suffix", "low", "high"), [
    ("png", 0, 4095), ("png", 30000, 31000), ("tif", 0, 70000), ("tif", -1024, 3071),
    ("tiff", 0, 1), ("tiff", -2.5, 7000), ("tiff", 0, 1e-4),
])
def test_value_range_is_shared_by_all_files(tmp_path, suffix, low, high):
    data = load_image_folder(write_image_folder(tmp_path, suffix, low, high))
    files = sorted(tmp_path.rglob(f"*.{suffix}"))
    values = np.stack([np.asarray(Image.open(f)).astype(np.float64) for f in files])
    train = values[data.indices["train"].numpy()]
    assert data.encoder.value_range == (train.min(), train.max())
    scaled = (values.clip(train.min(), train.max()) - train.min()) / (train.max() - train.min())
    np.testing.assert_allclose(concat_stored_pixels(data)[:, 0], 255 * scaled, atol=0.5 + 1e-9)


def test_new_files_are_scaled_by_the_training_range(tmp_path):
    data = load_data(str(write_image_folder(tmp_path / "set", "png", 0, 4000)))
    restored_data = data_from_json(json.loads(json.dumps(data_to_json(data))))
    assert restored_data.encoder == data.encoder and restored_data.encoder.value_range is not None
    low, high = restored_data.encoder.value_range
    write_image(tmp_path / "new.png", [[low, (low + high) / 2, high, 65535]], np.uint16)
    x = ImageEncoder((1, 1, 4), restored_data.encoder.value_range).open(tmp_path / "new.png")
    assert x.flatten().tolist() in ([0, 127, 255, 255], [0, 128, 255, 255])
    assert torch.equal(concat_stored_pixels(reload_data(data, data.indices)), concat_stored_pixels(data))


def test_run_scaled_per_file_refuses_other_pixels(tmp_path):
    data = load_data(str(write_image_folder(tmp_path, "tiff", 0, 1)))
    old_data = replace(data, source={**data.source, "fingerprint": "0" * 16})
    with pytest.raises(
        UsageError, match="or an older didact read it in another way: put the old data back, or train anew"
    ):
        reload_data(old_data, data.indices)


def test_run_scaled_per_file_is_reloaded_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("didact.data.images.image_folder.find_value_range", lambda files: None)
    data = load_data(str(write_image_folder(tmp_path, "tiff", 0, 1)))
    monkeypatch.undo()
    old_data = data_from_json(json.loads(json.dumps(data_to_json(data))))
    assert old_data.encoder.value_range is None and load_data(str(tmp_path)).encoder.value_range
    assert torch.equal(concat_stored_pixels(reload_data(old_data, data.indices)), concat_stored_pixels(data))


def test_8_bit_images_stay_unchanged_among_deep_ones(tmp_path):
    pixels = {}
    for i in range(20):
        pixels[f"{i:02}"] = np.random.default_rng(i).integers(10, 90, (8, 8), dtype=np.uint8)
        write_image(tmp_path / "ab"[i % 2] / f"{i:02}.png", pixels[f"{i:02}"], np.uint8)
    plain_data = load_image_folder(tmp_path)
    assert plain_data.encoder == ImageEncoder((1, 8, 8)) and plain_data.encoder.spec() == {
        "kind": "images",
        "shape": [1, 8, 8],
    }
    write_image(tmp_path / "a" / "deep.png", make_gradient(0, 1, 0, 4095), np.uint16)
    mixed_data = load_image_folder(tmp_path)
    files = sorted(tmp_path.rglob("*.png"))
    for x, file in zip(concat_stored_pixels(mixed_data), files, strict=True):
        if file.stem != "deep":
            np.testing.assert_array_equal(x[0], pixels[file.stem])


def test_nan_pixels_are_black_and_constant_images_are_read(tmp_path):
    for i in range(12):
        values = make_gradient(i, 12, 1, 2)
        values[0, :2] = np.nan, np.inf
        write_image(tmp_path / f"{i}.tiff", values, np.float32)
    x = concat_stored_pixels(load_image_folder(tmp_path))
    assert x[:, 0, 0, 0].tolist() == [0] * 12 and x[:, 0, 0, 1].tolist() == [255] * 12
    for i in range(12):
        write_image(tmp_path / "same" / f"{i}.png", np.full((4, 4), 700), np.uint16)
    assert concat_stored_pixels(load_image_folder(tmp_path / "same")).unique().tolist() == [0]


def test_masks_and_boxes_read_deep_images_too(tmp_path):
    for i in range(12):
        write_image(tmp_path / "m" / "images" / f"{i:02}.png", make_gradient(i, 12, 0, 4095), np.uint16)
        write_image(tmp_path / "m" / "masks" / f"{i:02}.png", np.eye(8), np.uint8)
    loaded_data = masks.load_segmentation_folder(tmp_path / "m", size=8)
    assert (
        loaded_data.encoder.value_range
        and len(concat_stored_pixels(loaded_data).unique()) > 150
        and any("more than 8 bits" in note for note in loaded_data.notes)
    )
    images = [{"id": i, "file_name": f"{i:02}.tif", "width": 8, "height": 8} for i in range(12)]
    annotations = [{"image_id": i, "category_id": 1, "bbox": [1, 1, 4, 4]} for i in range(12)]
    for i in range(12):
        write_image(tmp_path / "b" / f"{i:02}.tif", make_gradient(i, 12, -500, 500), np.int32)
    coco = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cell"}]}
    (tmp_path / "b" / "boxes.json").write_text(json.dumps(coco))
    loaded_data = boxes.load_detection_folder(tmp_path / "b", size=8)
    assert loaded_data.encoder.value_range[0] == -500 and any("more than 8 bits" in note for note in loaded_data.notes)
    restored_encoder = data_from_json(json.loads(json.dumps(data_to_json(loaded_data)))).encoder
    assert restored_encoder == loaded_data.encoder and isinstance(restored_encoder, boxes.BoxEncoder)


def load_generated_images(root, sample_pixels, kind, suffix="tiff", n=40, side=32):
    """n images of draw(rng, i), nearly all in training."""
    for i in range(n):
        write_image(
            root / "ab"[i % 2] / f"{i:02}.{suffix}",
            sample_pixels(np.random.default_rng(i), i).reshape(side, side),
            kind,
        )
    return load_image_folder(root)


def find_range_note(data):
    return next((note for note in data.notes if "lie far off" in note), "")


@pytest.mark.parametrize("share", [0.001, 0.3])
def test_missing_data_markers_do_not_set_the_range(tmp_path, share):
    def sample_pixels(rng, i):
        values = rng.random(1024)
        if i % 10 == 0:
            values[: int(1024 * share)] = -9999
        if i in range(1, 4) and share > 0.1:
            values[:2] = -3.4e38, 1e6
        return values

    data = load_generated_images(tmp_path, sample_pixels, np.float32)
    low, high = data.encoder.value_range
    assert 0 <= low < 0.01 and 0.99 < high <= 1 and len(concat_stored_pixels(data).unique()) == 256
    assert "below it as 0 (down to -" in find_range_note(data) and ("up to 1e+06" in find_range_note(data)) == (
        share > 0.1
    )


@pytest.mark.parametrize("num_hot", [1, 5])
def test_hot_pixels_do_not_set_the_range(tmp_path, num_hot):
    def sample_pixels(rng, i):
        values = rng.integers(0, 4096, 1024)
        if i < num_hot:
            values[i] = 65535 - 1000 * i
        return values

    data = load_generated_images(tmp_path, sample_pixels, np.uint16, "png", n=100)
    assert (
        data.encoder.value_range[1] <= 4095
        and len(concat_stored_pixels(data).unique()) == 256
        and "above it as 255 (up to 6" in find_range_note(data)
    )


def sample_sky(rng, i):
    """Noise, and a few stars of very different brightness."""
    values = rng.normal(100, 10, 1024)
    values[rng.integers(0, 1024, 8)] += rng.exponential(8000, 8)
    return values.clip(0, 65535)


def sample_dots(rng, i):
    values = np.zeros(1024)
    values[:1 if i % 2 else 0] = rng.uniform(500, 4000)
    return values


@pytest.mark.parametrize(
    "sample_pixels",
    [
        lambda rng, i: rng.integers(0, 4096, 1024),
        lambda rng, i: rng.normal(2000, 100, 1024).clip(0, 4095),
        sample_sky,
        sample_dots,
        lambda rng, i: np.where(np.arange(1024) == i, 4000, 0),
        lambda rng, i: np.where(np.arange(1024) == i, 60000, i % 2),
        lambda rng, i: np.where(np.arange(1024) < 400, 0, rng.integers(500, 4000, 1024)),
        lambda rng, i: np.where(np.arange(1024) < 900, 0, rng.integers(3900, 4000, 1024)),
        lambda rng, i: np.full(1024, 7),
    ],
    ids=["even", "normal", "sky", "dots", "alike", "counts", "masked", "dark", "constant"],
)
def test_sparse_bright_pixels_keep_the_full_range(tmp_path, sample_pixels):
    data = load_generated_images(tmp_path, sample_pixels, np.uint16, "png", n=60)
    files = sorted(tmp_path.rglob("*.png"))
    train = np.stack([np.asarray(Image.open(files[i])) for i in data.indices["train"].tolist()])
    assert data.encoder.value_range == (train.min(), train.max()) and not find_range_note(data)


def test_many_files_are_sampled_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr("didact.data.images.bit_depth.MAX_SAMPLED_PIXELS", 4000)

    def sample_pixels(rng, i):
        values = rng.integers(0, 4096, 1024)
        values[:3] = 65535 * (i == 7)
        return values

    first, second = (load_generated_images(tmp_path, sample_pixels, np.uint16, "png") for _ in range(2))
    assert first.encoder.value_range == second.encoder.value_range and 4000 < first.encoder.value_range[1] < 4096
