from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.split import train_val_test_split
from didact.data.tables.table import load_table
from didact.errors import UsageError


@pytest.fixture
def table_path(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=80),
            "c": rng.choice(["u", "v"], 80),
            "words": ["good film", "bad film"] * 40,
            "y": rng.choice(["k", "l", "m"], 80),
        }
    )
    frame.loc[::9, "a"] = np.nan
    path = tmp_path / "own.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def image_folder(tmp_path):
    for k in range(2):
        (tmp_path / "pics" / f"k{k}").mkdir(parents=True)
        for i in range(6):
            pixels = np.random.default_rng(10 * k + i).integers(0, 256, (7, 7), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pics" / f"k{k}" / f"{i}.png")
    return tmp_path / "pics"


def assert_same_data(data, other_data):
    for part in SPLITS:
        assert torch.equal(data.indices[part], other_data.indices[part])
        for name, column in data.split(part).columns.items():
            assert torch.equal(column, other_data.split(part).columns[name]), (part, name)
    assert torch.equal(data.mean, other_data.mean) and torch.equal(data.std, other_data.std)
    assert (data.class_counts, data.source, data.encoder, data.fingerprint) == (
        other_data.class_counts,
        other_data.source,
        other_data.encoder,
        other_data.fingerprint,
    )


def test_reload_data_restores_every_kind(table_path, image_folder, monkeypatch):
    monkeypatch.chdir(table_path.parent)
    loaded = {
        "table": load("own.csv", seed=5),
        "text": load("own.csv", text="words", target="y", seed=5),
        "images": load("pics", size=5, seed=5),
    }
    monkeypatch.chdir("/")
    for kind, data in loaded.items():
        assert data.kind == kind
        assert_same_data(data, reload_data(data, data.indices))
    assert loaded["table"].source["path"] == str(table_path) and loaded["table"].source["target"] == "y"
    iris = load("iris", seed=2)
    assert_same_data(iris, reload_data(iris, iris.indices))


@pytest.mark.parametrize("name", ["iris", "diabetes"])
def test_reload_data_uses_the_stored_split(name):
    data = load(name, seed=0)
    n = sum(len(data.split(part)) for part in SPLITS)
    stored_indices = train_val_test_split(n, seed=99, fractions=(0.2, 0.2))
    reloaded_data = reload_data(data, stored_indices)
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    all_rows = torch.cat([data.split(part).columns["x"] for part in SPLITS])[order]
    for part in SPLITS:
        assert torch.equal(reloaded_data.split(part).columns["x"], all_rows[stored_indices[part]])
    torch.testing.assert_close(reloaded_data.mean, all_rows[stored_indices["train"]].mean(0))
    torch.testing.assert_close(reloaded_data.std, all_rows[stored_indices["train"]].std(0, correction=0))


def test_reloaded_table_is_encoded_by_its_stored_training_rows(table_path):
    stored_indices = train_val_test_split(80, seed=99, fractions=(0.2, 0.2))
    data = load_table(table_path, indices=stored_indices)
    source = {
        "path": str(table_path),
        "target": "y",
        "text": None,
        "size": None,
        "seed": 0,
        "fingerprint": data.fingerprint,
    }
    reloaded_data = reload_data(replace(data, source=source), stored_indices)
    assert reloaded_data.encoder == data.encoder and torch.equal(
        reloaded_data.test.columns["x"], data.test.columns["x"]
    )


def test_reload_data_refuses_changed_files(table_path, image_folder):
    data, image_data = load(str(table_path)), load(str(image_folder))
    text = table_path.read_text()
    table_path.write_text(text.replace("u,good", "v,good", 1))
    with pytest.raises(UsageError, match="has changed since"):
        reload_data(data, data.indices)
    table_path.write_text(text.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(UsageError, match="now holds 79 examples, but 80"):
        reload_data(data, data.indices)
    table_path.unlink()
    with pytest.raises(UsageError, match="no such file"):
        reload_data(data, data.indices)
    Image.new("L", (7, 7)).save(image_folder / "k0" / "0.png")
    with pytest.raises(UsageError, match="has changed since"):
        reload_data(image_data, image_data.indices)


@pytest.mark.parametrize(("name_or_path", "options", "message"), [
    ("iriss", {}, "no dataset, file or folder named 'iriss'; did you mean 'iris'"),
    ("", {}, "no dataset, file or folder named ''"),
    ("nowhere/table.csv", {}, "no data at nowhere/table.csv: there is no such file"),
    ("table.csv", {}, "no data at table.csv"),
    ("x" * 5000, {}, "no dataset, file or folder"),
    ("iris", {"target": "species"}, "--target does not apply: 'iris' is a known dataset"),
    ("own.csv", {"size": 3}, "--size does not apply"),
    ("pics", {"text": "a"}, "--text does not apply"),
    ("own.docx", {}, "neither a table"),
])
def test_load_refuses_unknown_data_and_options(table_path, image_folder, monkeypatch, name_or_path, options, message):
    monkeypatch.chdir(table_path.parent)
    (table_path.parent / "own.docx").write_bytes(b"PK")
    with pytest.raises(UsageError, match=message) as error:
        load(name_or_path, **options)
    assert "\n" not in str(error.value)


def test_compute_uint8_mean_std_equals_float_statistics():
    import torch

    from didact.data.build import compute_uint8_mean_std
    from didact.data.core import uint8_to_unit

    x = torch.randint(0, 256, (37, 3, 5, 7), dtype=torch.uint8)
    x[:, 1] = 9
    mean, std = compute_uint8_mean_std(x)
    decoded = uint8_to_unit(x).double()
    torch.testing.assert_close(mean.flatten().double(), decoded.mean((0, 2, 3)), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        std.flatten()[[0, 2]].double(), decoded.std((0, 2, 3), correction=0)[[0, 2]], atol=1e-6, rtol=0
    )
    assert std.flatten()[1] == 1  # a constant channel is centered, not scaled


def test_size_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr("didact.data.images.resize.free_memory", lambda: 2**20)
    assert load("digits", size=16).shape == (1, 16, 16)
    with pytest.raises(UsageError, match=r"--size 64: 'digits' would take 0.0 GiB, more than half of .* smaller size"):
        load("digits", size=64)


def test_images_are_resized_in_chunks_as_at_once(monkeypatch):
    whole = load("digits", size=11)
    monkeypatch.setattr("didact.data.images.resize._BYTES_AT_ONCE", 5_000)
    assert torch.equal(load("digits", size=11).train.columns["x"], whole.train.columns["x"])
