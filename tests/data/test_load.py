from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from didact.data.core import SPLITS
from didact.data.load import load, reload
from didact.data.splitting import three_way
from didact.data.table import load as load_table
from didact.errors import UsageError


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "c": rng.choice(["u", "v"], 80), "words": ["good film", "bad film"] * 40,
                          "y": rng.choice(["k", "l", "m"], 80)})
    frame.loc[::9, "a"] = np.nan
    path = tmp_path / "own.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def folder(tmp_path):
    for k in range(2):
        (tmp_path / "pics" / f"k{k}").mkdir(parents=True)
        for i in range(6):
            pixels = np.random.default_rng(10 * k + i).integers(0, 256, (7, 7), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pics" / f"k{k}" / f"{i}.png")
    return tmp_path / "pics"


def same(one, two):
    for part in SPLITS:
        assert torch.equal(one.indices[part], two.indices[part])
        for name, column in one.split(part).columns.items():
            assert torch.equal(column, two.split(part).columns[name]), (part, name)
    assert torch.equal(one.mean, two.mean) and torch.equal(one.std, two.std)
    assert (one.counts, one.source, one.encoder, one.fingerprint) == (two.counts, two.source, two.encoder, two.fingerprint)


def test_each_kind_and_again(table, folder, monkeypatch):
    monkeypatch.chdir(table.parent)
    loaded = {
        "table": load("own.csv", seed=5),
        "text": load("own.csv", text="words", target="y", seed=5),
        "images": load("pics", size=5, seed=5),
    }
    monkeypatch.chdir("/")
    for kind, data in loaded.items():
        assert data.kind == kind
        same(data, reload(data, data.indices))
    assert loaded["table"].source["path"] == str(table) and loaded["table"].source["target"] == "y"
    iris = load("iris", seed=2)
    same(iris, reload(iris, iris.indices))


@pytest.mark.parametrize("what", ["iris", "diabetes"])
def test_the_split_that_was_kept_is_used_though_the_seed_would_give_another(what):
    data = load(what, seed=0)
    n = sum(len(data.split(part)) for part in SPLITS)
    kept = three_way(n, seed=99, fractions=(0.2, 0.2))
    again = reload(data, kept)
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    whole = torch.cat([data.split(part).columns["x"] for part in SPLITS])[order]
    for part in SPLITS:
        assert torch.equal(again.split(part).columns["x"], whole[kept[part]])
    torch.testing.assert_close(again.mean, whole[kept["train"]].mean(0))
    torch.testing.assert_close(again.std, whole[kept["train"]].std(0, correction=0))


def test_a_table_split_elsewise_is_encoded_by_its_own_training_rows(table):
    kept = three_way(80, seed=99, fractions=(0.2, 0.2))
    data = load_table(table, indices=kept)
    source = {"path": str(table), "target": "y", "text": None, "size": None, "seed": 0, "fingerprint": data.fingerprint}
    again = reload(replace(data, source=source), kept)
    assert again.encoder == data.encoder and torch.equal(again.test.columns["x"], data.test.columns["x"])


def test_changed_files_are_refused(table, folder):
    data, pictures = load(str(table)), load(str(folder))
    text = table.read_text()
    table.write_text(text.replace("u,good", "v,good", 1))
    with pytest.raises(UsageError, match="has changed since"):
        reload(data, data.indices)
    table.write_text(text.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(UsageError, match="now holds 79 examples, but 80"):
        reload(data, data.indices)
    table.unlink()
    with pytest.raises(UsageError, match="no such file"):
        reload(data, data.indices)
    Image.new("L", (7, 7)).save(folder / "k0" / "0.png")
    with pytest.raises(UsageError, match="has changed since"):
        reload(pictures, pictures.indices)


@pytest.mark.parametrize(("what", "options", "words"), [
    ("iriss", {}, "no data set, file or folder named 'iriss'; did you mean 'iris'"),
    ("", {}, "no data set, file or folder named ''"),
    ("nowhere/table.csv", {}, "no data at nowhere/table.csv: there is no such file"),
    ("table.csv", {}, "no data at table.csv"),
    ("x" * 5000, {}, "no data set, file or folder"),
    ("iris", {"target": "species"}, "--target does not apply: 'iris' is a known set"),
    ("own.csv", {"size": 3}, "--size does not apply"),
    ("pics", {"text": "a"}, "--text does not apply"),
    ("own.xlsx", {}, "neither a table"),
])
def test_what_cannot_be_loaded(table, folder, monkeypatch, what, options, words):
    monkeypatch.chdir(table.parent)
    (table.parent / "own.xlsx").write_bytes(b"PK")
    with pytest.raises(UsageError, match=words) as error:
        load(what, **options)
    assert "\n" not in str(error.value)


def test_bytes_are_counted_as_they_would_be_summed():
    import torch

    from didact.data.assemble import byte_moments
    from didact.data.core import unit

    x = torch.randint(0, 256, (37, 3, 5, 7), dtype=torch.uint8)
    x[:, 1] = 9
    mean, std = byte_moments(x)
    decoded = unit(x).double()
    torch.testing.assert_close(mean.flatten().double(), decoded.mean((0, 2, 3)), atol=1e-6, rtol=0)
    torch.testing.assert_close(std.flatten()[[0, 2]].double(), decoded.std((0, 2, 3), correction=0)[[0, 2]], atol=1e-6, rtol=0)
    assert std.flatten()[1] == 1  # a channel that never changes is centred, not blown up
