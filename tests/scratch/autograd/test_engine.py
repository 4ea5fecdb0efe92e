"""The engine itself: what is recorded, what is added up, what is freed, what is refused."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

from didact import scratch
from didact.scratch import ScratchError, Tensor, first_order, grad, no_grad, record_op, tensor
from helpers.op_comparison import assert_matches_torch


def make_leaf(*shape: int) -> Tensor:
    return tensor(np.random.default_rng(0).normal(size=shape), requires_grad=True)


def test_a_tensor_used_twice_receives_both_gradients():
    assert_matches_torch(
        lambda x: x * x + x.exp() * x + x, lambda x: x * x + x.exp() * x + x, np.array([1.0, -2.0, 0.5])
    )
    assert_matches_torch(
        lambda a, b: (a @ b) * (a @ b) + a @ b,
        lambda a, b: (a @ b) * (a @ b) + a @ b,
        *np.random.default_rng(0).normal(size=(2, 3, 3)),
    )


def test_control_flow_is_differentiated_as_it_ran():
    def f(x):
        total = x
        for k in range(1, 5):
            total = total * x + k if (total.sum() > 0) else total - x * x * k
        return total

    for start in (0.7, -0.4, 2.0):
        assert_matches_torch(f, f, np.array([start, -start / 3]))


def test_backward_accumulates_into_grad_and_grad_does_not():
    x = make_leaf(3)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad, [5, 5, 5])
    grad((x * x).sum(), x)
    np.testing.assert_array_equal(x.grad, [5, 5, 5])


def test_leaves_do_not_share_gradient_arrays():
    a, b, seed = make_leaf(3), make_leaf(3), np.ones(3)
    (a + b).backward(seed)
    assert a.grad is not None
    assert b.grad is not None
    a.grad += 1
    np.testing.assert_array_equal(b.grad, [1, 1, 1])
    np.testing.assert_array_equal(seed, [1, 1, 1])
    c = make_leaf(2, 2)
    c.sum().backward()  # the gradient is a broadcast view inside; outside it can be written
    assert c.grad is not None
    c.grad += 1


def test_gradients_of_intermediate_tensors():
    x = make_leaf(3)
    y = x * x
    z = (y * y).sum()
    gx, gy, gz = grad(z, [x, y, z])
    np.testing.assert_allclose(gy.data, 2 * y.data)
    np.testing.assert_allclose(gx.data, 4 * x.data**3)
    assert gz.item() == 1


def test_unused_input_gets_a_zero_gradient():
    x, unused_input = make_leaf(3), make_leaf(2)
    (g,) = grad(x.sum(), unused_input)
    np.testing.assert_array_equal(g.data, [0, 0])


def test_graph_is_recorded_only_where_gradients_are_required():
    x = make_leaf(3)
    assert (tensor([1.0]) * 2).node is None
    with no_grad():
        assert (x * 2).node is None
        with pytest.raises(RuntimeError, match="boom"), no_grad():
            raise RuntimeError("boom")
        assert not scratch.is_recording()
    assert (x * 2).node is not None
    assert x.detach().requires_grad is False
    assert np.shares_memory(x.detach().data, x.data)


def test_no_grad_is_local_to_its_thread():
    recording_states = []
    with no_grad():
        thread = threading.Thread(target=lambda: recording_states.append(scratch.is_recording()))
        thread.start()
        thread.join()
    assert recording_states == [True]


def test_views_share_memory_and_copies_do_not():
    x = make_leaf(4, 6)
    for view in (x.reshape(6, 4), x.T, x.mT, x[1:, ::2], x[..., None], x.flatten(), x.unsqueeze(0),
        x.broadcast_to(3, 4, 6), x.split(2)[1],
                 x[2], x.permute(1, 0), x.reshape(4, 1, 6).squeeze()):  # fmt: skip
        assert np.shares_memory(view.data, x.data), view.node
    for copy in (x[[0, 1]], x.T.reshape(-1), x[x.data > 0], x + 0):
        assert not np.shares_memory(copy.data, x.data), copy.node


def test_graph_may_be_deeper_than_the_call_stack():
    x = tensor(1.0, requires_grad=True)
    y = x
    for _ in range(10_000):
        y = y + x * 1e-4
    y.backward()
    assert x.grad is not None
    assert x.grad == pytest.approx(2.0)
    y = x
    for _ in range(10_000):
        y = y.exp() * 0.0
    del y  # nor may freeing it overflow the stack


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_backward_frees_the_graph():
    x = make_leaf(3)
    y = x.exp()
    intermediate_ref = weakref.ref(y)
    loss = (y * y).sum()
    del y
    loss.backward(retain_graph=True)
    assert intermediate_ref() is not None
    loss.backward()
    assert intermediate_ref() is None, "the loss still holds its graph"


OPERATIONS = [
    Tensor.exp, Tensor.sqrt, Tensor.tanh, Tensor.sigmoid, Tensor.relu, lambda x: x**1.5, lambda x: x.softmax(0),
    lambda x: x.log_softmax(0),
    lambda x: x.logsumexp(0), lambda x: x.max(0), lambda x: x.amax(0), lambda x: x @ x.T, lambda x: x[1:],
    lambda x: x[[0, 0]],
    lambda x: scratch.einsum("ij,ij->i", x, x), lambda x: scratch.stack([x, x]), lambda x: scratch.where(x > 0, x, 0.0),
]  # fmt: skip


@pytest.mark.usefixtures("without_collector")
def test_operations_make_no_reference_cycles():
    for f in OPERATIONS:
        x = tensor(np.random.default_rng(0).uniform(1, 2, (3, 3)), requires_grad=True)
        y = f(x)
        value_ref, input_ref = weakref.ref(y), weakref.ref(x)
        (g,) = grad(y.sum(), x, create_graph=True)
        del x, y, g
        assert value_ref() is None
        assert input_ref() is None


@pytest.mark.usefixtures("without_collector")
def test_backward_releases_values_as_it_runs():
    x = make_leaf(3)
    saved_values = []
    first = record_op("first", x.data * 2, (x,), lambda dy: saved_values.append(last()) or (dy * 2.0,))
    y = (first * first).exp()
    last = weakref.ref(y.data)  # exp saves the array, not the tensor
    loss = y.sum()
    del y
    assert last() is not None
    loss.backward()
    assert saved_values == [None]


def test_in_place_changes_increase_the_version():
    x = tensor(np.zeros((2, 3)))
    x.add_(1.0).mul_(3.0)
    x[0] = 5.0
    np.testing.assert_array_equal(x.data, [[5, 5, 5], [3, 3, 3]])
    assert x.version == 3
    assert x[1].version == 3  # a view counts with its base
    x[1].zero_()
    assert x.version == 4
    x.copy_(tensor(np.ones(3)))
    assert x.data.sum() == 6


@pytest.mark.parametrize(
    "f", [lambda x: x * x, Tensor.exp, lambda x: x @ x.T, Tensor.log, lambda x: x.amax(0), lambda x: x.softmax(1)]
)
def test_in_place_change_of_a_saved_value_is_refused(f):
    x = tensor(np.ones((2, 2)), requires_grad=True)
    y = f(x)
    with no_grad():
        x[0].add_(1.0)
        y.add_(1.0)
    with pytest.raises(ScratchError, match=r"changed in place \(version 0, now 1\)"):
        y.sum().backward()


def test_unsaved_value_may_change_in_place():
    x = tensor(np.ones(3), requires_grad=True)
    y = x + 1.0
    with no_grad():
        x.add_(1.0)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad, [1, 1, 1])


def test_first_order_vjp_is_differentiable_once():
    x = make_leaf(3)
    y = record_op("thrice", x.data * 3, (x,), first_order(lambda dy: (dy * 3,)))
    np.testing.assert_array_equal(grad(y.sum(), x, retain_graph=True)[0].data, [3, 3, 3])
    with pytest.raises(ScratchError, match="thrice can be differentiated only once"):
        grad(y.sum(), x, create_graph=True)


a23, a34, a5 = (tensor(np.ones(s), requires_grad=True) for s in [(2, 3), (3, 4), (5,)])
freed_loss = (a5 * a5).sum()
freed_loss.backward()

ERROR_CASES = {
    r"add: shapes (2, 3) and (3, 4) do not broadcast": lambda: a23 + a34,
    r"mul: shapes (2, 3) and (5,) do not broadcast": lambda: a23 * a5,
    r">: shapes (2, 3) and (5,) do not broadcast": lambda: a23 > a5,
    r"matmul: shapes (2, 3) and (5,) do not multiply": lambda: a23 @ a5,
    r"matmul: shapes () and (5,) do not multiply": lambda: a5.sum() @ a5,
    r"matmul: shapes (2, 2, 3) and (3, 3, 2) do not multiply": lambda: tensor(np.ones((2, 2, 3))) @ np.ones((3, 3, 2)),
    r"einsum: 'j' is both 3 and 5 in 'ij,j->i', shapes (2, 3) and (5,)": lambda: scratch.einsum("ij,j->i", a23, a5),
    r"einsum: 'ij,j->i' names 2 operands, got 1": lambda: scratch.einsum("ij,j->i", a23),
    r"einsum: 'ijk' in 'ijk->i' does not name the 2 axes of operand 1": lambda: scratch.einsum("ijk->i", a23),
    r"einsum: the result of 'ij->k' must name letters of its operands, each once": lambda: scratch.einsum("ij->k", a23),
    r"einsum: 'ii' repeats a letter over axes of different size, shape (2, 3)": lambda: scratch.einsum("ii", a23),
    r"reshape: shape (2, 3) has 6 values, they do not fill (4, 2)": lambda: a23.reshape(4, 2),
    r"permute: axes (0, 0) are not a permutation of the 2 axes of shape (2, 3)": lambda: a23.permute(0, 0),
    r"transpose: axis 2 does not exist in shape (2, 3)": lambda: a23.transpose(0, 2),
    r"flatten: axis 1 comes after axis 0 in shape (2, 3)": lambda: a23.flatten(1, 0),
    r"unsqueeze: axis 4 does not exist in a shape of 3 axes": lambda: a23.unsqueeze(4),
    r"broadcast_to: shape (2, 3) does not broadcast to (2, 4)": lambda: a23.broadcast_to(2, 4),
    r"index: index 7 is out of bounds for axis 0 with size 2, in a tensor of shape (2, 3)": lambda: a23[7],
    r"index: needs integers or booleans, got float64": lambda: a23[a5],
    r"gather: an index of shape (1,) does not fit shape (2, 3) along axis 1": lambda: a23.gather(1, [0]),
    r"concatenate: shapes (2, 3) and (3, 4) differ in more than axis 0": lambda: scratch.concatenate([a23, a34]),
    r"concatenate: needs at least one tensor": lambda: scratch.concatenate([]),
    r"stack: shapes (2, 3) and (3, 4) differ": lambda: scratch.stack([a23, a34]),
    r"stack: axis 3 does not exist in a shape of 3 axes": lambda: scratch.stack([a23, a23], 3),
    r"split: sizes (1, 1) do not add up to the 3 of axis 1, shape (2, 3)": lambda: a23.split([1, 1], 1),
    r"pad: needs 2 pairs of widths for shape (2, 3), got 1": lambda: scratch.pad(a23, [(1, 1)]),
    r"where: shapes (4,), (2, 3) and () do not broadcast": lambda: scratch.where(np.ones(4), a23, 0.0),
    r"sum: axis 2 does not exist in shape (2, 3)": lambda: a23.sum(2),
    r"sum: axis (0, -2) names an axis twice, shape (2, 3)": lambda: a23.sum((0, -2)),
    r"amax: shape (0, 3) has no values along axis (0,)": lambda: tensor(np.ones((0, 3))).amax(0),
    r"clip: give low, high or both": lambda: a23.clip(),
    r"backward: a tensor of shape (2, 3) is not a scalar; pass a gradient of that shape": lambda: (a23 * 2).backward(),
    r"backward: a tensor of shape (2, 3) got a gradient of shape (3,)": lambda: (a23 * 2).backward(np.ones(3)),
    r"backward: the tensor does not require a gradient, nothing was recorded": lambda: tensor(1.0).backward(),
    r"backward: the graph was freed by an earlier backward (at sum); pass retain_graph=True there":
        lambda: freed_loss.backward(),
    r"backward: bad returned a gradient of shape () for an input of shape (5,)":
        lambda: record_op("bad", a5.data.sum(), (a5,), lambda dy: (dy,)).backward(),
    r"grad: an input of shape () does not require a gradient": lambda: grad(a5.sum(), tensor(1.0)),
    r"add_: an in-place change cannot be differentiated; do it under no_grad()": lambda: a23.add_(1.0),
    r"x[…] = v: an in-place change cannot be differentiated; do it under no_grad()": lambda: a23.__setitem__(0, 1.0),
    r"zero_: this tensor is a read-only view (of a broadcast)": lambda: tensor(1.0).broadcast_to(3).zero_(),
    r"item: needs exactly one value, got shape (2, 3)": lambda: a23.item(),
    r"bool: one value is true or false, shape (2, 3) is neither": lambda: bool(a23 > 0),
    r"len: a tensor of shape () has no length": lambda: len(tensor(1.0)),
    r"only floating-point tensors can require a gradient, got int64": lambda: tensor([1, 2], requires_grad=True),
}  # fmt: skip


@pytest.mark.parametrize("line", ERROR_CASES)
def test_scratch_errors_are_one_line(line):
    with pytest.raises(ScratchError) as e:
        ERROR_CASES[line]()
    assert str(e.value) == line
    assert isinstance(e.value, ValueError)


def test_tensor_conversions_and_properties():
    x = make_leaf(2, 3)
    assert repr(x).endswith("requires_grad=True)")
    assert repr(x.exp()).endswith("from exp)")
    assert [row.shape for row in x] == [(3,), (3,)]
    assert float(x.sum()) == x.sum().item() == pytest.approx(float(x.data.sum()))
    assert np.asarray(x) is x.data
    assert (x == x).data.all()
    assert not (x != x).data.any()
    assert x in {x}
    assert (x.version, x.is_leaf, x.size) == (0, True, 6)


def test_backward_takes_an_initial_gradient_as_torch_does():
    x, t = tensor(np.arange(3.0), requires_grad=True), torch.arange(3.0, dtype=torch.float64, requires_grad=True)
    (x * x).backward(np.array([1.0, 0.0, -1.0]))
    (t * t).backward(torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64))
    assert t.grad is not None
    np.testing.assert_array_equal(x.grad, t.grad.numpy())
