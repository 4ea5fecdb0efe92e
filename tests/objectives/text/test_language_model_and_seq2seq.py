"""Next-token losses against torch's, by hand where padding is, and independent of how rows are batched."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.models.text.rnn import RecurrentLanguageModel
from didact.models.text.seq2seq import Seq2Seq
from didact.objectives.text.language_model import (
    IGNORE_INDEX,
    LanguageModel,
    bits_per_character,
    next_token_loss,
    perplexity,
)
from didact.objectives.text.seq2seq import Seq2SeqObjective


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


class ConstantLogits(nn.Module):
    """The same logits for every input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x):
        return self.logits.expand(*x.shape, -1)


def test_next_token_loss_matches_torch_and_ignores_padding():
    logits, y = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    y[1, 3:] = IGNORE_INDEX
    nll = next_token_loss(logits, y)
    assert nll[1, 3:].eq(0).all()
    torch.testing.assert_close(nll[0, 2], -logits[0, 2].log_softmax(-1)[y[0, 2]])
    torch.testing.assert_close(
        nll.sum() / 13, F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORE_INDEX)
    )


def test_uniform_model_perplexity_is_the_vocabulary_size():
    objective = LanguageModel(ConstantLogits(torch.zeros(65)), chars_per_token=2.0)
    batch = {"x": torch.randint(65, (4, 9)), "y": torch.randint(65, (4, 9))}
    with torch.no_grad():
        scores = objective.compute_metrics(objective.evaluate_batch(batch))
    assert scores["loss"] == pytest.approx(math.log(65), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(65, rel=1e-5)
    assert scores["bits_per_character"] == pytest.approx(math.log2(65) / 2, rel=1e-5)      # two characters a token
    assert objective.loss(batch)["loss"].item() == pytest.approx(math.log(65), rel=1e-5)
    assert perplexity(800) == math.inf and bits_per_character(math.log(2)) == pytest.approx(1)


def test_language_model_metrics_are_independent_of_batching():
    objective = LanguageModel(RecurrentLanguageModel(11, embed_dim=6, hidden_size=5)).eval()
    x, y = torch.randint(11, (6, 8)), torch.randint(11, (6, 8))
    y[0, 2:] = IGNORE_INDEX
    with torch.no_grad():
        full_metrics = objective.compute_metrics(objective.evaluate_batch({"x": x, "y": y}))
        outputs_by_batch = [objective.evaluate_batch({"x": x[i:j], "y": y[i:j]}) for i, j in ((0, 1), (1, 4), (4, 6))]
        batched_metrics = objective.compute_metrics(
            {name: torch.cat([p[name] for p in outputs_by_batch]) for name in outputs_by_batch[0]}
        )
        assert full_metrics == pytest.approx(batched_metrics, rel=1e-6)
        assert full_metrics["loss"] == pytest.approx(float(objective.loss({"x": x, "y": y})["loss"]), rel=1e-5)


def test_language_model_predicts_after_the_last_token():
    objective = LanguageModel(RecurrentLanguageModel(11, embed_dim=6, hidden_size=5)).eval()
    x = torch.randint(11, (2, 8))
    with torch.no_grad():
        p = objective.classify({"x": x, "length": torch.tensor([3, 8])})
        torch.testing.assert_close(p.sum(-1), torch.ones(2))
        torch.testing.assert_close(p[0], objective.classify({"x": x[:1, :3]})[0])
        torch.testing.assert_close(p[1], objective.network(x[1:])[0, -1].softmax(-1))


def test_seq2seq_loss_matches_torch_and_adds_up_over_batches():
    network = Seq2Seq(9, 8, embed_dim=6, hidden_size=5).eval()
    objective = Seq2SeqObjective(network, mean_length=3.0, max_length=5)
    x = torch.tensor([[4, 5, 3, 0], [6, 7, 8, 3], [5, 3, 0, 0]])
    y = torch.tensor([[2, 4, 3, 0, 0], [2, 5, 6, 7, 3], [2, 7, 7, 3, 0]])
    with torch.no_grad():
        logits = network(x, y[:, :-1])
        total = F.cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=0, reduction="sum")
        full_loss = float(objective.loss({"x": x, "y": y})["loss"])
        assert full_loss == pytest.approx(float(total) / 3 / 3.0, rel=1e-5)
        partial_losses = [
            float(objective.loss({"x": x[i:j], "y": y[i:j]})["loss"]) * (j - i) / 3 for i, j in ((0, 1), (1, 3))
        ]
        assert full_loss == pytest.approx(sum(partial_losses), rel=1e-5)
        outputs = objective.evaluate_batch({"x": x, "y": y})
        assert objective.compute_metrics(outputs)["loss"] == pytest.approx(float(total) / 9, rel=1e-5) and outputs[
            "tokens"
        ].tolist() == [2, 4, 3]
        generated = objective.translate({"x": x})[:, :4]
        exact_match = objective.evaluate_batch({"x": x, "y": torch.cat([torch.full((3, 1), 2), generated], 1)})["exact"]
        assert exact_match.eq(1).all()


@torch.no_grad()
def test_seq2seq_exact_match_agrees_with_free_decoding_and_bleu_takes_the_first_rows(monkeypatch):
    from didact.objectives.text import seq2seq

    monkeypatch.setattr(seq2seq, "NUM_BLEU_EXAMPLES", 6)
    torch.manual_seed(0)
    network = Seq2Seq(9, 8, embed_dim=6, hidden_size=5).eval()
    # confident logits, and no <eos> at once
    network.head.weight.mul_(8)
    network.head.bias[3] -= 1
    objective = Seq2SeqObjective(
        network, mean_length=3.0, max_length=7, detokenize=lambda row: " ".join("..abcdef"[i] for i in row if i > 3)
    )
    x = torch.randint(4, 9, (9, 6)) * (torch.arange(6) < torch.randint(2, 7, (9, 1)))          # of different lengths
    generated = objective.translate({"x": x})
    y = torch.cat([torch.full((9, 1), 2), generated], 1)
    # other targets are not its translations
    y[::2, 2] = y[::2, 2] % 4 + 4
    outputs = objective.evaluate_batch({"x": x, "y": y, "row": torch.arange(9)})
    is_exact = (generated == y[:, 1:]).all(1)
    assert outputs["exact"].bool().tolist() == is_exact.tolist() and 0 < is_exact.sum() < 9
    assert (
        torch.equal(outputs["translation"][:6], generated[:6].int())
        and (outputs["translation"][6:] == -1).all()
        and len(generated.unique(dim=0)) > 3
    )
    first_outputs = {name: column[:6] for name, column in outputs.items()}
    assert objective.compute_metrics(outputs)["bleu"] == pytest.approx(objective.compute_metrics(first_outputs)["bleu"])
    outputs_by_batch = [
        objective.evaluate_batch({"x": x[i], "y": y[i], "row": torch.arange(9)[i]}) for i in (slice(0, 4), slice(4, 9))
    ]
    assert all(
        torch.equal(torch.cat([h[name] for h in outputs_by_batch]), outputs[name])
        for name in ("translation", "exact", "correct")
    )


def test_next_token_loss_label_smoothing_matches_its_formula():
    """(1 − a) (−log p_y) + a mean_v (−log p_v), and nothing where the target is ignored."""
    torch.manual_seed(0)
    logits, y = torch.randn(2, 3, 5), torch.tensor([[1, 4, IGNORE_INDEX], [0, IGNORE_INDEX, 2]])
    logp, is_target = logits.log_softmax(-1), y != IGNORE_INDEX
    nll = -logp.gather(-1, y.clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(
        next_token_loss(logits, y, label_smoothing=0.1), (0.9 * nll - 0.1 * logp.mean(-1)) * is_target
    )
