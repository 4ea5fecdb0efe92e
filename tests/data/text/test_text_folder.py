"""Folders of texts by class: classes to a classifier, running text to a language model, the same after a reload."""

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_files

import didact.recipes  # noqa: F401 (registers them)
from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.registry import RECIPES
from didact.training.run_training import train

WORDS = {"pos": ("great", "lovely", "superb"), "neg": ("awful", "dreadful", "boring")}
TEXT_RECIPES = sorted(name for name in RECIPES if "text" in RECIPES[name].accepts)
CLASSIFIERS = [name for name in TEXT_RECIPES if {"binary", "multiclass"} & set(RECIPES[name].tasks)]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_reviews(root: Path, n: int = 20) -> None:
    for label, words in WORDS.items():
        (root / label).mkdir(parents=True)
        for i in range(n):
            text = f"The film number {i} was {words[i % 3]}, the music {words[(i + 1) % 3]}. " * 3
            (root / label / f"{i:02d}.txt").write_text(text)


def load_labeled(path: str):
    return load(path, accepts=RECIPES["text_rnn"].accepts, tasks=RECIPES["text_rnn"].tasks)


def test_texts_and_classes_are_those_of_scikit_learn():
    """sklearn.datasets.load_files reads the same layout."""
    write_reviews(Path("reviews"))
    reference = load_files("reviews", encoding="utf-8", shuffle=False)
    data = load_labeled("reviews")
    assert (data.kind, data.task, list(data.class_names)) == ("text", "binary", reference.target_names)
    order = torch.cat([data.indices[part] for part in SPLITS]).argsort()
    y = torch.cat([data.split(part).columns["y"] for part in SPLITS])[order]
    texts = [text for part in SPLITS for text in data.read_texts(part)]
    by_text = dict(zip(reference.data, reference.target.tolist(), strict=True))
    assert [by_text[texts[i]] for i in order.tolist()] == y.tolist()
    assert data.locate_examples("test", [0])[0].endswith(".txt")


@pytest.mark.parametrize("recipe", TEXT_RECIPES)
def test_every_recipe_of_texts_takes_the_folder_as_it_learns(recipe):
    write_reviews(Path("reviews"))
    data = load("reviews", accepts=RECIPES[recipe].accepts, tasks=RECIPES[recipe].tasks)
    if recipe in CLASSIFIERS:
        assert data.task == "binary" and any("texts of 2 classes, by their folders" in note for note in data.notes)
    else:
        assert data.task == "language"
        assert any("neg, pos are read as one running text; to a classifier" in note for note in data.notes)


def test_train_and_test_folders_are_the_splits_and_unlabeled_texts_are_left_out():
    """The layout of IMDB's aclImdb."""
    for part in ("train", "test"):
        write_reviews(Path("aclImdb", part))
    Path("aclImdb/train/unsup").mkdir()
    Path("aclImdb/train/unsup/0.txt").write_text("no class")
    Path("aclImdb/README.txt").write_text("about")
    data = load_labeled("aclImdb")
    assert data.class_names == ("neg", "pos") and len(data.test) == 40 and len(data.train) == 36
    assert all(place.startswith("test/") for place in data.locate_examples("test", range(40)))
    assert "left out: 1 text without a class" in data.notes
    assert any("split by the folders test, train" in note for note in data.notes)


def test_a_run_learns_evaluates_and_predicts_from_its_folder():
    write_reviews(Path("reviews"), n=40)
    run = train(RECIPES["text_rnn"], data="reviews", embed_dim=16, hidden_size=16, steps=40)
    assert run.metadata["test"]["accuracy"] > 0.9
    assert evaluate(run)["test"] == pytest.approx(run.metadata["test"])
    [answer] = predict(run, ["a superb and lovely film, great music"])
    assert answer["label"] == "pos"


@pytest.mark.parametrize("tokens", [None, "characters", "bpe"])
def test_reloading_gives_the_same_examples(tokens):
    write_reviews(Path("reviews"))
    recipe = RECIPES["mlp"]
    data = load("reviews", accepts=recipe.accepts, tasks=recipe.tasks, tokens=tokens)
    again = reload_data(data, data.indices)
    assert again.fingerprint == data.fingerprint
    Path("reviews/pos/00.txt").write_text("something else")
    with pytest.raises(UsageError, match="has changed since the run split it"):
        reload_data(data, data.indices)


def test_other_encodings_are_read_and_said():
    write_reviews(Path("reviews"))
    text = "Le café était très agréable, déjà vu à la fin. " * 5
    Path("reviews/pos/90.txt").write_bytes(text.encode("cp1252"))
    data = load_labeled("reviews")
    assert text in [t for part in SPLITS for t in data.read_texts(part)]
    assert any(note.startswith("1 text read as ") for note in data.notes)


def test_texts_in_no_class_folders_are_refused_by_a_classifier_in_one_line():
    Path("books").mkdir()
    Path("books/one.txt").write_text("once upon a time " * 200)
    with pytest.raises(UsageError, match="or a folder of texts by class"):
        train(RECIPES["text_rnn"], data="books")


def test_a_link_out_of_the_folder_is_refused():
    write_reviews(Path("reviews"))
    Path("secret.txt").write_text("a secret")
    Path("reviews/pos/link.txt").symlink_to(Path("secret.txt").resolve())
    with pytest.raises(UsageError, match="lies outside of reviews"):
        load_labeled("reviews")


def test_an_empty_training_folder_is_refused():
    write_reviews(Path("reviews", "test"))
    Path("reviews", "train", "pos").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"there are examples for test but none for train"):
        load("reviews", accepts=RECIPES["fasttext"].accepts, tasks=RECIPES["fasttext"].tasks)
