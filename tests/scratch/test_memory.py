"""What stays alive between forward and backward: what a derivative will read, and nothing else."""

import copy
import gc
import pickle
import tracemalloc
import weakref

import numpy as np
import pytest

from didact import scratch
from didact.scratch import Tensor, grad, networks, tensor
from didact.scratch.affine import linear
from didact.scratch.convolution import conv2d
from didact.scratch.losses import cross_entropy, mse_loss
from didact.scratch.pooling import max_pool


@pytest.fixture(autouse=True)
def without_collector():
    """Nothing here may need it: what is let go must go at once."""
    gc.disable()
    yield
    gc.enable()


def memory_of(x: Tensor) -> weakref.ref:
    """The array that owns the values, seen without holding it."""
    a = x.data
    while isinstance(a.base, np.ndarray):
        a = a.base
    return weakref.ref(a)


def fresh(*shape: int) -> Tensor:
    """A computed tensor that only the caller holds: adding 0 saves nothing."""
    return tensor(np.random.default_rng(0).uniform(1, 2, shape), requires_grad=True) + 0.0


frozen = tensor(np.ones((4, 4)))
learned = tensor(np.ones((4, 4)), requires_grad=True)
image = tensor(np.ones((1, 4, 1, 1)))

FORGETS = {
    "add": lambda z: z + z,
    "sub a constant": lambda z: z - 1.0,
    "neg": lambda z: -z,
    "scale": lambda z: z * 3.0,
    "divide by a constant": lambda z: z / frozen,
    "product with frozen weights": lambda z: z @ frozen,
    "layer with frozen weights": lambda z: linear(z, frozen, learned[0]),
    "frozen kernel": lambda z: conv2d(z.reshape(1, 4, 2, 2), image.reshape(1, 4, 1, 1)),
    "exp": Tensor.exp,
    "sqrt": Tensor.sqrt,
    "tanh": Tensor.tanh,
    "sigmoid": Tensor.sigmoid,
    "relu": Tensor.relu,
    "softmax": lambda z: z.softmax(0),
    "log_softmax": lambda z: z.log_softmax(0),
    "cast": lambda z: z.astype(np.float32),
    "sum": lambda z: z.sum(0),
    "mean": Tensor.mean,
    "cumsum": lambda z: z.cumsum(0),
    "max along an axis": lambda z: z.max(0),
    "max_pool": lambda z: max_pool(z.reshape(1, 1, 4, 4), 2),
    "index": lambda z: z[[0, 1]],
    "pad": lambda z: scratch.pad(z, [(1, 1), (0, 0)]),
    "where": lambda z: scratch.where(frozen.data > 0, z, 0.0),
    "concatenate": lambda z: scratch.concatenate([z, z]),
    "stack": lambda z: scratch.stack([z, z]),
}

REMEMBERS = {
    "square": Tensor.square,
    "product": lambda z: z * learned,
    "matmul": lambda z: z @ learned,
    "layer": lambda z: linear(z, learned),
    "log": Tensor.log,
    "power": lambda z: z**3.0,
    "clip": lambda z: z.clip(0.0, 1.5),
    "view": lambda z: z.T,
}


@pytest.mark.parametrize("name", FORGETS)
def test_an_input_that_the_derivative_does_not_read_is_freed(name):
    z = fresh(4, 4)
    memory = memory_of(z)
    y = FORGETS[name](z)
    del z
    assert memory() is None
    y.backward(np.ones(y.shape))


@pytest.mark.parametrize("name", REMEMBERS)
def test_an_input_that_the_derivative_reads_stays_until_backward(name):
    z = fresh(4, 4)
    memory = memory_of(z)
    y = REMEMBERS[name](z)
    del z
    assert memory() is not None
    y.backward(np.ones(y.shape))
    if name != "view":  # there the result is the same memory
        assert memory() is None


def test_the_sum_before_a_relu_is_gone_and_its_gradient_is_right():
    x, w = tensor(np.array([[1.0, -2.0]])), tensor(np.array([[3.0, 1.0], [1.0, 3.0]]), requires_grad=True)
    z = linear(x, w)
    memory = memory_of(z)
    y = z.relu()
    del z
    assert memory() is None
    y.sum().backward()
    np.testing.assert_array_equal(w.grad, [[1, -2], [0, 0]])


def test_a_constant_that_is_only_added_is_freed():
    x, noise = fresh(3), tensor(np.ones(3))
    memory = memory_of(noise)
    y = x + noise
    del noise
    assert memory() is None
    assert y.node is not None


def peak_of(f) -> int:
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_peak_of_a_step_is_what_the_equations_need():
    """By hand: h_1 … h_L for the products dW = dyᵀh, and two gradients at a time, the one read and the one written.

    Beside them a mask (a quarter of an activation), the scores and the gradients of the weights. Keeping every z_l would take
    L activations more, and fail.
    """
    rows, width, depth = 4000, 128, 3
    model = networks.MLP(width, (width,) * depth, 10, rng=0)
    x, y = Tensor(np.random.default_rng(0).random((rows, width), np.float32)), np.zeros(rows, int)
    activation = 4 * rows * width
    needed = (depth + 2) * activation
    peak = peak_of(lambda: cross_entropy(model(x), y).backward())
    assert needed < peak < 1.2 * needed


def test_gradients_are_freed_as_the_walk_goes():
    """However deep the chain, two gradients exist at a time; negation saves nothing."""
    x = tensor(np.ones(100_000), requires_grad=True)
    y = x
    for _ in range(30):
        y = -y
    assert peak_of(lambda: y.backward(x.data)) < 3.2 * x.data.nbytes


def test_squared_error_keeps_the_difference_alone():
    x, target = fresh(1000, 100), np.zeros((1000, 100))
    unit = target.nbytes
    tracemalloc.start()
    loss = mse_loss(x, target)
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert loss.size == 1
    assert now < 1.1 * unit


def test_a_tensor_in_the_middle_that_is_still_held_has_a_gradient():
    z = fresh(3)
    y = z.relu()
    loss = (y * y).sum()
    del y
    (g,) = grad(loss, z)
    np.testing.assert_allclose(g.data, 2 * z.data)


def test_the_result_that_a_derivative_reads_again_is_differentiated_again():
    """eˣ keeps its value and not its tensor; the second derivative still finds its way."""
    x = tensor(0.5, requires_grad=True)
    loss = x.exp().sqrt().tanh() * 2.0
    (first,) = grad(loss, x, create_graph=True)
    (second,) = grad(first, x)
    u = np.exp(0.25)
    t = np.tanh(u)
    assert first.item() == pytest.approx((1 - t * t) * u)
    assert second.item() == pytest.approx((1 - t * t) * u / 2 - t * (1 - t * t) * u * u)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_a_leaf_of_its_own(again):
    x = tensor([1.0, 2.0], requires_grad=True)
    x.label = "x"
    (x * x).sum().backward()
    y = again(x)
    assert (y.label, y.requires_grad) == ("x", True)
    np.testing.assert_array_equal(y.grad, [2, 4])
    y.grad = None
    (y * 3.0).sum().backward()
    np.testing.assert_array_equal(y.grad, [3, 3])
    np.testing.assert_array_equal(x.grad, [2, 4])
