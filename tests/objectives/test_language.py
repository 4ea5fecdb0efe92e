"""Next-token losses against torch's, by hand where padding is, and independent of how rows are batched."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.models.recurrent import RecurrentLanguageModel
from didact.models.seq2seq import Seq2Seq
from didact.objectives.language import IGNORED, LanguageModel, bits_per_character, next_token, perplexity
from didact.objectives.translation import Translate


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Fixed(nn.Module):
    """Says the same whatever it reads."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x):
        return self.logits.expand(*x.shape, -1)


def test_the_surprise_of_each_position_and_none_at_padding():
    logits, y = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    y[1, 3:] = IGNORED
    nll = next_token(logits, y)
    assert nll[1, 3:].eq(0).all()
    torch.testing.assert_close(nll[0, 2], -logits[0, 2].log_softmax(-1)[y[0, 2]])
    torch.testing.assert_close(nll.sum() / 13, F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORED))


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_tokens():
    objective = LanguageModel(Fixed(torch.zeros(65)), rate=2.0)
    batch = {"x": torch.randint(65, (4, 9)), "y": torch.randint(65, (4, 9))}
    with torch.no_grad():
        scores = objective.score(objective.judge(batch))
    assert scores["loss"] == pytest.approx(math.log(65), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(65, rel=1e-5)
    assert scores["bits_per_character"] == pytest.approx(math.log2(65) / 2, rel=1e-5)      # two characters a token
    assert objective.loss(batch)["loss"].item() == pytest.approx(math.log(65), rel=1e-5)
    assert perplexity(800) == math.inf and bits_per_character(math.log(2)) == pytest.approx(1)


def test_a_split_is_scored_by_tokens_however_it_is_cut():
    objective = LanguageModel(RecurrentLanguageModel(11, width=6, hidden=5)).eval()
    x, y = torch.randint(11, (6, 8)), torch.randint(11, (6, 8))
    y[0, 2:] = IGNORED
    with torch.no_grad():
        whole = objective.score(objective.judge({"x": x, "y": y}))
        parts = [objective.judge({"x": x[i:j], "y": y[i:j]}) for i, j in ((0, 1), (1, 4), (4, 6))]
        cut = objective.score({name: torch.cat([p[name] for p in parts]) for name in parts[0]})
        assert whole == pytest.approx(cut, rel=1e-6)
        assert whole["loss"] == pytest.approx(float(objective.loss({"x": x, "y": y})["loss"]), rel=1e-5)


def test_what_comes_next_is_read_where_the_text_ends():
    objective = LanguageModel(RecurrentLanguageModel(11, width=6, hidden=5)).eval()
    x = torch.randint(11, (2, 8))
    with torch.no_grad():
        p = objective.classify({"x": x, "length": torch.tensor([3, 8])})
        torch.testing.assert_close(p.sum(-1), torch.ones(2))
        torch.testing.assert_close(p[0], objective.classify({"x": x[:1, :3]})[0])
        torch.testing.assert_close(p[1], objective.network(x[1:])[0, -1].softmax(-1))


def test_translation_asks_for_what_follows_and_parts_add_up_to_the_batch():
    network = Seq2Seq(9, 8, width=6, hidden=5).eval()
    objective = Translate(network, length=3.0, longest=5)
    x = torch.tensor([[4, 5, 3, 0], [6, 7, 8, 3], [5, 3, 0, 0]])
    y = torch.tensor([[2, 4, 3, 0, 0], [2, 5, 6, 7, 3], [2, 7, 7, 3, 0]])
    with torch.no_grad():
        logits = network(x, y[:, :-1])
        total = F.cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=0, reduction="sum")
        whole = float(objective.loss({"x": x, "y": y})["loss"])
        assert whole == pytest.approx(float(total) / 3 / 3.0, rel=1e-5)
        parts = [float(objective.loss({"x": x[i:j], "y": y[i:j]})["loss"]) * (j - i) / 3 for i, j in ((0, 1), (1, 3))]
        assert whole == pytest.approx(sum(parts), rel=1e-5)
        rows = objective.judge({"x": x, "y": y})
        assert objective.score(rows)["loss"] == pytest.approx(float(total) / 9, rel=1e-5) and rows["tokens"].tolist() == [2, 4, 3]
        own = objective.translate({"x": x})[:, :4]
        exact = objective.judge({"x": x, "y": torch.cat([torch.full((3, 1), 2), own], 1)})["exact"]
        assert exact.eq(1).all()


@torch.no_grad()
def test_what_is_exact_is_known_without_writing_and_bleu_is_of_the_first_rows(monkeypatch):
    from didact.objectives import translation

    monkeypatch.setattr(translation, "ROWS", 6)
    torch.manual_seed(0)
    network = Seq2Seq(9, 8, width=6, hidden=5).eval()
    network.head.weight.mul_(8)                                                                 # of its own mind, and not to end at once
    network.head.bias[3] -= 1
    objective = Translate(network, length=3.0, longest=7, spell=lambda row: " ".join("..abcdef"[i] for i in row if i > 3))
    x = torch.randint(4, 9, (9, 6)) * (torch.arange(6) < torch.randint(2, 7, (9, 1)))          # of several lengths
    own = objective.translate({"x": x})
    y = torch.cat([torch.full((9, 1), 2), own], 1)
    y[::2, 2] = y[::2, 2] % 4 + 4                                                               # others are not what it writes
    rows = objective.judge({"x": x, "y": y, "row": torch.arange(9)})
    freely = (own == y[:, 1:]).all(1)
    assert rows["exact"].bool().tolist() == freely.tolist() and 0 < freely.sum() < 9
    assert torch.equal(rows["written"][:6], own[:6].int()) and (rows["written"][6:] == -1).all() and len(own.unique(dim=0)) > 3
    kept = {name: column[:6] for name, column in rows.items()}
    assert objective.score(rows)["bleu"] == pytest.approx(objective.score(kept)["bleu"])
    halves = [objective.judge({"x": x[i], "y": y[i], "row": torch.arange(9)[i]}) for i in (slice(0, 4), slice(4, 9))]
    assert all(torch.equal(torch.cat([h[name] for h in halves]), rows[name]) for name in ("written", "exact", "right"))


def test_smoothing_spreads_a_share_of_the_target_over_all_tokens():
    """(1 − a) (−log p_y) + a mean_v (−log p_v), and nothing where the target is ignored."""
    torch.manual_seed(0)
    logits, y = torch.randn(2, 3, 5), torch.tensor([[1, 4, IGNORED], [0, IGNORED, 2]])
    logp, asked = logits.log_softmax(-1), y != IGNORED
    one = -logp.gather(-1, y.clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(next_token(logits, y, smoothing=0.1), (0.9 * one - 0.1 * logp.mean(-1)) * asked)
