"""RNN, LSTM and GRU through time against torch.nn: all outputs, all gradients, layers, directions, given starts."""

import numpy as np
import pytest
import torch
from both_engines import few
from carried import carried
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, modules, tensor
from didact.scratch.recurrent import lstm

KINDS = {"rnn": (modules.RNN, torch.nn.RNN), "lstm": (modules.LSTM, torch.nn.LSTM), "gru": (modules.GRU, torch.nn.GRU)}
small = st.sampled_from([1, 2, 3, 5])


@pytest.mark.parametrize("kind", KINDS)
@few
@given(small, small, small, small, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
def test_against_torch(kind, steps, n, width, hidden, layers, bias, both_ways, batch_first):
    ours, theirs = KINDS[kind]
    settings = {"bias": bias, "batch_first": batch_first, "bidirectional": both_ways}
    x = np.random.default_rng(steps + 10 * n).normal(size=(n, steps, width) if batch_first else (steps, n, width))
    torch.manual_seed(0)
    carried(ours(width, hidden, layers, **settings, dtype=np.float64), theirs(width, hidden, layers, **settings), x)


def test_an_rnn_of_relus():
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(5, 2, 3))
    carried(modules.RNN(3, 4, 2, "relu", dtype=np.float64), torch.nn.RNN(3, 4, 2, "relu"), x)
    with pytest.raises(ScratchError, match="'tanh' or 'relu', got 'sin'"):
        modules.RNN(3, 4, nonlinearity="sin")


@pytest.mark.parametrize("kind", KINDS)
def test_a_given_start_gets_its_gradient(kind):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ours, theirs = KINDS[kind][0](3, 4, 2, dtype=np.float64), KINDS[kind][1](3, 4, 2).double()
    ours.load_state_dict(theirs.state_dict())
    x, *starts = [rng.normal(size=(5, 2, 3))] + [rng.normal(size=(2, 2, 4)) for _ in range(2 if kind == "lstm" else 1)]
    mine, other = [tensor(s, requires_grad=True) for s in starts], [torch.tensor(s, requires_grad=True) for s in starts]
    y, last = ours(Tensor(x), tuple(mine) if kind == "lstm" else mine[0])
    t, end = theirs(torch.tensor(x), tuple(other) if kind == "lstm" else other[0])
    ((y**2).sum() + (last[0] if kind == "lstm" else last).sum()).backward()
    ((t**2).sum() + (end[0] if kind == "lstm" else end).sum()).backward()
    for a, b in zip(mine, other, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), atol=1e-9)


def test_a_batch_of_none():
    x = np.zeros((3, 0, 2))
    carried(modules.LSTM(2, 4, dtype=np.float64), torch.nn.LSTM(2, 4), x)


def test_the_forget_gate_is_the_direct_path():
    """Gaba eq. 5.15: with gates deaf to h, dc_T/dc_0 is the product of the forget gates, and nothing else."""
    rng = np.random.default_rng(0)
    x, c0, h0 = Tensor(rng.normal(size=(4, 1, 2))), tensor(rng.normal(size=(1, 3)), requires_grad=True), Tensor(np.zeros((1, 3)))
    w_ih, w_hh = Tensor(rng.normal(size=(12, 2))), Tensor(np.zeros((12, 3)))
    (g,) = grad(lstm(x, h0, c0, w_ih, w_hh)[-1].sum(), c0)
    forget = 1 / (1 + np.exp(-(x.data @ w_ih.data[3:6].T)))
    np.testing.assert_allclose(g.data, forget.prod(0), rtol=1e-12)


def test_dropout_stands_between_layers_only():
    x = Tensor(np.ones((3, 2, 4), np.float32))
    one, two = modules.GRU(4, 5, 1, dropout=0.9, rng=0), modules.GRU(4, 5, 2, dropout=0.9, rng=0)
    np.testing.assert_array_equal(one(x)[0].data, one(x)[0].data)
    assert (two(x)[0].data != two(x)[0].data).any()
    two.eval()
    np.testing.assert_array_equal(two(x)[0].data, two(x)[0].data)


def test_what_cannot_be_done_is_said():
    x = tensor(np.ones((3, 2, 4)), requires_grad=True)
    with pytest.raises(ScratchError, match="gru can be differentiated once only"):
        grad(modules.GRU(4, 5, dtype=np.float64)(x)[1].sum(), x, create_graph=True)
    with pytest.raises(ScratchError, match=r"rnn: an input of shape \(3, 2, 4\) does not fit \(T, N, 6\)"):
        modules.RNN(6, 5, dtype=np.float64)(x)
    with pytest.raises(ScratchError, match=r"gru: a state of shape \(1, 5\) does not fit \(N, H\) = \(2, 5\)"):
        modules.GRU(4, 5, dtype=np.float64)(x, Tensor(np.zeros((1, 1, 5))))
    with pytest.raises(ScratchError, match="T ≥ 1"):
        modules.LSTM(4, 5, dtype=np.float64)(Tensor(np.ones((0, 2, 4))))
