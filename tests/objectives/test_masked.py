"""Which tokens are hidden, and how."""

import pytest
import torch

from didact.models.bert import MaskedBERT
from didact.objectives.masked import MaskedLanguage, chosen, pieces, scattered


@pytest.fixture
def objective():
    torch.manual_seed(0)
    network = MaskedBERT(22, context=40, dim=16, layers=1, heads=2, hidden=24, dropout=0.0)
    return MaskedLanguage(network, 20)


def test_fifteen_percent_of_which_eighty_ten_ten(objective):
    x = torch.randint(1, 21, (2000, 100))
    read, hidden = objective.hide(x)
    assert torch.equal(read[~hidden], x[~hidden])
    n = hidden.sum().item()
    assert n / x.numel() == pytest.approx(0.15, abs=0.004)          # five deviations
    masked, same = (read == 21) & hidden, (read == x) & hidden
    assert masked.sum().item() / n == pytest.approx(0.8, abs=0.012)
    assert same.sum().item() / n == pytest.approx(0.1 + 0.1 / 20, abs=0.01)      # a random token is the old one in a twentieth
    other = read[hidden & ~masked & ~same]
    assert other.min() == 1 and other.max() == 20


def test_every_evaluation_hides_the_same(objective):
    rows = torch.arange(500)
    hidden = chosen(rows, 40, 0.15)
    assert torch.equal(hidden[7:9], chosen(rows[7:9], 40, 0.15)) and torch.equal(hidden[:, :9], chosen(rows, 9, 0.15))
    assert torch.equal(hidden[rows.flip(0)], chosen(rows.flip(0).int(), 40, 0.15))
    batch = {"x": torch.randint(20, (6, 40)), "row": torch.arange(6)}
    one, two = objective.eval().judge(batch), objective.judge({k: v[3:] for k, v in batch.items()})
    torch.testing.assert_close(one["loss"][3:], two["loss"])


def test_what_is_judged_is_hidden_as_what_is_learned():
    """Each place by itself: gaps are geometric, neighbours are hidden together, and rows and columns know nothing of each other."""
    share, hidden = 0.15, chosen(torch.arange(4000), 100, 0.15)                             # 400,000 places
    assert hidden.float().mean().item() == pytest.approx(share, abs=5 * (0.15 * 0.85 / 4e5) ** 0.5)
    for one, two in ((hidden[:, 1:], hidden[:, :-1]), (hidden[1:], hidden[:-1]), (hidden[1:, 1:], hidden[:-1, :-1])):
        assert (one & two).float().mean().item() == pytest.approx(share**2, abs=0.0015)      # six deviations; on a lattice 0
    places = hidden.flatten().nonzero()[:, 0]
    gaps = places.diff()
    for k in range(1, 20):
        p = share * (1 - share) ** (k - 1)
        assert (gaps == k).float().mean().item() == pytest.approx(p, abs=5 * (p / len(gaps)) ** 0.5), k
    n = hidden.sum(1).float()
    assert n.var().item() == pytest.approx(100 * share * (1 - share), rel=0.12)              # binomial; 5 deviations of a variance
    assert torch.allclose(hidden.float().mean(0), torch.tensor(share), atol=5 * (0.15 * 0.85 / 4000) ** 0.5)


def test_numbers_are_scattered_as_murmur3_has_it():
    assert scattered(torch.tensor([0, 1, 2**32 - 1])).tolist() == [0, 0x514E28B7, 0x81F16F39]


def test_what_is_hidden_is_not_seen(objective):
    """Other tokens below the mask change neither logits nor, beyond the target, the loss."""
    batch = {"x": torch.randint(20, (4, 40)), "row": torch.arange(4)}
    hidden = chosen(batch["row"], 40, 0.15)
    seen = []
    objective.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    objective.judge(batch)
    objective.judge(batch | {"x": torch.where(hidden, (batch["x"] + 5) % 20, batch["x"])})
    assert torch.equal(*seen) and (seen[0][hidden] == objective.mask).all()


@torch.no_grad()
def test_an_untrained_network_guesses(objective):
    batch = {"x": torch.randint(20, (50, 40)), "row": torch.arange(50)}
    assert objective.loss(batch)["loss"].item() == pytest.approx(torch.tensor(22.0).log().item(), rel=0.1)
    assert objective.score(objective.judge(batch))["loss"] == pytest.approx(torch.tensor(22.0).log().item(), rel=0.1)


@torch.no_grad()
def test_pieces_of_a_row_are_read_as_if_they_stood_alone(objective):
    network, x = objective.network.eval(), torch.randint(1, 21, (2, 12))
    x[1, 10:] = 0                                                            # padding belongs to no piece
    parts = torch.tensor([[0] * 5 + [1] + [2] * 6, [0] * 12])
    y = network(x, pieces=parts)
    for a, b in ((0, 5), (5, 6), (6, 12)):
        torch.testing.assert_close(y[:1, a:b], network(x[:1, a:b]))
    torch.testing.assert_close(y[1:, :10], network(x[1:, :10]))


def test_a_share_of_the_rows_is_cut():
    torch.manual_seed(0)
    x = torch.zeros(20_000, 64)
    assert pieces(x, 0.0).eq(0).all()
    found = pieces(x, 0.5)
    steps = found.diff(dim=1)
    assert found.dtype == torch.long and steps.min() == 0 and steps.max() == 1
    # of a row that is cut, E (1 − 1/ℓ)^63 stays whole, ℓ = 64^u the mean length, u uniform in [¼, 1]
    whole = (1 - 64 ** -torch.linspace(0.25, 1, 10_001)).pow(63).mean().item()
    assert (steps.sum(1) == 0).float().mean().item() == pytest.approx(0.5 + 0.5 * whole, abs=0.018)     # five deviations
    # 64^−u on average, ∫ 64^−u du / ¾ from ¼ to 1
    rate = (64**-0.25 - 64**-1) / (0.75 * torch.tensor(64.0).log().item())
    assert steps.float().mean().item() == pytest.approx(0.5 * rate, rel=0.05)
