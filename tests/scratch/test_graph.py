"""The picture of a graph: complete, escaped, well-formed, and readable (every edge to the right, no box on another)."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.scratch import ScratchError, Tensor, keep_values, tensor
from didact.scratch.graph import graph_of, svg
from didact.scratch.layout import layered

NS = "{http://www.w3.org/2000/svg}"


def boxes(picture: str) -> list[tuple[str, list[str]]]:
    root = ET.fromstring(picture)
    return [(g.get("class", ""), [t.text or "" for t in g.iter(f"{NS}text")]) for g in root.iter(f"{NS}g")]


def test_the_example_of_the_course():
    found = boxes(svg(graph_of("(x+y)*z", {"x": -2.0, "y": 5.0, "z": -4.0})))
    assert sorted(found) == [
        ("leaf", ["x", "-2", "grad -4"]),
        ("leaf", ["y", "5", "grad -4"]),
        ("leaf", ["z", "-4", "grad 3"]),
        ("operation", ["+", "3", "grad -4"]),
        ("output", ["×", "-12", "grad 1"]),
    ]


def test_constants_have_no_gradient():
    found = boxes(svg(graph_of("1/(1+exp(-x))", {"x": 0.0})))
    assert [b for b in found if b[0] == "constant"] == [("constant", ["1", "1"])] * 2
    assert ("output", ["÷", "0.5", "grad 1"]) in found


def test_arrays_and_names_are_shown_and_escaped():
    w = tensor(np.ones((3, 4)), requires_grad=True)
    w.label = "<W & co>"
    picture = svg((Tensor(np.ones((2, 3))) @ w).tanh().sum(1))
    assert "<W" not in picture
    found = boxes(picture)
    slope = np.sqrt(12) * 2 * (1 - np.tanh(3) ** 2)  # two rows of ones times the slope of tanh at 3, in each of twelve places
    assert ("leaf", ["<W & co>  (3, 4)", "‖·‖ = 3.464", f"grad ‖·‖ = {slope:.4g}"]) in found
    assert any(b[1][0] == "constant  (2, 3)" for b in found)
    assert found[-1][1][:2] == ["sum  (2,)", "3.98, 3.98"]
    leaf = svg(tensor([1.0, 2.0]))
    assert boxes(leaf) == [("constant", ["constant  (2,)", "1, 2"])]


def test_a_value_that_is_gone_is_drawn_without_it():
    x = tensor([3.0, 4.0], requires_grad=True)
    gone = boxes(svg((x + 1.0).relu().sum()))
    assert ("operation", ["+  (2,)", "grad 1, 1"]) in gone  # relu keeps its result, not its input
    assert ("operation", ["relu  (2,)", "4, 5", "grad 1, 1"]) in gone
    assert ("constant", ["constant"]) in gone
    with keep_values():
        y = (x + 1.0).relu().sum()
    kept = boxes(svg(y))
    assert ("operation", ["+  (2,)", "4, 5", "grad 1, 1"]) in kept
    assert ("constant", ["constant", "1"]) in kept
    assert ("leaf", ["leaf", "2", "grad 1"]) in boxes(svg(tensor(2.0, requires_grad=True) + 1.0))  # a leaf stays: it gets a gradient


def test_one_tensor_used_twice_has_two_edges():
    root = ET.fromstring(svg(graph_of("x*x", {"x": 3.0})))
    edges = [p.get("d") for p in root.iter(f"{NS}path") if p.get("marker-end")]
    assert len(edges) == len(set(edges)) == 2


def test_drawing_leaves_the_graph_and_grad_alone():
    x = tensor(2.0, requires_grad=True)
    y = x * x
    svg(y)
    assert x.grad is None
    y.backward()
    assert x.grad == 4
    with pytest.raises(ScratchError, match=r"graph: backward freed the graph \(at mul\)"):
        svg(y)


def test_too_large_a_graph_is_refused():
    y = x = tensor(1.0, requires_grad=True)
    for _ in range(600):
        y = y * x
    with pytest.raises(ScratchError, match="graph: more than 500 tensors, too many to draw"):
        svg(y)


def test_values_without_a_number_are_shown():
    found = boxes(svg(graph_of("log(x)/x", {"x": 0.0})))
    assert found[-1] == ("output", ["÷", "-inf", "grad 1"])


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 14))
    return n, [(draw(st.integers(0, b - 1)), b) for b in range(1, n) for _ in range(draw(st.integers(0, 2)))]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs())
def test_layout_points_right_and_overlaps_nothing(graph):
    n, edges = graph
    places, paths = layered(n, edges)
    for (a, b), path in zip(edges, paths, strict=True):
        assert places[a].layer < places[b].layer
        assert [p.layer for p in path] == list(range(places[a].layer, places[b].layer + 1))
    taken = [*places, *[p for path in paths for p in path[1:-1]]]
    assert len(set(taken)) == len(taken)
    assert all(p.row >= 0 for p in taken)
    by_layer: dict[int, list[float]] = {}
    for p in taken:
        by_layer.setdefault(p.layer, []).append(p.row)
    for rows in by_layer.values():
        assert np.diff(sorted(rows)).min(initial=1) >= 1
