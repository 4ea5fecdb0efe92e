"""Linear, embedding, dropout, activations, the tree of modules; and every layer against central differences."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, grad, modules, tensor
from didact.scratch.activation import gelu, gelu_tanh, leaky_relu
from didact.scratch.attention import attention
from didact.scratch.autograd.gradcheck import gradcheck
from didact.scratch.convolution import convolution, convolution_transpose
from didact.scratch.dropout import dropout
from didact.scratch.embedding import embedding
from didact.scratch.init import fans, he_normal, he_uniform, orthogonal, xavier_normal, xavier_uniform, zeros
from didact.scratch.linear_layer import linear
from didact.scratch.losses import bce_with_logits, cross_entropy
from didact.scratch.norm import batch_norm, group_norm, layer_norm
from didact.scratch.pooling import avg_pool, max_pool
from didact.scratch.recurrent import gru, lstm, rnn
from helpers.module_comparison import assert_module_matches_torch
from helpers.op_comparison import arrays, assert_matches_torch, few_examples, full_shapes, shapes


@few_examples
@given(st.data(), shapes, st.sampled_from([1, 3, 4]), st.sampled_from([1, 2, 5]))
def test_linear_matches_torch(data, batch, width, out):
    x, w, b = data.draw(arrays((*batch, width))), data.draw(arrays((out, width))), data.draw(arrays((out,)))
    assert_matches_torch(linear, F.linear, x, w, b)
    assert_matches_torch(linear, F.linear, x, w)


@few_examples
@given(st.data(), shapes)
def test_activations_match_torch(data, shape):
    x = data.draw(arrays(shape, -4, 4))
    assert_matches_torch(gelu, F.gelu, x)
    assert_matches_torch(gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), x)
    assert_matches_torch(lambda x: leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2), x)


def test_gelu_is_bounded_below():
    """Gaba's table gives it the range R; the minimum is −0.170."""
    assert gelu(Tensor(np.linspace(-10, 10, 100001))).data.min() == pytest.approx(-0.16997, abs=1e-5)


@few_examples
@given(st.data(), shapes, st.sampled_from([None, 0, 2]))
def test_embedding_matches_torch(data, shape, padding):
    ids = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 4, shape)
    assert_matches_torch(
        lambda w: embedding(ids, w, padding),
        lambda w: F.embedding(torch.from_numpy(np.asarray(ids)), w, padding),
        data.draw(arrays((4, 3))),
        check_second=False,
    )


def test_embedding_second_derivative():
    """Reading rows is linear, but what follows is not: a Hessian passes through it."""
    ids = np.array([[0, 2], [2, 2]])
    w = np.random.default_rng(0).normal(size=(4, 3))
    assert_matches_torch(lambda w: embedding(ids, w) ** 3, lambda w: F.embedding(torch.from_numpy(ids), w) ** 3, w)


@pytest.mark.parametrize("padding", [None, 2])
def test_weighted_embedding_second_derivative(padding):
    """The weight v of a padding row does not affect the table's gradient, so dL/dW has no gradient by v either."""
    ids, rng = np.array([[0, 2], [2, 1]]), np.random.default_rng(0)
    assert_matches_torch(
        lambda w, v: embedding(ids, w, padding) * v,
        lambda w, v: F.embedding(torch.from_numpy(ids), w, padding) * v,
        rng.normal(size=(4, 3)),
        rng.normal(size=(2, 2, 3)),
    )


def test_embedding_refuses_invalid_ids():
    with pytest.raises(ScratchError, match="outside 0…3: 4"):
        embedding([1, 4], Tensor(np.zeros((4, 2))))
    with pytest.raises(ScratchError, match="whole numbers"):
        embedding([1.5], Tensor(np.zeros((4, 2))))


@few_examples
@given(full_shapes, st.sampled_from([0.1, 0.5, 1.0]))
def test_dropout_scales_the_values_it_keeps(shape, p):
    x = tensor(np.full(shape, 3.0), requires_grad=True)
    y = dropout(x, p, np.random.default_rng(0))
    is_kept = y.data != 0
    assert p < 1 or not is_kept.any()
    np.testing.assert_allclose(y.data[is_kept], 3 / (1 - p) if p < 1 else 0)
    (g,) = grad(y, x, np.ones(shape))
    np.testing.assert_allclose(g.data, y.data / 3)  # the same mask in the backward pass


def test_dropout_preserves_the_mean_and_is_identity_in_eval():
    x = Tensor(np.ones((400, 500), np.float32))
    y = dropout(x, 0.3, np.random.default_rng(0))
    assert y.dtype == np.float32
    assert y.data.mean() == pytest.approx(1, abs=0.01)
    assert (y.data == 0).mean() == pytest.approx(0.3, abs=0.01)
    layer = modules.Dropout(0.3, rng=0)
    assert layer.eval()(x) is x
    with pytest.raises(ScratchError, match="probability"):
        dropout(x, 1.5, np.random.default_rng(0))


def test_modules_match_torch_with_its_weights():
    rng = np.random.default_rng(0)
    x, options, nn = rng.normal(size=(7, 5)), {"dtype": np.float64}, torch.nn
    assert_module_matches_torch(modules.Linear(5, 3, **options), nn.Linear(5, 3), x)
    assert_module_matches_torch(
        modules.Embedding(9, 4, padding_idx=1, **options), nn.Embedding(9, 4, padding_idx=1), rng.integers(0, 9, (3, 5))
    )
    scratch_layers = (
        modules.Linear(5, 8, **options),
        modules.Tanh(),
        modules.Linear(8, 8, bias=False, **options),
        modules.GELU(),
        modules.GELU("tanh"),
        modules.LeakyReLU(),
        modules.Sigmoid(),
        modules.ReLU(),
    )
    torch_layers = (
        nn.Linear(5, 8),
        nn.Tanh(),
        nn.Linear(8, 8, bias=False),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.LeakyReLU(),
        nn.Sigmoid(),
        nn.ReLU(),
    )
    assert_module_matches_torch(
        modules.Sequential(modules.Sequential(*scratch_layers), modules.Linear(8, 2, **options)),
        nn.Sequential(nn.Sequential(*torch_layers), nn.Linear(8, 2)),
        x,
    )
    assert_module_matches_torch(modules.Flatten(), nn.Flatten(), x.reshape(7, 5, 1, 1))


def test_module_tree_names_and_modes():
    net = modules.Sequential(modules.Linear(2, 3, rng=0), modules.Sequential(modules.BatchNorm1d(3), modules.Dropout()))
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert set(net.state_dict()) - {name for name, _ in net.named_parameters()} == {
        "1.0.running_mean", "1.0.running_var", "1.0.num_batches_tracked"}
    assert len(net) == 2
    assert not any(m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())
    net[1][0].weight = net[1][0].bias  # tied: one parameter, trained once
    assert len(list(net.parameters())) == 3


def test_state_dict_round_trip_and_unknown_names():
    net, other_net = (modules.Sequential(modules.Linear(2, 3, rng=i), modules.BatchNorm1d(3)) for i in range(2))
    version = other_net[0].weight.version
    other_net.load_state_dict(net.state_dict())
    assert all((a == b).all() for a, b in zip(net.state_dict().values(), other_net.state_dict().values(), strict=True))
    assert other_net[0].weight.version > version
    with pytest.raises(ScratchError, match=r"missing \['0.bias'\], unknown \['0.gain'\]"):
        net.load_state_dict({name.replace("0.bias", "0.gain"): v for name, v in net.state_dict().items()})
    with pytest.raises(ScratchError, match=r"0.weight has shape \(3, 2\), got \(2, 3\)"):
        net.load_state_dict(net.state_dict() | {"0.weight": np.zeros((2, 3))})


def test_linear_and_gelu_errors_name_what_does_not_fit():
    with pytest.raises(ScratchError, match=r"linear.*\(4, 3\).*\(2, 5\)"):
        linear(Tensor(np.zeros((4, 3))), Tensor(np.zeros((2, 5))))
    with pytest.raises(ScratchError, match="approximate"):
        modules.GELU("sin")


def test_init_has_the_stated_variance():
    shape = (200, 30, 3, 3)
    n_in, n_out = fans(shape)
    assert (n_in, n_out) == (270, 1800)
    xavier, he = 2 / (n_in + n_out), 2 / n_in
    for sample_weights, variance in (
        (xavier_uniform, xavier),
        (xavier_normal, xavier),
        (he_uniform, he),
        (he_normal, he),
    ):
        w = sample_weights(shape, 0)
        assert w.dtype == np.float32
        assert w.shape == shape
        assert w.var() == pytest.approx(variance, rel=0.03)
        np.testing.assert_array_equal(w, sample_weights(shape, 0))  # the same seed, the same weights
    assert np.abs(xavier_uniform(shape, 0)).max() <= np.sqrt(6 / (n_in + n_out))
    assert xavier_uniform(shape, 0, gain=5 / 3).std() == pytest.approx(5 / 3 * xavier_uniform(shape, 0).std())
    assert not zeros((3,)).any()
    with pytest.raises(ScratchError, match="no fan"):
        fans((3,))


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (3, 2, 2)])
def test_orthogonal_init_is_orthogonal(shape):
    w = orthogonal(shape, 0, gain=2.0, dtype=np.float64).reshape(shape[0], -1)
    gram_matrix = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram_matrix, 4 * np.eye(len(gram_matrix)), atol=1e-12)


def sample_normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


GRADCHECK_CASES = {
    "linear": (linear, (3, 4), (2, 4), (2,)),
    "gelu": (gelu, (3, 4)),
    "embedding": (lambda w: embedding([[1, 0], [1, 2]], w), (3, 4)),
    "conv2d": (
        lambda x, w, b: convolution(x, w, b, stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2),
        (2, 4, 5, 4),
        (6, 2, 2, 3),
        (6,),
    ),
    "conv_transpose2d": (
        lambda x, w: convolution_transpose(x, w, stride=2, padding=1, output_padding=1),
        (2, 3, 2, 3),
        (3, 2, 3, 2),
    ),
    "max_pool": (lambda x: max_pool(x, 2, 1), (2, 1, 3, 4)),
    "avg_pool": (lambda x: avg_pool(x, 3, 2, 1, False), (2, 1, 5, 4)),
    "batch_norm": (lambda x, w, b: batch_norm(x, np.zeros(3), np.ones(3), w, b, training=True), (4, 3, 2), (3,), (3,)),
    "layer_norm": (lambda x, w, b: layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
    "group_norm": (lambda x: group_norm(x, 2), (2, 4, 3)),
    "rnn": (rnn, (3, 2, 2), (2, 3), (3, 2), (3, 3), (3,), (3,)),
    "lstm": (lstm, (3, 2, 2), (2, 3), (2, 3), (12, 2), (12, 3), (12,), (12,)),
    "gru": (gru, (3, 2, 2), (2, 3), (9, 2), (9, 3), (9,), (9,)),
    "attention": (lambda q, k, v: attention(q, k, v, causal=True), (2, 3, 4), (2, 3, 4), (2, 3, 2)),
    "cross_entropy": (lambda z: cross_entropy(z, [0, 2, 1], label_smoothing=0.1), (3, 4)),
    "bce_with_logits": (lambda z: bce_with_logits(z, np.eye(3)), (3, 3)),
}


@pytest.mark.parametrize("name", GRADCHECK_CASES)
def test_gradients_match_central_differences(name):
    """Against central differences alone, without another engine."""
    f, *shapes = GRADCHECK_CASES[name]
    report = gradcheck(f, [sample_normal(*s) for s in shapes])
    assert report.passed, report
