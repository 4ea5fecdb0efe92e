"""Mamba and xLSTM as readers: a state between two halves, padding that nobody reads, states by other ways of computing them."""

import pytest
import torch

from didact.errors import UsageError
from didact.layers.mamba import scan
from didact.layers.mixing import MIXERS, Mixing
from didact.layers.recurrent import Bidirectional, Carried, reading
from didact.layers.xlstm import MLSTM
from didact.models.recurrent import RecurrentClassifier, RecurrentLanguageModel


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("cell", MIXERS)
def test_two_halves_and_single_tokens_with_the_state_between_are_the_whole(cell):
    reader, x = Mixing(cell, 5, 8, layers=2).double(), torch.randn(3, 11, 5, dtype=torch.float64)
    whole, end = reader(x)
    first, state = reader(x[:, :4])
    second, after = reader(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(after, end)
    state, one_by_one = reader.start(3), []
    for x_t in x.split(1, dim=1):
        y, state = reader(x_t, state)
        one_by_one.append(y)
    torch.testing.assert_close(torch.cat(one_by_one, 1), whole)
    torch.testing.assert_close(state, end)
    assert all(part.shape[:2] == (2, 3) for part in end)


@pytest.mark.parametrize("cell", MIXERS)
def test_a_gradient_through_the_state_is_the_gradient_of_the_whole(cell):
    reader, x = Mixing(cell, 5, 8).double(), torch.randn(2, 7, 5, dtype=torch.float64)
    p = list(reader.parameters())
    whole = torch.autograd.grad(reader(x)[0][:, 3:].square().sum(), p)
    _, state = reader(x[:, :3])
    torch.testing.assert_close(torch.autograd.grad(reader(x[:, 3:], state)[0].square().sum(), p), whole)


@torch.no_grad()
@pytest.mark.parametrize("cell", MIXERS)
def test_dropout_is_between_layers_alone(cell):
    """With all dropped two layers are the second one on what the first was given; a layer alone drops nothing."""
    reader, x = Mixing(cell, 5, 8, layers=2, dropout=1.0), torch.randn(3, 6, 5)
    u = reader.widen(x)
    torch.testing.assert_close(reader(x)[0], reader.norm(u + reader.mixers[1](reader.norms[1](u))))
    alone = Mixing(cell, 5, 8, dropout=1.0)
    torch.testing.assert_close(alone(x)[0], alone.eval()(x)[0])


@pytest.mark.parametrize("cell", MIXERS)
def test_both_directions_read_no_padding(cell):
    reader, x, lengths = Bidirectional(cell, 5, 8, layers=2), torch.randn(3, 9, 5), torch.tensor([9, 4, 1])
    y = reader(x, lengths)
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[row : row + 1, :n], reader(x[row : row + 1, :n], torch.tensor([n])))
        assert not y[row, n:].any()


@pytest.mark.parametrize("cell", MIXERS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_padding_changes_no_answer(cell, bidirectional):
    model = RecurrentClassifier(20, 3, cell=cell, width=8, hidden=6, pool="last", bidirectional=bidirectional).eval()
    tokens = torch.randint(1, 20, (4, 7))
    torch.testing.assert_close(model(torch.cat([tokens, torch.zeros(4, 5, dtype=torch.long)], 1)), model(tokens))


@pytest.mark.parametrize("cell", MIXERS)
def test_a_language_model_reads_the_past_alone(cell):
    model, tokens = RecurrentLanguageModel(20, cell=cell, width=8, hidden=6, layers=2).eval(), torch.randint(20, (3, 9))
    other = tokens.clone()
    other[:, 5:] = 0
    torch.testing.assert_close(model(tokens)[:, :5], model(other)[:, :5])
    assert not torch.allclose(model(tokens)[:, 5:], model(other)[:, 5:])


@torch.no_grad()
@pytest.mark.parametrize("cell", MIXERS)
def test_a_memory_can_be_cleared_and_reordered(cell):
    reader, x = reading(cell, 5, 8, layers=2), torch.randn(3, 6, 5)
    memory = Carried(reader, 3, 99)
    memory.keep(reader(x)[1])
    memory.pick(torch.tensor([2, 0, 0]))
    torch.testing.assert_close(memory.state, reader(x[[2, 0, 0]])[1])
    memory.clear()
    assert all(torch.equal(a, b) for a, b in zip(memory.state, reader.start(3), strict=True))


def test_an_mlstms_state_is_the_sum_that_its_equation_says():
    block, x = MLSTM(8, heads=2).double(), torch.randn(1, 6, 8, dtype=torch.float64)
    c, n, m = block.after(x, block.start(1))[1]
    step_by_step = block.after(x, block.start(1), parallel=False)[1]
    torch.testing.assert_close((c, n, m), step_by_step)
    _, k, v = (t.view(6, 2, 4) for t in block.qkv(x)[0].chunk(3, -1))
    i, f = block.gates(x)[0].chunk(2, -1)
    faded = [i[s].exp() * f[s + 1 :].sigmoid().prod(0) for s in range(6)]                  # (heads,) each
    torch.testing.assert_close(c[0] * m[0].exp()[:, None, None], sum(w[:, None, None] * v[s, :, :, None] * k[s, :, None] / 2
                                                                     for s, w in enumerate(faded)))
    torch.testing.assert_close(n[0] * m[0].exp()[:, None], sum(w[:, None] * k[s] / 2 for s, w in enumerate(faded)))


def test_the_scan_keeps_two_tensors_for_the_way_back():
    a, b, kept = torch.rand(1, 64, 3, requires_grad=True), torch.randn(1, 64, 3, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        scan(a, b)
    assert kept == [64 * 3] * 2                                                            # of six rounds nothing


def test_what_does_not_go_together_is_refused():
    with pytest.raises(UsageError, match="no cell named 'mamb'; did you mean 'mamba'"):
        reading("mamb", 3, 4)
    with pytest.raises(UsageError, match="--init random is for rnn, lstm and gru; mamba begins as its paper says: leave it out"):
        reading("mamba", 3, 4, init="random")
    assert {cell: reading(cell, 3, 6).mixers[0].heads for cell in ("slstm", "mlstm")} == {"slstm": 2, "mlstm": 2}    # 4 do not divide 6
