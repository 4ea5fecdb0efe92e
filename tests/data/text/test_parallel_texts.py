"""Sentence pairs of a file: their case, and the tokens that they are split into."""

from pathlib import Path

import pytest
import torch

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.errors import UsageError


@pytest.fixture
def pairs_path(tmp_path):
    lines = [f"Anna sees house {n % 7}\tAnna sieht Haus {n % 5}" for n in range(60)]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    return str(tmp_path / "own.tsv")


@pytest.mark.parametrize("kind", [None, "words", "characters", "bpe"])
def test_pair_encoder_decodes_sentences_in_their_case(pairs_path, kind):
    data = load(pairs_path, accepts=("pairs",), tokens=kind)
    encoder = data.encoder
    assert encoder.target.spec()["kind"] == encoder.source.spec()["kind"] == (kind or "words")
    batch = data.train.batch(torch.tensor([0]))
    assert encoder.source.decode(batch["x"][0].tolist()).startswith("Anna sees house ")
    assert encoder.target.decode(batch["y"][0].tolist()).startswith("Anna sieht Haus ")
    assert encoder.detokenize is not None                                          # sentences: they are judged by BLEU
    reloaded_data = reload_data(data, data.indices)
    assert reloaded_data.encoder == encoder and torch.equal(reloaded_data.test.columns["y"], data.test.columns["y"])


def test_tokens_option_is_refused_where_it_does_not_apply(pairs_path):
    with pytest.raises(
        UsageError, match="--tokens gpt2 is for running text; pairs are split into characters, words or bpe"
    ):
        load(pairs_path, accepts=("pairs",), tokens="gpt2")
    with pytest.raises(UsageError, match="'number_words' is pairs for translation; leave it out"):
        load("number_words", tokens="bpe")


def test_number_words_are_read_in_any_case():
    encoder = load("number_words").encoder
    assert (
        encoder.encode(["Twenty ONE"]).tolist() == encoder.encode(["twenty one"]).tolist()
        and encoder.detokenize is None
    )


@pytest.mark.parametrize(
    ("header", "num_pairs"),
    [
        ("English\tFrench", 60),
        ("src\ttgt", 60),
        ("en\tde", 60),
        ("Anna\tFrench", 61),
        ("source\tFrench", 61),
        ("German\tGerman", 61),
    ],
)
def test_header_line_is_not_a_pair(pairs_path, header, num_pairs):
    with open(pairs_path, encoding="utf-8") as file:
        content = file.read()
    with open(pairs_path, "w", encoding="utf-8") as file:
        file.write(f"{header}\n{content}")
    data = load(pairs_path, accepts=("pairs",))
    assert sum(len(data.split(part)) for part in SPLITS) == num_pairs
    note = "the first line names the columns, {!r} and {!r}: it is left out".format(*header.split("\t"))
    assert (note in data.notes) == (num_pairs == 60)
    assert len(data.encoder.read([Path(pairs_path)])[0]) == num_pairs


def test_pairs_end_only_at_line_breaks(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_bytes("".join(f"Anna\u2028sees {n}\tAnna\x85sieht {n}\r\n" for n in range(20)).encode())
    assert sum(len(load(str(path), accepts=("pairs",)).split(part)) for part in SPLITS) == 20


def test_pair_encoder_reads_files_of_sentences(pairs_path, tmp_path):
    encoder = load(pairs_path, accepts=("pairs",)).encoder
    names, batch = encoder.read([Path(pairs_path), "Anna sees house 1"])
    assert names[:2] == [f"{pairs_path}:1", f"{pairs_path}:2"] and names[60:] == ["Anna sees house 1"]
    assert [encoder.source.decode(row) for row in batch["x"][:2].tolist()] == ["Anna sees house 0", "Anna sees house 1"]
    text_path = tmp_path / "new.txt"
    text_path.write_text("Anna sees\n\nhouse 3\n", encoding="utf-8")
    names, batch = encoder.read([text_path])
    assert names == [f"{text_path}:1", f"{text_path}:3"] and encoder.source.decode(batch["x"][1].tolist()) == "house 3"
    assert encoder.read(["I read own.txt"])[0] == ["I read own.txt"]                              # a sentence, no file
    text_path.write_text("Anna sees\n\tAnna sieht\n", encoding="utf-8")
    for bad_path, message in ((text_path, "expected a sentence on each line, got none in .*new.txt:2"),
                        (tmp_path / "no.tsv", "cannot read .*no.tsv .No such file")):
        with pytest.raises(UsageError, match=message):
            encoder.read([bad_path])
