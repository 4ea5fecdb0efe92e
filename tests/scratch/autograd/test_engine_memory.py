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
from didact.scratch.convolution import conv2d
from didact.scratch.linear_layer import linear
from didact.scratch.losses import cross_entropy, mse_loss
from didact.scratch.pooling import max_pool


@pytest.fixture(autouse=True)
def without_collector():
    """Without the garbage collector: memory must be freed by reference counts alone."""
    gc.disable()
    yield
    gc.enable()


def get_memory_ref(x: Tensor) -> weakref.ref:
    """A weak reference to the array that owns the values."""
    a = x.data
    while isinstance(a.base, np.ndarray):
        a = a.base
    return weakref.ref(a)


def make_intermediate(*shape: int) -> Tensor:
    """A computed tensor that only the caller holds: adding 0 saves nothing."""
    return tensor(np.random.default_rng(0).uniform(1, 2, shape), requires_grad=True) + 0.0


constant_matrix = tensor(np.ones((4, 4)))
parameter_matrix = tensor(np.ones((4, 4)), requires_grad=True)
constant_kernel = tensor(np.ones((1, 4, 1, 1)))

INPUT_FREED = {
    "add": lambda z: z + z,
    "sub a constant": lambda z: z - 1.0,
    "neg": lambda z: -z,
    "scale": lambda z: z * 3.0,
    "divide by a constant": lambda z: z / constant_matrix,
    "product with frozen weights": lambda z: z @ constant_matrix,
    "layer with frozen weights": lambda z: linear(z, constant_matrix, parameter_matrix[0]),
    "frozen kernel": lambda z: conv2d(z.reshape(1, 4, 2, 2), constant_kernel.reshape(1, 4, 1, 1)),
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
    "where": lambda z: scratch.where(constant_matrix.data > 0, z, 0.0),
    "concatenate": lambda z: scratch.concatenate([z, z]),
    "stack": lambda z: scratch.stack([z, z]),
}

INPUT_SAVED = {
    "square": Tensor.square,
    "product": lambda z: z * parameter_matrix,
    "matmul": lambda z: z @ parameter_matrix,
    "layer": lambda z: linear(z, parameter_matrix),
    "log": Tensor.log,
    "power": lambda z: z**3.0,
    "clip": lambda z: z.clip(0.0, 1.5),
    "view": lambda z: z.T,
}


@pytest.mark.parametrize("name", INPUT_FREED)
def test_input_that_the_derivative_does_not_read_is_freed(name):
    z = make_intermediate(4, 4)
    memory_ref = get_memory_ref(z)
    y = INPUT_FREED[name](z)
    del z
    assert memory_ref() is None
    y.backward(np.ones(y.shape))


@pytest.mark.parametrize("name", INPUT_SAVED)
def test_input_that_the_derivative_reads_stays_until_backward(name):
    z = make_intermediate(4, 4)
    memory_ref = get_memory_ref(z)
    y = INPUT_SAVED[name](z)
    del z
    assert memory_ref() is not None
    y.backward(np.ones(y.shape))
    if name != "view":  # there the result is the same memory
        assert memory_ref() is None


def test_relu_input_is_freed_and_its_gradient_is_right():
    x, w = tensor(np.array([[1.0, -2.0]])), tensor(np.array([[3.0, 1.0], [1.0, 3.0]]), requires_grad=True)
    z = linear(x, w)
    memory_ref = get_memory_ref(z)
    y = z.relu()
    del z
    assert memory_ref() is None
    y.sum().backward()
    np.testing.assert_array_equal(w.grad, [[1, -2], [0, 0]])


def test_constant_that_is_only_added_is_freed():
    x, noise = make_intermediate(3), tensor(np.ones(3))
    memory_ref = get_memory_ref(noise)
    y = x + noise
    del noise
    assert memory_ref() is None
    assert y.node is not None


def measure_peak_bytes(f) -> int:
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_training_step_peak_memory_is_what_the_equations_need():
    """By hand: h_1 … h_L for the products dW = dyᵀh, and two gradients at a time, the one read and the one written.

    To these add a mask (a quarter of an activation), the logits and the gradients of the weights. Keeping every z_l
    would take L activations more, and fail.
    """
    rows, width, depth = 4000, 128, 3
    model = networks.MLP(width, (width,) * depth, 10, rng=0)
    x, y = Tensor(np.random.default_rng(0).random((rows, width), np.float32)), np.zeros(rows, int)
    activation_bytes = 4 * rows * width
    needed_bytes = (depth + 2) * activation_bytes
    peak_bytes = measure_peak_bytes(lambda: cross_entropy(model(x), y).backward())
    assert needed_bytes < peak_bytes < 1.2 * needed_bytes


def test_backward_frees_gradients_as_it_runs():
    """However long the chain, two gradients exist at a time; negation saves nothing."""
    x = tensor(np.ones(100_000), requires_grad=True)
    y = x
    for _ in range(30):
        y = -y
    assert measure_peak_bytes(lambda: y.backward(x.data)) < 3.2 * x.data.nbytes


def test_mse_loss_saves_only_the_difference():
    x, target = make_intermediate(1000, 100), np.zeros((1000, 100))
    target_bytes = target.nbytes
    tracemalloc.start()
    loss = mse_loss(x, target)
    allocated_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert loss.size == 1
    assert allocated_bytes < 1.1 * target_bytes


def test_referenced_intermediate_tensor_has_a_gradient():
    z = make_intermediate(3)
    y = z.relu()
    loss = (y * y).sum()
    del y
    (g,) = grad(loss, z)
    np.testing.assert_allclose(g.data, 2 * z.data)


def test_saved_result_has_a_second_derivative():
    """eˣ saves its value and not its tensor; the second derivative still finds its place in the graph."""
    x = tensor(0.5, requires_grad=True)
    loss = x.exp().sqrt().tanh() * 2.0
    (first,) = grad(loss, x, create_graph=True)
    (second,) = grad(first, x)
    u = np.exp(0.25)
    t = np.tanh(u)
    assert first.item() == pytest.approx((1 - t * t) * u)
    assert second.item() == pytest.approx((1 - t * t) * u / 2 - t * (1 - t * t) * u * u)


@pytest.mark.parametrize("copy_tensor", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copied_tensor_is_an_independent_leaf(copy_tensor):
    x = tensor([1.0, 2.0], requires_grad=True)
    x.label = "x"
    (x * x).sum().backward()
    y = copy_tensor(x)
    assert (y.label, y.requires_grad) == ("x", True)
    np.testing.assert_array_equal(y.grad, [2, 4])
    y.grad = None
    (y * 3.0).sum().backward()
    np.testing.assert_array_equal(y.grad, [3, 3])
    np.testing.assert_array_equal(x.grad, [2, 4])
