import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

import didact
from didact.data.load import load
from didact.inference.evaluate import evaluate
from didact.layers.hashed_ngrams import HashedNgrams
from didact.models.text.fasttext import FastText
from didact.registry import RECIPES
from helpers.killed_training import assert_resumed_equals_uninterrupted

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def write_words(path, n=900, *, seed=0, numbers=False):
    """Made words of which hardly one occurs twice: the class is their ending, the number how often they hold an a."""
    rng = np.random.default_rng(seed)
    words, targets = [], []
    for i in range(n):
        syllables = [rng.choice(list(CONSONANTS)) + rng.choice(list(VOWELS)) for _ in range(rng.integers(2, 5))]
        ending = ("ung", "tion", "ezza")[i % 3]
        words.append("".join(syllables) + ending)
        targets.append(words[-1].count("a") + 0.5 if numbers else ("de", "fr", "it")[i % 3])
    pd.DataFrame({"word": words, "target": targets}).to_csv(path, index=False)
    return path


def test_classes_of_words_that_were_never_seen(tmp_path):
    path = write_words(tmp_path / "words.csv")
    run = didact.train("fasttext", data=path, text="word", target="target", steps=120, runs=str(tmp_path))
    assert run.metadata["test"]["accuracy"] > 0.95      # 0.33 by chance, and by whole words
    answers = didact.predict(run, ["somethingung", "日本tion", "🙂ezza"])
    assert [answer["label"] for answer in answers] == ["de", "fr", "it"]


def test_numbers_of_words_that_were_never_seen(tmp_path):
    path = write_words(tmp_path / "words.csv", numbers=True)
    options = {"text": "word", "target": "target", "task": "number", "steps": 300}
    run = didact.train("fasttext", data=path, runs=str(tmp_path), **options)
    assert run.metadata["test"]["r2"] > 0.8             # 0 by the mean


def test_a_killed_run_ends_as_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_words(tmp_path / "words.csv", 200)
    assert_resumed_equals_uninterrupted("fasttext", data=path, text="word", target="target", epochs=3)


@pytest.mark.parametrize("tokens", ["characters", "words", "bpe"])
def test_ngrams_of_every_kind_of_token(tmp_path, tokens):
    path = write_words(tmp_path / "words.csv", 450)
    run = didact.train(
        "fasttext", data=path, text="word", target="target", tokens=tokens, steps=150, runs=str(tmp_path)
    )
    assert f"n-grams of {'byte pairs' if tokens == 'bpe' else tokens}" in run.metadata["notes"]
    # endings are pieces, but no whole word comes again
    assert (run.metadata["test"]["accuracy"] > 0.7) == (tokens != "words")
    assert didact.predict(run, "somethingung")[0]["label"] == "de" or tokens == "words"


def test_long_texts_are_read_by_words(tmp_path):
    texts = [f"{'good ' if i % 2 else 'bad '} film number {i} " * 20 for i in range(60)]
    pd.DataFrame({"text": texts, "y": ["a", "b"] * 30}).to_csv(tmp_path / "long.csv", index=False)
    data = load(str(tmp_path / "long.csv"), text="text", target="y")
    experiment = RECIPES["fasttext"](data)
    assert "n-grams of words" in experiment.notes
    assert experiment.objective.network.ngrams.token_sizes == (1, 2)


def make_tokens(rows, length):
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])


def test_tf_idf_weights_are_those_of_scikit_learn():
    texts = [[5, 6], [6], [5, 7], [8, 5]]                   # no token twice in a text, where the two differ
    network = FastText(2, ngrams=HashedNgrams(2**20, token_sizes=(1,)), num_ngrams=4, embed_dim=3, hidden_size=2)
    x = make_tokens(texts, 3)
    ids = network.ngrams(x)
    counts = torch.bincount(ids[ids > 0], minlength=2**20)
    network.eval().choose_ngrams(counts, len(texts))
    expected = TfidfVectorizer(analyzer=list).fit_transform(texts).toarray()
    # one embedding dimension for each n-gram: the weights themselves
    with torch.no_grad():
        network.embedding.weight.zero_()
        for column, token in enumerate((5, 6, 7)):
            row = network.rows[network.ngrams(torch.tensor([[token]]))[0, 0]]
            network.embedding.weight[row, 2 + column] = 1
    np.testing.assert_allclose(network.embed(x)[:, 2:].detach(), expected[:, :3], atol=1e-6)


def test_the_most_frequent_ngrams_have_rows_and_others_do_not_count():
    network = FastText(2, ngrams=HashedNgrams(2**20, token_sizes=(1,)), num_ngrams=2, embed_dim=3, hidden_size=2)
    x = make_tokens([[5, 6], [6], [5, 7]], 2)
    ids = network.ngrams(x)
    network.eval().choose_ngrams(torch.bincount(ids[ids > 0], minlength=2**20), 3)
    assert sorted(network.rows[network.ngrams(torch.tensor([[5, 6, 7]]))].tolist()[0]) == [0, 1, 2]
    only_known, with_unknown = network(make_tokens([[5]], 2)), network(make_tokens([[5, 7]], 2))
    torch.testing.assert_close(only_known, with_unknown)


def test_a_run_without_its_examples_has_the_same_network(tmp_path):
    path = write_words(tmp_path / "words.csv", 120)
    run = didact.train("fasttext", data=path, text="word", target="target", steps=5, runs=str(tmp_path))
    assert run.metadata["arguments"]["num_ngrams"] > 50
    assert didact.predict(run, "somethingung")      # from the folder alone
    assert evaluate(run)["test"] == pytest.approx(run.metadata["test"], abs=1e-6)
