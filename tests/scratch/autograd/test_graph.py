"""The picture of a graph: complete, escaped, well-formed, and readable (every edge to the right, no box on another)."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, keep_values, tensor
from didact.scratch.autograd.graph import graph_of, svg
from didact.scratch.autograd.layout import layered_layout

SVG_NAMESPACE = "{http://www.w3.org/2000/svg}"


def read_boxes(picture: str) -> list[tuple[str, list[str]]]:
    root = ET.fromstring(picture)
    return [
        (g.get("class", ""), [t.text or "" for t in g.iter(f"{SVG_NAMESPACE}text")])
        for g in root.iter(f"{SVG_NAMESPACE}g")
    ]


def test_svg_of_the_course_example():
    boxes = read_boxes(svg(graph_of("(x+y)*z", {"x": -2.0, "y": 5.0, "z": -4.0})))
    assert sorted(boxes) == [
        ("leaf", ["x", "-2", "grad -4"]),
        ("leaf", ["y", "5", "grad -4"]),
        ("leaf", ["z", "-4", "grad 3"]),
        ("operation", ["+", "3", "grad -4"]),
        ("output", ["×", "-12", "grad 1"]),
    ]


def test_svg_constants_have_no_gradient():
    boxes = read_boxes(svg(graph_of("1/(1+exp(-x))", {"x": 0.0})))
    assert [b for b in boxes if b[0] == "constant"] == [("constant", ["1", "1"])] * 2
    assert ("output", ["÷", "0.5", "grad 1"]) in boxes


def test_svg_shows_arrays_and_escapes_names():
    w = tensor(np.ones((3, 4)), requires_grad=True)
    w.label = "<W & co>"
    picture = svg((Tensor(np.ones((2, 3))) @ w).tanh().sum(1))
    assert "<W" not in picture
    boxes = read_boxes(picture)
    # two rows of ones times the derivative of tanh at 3, in each of twelve entries
    slope = np.sqrt(12) * 2 * (1 - np.tanh(3) ** 2)
    assert ("leaf", ["<W & co>  (3, 4)", "‖·‖ = 3.464", f"grad ‖·‖ = {slope:.4g}"]) in boxes
    assert any(b[1][0] == "constant  (2, 3)" for b in boxes)
    assert boxes[-1][1][:2] == ["sum  (2,)", "3.98, 3.98"]
    leaf = svg(tensor([1.0, 2.0]))
    assert read_boxes(leaf) == [("constant", ["constant  (2,)", "1, 2"])]


def test_svg_draws_a_released_value_without_its_number():
    x = tensor([3.0, 4.0], requires_grad=True)
    boxes_without_values = read_boxes(svg((x + 1.0).relu().sum()))
    assert ("operation", ["+  (2,)", "grad 1, 1"]) in boxes_without_values  # relu saves its result, not its input
    assert ("operation", ["relu  (2,)", "4, 5", "grad 1, 1"]) in boxes_without_values
    assert ("constant", ["constant"]) in boxes_without_values
    with keep_values():
        y = (x + 1.0).relu().sum()
    boxes_with_values = read_boxes(svg(y))
    assert ("operation", ["+  (2,)", "4, 5", "grad 1, 1"]) in boxes_with_values
    assert ("constant", ["constant", "1"]) in boxes_with_values
    # a leaf stays: it gets a gradient
    assert ("leaf", ["leaf", "2", "grad 1"]) in read_boxes(svg(tensor(2.0, requires_grad=True) + 1.0))


def test_svg_draws_two_edges_for_a_tensor_used_twice():
    root = ET.fromstring(svg(graph_of("x*x", {"x": 3.0})))
    edges = [p.get("d") for p in root.iter(f"{SVG_NAMESPACE}path") if p.get("marker-end")]
    assert len(edges) == len(set(edges)) == 2


def test_svg_changes_neither_graph_nor_gradients():
    x = tensor(2.0, requires_grad=True)
    y = x * x
    svg(y)
    assert x.grad is None
    y.backward()
    assert x.grad == 4
    with pytest.raises(ScratchError, match=r"graph: backward freed the graph \(at mul\)"):
        svg(y)


def test_svg_refuses_too_large_a_graph():
    y = x = tensor(1.0, requires_grad=True)
    for _ in range(600):
        y = y * x
    with pytest.raises(ScratchError, match="graph: more than 500 tensors, too many to draw"):
        svg(y)


def test_svg_shows_infinite_values():
    boxes = read_boxes(svg(graph_of("log(x)/x", {"x": 0.0})))
    assert boxes[-1] == ("output", ["÷", "-inf", "grad 1"])


@st.composite
def random_graphs(draw):
    n = draw(st.integers(1, 14))
    return n, [(draw(st.integers(0, b - 1)), b) for b in range(1, n) for _ in range(draw(st.integers(0, 2)))]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(random_graphs())
def test_layered_layout_points_right_without_overlaps(graph):
    n, edges = graph
    positions, paths = layered_layout(n, edges)
    for (a, b), path in zip(edges, paths, strict=True):
        assert positions[a].layer < positions[b].layer
        assert [p.layer for p in path] == list(range(positions[a].layer, positions[b].layer + 1))
    cells = [*positions, *[p for path in paths for p in path[1:-1]]]
    assert len(set(cells)) == len(cells)
    assert all(p.row >= 0 for p in cells)
    by_layer: dict[int, list[float]] = {}
    for p in cells:
        by_layer.setdefault(p.layer, []).append(p.row)
    for rows in by_layer.values():
        assert np.diff(sorted(rows)).min(initial=1) >= 1
