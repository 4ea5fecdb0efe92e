"""Hidden words are filled in: `didact predict` on a run of bert, and `didact explain` for its attention."""

import json

import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.hiding import HidingEncoder
from didact.data.tokens import BytePairs, Characters
from didact.errors import UsageError
from didact.explain.runs import explain
from didact.models.bert import MaskedBERT
from didact.objectives.masked import MaskedLanguage
from didact.registry import RECIPES
from didact.train.use import predict

TEXT = "the cat sat on a mat. the {} sat on a {}. the cat"          # as long as a window
CYCLE = ("the", "cat", "sat", "on", "a", "mat", ".")                  # what stands beside any word of it says what the word is
SMALL = {"layers": 1, "heads": 2, "width": 32, "hidden": 64, "context": 16, "device": "cpu"}


def learned(place, **words):
    (place / "book.txt").write_text("the cat sat on a mat. " * 400, encoding="utf-8")
    own = {"data": str(place / "book.txt"), "tokens": "words", "runs": str(place)}
    return didact.train(RECIPES["bert"], steps=300, lr=1e-2, **own, **SMALL, **words)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A BERT that knows one sentence."""
    return learned(tmp_path_factory.mktemp("runs"))


@torch.no_grad()
def test_probabilities_stand_where_something_is_hidden():
    torch.manual_seed(0)
    network = MaskedBERT(7 + 2, context=6, dim=8, layers=1, heads=2, hidden=8, dropout=0.0).eval()
    x = torch.tensor([[3, 7, 0, 7, 6], [1, 7, 2, -1, -1]])                  # 7 is the mask, −1 padding
    p = MaskedLanguage(network, 7).eval().fill({"x": x})
    assert p.shape == (2, 5, 7) and torch.equal(p.sum(-1) > 0, x == 7)
    alone = network(torch.tensor([[2, 8, 3]]))[0, 1, 1:8].softmax(-1)       # the second row without padding
    torch.testing.assert_close(p[1, 1], alone)


def test_masks_are_tokens_of_their_own():
    encoder = HidingEncoder(Characters("abc "), 8)
    assert encoder.encode("a<mask>c <mask>") == [0, 4, 2, 3, 4]
    _, batch = encoder.read(["<mask>", "ab<mask>"])
    assert batch["x"].tolist() == [[4, -1, -1], [0, 1, 4]] and batch["length"].tolist() == [1, 3]
    for text in ("", "abcabcabc"):
        with pytest.raises(UsageError, match="reads texts of 1 to 8 tokens, got"):
            encoder.read([text])
    pairs = HidingEncoder(BytePairs.fit(["the cat sat on the mat"] * 3, 290), 99)
    bare = pairs.tokenizer.encode
    assert pairs.encode("the cat <mask> on") == [*bare("the cat"), pairs.mask, *bare(" on")]    # a word's token holds its space


def test_a_hidden_word_is_known(run, capsys):
    found = predict(run, [TEXT.format("<mask>", "<mask>"), TEXT.format("<mask>", "mat")])
    assert [row["filled"] for row in found] == [TEXT.format("cat", "mat")] * 2
    assert len(found[0]["guesses"]) == 2 and found[1]["guesses"][0]["cat"] > 0.8
    assert main(["predict", str(run.folder), TEXT.format("<mask>", "mat")]) == 0
    assert f"filled {TEXT.format('cat', 'mat')}" in (said := capsys.readouterr().out) and "<mask> 1: 'cat' 0." in said
    assert main(["predict", str(run.folder), "the cat sat"]) == 2
    assert "expected a text with <mask>" in capsys.readouterr().err
    assert run.facts["abilities"] == ["fill"]


def right(run):
    """Of all pieces of two to four words, each word hidden in turn: the share that is guessed."""
    pieces = [[CYCLE[(k + i) % 7] for i in range(n)] for n in (2, 3, 4) for k in range(7)]
    asked = [(" ".join([*piece[:k], "<mask>", *piece[k + 1 :]]), word) for piece in pieces for k, word in enumerate(piece)]
    found = predict(run, [text for text, _ in asked])
    return sum(next(iter(row["guesses"][0])) == word for row, (_, word) in zip(found, asked, strict=True)) / len(asked)


def test_short_texts_are_filled_in_where_windows_were_cut(run, tmp_path):
    whole = learned(tmp_path, cut=0.0)
    assert whole.facts["test"]["accuracy"] > 0.9 and run.facts["test"]["accuracy"] > 0.9     # of whole windows both know all
    assert right(whole) < 0.6 and right(run) > 0.9
    assert predict(run, ["the cat <mask> on a mat."])[0]["filled"] == "the cat sat on a mat."


def test_its_attention_is_drawn(run, tmp_path, capsys):
    masked, bare = explain(run, [TEXT.format("<mask>", "mat"), "a mat"], to=tmp_path)["explained"]
    assert masked["tokens"][6:10] == [".", "the", "<mask>", "sat"] and masked["predicted"] == "cat"
    assert bare["predicted"] == "" and set(bare["methods"]) == {"attention"}
    assert all((tmp_path / figure.rpartition("/")[2]).is_file() for one in (masked, bare) for figure in one["figures"])
    assert main(["explain", str(run.folder), "--to", str(tmp_path), "--json"]) == 0
    worst = json.loads(capsys.readouterr().out)["explained"]
    assert len(worst) == 6                                                    # those it got most wrong, hidden as they were judged
    assert all(len(one["predicted"].split()) == one["tokens"].count("<mask>") for one in worst) and any(one["predicted"] for one in worst)
    assert main(["explain", str(run.folder), "a mat", "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("a mat:\n")                     # nothing is asked, so nothing is said
