"""Lhotte, chapter 2: PyTorch essentials."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from didact import scratch
from didact.claims.forms import Display, Equal, Exactly
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.data.core import TensorSplit, uint8_to_unit
from didact.scratch.gradients.compare_gradients import compare_gradients
from didact.scratch.optim import SGD
from didact.training.seeding import epoch_permutation


@claim("CL07", Equal(1e-8))
def gradient_of_a_formula() -> Pair:
    """1/y − sin x sin y and −x/y² + cos x cos y at (1, 5), against didact's four ways to a gradient"""
    x, y = 1.0, 5.0
    stated = [1 / y - math.sin(x) * math.sin(y), -x / y**2 + math.cos(x) * math.cos(y)]
    gradients_by_method = compare_gradients("x/y + cos(x)*sin(y)", {"x": x, "y": y})
    return [stated] * 4, [list(gradient.values()) for gradient in gradients_by_method.values()]


def _count_graph_products(z: Any) -> tuple[int, int]:
    """Multiplications in the graph of z, by PyTorch's engine or didact's, and edges into the last operation."""
    is_scratch = isinstance(z, scratch.Tensor)
    visited, to_visit = list[Any](), [z.node if is_scratch else z.grad_fn]
    while to_visit:
        node = to_visit.pop()
        if node is not None and node not in visited:
            visited.append(node)
            to_visit += _graph_parents(node)
    return sum((n.name if is_scratch else n.name().removesuffix("Backward0").lower()) == "mul" for n in visited), len(
        _graph_parents(visited[0])
    )


def _graph_parents(node: Any) -> list[Any]:
    """Inputs of an operation, leaves too: didact's have no node, PyTorch's one that accumulates their gradient."""
    return [x.node for x in node.inputs] if hasattr(node, "inputs") else [parent for parent, _ in node.next_functions]


@claim(
    "CL08",
    Exactly((1, 2, 2, 1, 2, 2)),
    remark="in PyTorch's graph, and in figure 2.2, nodes are operations and edges carry tensors; §2.2 has it the other "
    "way round",
)
def dynamic_graph() -> Display:
    """MulBackward0 nodes of x·x if x > 0 else x·x·x at x = 1, edges into that node, and nodes at x = −1; the same in
    didact's engine"""
    def counts(leaf: Callable[[float], Any]) -> tuple[int, int, int]:
        def graph(x: Any) -> Any:
            return x * x if x.item() > 0 else x * x * x

        (nodes, edges), (products_at_minus_one, _) = (
            _count_graph_products(graph(leaf(1.0))),
            _count_graph_products(graph(leaf(-1.0))),
        )
        return nodes, edges, products_at_minus_one

    theirs, ours = (counts(partial(make, requires_grad=True)) for make in (torch.tensor, scratch.tensor))
    return Display(
        theirs + ours,
        {
            f"{what}, PyTorch's and didact's": (a, b)
            for what, a, b in zip(("products of x·x", "edges into it", "products of x·x·x"), theirs, ours, strict=True)
        },
    )


@claim(
    "CL10",
    Exactly((3,)),
    correction="a number times x of (3, 1) is (3, 1); minus y of (3,) it broadcasts to (3, 3), unnoticed because all y "
    "are 1",
)
def shape_of_predictions() -> tuple[int, ...]:
    """the shape of w x in the listing by didact's engine, w a number and x of three rows and one column"""
    w, x = scratch.tensor(0.5), scratch.tensor(np.zeros((3, 1)))
    return tuple((w * x).shape)


@claim(
    "CL11",
    Equal(),
    remark="didact's training merges a last batch of one example into the one before, for batch norm",
)
def batches() -> Display:
    """shapes of x and y in each batch of the listing's DataLoader, batch size 2 of three samples shuffled, and of
    didact's split in evaluation order, against [2, 1], [2, 1] and [1, 1], [1, 1]; and every sample occurs once"""
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[0.0], [1.0], [4.0]])
    theirs = list(DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True))
    ours = [
        (b["x"], b["y"]) for b in TensorSplit({"x": x, "y": y}).batches(epoch_permutation(3, seed=0, epoch=0).split(2))
    ]
    shapes = [[list(t.shape) for batch in batches for t in batch] for batches in (theirs, ours)]
    samples = [torch.cat([t for t, _ in batches]).flatten().sort().values for batches in (theirs, ours)]
    return Display(([*shapes, *samples], [[[2, 1], [2, 1], [1, 1], [1, 1]]] * 2 + [x.flatten()] * 2),
                {"DataLoader's batches": str(shapes[0]), "didact's": str(shapes[1])})


@claim("CL06", Exactly(((4, 3, 32, 32), "cpu")))
def batch_of_images() -> tuple[tuple[int, ...], str]:
    """a batch of four from didact's split of ten images of 3 × 32 × 32, and its device"""
    split = TensorSplit({"x": torch.randint(256, (10, 3, 32, 32), dtype=torch.uint8)}, {"x": uint8_to_unit})
    x = split.batch(torch.tensor([0, 3, 7, 9]))["x"]
    return tuple(x.shape), x.device.type


@claim("CL09", Equal())
def descent_is_deterministic() -> Pair:
    """w after the listing's step of torch.optim.SGD from 0.5, three times, and of didact's, against w − 2η mean(x(w x −
    1))"""
    x, y, η = np.array([[0.78], [0.44], [0.80]]), np.ones(3), 0.1

    def step_of_listing() -> float:
        w = torch.tensor(0.5, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=η)
        (w * torch.tensor(x) - torch.tensor(y)).square().mean().backward()
        optimizer.step()
        return w.item()

    def step_of_scratch() -> float:
        w = scratch.tensor(0.5, requires_grad=True, dtype=np.float64)
        ((w * x - y) ** 2).mean().backward()
        SGD([w], lr=η).step()
        return float(w.item())

    by_hand = 0.5 - 2 * η * (x * (0.5 * x - 1)).mean()
    return [by_hand] * 6, [take_step() for take_step in (step_of_listing, step_of_scratch) for _ in range(3)]
