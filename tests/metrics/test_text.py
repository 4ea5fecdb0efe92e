"""BLEU against sacrebleu, torchmetrics and a case worked out by hand."""

from math import exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchmetrics.functional.text import sacre_bleu_score

from didact.metrics import bleu
from didact.metrics.text import tokenize_13a
from didact.objectives.text.seq2seq import Seq2SeqObjective

REFERENCES = [
    "The cat sat on the mat, didn't it?",
    "It costs 1,234.50 dollars - or 3-4 &amp; more.",
    "Zwei Männer (jung) spielen Fußball.",
]
HYPOTHESES = [
    "The cat sat on a mat, did it?",
    "It costs 1,234.50 dollars - or 3-4 & less.",
    "Zwei junge Männer spielen Fußball .",
]
WORDS = ["a", "b", "the", "dog's", "1,000.5", "x-y", "3-4", "(no)", "end.", "été,", "&lt;b", "—"]
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)


def test_bleu_by_hand():
    # four of four words, three of three pairs, both threes, the four: but a fifth word is missing
    assert bleu(["a b c d"], ["a b c d e"]) == pytest.approx(100 * exp(1 - 5 / 4))
    # p = 4/5, 2/4, 1/3 and none of 2, which counts as 1 / (2 · 2)
    assert bleu(["a b c x d"], ["a b c y d"]) == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25)
    assert bleu(["one two"], ["three four"]) == 0 and bleu(["a b"], ["a b"]) == 0        # no 4-gram


def test_tokenize_13a_by_hand():
    assert tokenize_13a("It's 1,000.5, (3-4) &quot;x&quot;") == [
        "It's",
        "1,000.5",
        ",",
        "(",
        "3",
        "-",
        "4",
        ")",
        '"',
        "x",
        '"',
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=4))
def test_bleu_equals_torchmetrics(pairs):
    hypotheses, references = [" ".join(a) for a, _ in pairs], [" ".join(b) for _, b in pairs]
    # some of every order are right
    all_pairs = [(a, a) for a in references] + list(zip(hypotheses, references, strict=True))
    hypotheses, references = [a for a, _ in all_pairs], [b for _, b in all_pairs]
    expected = 100 * float(sacre_bleu_score(hypotheses, [[t] for t in references]))
    # torchmetrics has no smoothing of zeros
    if expected > 0:
        assert bleu(hypotheses, references) == pytest.approx(expected, rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=4))
def test_bleu_equals_sacrebleu(pairs):
    sacrebleu = pytest.importorskip("sacrebleu", exc_type=ImportError)
    hypotheses, references = [" ".join(a) for a, _ in pairs], [" ".join(b) for _, b in pairs]
    assert bleu(hypotheses, references) == pytest.approx(
        sacrebleu.corpus_bleu(hypotheses, [references]).score, rel=1e-9, abs=1e-9
    )
    assert bleu(HYPOTHESES, REFERENCES) == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)


def test_translation_objective_scores_bleu_on_decoded_text():
    vocab = ["<pad>", "<unk>", "<bos>", "<eos>", "a", "b", "c", "d", "e"]

    def detokenize(row):
        return " ".join(vocab[i] for i in row if i == 1 or i > 3)

    objective = Seq2SeqObjective(nn.Identity(), mean_length=4, max_length=6, detokenize=detokenize)
    outputs = {
        "loss": torch.ones(2),
        "tokens": torch.tensor([5, 6]),
        "correct": torch.tensor([4, 5]),
        "exact": torch.tensor([1.0, 0.0]),
    }
    outputs["translation"] = outputs["reference"] = torch.tensor([[4, 5, 6, 7, 3, 0], [4, 5, 6, 7, 1, 3]])
    # nine words in the references, eight in the translations: the unknown one never matches
    assert objective.compute_metrics(outputs)["bleu"] == pytest.approx(100 * exp(1 - 9 / 8))
