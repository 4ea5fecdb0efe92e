"""Computation graph as SVG: what a tensor was computed from, with every value and gradient (Groudiev 2.3, Lhotte 2.2).

    svg(graph_of("(x + y) * z", {"x": -2, "y": 5, "z": -4}))

Boxes are leaves and operations, edges carry tensors (Lhotte 2.2 says it the other way round, and draws it this way).
Values that no derivative needs are freed after an ordinary computation, and their boxes show the gradient alone; a
tensor computed inside `with keep_values():`, as `graph_of` does, has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from didact.scratch.autograd.engine import grad_at
from didact.scratch.autograd.layout import Place, layered_layout
from didact.scratch.autograd.tensor import Array, GraphSlot, ScratchError, Tensor, keep_values
from didact.scratch.gradients.expression import evaluate

_MAX_BOXES = 500
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 132, 62, 56, 22, 16
_FILL_COLORS = {"leaf": "#d7ecd9", "constant": "#e8e8e8", "operation": "#fdeecb", "output": "#f6d5d5"}
_SIGNS = {"add": "+", "sub": "−", "mul": "×", "div": "÷", "pow": "^", "neg": "−", "matmul": "@"}


@dataclass(frozen=True)
class _Box:
    kind: str
    title: str
    value: str
    gradient: str


def graph_of(expression: str, values: Mapping[str, float]) -> Tensor:
    """A formula as a tensor whose graph can be drawn; every variable is a leaf."""
    leaves = {}
    for name, value in values.items():
        leaves[name] = Tensor(np.asarray(value, float), requires_grad=True)
        leaves[name].label = name
    with keep_values(), np.errstate(all="ignore"):  # an infinite value is shown, without a warning
        y = evaluate(expression, leaves, number=_constant)
    assert isinstance(y, Tensor)
    return y


def _constant(value: float) -> Tensor:
    c = Tensor(np.asarray(value))
    c.label = f"{value:g}"
    return c


def svg(output: Tensor) -> str:
    """The graph of a tensor, left to right, as one SVG element.

    Gradients of a tensor of many values are those of their sum.
    """
    slots = _slots(output.slot)
    gradients = _gradients(output, slots)
    boxes = [_box(s, output.slot, gradients.get(s)) for s in slots]
    number = {s: i for i, s in enumerate(slots)}
    edges = [(number[x], number[s]) for s in slots if s.node for x in s.node.inputs]
    places, paths = layered_layout(len(boxes), edges)
    return _draw(boxes, places, edges, paths)


def _slots(output: GraphSlot) -> list[GraphSlot]:
    """Everything the output was computed from, constants too, in the order of computation."""
    order: dict[GraphSlot, int] = {}
    stack = [output]
    while stack:
        s = stack.pop()
        if s in order:
            continue
        order[s] = s.node.order if s.node else -1
        if s.node:
            if s.node.vjp is None:
                raise ScratchError(
                    f"graph: backward freed the graph (at {s.node.name}); draw it before, or pass retain_graph=True"
                )
            stack += reversed(s.node.inputs)
        if len(order) > _MAX_BOXES:
            raise ScratchError(f"graph: more than {_MAX_BOXES} tensors, too many to draw")
    return sorted(order, key=order.__getitem__)


def _gradients(output: Tensor, slots: list[GraphSlot]) -> dict[GraphSlot, Array]:
    if not output.requires_grad:
        return {}
    targets = {s for s in slots if s.requires_grad}
    grads = grad_at(output, targets, np.ones(output.shape), create_graph=False, retain_graph=True)
    return {s: grads[s].data if s in grads else np.zeros(s.shape) for s in targets}


def _box(s: GraphSlot, output: GraphSlot, gradient: Array | None) -> _Box:
    t = s.tensor()
    if t is None and s.node:
        t = s.node.own
    if s.node:
        title = _SIGNS.get(s.node.name, s.node.name)
        kind = "output" if s is output else "operation"
    else:
        kind = "leaf" if s.requires_grad else "constant"
        title = kind if t is None else t.label or kind
    if s.shape:
        title += f"  {s.shape}"
    title = title if len(title) <= 22 else title[:21] + "…"
    return _Box(kind, title, "" if t is None else _short(t.data), "" if gradient is None else _short(gradient))


def _short(a: Array) -> str:
    """A number; a few numbers; or the norm of many."""
    if a.size == 1:
        return f"{a.item():.4g}"
    if a.size <= 3:
        return ", ".join(f"{v:.3g}" for v in a.ravel().tolist())
    return f"‖·‖ = {np.linalg.norm(a.astype(float)):.4g}"


def _draw(boxes: list[_Box], places: list[Place], edges: list[tuple[int, int]], paths: list[list[Place]]) -> str:
    columns, rows = max(p.layer for p in places) + 1, max(p.row for path in [places, *paths] for p in path) + 1
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP_X
    height = 2 * _MARGIN + rows * (_HEIGHT + _GAP_Y) - _GAP_Y
    ports: dict[int, list[int]] = {}
    for i, (_, target) in enumerate(edges):
        ports.setdefault(target, []).append(i)
    parts = [_edge(paths[i], ports[target].index(i), len(ports[target])) for i, (_, target) in enumerate(edges)]
    parts += [_rectangle(box, place) for box, place in zip(boxes, places, strict=True)]
    label = escape(f"computation graph with {len(boxes)} tensors")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" '
        f'role="img" aria-label="{label}" font-family="system-ui, sans-serif" font-size="12" text-anchor="middle">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _corner(place: Place) -> tuple[float, float]:
    return _MARGIN + place.layer * (_WIDTH + _GAP_X), _MARGIN + place.row * (_HEIGHT + _GAP_Y)


def _rectangle(box: _Box, place: Place) -> str:
    x, y = _corner(place)
    middle = x + _WIDTH / 2
    lines = [f'<text x="{middle:.1f}" y="{y + 19:.1f}" font-weight="600" fill="#111">{escape(box.title)}</text>']
    if box.value:
        lines.append(f'<text x="{middle:.1f}" y="{y + 37:.1f}" fill="#1b5e20">{escape(box.value)}</text>')
    if box.gradient:
        lines.append(f'<text x="{middle:.1f}" y="{y + 54:.1f}" fill="#b71c1c">grad {escape(box.gradient)}</text>')
    shape = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'rx="{24 if box.kind in ("operation", "output") else 4}" '
    )
    return f'<g class="{box.kind}">{shape}fill="{_FILL_COLORS[box.kind]}" stroke="#777"/>' + "".join(lines) + "</g>"


def _edge(path: list[Place], port: int, ports: int) -> str:
    """A curve from the right side of one box, past those between, to its own port on the left side of the next."""
    x, y = _corner(path[0])
    x, y = x + _WIDTH, y + _HEIGHT / 2
    d = [f"M{x:.1f} {y:.1f}"]
    for i, place in enumerate(path[1:], start=1):
        left, top = _corner(place)
        last = i == len(path) - 1
        to = top + (_HEIGHT * (port + 1) / (ports + 1) if last else _HEIGHT / 2)
        d.append(f"C{x + _GAP_X / 2:.1f} {y:.1f} {left - _GAP_X / 2:.1f} {to:.1f} {left:.1f} {to:.1f}")
        x, y = left, to
        if not last:
            x += _WIDTH
            d.append(f"L{x:.1f} {y:.1f}")
    return f'<path d="{"".join(d)}" fill="none" stroke="#666" marker-end="url(#tip)"/>'
