"""RNN, LSTM and GRU against torch.nn: all outputs, all gradients, layers, directions, initial states."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, modules, tensor
from didact.scratch.recurrent import lstm
from helpers.module_comparison import assert_module_matches_torch
from helpers.op_comparison import few_examples

MODULE_PAIRS = {
    "rnn": (modules.RNN, torch.nn.RNN),
    "lstm": (modules.LSTM, torch.nn.LSTM),
    "gru": (modules.GRU, torch.nn.GRU),
}
small_sizes = st.sampled_from([1, 2, 3, 5])


@pytest.mark.parametrize("kind", MODULE_PAIRS)
@few_examples
@given(
    small_sizes, small_sizes, small_sizes, small_sizes, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans()
)
def test_recurrent_modules_match_torch(kind, steps, n, width, hidden, layers, bias, bidirectional, batch_first):
    scratch_class, torch_class = MODULE_PAIRS[kind]
    options = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    x = np.random.default_rng(steps + 10 * n).normal(size=(n, steps, width) if batch_first else (steps, n, width))
    torch.manual_seed(0)
    assert_module_matches_torch(
        scratch_class(width, hidden, layers, **options, dtype=np.float64),
        torch_class(width, hidden, layers, **options),
        x,
    )


def test_relu_rnn_matches_torch():
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(5, 2, 3))
    assert_module_matches_torch(modules.RNN(3, 4, 2, "relu", dtype=np.float64), torch.nn.RNN(3, 4, 2, "relu"), x)
    with pytest.raises(ScratchError, match="'tanh' or 'relu', got 'sin'"):
        modules.RNN(3, 4, nonlinearity="sin")


@pytest.mark.parametrize("kind", MODULE_PAIRS)
def test_initial_state_gets_its_gradient(kind):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    scratch_module, torch_module = (
        MODULE_PAIRS[kind][0](3, 4, 2, dtype=np.float64),
        MODULE_PAIRS[kind][1](3, 4, 2).double(),
    )
    scratch_module.load_state_dict(torch_module.state_dict())
    x, *initial_states = [rng.normal(size=(5, 2, 3))] + [
        rng.normal(size=(2, 2, 4)) for _ in range(2 if kind == "lstm" else 1)
    ]
    scratch_states, torch_states = (
        [tensor(s, requires_grad=True) for s in initial_states],
        [torch.tensor(s, requires_grad=True) for s in initial_states],
    )
    y, scratch_final = scratch_module(Tensor(x), tuple(scratch_states) if kind == "lstm" else scratch_states[0])
    t, torch_final = torch_module(torch.tensor(x), tuple(torch_states) if kind == "lstm" else torch_states[0])
    ((y**2).sum() + (scratch_final[0] if kind == "lstm" else scratch_final).sum()).backward()
    ((t**2).sum() + (torch_final[0] if kind == "lstm" else torch_final).sum()).backward()
    for a, b in zip(scratch_states, torch_states, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), atol=1e-9)


def test_lstm_accepts_an_empty_batch():
    x = np.zeros((3, 0, 2))
    assert_module_matches_torch(modules.LSTM(2, 4, dtype=np.float64), torch.nn.LSTM(2, 4), x)


def test_lstm_cell_gradient_is_the_product_of_forget_gates():
    """Gaba eq. 5.15: with gates that ignore h, dc_T/dc_0 is the product of the forget gates, and nothing else."""
    rng = np.random.default_rng(0)
    x, c0, h0 = (
        Tensor(rng.normal(size=(4, 1, 2))),
        tensor(rng.normal(size=(1, 3)), requires_grad=True),
        Tensor(np.zeros((1, 3))),
    )
    w_ih, w_hh = Tensor(rng.normal(size=(12, 2))), Tensor(np.zeros((12, 3)))
    (g,) = grad(lstm(x, h0, c0, w_ih, w_hh)[-1].sum(), c0)
    forget_gates = 1 / (1 + np.exp(-(x.data @ w_ih.data[3:6].T)))
    np.testing.assert_allclose(g.data, forget_gates.prod(0), rtol=1e-12)


def test_recurrent_dropout_acts_between_layers_only():
    x = Tensor(np.ones((3, 2, 4), np.float32))
    one_layer, two_layers = modules.GRU(4, 5, 1, dropout=0.9, rng=0), modules.GRU(4, 5, 2, dropout=0.9, rng=0)
    np.testing.assert_array_equal(one_layer(x)[0].data, one_layer(x)[0].data)
    assert (two_layers(x)[0].data != two_layers(x)[0].data).any()
    two_layers.eval()
    np.testing.assert_array_equal(two_layers(x)[0].data, two_layers(x)[0].data)


def test_recurrent_modules_name_what_does_not_fit():
    x = tensor(np.ones((3, 2, 4)), requires_grad=True)
    with pytest.raises(ScratchError, match="gru can be differentiated only once"):
        grad(modules.GRU(4, 5, dtype=np.float64)(x)[1].sum(), x, create_graph=True)
    with pytest.raises(ScratchError, match=r"rnn: an input of shape \(3, 2, 4\) does not fit \(T, N, 6\)"):
        modules.RNN(6, 5, dtype=np.float64)(x)
    with pytest.raises(ScratchError, match=r"gru: a state of shape \(1, 5\) does not fit \(N, H\) = \(2, 5\)"):
        modules.GRU(4, 5, dtype=np.float64)(x, Tensor(np.zeros((1, 1, 5))))
    with pytest.raises(ScratchError, match="T ≥ 1"):
        modules.LSTM(4, 5, dtype=np.float64)(Tensor(np.ones((0, 2, 4))))
