"""Masked words are filled in by `didact predict` on a run of bert; `didact explain` shows its attention."""

import json

import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.text.masked_lm import MaskedTextEncoder
from didact.data.text.tokenizers import BPETokenizer, CharTokenizer
from didact.errors import UsageError
from didact.explain.explain_run import explain_run
from didact.inference.predict import predict
from didact.models.text.bert import MaskedBERT
from didact.objectives.text.masked_lm import MaskedLanguageModel
from didact.registry import RECIPES

TEXT = "the cat sat on a mat. the {} sat on a {}. the cat"          # as long as a window
# its neighbors determine each word
SENTENCE_TOKENS = ("the", "cat", "sat", "on", "a", "mat", ".")
SMALL = {"num_layers": 1, "num_heads": 2, "embed_dim": 32, "ffn_dim": 64, "context_length": 16, "device": "cpu"}


def train_bert(folder, **options):
    (folder / "book.txt").write_text("the cat sat on a mat. " * 400, encoding="utf-8")
    data_options = {"data": str(folder / "book.txt"), "tokens": "words", "runs": str(folder)}
    return didact.train(RECIPES["bert"], steps=300, lr=1e-2, **data_options, **SMALL, **options)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A BERT that knows one sentence."""
    return train_bert(tmp_path_factory.mktemp("runs"))


@torch.no_grad()
def test_fill_gives_probabilities_at_masked_positions_only():
    torch.manual_seed(0)
    network = MaskedBERT(7 + 2, context_length=6, embed_dim=8, num_layers=1, num_heads=2, ffn_dim=8, dropout=0.0).eval()
    x = torch.tensor([[3, 7, 0, 7, 6], [1, 7, 2, -1, -1]])                  # 7 is the mask, −1 padding
    p = MaskedLanguageModel(network, 7).eval().fill({"x": x})
    assert p.shape == (2, 5, 7) and torch.equal(p.sum(-1) > 0, x == 7)
    expected = network(torch.tensor([[2, 8, 3]]))[0, 1, 1:8].softmax(-1)       # the second row without padding
    torch.testing.assert_close(p[1, 1], expected)


def test_mask_is_a_token_of_its_own():
    encoder = MaskedTextEncoder(CharTokenizer("abc "), 8)
    assert encoder.encode("a<mask>c <mask>") == [0, 4, 2, 3, 4]
    _, batch = encoder.read(["<mask>", "ab<mask>"])
    assert batch["x"].tolist() == [[4, -1, -1], [0, 1, 4]] and batch["length"].tolist() == [1, 3]
    for text in ("", "abcabcabc"):
        with pytest.raises(UsageError, match="reads texts of 1 to 8 tokens, got"):
            encoder.read([text])
    pairs = MaskedTextEncoder(BPETokenizer.fit(["the cat sat on the mat"] * 3, 290), 99)
    encode = pairs.tokenizer.encode
    # a word's token holds its space
    assert pairs.encode("the cat <mask> on") == [*encode("the cat"), pairs.mask_id, *encode(" on")]


def test_predict_fills_in_masked_words(trained_run, capsys):
    predictions = predict(trained_run, [TEXT.format("<mask>", "<mask>"), TEXT.format("<mask>", "mat")])
    assert [row["filled"] for row in predictions] == [TEXT.format("cat", "mat")] * 2
    assert len(predictions[0]["guesses"]) == 2 and predictions[1]["guesses"][0]["cat"] > 0.8
    assert main(["predict", str(trained_run.folder), TEXT.format("<mask>", "mat")]) == 0
    assert (
        f"filled {TEXT.format('cat', 'mat')}" in (output := capsys.readouterr().out) and "<mask> 1: 'cat' 0." in output
    )
    assert main(["predict", str(trained_run.folder), "the cat sat"]) == 2
    assert "expected a text with at least one <mask>" in capsys.readouterr().err
    assert trained_run.metadata["abilities"] == ["fill"]


def compute_fill_accuracy(run):
    """Of all pieces of two to four words, each word hidden in turn: the share that is guessed."""
    pieces = [[SENTENCE_TOKENS[(k + i) % 7] for i in range(n)] for n in (2, 3, 4) for k in range(7)]
    queries = [
        (" ".join([*piece[:k], "<mask>", *piece[k + 1 :]]), word) for piece in pieces for k, word in enumerate(piece)
    ]
    predictions = predict(run, [text for text, _ in queries])
    return sum(
        next(iter(row["guesses"][0])) == word for row, (_, word) in zip(predictions, queries, strict=True)
    ) / len(queries)


def test_short_training_sequences_help_to_fill_short_texts(trained_run, tmp_path):
    full_window_run = train_bert(tmp_path, short_seq_probability=0.0)
    # of whole windows both know all
    assert full_window_run.metadata["test"]["accuracy"] > 0.9 and trained_run.metadata["test"]["accuracy"] > 0.9
    assert compute_fill_accuracy(full_window_run) < 0.6 and compute_fill_accuracy(trained_run) > 0.9
    assert predict(trained_run, ["the cat <mask> on a mat."])[0]["filled"] == "the cat sat on a mat."


def test_explain_shows_the_attention_of_masked_texts(trained_run, tmp_path, capsys):
    masked_explanation, plain_explanation = explain_run(
        trained_run, [TEXT.format("<mask>", "mat"), "a mat"], out_dir=tmp_path
    )["explained"]
    assert (
        masked_explanation["tokens"][6:10] == [".", "the", "<mask>", "sat"] and masked_explanation["predicted"] == "cat"
    )
    assert plain_explanation["predicted"] == "" and set(plain_explanation["methods"]) == {"attention"}
    assert all(
        (tmp_path / figure.rpartition("/")[2]).is_file()
        for explanation in (masked_explanation, plain_explanation)
        for figure in explanation["figures"]
    )
    assert main(["explain", str(trained_run.folder), "--output", str(tmp_path), "--json"]) == 0
    worst_explanations = json.loads(capsys.readouterr().out)["explained"]
    # those with the largest losses, masked as in the evaluation
    assert len(worst_explanations) == 6
    assert all(
        len(explanation["predicted"].split()) == explanation["tokens"].count("<mask>")
        for explanation in worst_explanations
    ) and any(explanation["predicted"] for explanation in worst_explanations)
    assert main(["explain", str(trained_run.folder), "a mat", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("a mat:\n")                     # no mask, no prediction
