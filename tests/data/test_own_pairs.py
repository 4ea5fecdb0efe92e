"""One's own sentence pairs: their case, and what they are cut into."""

import pytest
import torch

from didact.data.load import load, reload
from didact.errors import UsageError


@pytest.fixture
def path(tmp_path):
    lines = [f"Anna sees house {n % 7}\tAnna sieht Haus {n % 5}" for n in range(60)]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    return str(tmp_path / "own.tsv")


@pytest.mark.parametrize("kind", [None, "words", "characters", "bpe"])
def test_sentences_come_back_as_they_were(path, kind):
    data = load(path, accepts=("pairs",), tokens=kind)
    pairs = data.encoder
    assert pairs.target.spec()["kind"] == pairs.source.spec()["kind"] == (kind or "words")
    row = data.train.batch(torch.tensor([0]))
    assert pairs.source.decode(row["x"][0].tolist()).startswith("Anna sees house ")
    assert pairs.target.decode(row["y"][0].tolist()).startswith("Anna sieht Haus ")
    assert pairs.spell is not None                                          # sentences: they are judged by BLEU
    again = reload(data.source, data.indices)
    assert again.encoder == pairs and torch.equal(again.test.columns["y"], data.test.columns["y"])


def test_what_cannot_be(path):
    with pytest.raises(UsageError, match="--tokens gpt2 is for running text; pairs are cut into characters, words or bpe"):
        load(path, accepts=("pairs",), tokens="gpt2")
    with pytest.raises(UsageError, match="'number_words' is pairs for translation; leave it out"):
        load("number_words", tokens="bpe")


def test_numbers_in_words_are_read_in_any_case():
    pairs = load("number_words").encoder
    assert pairs.encode(["Twenty ONE"]).tolist() == pairs.encode(["twenty one"]).tolist() and pairs.spell is None
