"""One's own sentence pairs: their case, and what they are cut into."""

from pathlib import Path

import pytest
import torch

from didact.data.core import SPLITS
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
    again = reload(data, data.indices)
    assert again.encoder == pairs and torch.equal(again.test.columns["y"], data.test.columns["y"])


def test_what_cannot_be(path):
    with pytest.raises(UsageError, match="--tokens gpt2 is for running text; pairs are cut into characters, words or bpe"):
        load(path, accepts=("pairs",), tokens="gpt2")
    with pytest.raises(UsageError, match="'number_words' is pairs for translation; leave it out"):
        load("number_words", tokens="bpe")


def test_numbers_in_words_are_read_in_any_case():
    pairs = load("number_words").encoder
    assert pairs.encode(["Twenty ONE"]).tolist() == pairs.encode(["twenty one"]).tolist() and pairs.spell is None


@pytest.mark.parametrize(("top", "learned"), [
    ("English\tFrench", 60), ("src\ttgt", 60), ("en\tde", 60), ("Anna\tFrench", 61), ("source\tFrench", 61), ("German\tGerman", 61),
])
def test_a_line_that_names_the_columns_is_no_pair(path, top, learned):
    with open(path, encoding="utf-8") as file:
        lines = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{top}\n{lines}")
    data = load(path, accepts=("pairs",))
    assert sum(len(data.split(part)) for part in SPLITS) == learned
    left = "the first line names the columns, {!r} and {!r}: it is no pair to learn from".format(*top.split("\t"))
    assert (left in data.notes) == (learned == 60)
    assert len(data.encoder.read([Path(path)])[0]) == learned


def test_a_pair_ends_where_its_line_does(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_bytes("".join(f"Anna\u2028sees {n}\tAnna\x85sieht {n}\r\n" for n in range(20)).encode())
    assert sum(len(load(str(path), accepts=("pairs",)).split(part)) for part in SPLITS) == 20


def test_files_of_sentences(path, tmp_path):
    pairs = load(path, accepts=("pairs",)).encoder
    names, batch = pairs.read([Path(path), "Anna sees house 1"])
    assert names[:2] == [f"{path}:1", f"{path}:2"] and names[60:] == ["Anna sees house 1"]
    assert [pairs.source.decode(row) for row in batch["x"][:2].tolist()] == ["Anna sees house 0", "Anna sees house 1"]
    lines = tmp_path / "new.txt"
    lines.write_text("Anna sees\n\nhouse 3\n", encoding="utf-8")
    names, batch = pairs.read([lines])
    assert names == [f"{lines}:1", f"{lines}:3"] and pairs.source.decode(batch["x"][1].tolist()) == "house 3"
    assert pairs.read(["I read own.txt"])[0] == ["I read own.txt"]                              # a sentence, no file
    lines.write_text("Anna sees\n\tAnna sieht\n", encoding="utf-8")
    for wrong, told in ((lines, "expected a sentence on each line, got none in .*new.txt:2"),
                        (tmp_path / "no.tsv", "cannot read .*no.tsv .No such file")):
        with pytest.raises(UsageError, match=told):
            pairs.read([wrong])
