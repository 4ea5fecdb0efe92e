"""Reverse mode: one walk from the output back to the leaves gives every gradient (Groudiev 2.3.3, Fleuret 3.4, Gaba
2.3).

    ḡ(output) = 1;   for each operation y = f(x_1 … x_n), in the reverse of the order in which Python ran them:
    ḡ(x_i) += vjp_i(ḡ(y))

When an operation is reached, every operation that used its result has been passed: ḡ(y) is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import GraphSlot, ScratchError, Tensor, first_order, recording


def backward(output: Tensor, gradient: Any = None, retain_graph: bool = False) -> None:
    """Adds ∂output/∂leaf to the `.grad` of every leaf that requires one."""
    seed = _seed(output, gradient)
    order, leaves = _find_dependencies(output.slot)
    grads = _walk(output.slot, seed, order, leaves, create_graph=False, retain_graph=retain_graph)
    # arrays in use elsewhere: by the caller, or by another leaf (y = a + b gives dy to both)
    in_use = {id(seed.data)}
    for leaf, g in grads.items():
        x = leaf.tensor()
        if x is None:
            continue  # freed with the graph: its gradient has no reader
        if x.grad is not None:
            np.add(x.grad, g.data, out=x.grad)
            continue
        shared = g.data.base is not None or id(g.data) in in_use
        x.grad = g.data.copy() if shared else g.data
        in_use.add(id(x.grad))


def grad(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    grad_output: Any = None,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> tuple[Tensor, ...]:
    """∂output/∂input for each input (zeros where the output does not depend on it); nothing is added to `.grad`.

    With `create_graph=True` the gradients are tensors with a graph of their own, and can be differentiated again.
    """
    wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    for x in wanted:
        if not x.requires_grad:
            raise ScratchError(f"grad: an input of shape {x.shape} does not require a gradient")
    grads = grad_at(output, {x.slot for x in wanted}, grad_output, create_graph, retain_graph or create_graph)
    return tuple(grads[x.slot] if x.slot in grads else Tensor(np.zeros_like(x.data)) for x in wanted)


def grad_at(
    output: Tensor, wanted: set[GraphSlot], grad_output: Any, create_graph: bool, retain_graph: bool
) -> dict[GraphSlot, Tensor]:
    """As `grad`, at slots of the graph, whose tensors may be gone."""
    seed = _seed(output, grad_output)
    order = _select_between(wanted, _find_dependencies(output.slot)[0])
    return _walk(output.slot, seed, order, wanted, create_graph, retain_graph)


def _seed(output: Tensor, gradient: Any) -> Tensor:
    if not output.requires_grad:
        raise ScratchError("backward: the tensor does not require a gradient, nothing was recorded")
    if gradient is None:
        if output.size != 1:
            raise ScratchError(
                f"backward: a tensor of shape {output.shape} is not a scalar; pass a gradient of that shape"
            )
        return Tensor(np.ones_like(output.data))
    seed = gradient if isinstance(gradient, Tensor) else Tensor(np.asarray(gradient, output.dtype))
    if seed.shape != output.shape:
        raise ScratchError(f"backward: a tensor of shape {output.shape} got a gradient of shape {seed.shape}")
    return seed


def _find_dependencies(output: GraphSlot) -> tuple[list[GraphSlot], set[GraphSlot]]:
    """What the output depends on: computed slots, first to last, and leaves.

    A loop, not a recursion: graphs are deeper than Python's stack.
    """
    computed: dict[GraphSlot, int] = {}
    leaves: set[GraphSlot] = set()
    stack = [output]
    while stack:
        y = stack.pop()
        node = y.node
        if node is None:
            leaves.add(y)
        elif y not in computed:
            if node.vjp is None:
                raise ScratchError(
                    f"backward: the graph was freed by an earlier backward (at {node.name}); pass retain_graph=True "
                    "there"
                )
            computed[y] = node.order
            stack += [x for x in node.inputs if x.requires_grad]
    return sorted(computed, key=computed.__getitem__), leaves


def _select_between(wanted: set[GraphSlot], order: list[GraphSlot]) -> list[GraphSlot]:
    """Only the operations that lie between the wanted slots and the output."""
    reaches = set(wanted)
    for y in order:
        assert y.node is not None
        if any(x in reaches for x in y.node.inputs):
            reaches.add(y)
    return [y for y in order if y in reaches]


def _walk(
    output: GraphSlot,
    seed: Tensor,
    order: list[GraphSlot],
    targets: set[GraphSlot],
    create_graph: bool,
    retain_graph: bool,
) -> dict[GraphSlot, Tensor]:
    """ḡ of the targets."""
    grads: dict[GraphSlot, Tensor] = {output: seed}
    remaining = set(order)
    sums: set[GraphSlot] = set()  # gradients whose array the engine made itself and may add to in place
    # an infinite derivative is a result, as in PyTorch, not a warning
    with recording(create_graph), np.errstate(all="ignore"):
        while order:
            y = order.pop()
            remaining.discard(y)
            node = y.node
            assert node is not None
            dy = grads.get(y) if y in targets else grads.pop(y, None)  # pop: a gradient is freed as soon as it is used
            if dy is not None:
                for x, g in zip(node.inputs, _vjp(y, dy, create_graph), strict=True):
                    if g is not None and (x in remaining or x in targets):
                        _add(grads, sums, x, g, node.name, create_graph)
            if not retain_graph:
                node.free()  # and a saved value as soon as its operation is done
    return {x: g for x, g in grads.items() if x in targets}


def _vjp(y: GraphSlot, dy: Tensor, create_graph: bool) -> tuple[Tensor | None, ...]:
    node = y.node
    assert node is not None and node.vjp is not None
    for s, version in node.saved if node.own is None else (*node.saved, (node.own, 0)):
        if s.version != version:
            raise ScratchError(
                f"backward: {node.name} needs a tensor of shape {s.shape} as it was, but it was changed in place "
                f"(version {version}, now {s.version})"
            )
    if create_graph and isinstance(node.vjp, first_order):
        raise ScratchError(
            f"backward: {node.name} can be differentiated only once; create_graph=True needs a second derivative"
        )
    return node.vjp(dy) if node.own is None else node.vjp(dy, _restore_result(y, node.own))


def _restore_result(y: GraphSlot, value: Tensor) -> Tensor:
    """The result of an operation, for its vjp to differentiate: the saved value at its slot in the graph."""
    t = value.detach()
    t.node, t._slot, t.requires_grad = y.node, y, True
    return t


def _add(
    grads: dict[GraphSlot, Tensor], sums: set[GraphSlot], x: GraphSlot, g: Tensor, name: str, create_graph: bool
) -> None:
    if g.shape != x.shape:
        raise ScratchError(f"backward: {name} returned a gradient of shape {g.shape} for an input of shape {x.shape}")
    before = grads.get(x)
    if before is None:
        grads[x] = g
    elif create_graph:
        grads[x] = before + g
    elif x in sums:
        np.add(before.data, g.data, out=before.data)
    else:
        grads[x] = Tensor(before.data + g.data)
        sums.add(x)
