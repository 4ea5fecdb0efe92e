"""BLEU beside sacrebleu, torchmetrics and a case worked by hand."""

from math import exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchmetrics.functional.text import sacre_bleu_score

from didact.metrics import bleu
from didact.metrics.text import words
from didact.objectives.translation import Translate

REFERENCES = ["The cat sat on the mat, didn't it?", "It costs 1,234.50 dollars - or 3-4 &amp; more.", "Zwei Männer (jung) spielen Fußball."]
WRITTEN = ["The cat sat on a mat, did it?", "It costs 1,234.50 dollars - or 3-4 & less.", "Zwei junge Männer spielen Fußball ."]
WORDS = ["a", "b", "the", "dog's", "1,000.5", "x-y", "3-4", "(no)", "end.", "été,", "&lt;b", "—"]
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)


def test_by_hand():
    # four of four words, three of three pairs, both threes, the four: but a fifth word is missing
    assert bleu(["a b c d"], ["a b c d e"]) == pytest.approx(100 * exp(1 - 5 / 4))
    # p = 4/5, 2/4, 1/3 and none of 2, which counts as 1 / (2 · 2)
    assert bleu(["a b c x d"], ["a b c y d"]) == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25)
    assert bleu(["one two"], ["three four"]) == 0 and bleu(["a b"], ["a b"]) == 0        # no run of four words


def test_words_as_the_campaign_cuts_them():
    assert words("It's 1,000.5, (3-4) &quot;x&quot;") == ["It's", "1,000.5", ",", "(", "3", "-", "4", ")", '"', "x", '"']


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=4))
def test_against_torchmetrics(pairs):
    ours, theirs = [" ".join(a) for a, _ in pairs], [" ".join(b) for _, b in pairs]
    both = [(a, a) for a in theirs] + list(zip(ours, theirs, strict=True))                # some of every order are right
    ours, theirs = [a for a, _ in both], [b for _, b in both]
    expected = 100 * float(sacre_bleu_score(ours, [[t] for t in theirs]))
    if expected > 0:                                                                     # torchmetrics has no smoothing of zeros
        assert bleu(ours, theirs) == pytest.approx(expected, rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=4))
def test_against_sacrebleu(pairs):
    sacrebleu = pytest.importorskip("sacrebleu", exc_type=ImportError)
    ours, theirs = [" ".join(a) for a, _ in pairs], [" ".join(b) for _, b in pairs]
    assert bleu(ours, theirs) == pytest.approx(sacrebleu.corpus_bleu(ours, [theirs]).score, rel=1e-9, abs=1e-9)
    assert bleu(WRITTEN, REFERENCES) == pytest.approx(sacrebleu.corpus_bleu(WRITTEN, [REFERENCES]).score)


def test_translations_are_judged_as_texts():
    names = ["<pad>", "<unk>", "<bos>", "<eos>", "a", "b", "c", "d", "e"]

    def spell(row):
        return " ".join(names[i] for i in row if i == 1 or i > 3)

    objective = Translate(nn.Identity(), length=4, longest=6, spell=spell)
    rows = {
        "loss": torch.ones(2), "tokens": torch.tensor([5, 6]), "right": torch.tensor([4, 5]), "exact": torch.tensor([1.0, 0.0]),
    }
    rows["written"] = rows["reference"] = torch.tensor([[4, 5, 6, 7, 3, 0], [4, 5, 6, 7, 1, 3]])
    # nine words in the references, eight written: the unknown one is not counted as right
    assert objective.score(rows)["bleu"] == pytest.approx(100 * exp(1 - 9 / 8))
