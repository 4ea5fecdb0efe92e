"""Which tokens are masked, and how."""

import pytest
import torch

from didact.models.text.bert import MaskedBERT
from didact.objectives.text.masked_lm import MaskedLanguageModel, hash32, mask_positions, segment_ids


@pytest.fixture
def objective():
    torch.manual_seed(0)
    network = MaskedBERT(22, context_length=40, embed_dim=16, num_layers=1, num_heads=2, ffn_dim=24, dropout=0.0)
    return MaskedLanguageModel(network, 20)


def test_masked_lm_masks_15_percent_as_80_10_10(objective):
    x = torch.randint(1, 21, (2000, 100))
    inputs, is_hidden = objective.apply_mask(x)
    assert torch.equal(inputs[~is_hidden], x[~is_hidden])
    n = is_hidden.sum().item()
    assert n / x.numel() == pytest.approx(0.15, abs=0.004)          # five standard deviations
    is_mask_token, unchanged = (inputs == 21) & is_hidden, (inputs == x) & is_hidden
    assert is_mask_token.sum().item() / n == pytest.approx(0.8, abs=0.012)
    # a random token is the old one in a twentieth
    assert unchanged.sum().item() / n == pytest.approx(0.1 + 0.1 / 20, abs=0.01)
    random_tokens = inputs[is_hidden & ~is_mask_token & ~unchanged]
    assert random_tokens.min() == 1 and random_tokens.max() == 20


def test_masked_lm_evaluation_mask_is_fixed(objective):
    rows = torch.arange(500)
    is_hidden = mask_positions(rows, 40, 0.15)
    assert torch.equal(is_hidden[7:9], mask_positions(rows[7:9], 40, 0.15)) and torch.equal(
        is_hidden[:, :9], mask_positions(rows, 9, 0.15)
    )
    assert torch.equal(is_hidden[rows.flip(0)], mask_positions(rows.flip(0).int(), 40, 0.15))
    batch = {"x": torch.randint(20, (6, 40)), "row": torch.arange(6)}
    all_outputs = objective.eval().evaluate_batch(batch)
    last_outputs = objective.evaluate_batch({k: v[3:] for k, v in batch.items()})
    torch.testing.assert_close(all_outputs["loss"][3:], last_outputs["loss"])


def test_mask_positions_are_independent_bernoulli_draws():
    """Positions are independent: gaps are geometric, and neighbors are masked together by chance."""
    share, is_hidden = 0.15, mask_positions(torch.arange(4000), 100, 0.15)                             # 400,000 of them
    assert is_hidden.float().mean().item() == pytest.approx(share, abs=5 * (0.15 * 0.85 / 4e5) ** 0.5)
    for first, second in (
        (is_hidden[:, 1:], is_hidden[:, :-1]),
        (is_hidden[1:], is_hidden[:-1]),
        (is_hidden[1:, 1:], is_hidden[:-1, :-1]),
    ):
        # six standard deviations; on a lattice 0
        assert (first & second).float().mean().item() == pytest.approx(share**2, abs=0.0015)
    positions = is_hidden.flatten().nonzero()[:, 0]
    gaps = positions.diff()
    for k in range(1, 20):
        p = share * (1 - share) ** (k - 1)
        assert (gaps == k).float().mean().item() == pytest.approx(p, abs=5 * (p / len(gaps)) ** 0.5), k
    n = is_hidden.sum(1).float()
    # binomial; 5 standard deviations of a variance
    assert n.var().item() == pytest.approx(100 * share * (1 - share), rel=0.12)
    assert torch.allclose(is_hidden.float().mean(0), torch.tensor(share), atol=5 * (0.15 * 0.85 / 4000) ** 0.5)


def test_hash32_matches_murmur3():
    assert hash32(torch.tensor([0, 1, 2**32 - 1])).tolist() == [0, 0x514E28B7, 0x81F16F39]


def test_masked_lm_does_not_see_masked_tokens(objective):
    """Other tokens under the mask change neither the logits nor, beyond the target, the loss."""
    batch = {"x": torch.randint(20, (4, 40)), "row": torch.arange(4)}
    is_hidden = mask_positions(batch["row"], 40, 0.15)
    network_inputs = []
    objective.network.register_forward_pre_hook(lambda _, inputs: network_inputs.append(inputs[0]))
    objective.evaluate_batch(batch)
    objective.evaluate_batch(batch | {"x": torch.where(is_hidden, (batch["x"] + 5) % 20, batch["x"])})
    assert torch.equal(*network_inputs) and (network_inputs[0][is_hidden] == objective.mask_token_id).all()


@torch.no_grad()
def test_untrained_masked_lm_loss_is_log_vocabulary(objective):
    batch = {"x": torch.randint(20, (50, 40)), "row": torch.arange(50)}
    assert objective.loss(batch)["loss"].item() == pytest.approx(torch.tensor(22.0).log().item(), rel=0.1)
    metrics = objective.compute_metrics(objective.evaluate_batch(batch))
    assert metrics["loss"] == pytest.approx(torch.tensor(22.0).log().item(), rel=0.1)


@torch.no_grad()
def test_masked_lm_reads_segments_independently(objective):
    network, x = objective.network.eval(), torch.randint(1, 21, (2, 12))
    x[1, 10:] = 0                                                            # padding belongs to no segment
    segments = torch.tensor([[0] * 5 + [1] + [2] * 6, [0] * 12])
    y = network(x, pieces=segments)
    for a, b in ((0, 5), (5, 6), (6, 12)):
        torch.testing.assert_close(y[:1, a:b], network(x[:1, a:b]))
    torch.testing.assert_close(y[1:, :10], network(x[1:, :10]))


def test_segment_ids_cut_a_share_of_the_rows():
    torch.manual_seed(0)
    x = torch.zeros(20_000, 64)
    assert segment_ids(x, 0.0).eq(0).all()
    segments = segment_ids(x, 0.5)
    steps = segments.diff(dim=1)
    assert segments.dtype == torch.long and steps.min() == 0 and steps.max() == 1
    # a cut example remains whole with probability E (1 − 1/ℓ)^63, ℓ = 64^u the mean length, u uniform in [¼, 1]
    uncut_share = (1 - 64 ** -torch.linspace(0.25, 1, 10_001)).pow(63).mean().item()
    # five standard deviations
    assert (steps.sum(1) == 0).float().mean().item() == pytest.approx(0.5 + 0.5 * uncut_share, abs=0.018)
    # 64^−u on average, ∫ 64^−u du / ¾ from ¼ to 1
    rate = (64**-0.25 - 64**-1) / (0.75 * torch.tensor(64.0).log().item())
    assert steps.float().mean().item() == pytest.approx(0.5 * rate, rel=0.05)
