"""Images named in a table, and split folders: what is read is what the files say, also after a run is reopened."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import didact
from didact.cli.main import main
from didact.data.core import SPLITS
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.registry import RECIPES
from didact.run import Run
from didact.training.run_training import train

ACCEPTS = RECIPES["cnn"].accepts
N = 40


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_image(path: Path, level: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(int(1000 * level)).integers(0, 20, (8, 8))
    Image.fromarray(np.clip(235 * level + noise, 0, 255).astype(np.uint8)).save(path)


def write_photos(root: Path, images: str = "", **columns: object) -> pd.DataFrame:
    """N images, the first half dark, and a data frame of them; `columns` replace its own."""
    levels = np.linspace(0, 1, N)
    names = [f"p{i:03d}.png" for i in range(N)]
    for name, level in zip(names, levels, strict=True):
        write_image(root / images / name, level)
    frame = pd.DataFrame({"file": names, "label": ["dark" if x < 0.5 else "light" for x in levels]})
    return frame.assign(**columns)


def all_targets(data) -> torch.Tensor:
    """The targets in the order of the table."""
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    return torch.cat([data.split(part).columns["y"] for part in SPLITS])[order]


LAYOUTS = [(folder, style) for folder in ("", "images", "a/b") for style in ("name", "path", "stem")]


@pytest.mark.parametrize("given", ["photos", "photos/labels.csv"])
@pytest.mark.parametrize("images, style", [layout for layout in LAYOUTS if layout != ("a/b", "stem")])
def test_labels_beside_or_above_the_images(images, given, style):
    frame = write_photos(Path("photos"), images)
    if style == "path":
        frame["file"] = [f"{images}/{name}".lstrip("/") for name in frame["file"]]
    elif style == "stem":                            # looked up one folder deep
        frame["file"] = [name.removesuffix(".png") for name in frame["file"]]
    frame.sample(frac=1, random_state=0).to_csv("photos/labels.csv", index=False)
    data = load(given, accepts=ACCEPTS)
    assert (data.kind, data.task, data.class_names, data.target) == ("images", "binary", ("dark", "light"), "label")
    shuffled = pd.read_csv("photos/labels.csv", dtype=str)
    assert all_targets(data).tolist() == [int(word == "light") for word in shuffled["label"]]
    for part in SPLITS:                              # each image is the one of its row
        split = data.split(part)
        for i in range(0, len(split), 5):
            name = shuffled["file"][int(data.indices[part][i])].rpartition("/")[2].removesuffix(".png")
            image = np.asarray(Image.open(next(Path("photos").rglob(f"{name}.png"))))
            assert torch.equal(split.columns["x"][i, 0], torch.from_numpy(image.copy()))


def test_numbers_are_a_regression_that_predicts_and_evaluates_from_its_folder():
    frame = write_photos(Path("photos"))
    frame["brightness"] = np.linspace(0, 1, N).round(4)
    frame[["file", "brightness"]].to_csv("photos/labels.csv", index=False)
    run = didact.train(RECIPES["cnn"], data="photos", target="brightness", steps=60, batch_size=16)
    assert run.metadata["data"]["task"] == "regression" and run.metadata["test"]["r2"] > 0.5     # the mean: 0
    again = evaluate(Run.open("latest"))
    assert again["test"]["r2"] == pytest.approx(run.metadata["test"]["r2"], abs=1e-5)
    dark, light = predict(Run.open("latest"), [Path("photos/p002.png"), Path("photos/p038.png")])
    assert dark["brightness"] < light["brightness"]


def test_several_labels():
    frame = write_photos(Path("photos"))
    frame["dark"], frame["odd"] = (frame["label"] == "dark").astype(int), np.arange(N) % 2
    frame.to_csv("photos/labels.csv", index=False)
    data = load("photos", target="dark,odd", accepts=ACCEPTS)
    assert (data.task, data.class_names) == ("multilabel", ("dark", "odd"))
    assert torch.equal(all_targets(data), torch.tensor(frame[["dark", "odd"]].to_numpy(np.float32)))
    assert train(RECIPES["cnn"], data="photos", target="dark,odd", steps=2).metadata["status"] == "finished"


@pytest.mark.parametrize("recipe", sorted(name for name in RECIPES if "images" in RECIPES[name].accepts))
def test_every_recipe_of_images_reads_a_table_of_images(recipe):
    frame = write_photos(Path("photos"))
    frame.to_csv("photos/labels.csv", index=False)
    data = load("photos/labels.csv", accepts=RECIPES[recipe].accepts)
    assert (data.kind, len(data.train)) == ("images", 28)


def test_a_column_of_splits_divides():
    frame = write_photos(Path("photos"), split=["train", "valid", "train", "test", "train"] * 8)
    frame.to_csv("photos/labels.csv", index=False)
    data = load("photos", accepts=ACCEPTS)
    words = frame["split"].replace({"valid": "validation"})
    for part in SPLITS:
        assert data.indices[part].tolist() == frame.index[words == part].tolist()
    assert data.target == "label" and any("split by column 'split'" in note for note in data.notes)


def test_a_test_file_is_the_test_split():
    frame = write_photos(Path("photos"))
    even = frame.index % 2 == 0
    frame[even].to_csv("photos/labels.csv", index=False)
    frame[~even].to_csv("other.csv", index=False)
    run = train(RECIPES["cnn"], data="photos/labels.csv", test="other.csv", steps=1)
    assert run.metadata["health"]["splits"]["test"] == N // 2
    assert evaluate(run)["test"]["accuracy"] == run.metadata["test"]["accuracy"]


def test_rows_without_a_target_are_left_out():
    frame = write_photos(Path("photos"))
    frame.loc[[3, 30], "label"] = None
    frame.to_csv("photos/labels.csv", index=False)
    data = load("photos", accepts=ACCEPTS)
    assert sum(len(data.split(part)) for part in SPLITS) == N - 2
    assert any("2" in note and "left out" in note for note in data.notes)


def test_hugging_face_metadata_jsonl():
    frame = write_photos(Path("photos")).rename(columns={"file": "file_name"})
    Path("photos/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    data = load("photos", accepts=ACCEPTS)
    assert all_targets(data).tolist() == [int(word == "light") for word in frame["label"]]


def test_labels_are_not_needed_by_a_generative_recipe():
    write_photos(Path("photos")).to_csv("photos/labels.csv", index=False)
    data = load("photos", accepts=RECIPES["vae"].accepts, allow_unlabeled=True)
    assert data.task == "none" and any("without labels" in note for note in data.notes)
    run = train(RECIPES["vae"], data="photos", steps=2)
    assert evaluate(run)["test"]["loss"] == pytest.approx(run.metadata["test"]["loss"], rel=1e-5)


def test_class_folders_come_before_a_table_that_no_target_names():
    for label in ("cat", "dog"):
        for i in range(4):
            write_image(Path(f"photos/{label}/{label}{i}.png"), i / 4)
    rows = [{"file": f"{label}{i}.png", "age": i} for label in ("cat", "dog") for i in range(4)]
    pd.DataFrame(rows).to_csv("photos/labels.csv", index=False)
    assert load("photos", accepts=ACCEPTS).class_names == ("cat", "dog")
    assert load("photos", target="age", task="number", accepts=ACCEPTS).task == "regression"


def test_numbers_that_happen_to_be_names_of_images_are_a_table():
    write_image(Path("0.png"), 0.5)
    write_image(Path("1.png"), 0.5)
    pd.DataFrame({"age": range(30), "survived": [0, 1] * 15}).to_csv("people.csv", index=False)
    assert load("people.csv", accepts=RECIPES["mlp"].accepts).kind == "table"


def test_a_table_for_a_recipe_of_tables_stays_a_table():
    write_photos(Path("photos"), size=range(N)).to_csv("photos/labels.csv", index=False)
    assert load("photos/labels.csv", target="label", accepts=("table",)).kind == "table"


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda f: f.assign(file=[f"q{i}.png" for i in range(N)]), r"names 40 of 40 images that are not in photos: q0"),
        (lambda f: f.assign(file=["x.png", *f["file"][1:]]), r"names 1 of 40 images .*: x.png, first in line 2; put"),
        (lambda f: f.assign(file=["../secret.png", *f["file"][1:]]), r"lies outside of photos"),
        (lambda f: f[["file"]], r"holds no other column to be predicted"),
        (lambda f: f.assign(label="cat"), r"is 'cat' in every row"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_one_line(spoil, message, capsys):
    frame = write_photos(Path("photos"))
    write_image(Path("secret.png"), 0.5)
    spoil(frame).to_csv("photos/labels.csv", index=False)
    with pytest.raises(UsageError, match=message):
        load("photos/labels.csv", accepts=ACCEPTS)
    assert main(["train", "cnn", "--data", "photos/labels.csv"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_two_tables_that_name_images_are_refused():
    frame = write_photos(Path("photos"))
    frame.to_csv("photos/a.csv", index=False)
    frame.to_csv("photos/b.csv", index=False)
    with pytest.raises(UsageError, match=r"holds 2 tables that name images, a.csv, b.csv: give the one"):
        load("photos", accepts=ACCEPTS)


def write_split(part: str, labels: tuple[str, ...], n: int) -> None:
    for label in labels:
        for i in range(n):
            write_image(Path(f"pets/{part}/{label}/{i}.png"), i / n)


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev", "Val"])
def test_folders_named_after_splits_are_the_splits(validation):
    for part, n in (("train", 8), (validation, 4), ("test", 3)):
        write_split(part, ("cat", "dog"), n)
    data = load("pets", accepts=ACCEPTS)
    assert {part: len(data.split(part)) for part in SPLITS} == {"train": 16, "validation": 8, "test": 6}
    for part, folder in (("train", "train"), ("validation", validation), ("test", "test")):
        assert all(place.startswith(f"{folder}/") for place in data.locate_examples(part, range(3)))
    assert any(note.startswith("split by the folders") for note in data.notes)


@pytest.mark.parametrize("folders", [("train", "test"), ("train", "val")])
def test_what_has_no_folder_is_taken_from_train(folders):
    for part in folders:
        write_split(part, ("cat", "dog"), 20)
    data = load("pets", accepts=ACCEPTS)
    given = "test" if "test" in folders else "validation"
    taken = "validation" if given == "test" else "test"
    assert len(data.split(given)) == 40 and len(data.split(taken)) == 4 and len(data.train) == 36
    assert all(place.startswith("train/") for place in data.locate_examples(taken, range(4)))
    assert any("what has no folder is taken from train" in note for note in data.notes)


@pytest.mark.parametrize("part", ["test", "val"])
def test_a_class_that_training_lacks_is_refused(part):
    write_split("train", ("cat", "dog"), 8)
    write_split(part, ("cat", "dog", "zebra"), 4)
    with pytest.raises(UsageError, match="'pets' has no training example of: zebra"):
        load("pets", accepts=ACCEPTS)


def test_a_class_that_the_test_folder_lacks_is_said():
    write_split("train", ("cat", "dog", "zebra"), 8)
    write_split("test", ("cat", "dog"), 4)
    assert "no test example of: zebra" in load("pets", accepts=ACCEPTS).notes


def test_heic_and_avif(monkeypatch):
    from didact.data.images import open_image

    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    pixels = np.tile(np.linspace(0, 255, 32, dtype=np.uint8)[:, None, None], (1, 32, 3))
    for label in ("a", "b"):
        Path("mixed", label).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(pixels).save(f"mixed/{label}/{i}.heic", quality=95)
            Image.fromarray(pixels).save(f"mixed/{label}/{i}.avif", quality=95)
    data = load("mixed", accepts=ACCEPTS)
    assert data.shape == (3, 32, 32)
    x = data.train.columns["x"].float()
    assert (x - torch.from_numpy(pixels.transpose(2, 0, 1).copy())).abs().mean() < 4
    monkeypatch.setattr(open_image, "_register_heif", lambda: False)
    with pytest.raises(UsageError, match=r"mixed/a/0.heic is HEIC: pip install 'didact\[heic\]' to read it, or"):
        load("mixed", accepts=ACCEPTS)


def test_columns_that_name_the_images_are_neither_dropped_nor_weights():
    frame = write_photos(Path("photos")).assign(w=1)
    frame.to_csv("photos/labels.csv", index=False)
    with pytest.raises(UsageError, match=r"names its images in 'file': it can neither be dropped nor weigh rows"):
        train("vae", data="photos", target="label", drop=("file",), steps=1)
    with pytest.raises(UsageError, match=r"photos/labels.csv names images, and holds no other column"):
        train("cnn", data="photos", sample_weight="w", drop=("label",), task="classes", steps=1)


def test_spaces_around_the_names_of_columns():
    write_photos(Path("photos")).to_csv("photos/labels.csv", index=False, header=[" file ", " label"])
    data = load("photos", accepts=ACCEPTS)
    assert data.class_names == ("dark", "light")


def test_a_column_of_0_and_1_names_no_images():
    for name in "01":
        write_image(Path(f"pictures/{name}.png"), 0.5)
    pd.DataFrame({"flag": [0, 1] * 20, "x": range(100, 140)}).to_csv("table.csv", index=False)
    assert load("table.csv", target="flag", accepts=RECIPES["mlp"].accepts).kind == "table"


def test_splits_without_an_example_to_train_on_are_refused():
    """Rows whose target is missing are left out: here all that were to be trained on."""
    parts = pd.Series(["train", "val", "test", "val"] * 10)
    frame = write_photos(Path("photos"), split=parts)
    frame.assign(label=frame["label"].where(parts != "train")).to_csv("photos/labels.csv", index=False)
    with pytest.raises(UsageError, match=r"there are examples for test, validation but none for train"):
        load("photos", accepts=ACCEPTS)
