"""Layered graph layout: boxes in layers from left to right, few crossings (Sugiyama, Tagawa and Toda, 1981).

1. layer = longest path from a leaf, so that every edge points right; a leaf moves right until it is one layer before
   its first user.
2. an edge that passes a layer takes a place in it, so that it goes around the boxes.
3. within a layer, order by the mean place of the neighbors, sweeping in both directions: each sweep removes crossings.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8


@dataclass(frozen=True)
class Place:
    layer: int
    row: float


def layered_layout(count: int, edges: list[tuple[int, int]]) -> tuple[list[Place], list[list[Place]]]:
    """A place for each of `count` boxes (an edge's source has the smaller number), and the places along each edge."""
    layer = _layers(count, edges)
    columns: list[list[int]] = [[] for _ in range(max(layer, default=0) + 1)]
    for box in range(count):
        columns[layer[box]].append(box)
    routes: list[list[int]] = []
    fresh = count
    for a, b in edges:
        passing = list(range(fresh, fresh + layer[b] - layer[a] - 1))
        fresh += len(passing)
        for step, waypoint in enumerate(passing, start=1):
            columns[layer[a] + step].append(waypoint)
        routes.append([a, *passing, b])
    _reduce_crossings(columns, routes)
    most = max(map(len, columns))
    places = {
        item: Place(l, i + (most - len(column)) / 2)
        for l, column in enumerate(columns)
        for i, item in enumerate(column)
    }
    return [places[i] for i in range(count)], [[places[i] for i in route] for route in routes]


def _layers(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The layer of every box."""
    layer = [0] * count
    for a, b in sorted(edges, key=lambda e: e[1]):  # a box is complete before it is a source
        layer[b] = max(layer[b], layer[a] + 1)
    targets = {b for _, b in edges}
    users: dict[int, list[int]] = {}
    for a, b in edges:
        users.setdefault(a, []).append(layer[b])
    for a, user_layers in users.items():
        if a not in targets:
            layer[a] = min(user_layers) - 1
    return layer


def _reduce_crossings(columns: list[list[int]], routes: list[list[int]]) -> None:
    """Sort every layer by the mean row of the neighbors, alternately from the left and from the right."""
    before: dict[int, list[tuple[int, float]]] = {}
    after: dict[int, list[tuple[int, float]]] = {}
    arguments: Counter[int] = Counter()
    for route in routes:
        arguments[route[-1]] += 1
        for a, b in pairwise(route):
            # of two arguments of one operation, the first is drawn above
            first = 1e-3 * arguments[b] if b == route[-1] else 0.0
            after.setdefault(a, []).append((b, first))
            before.setdefault(b, []).append((a, 0.0))
    for sweep in range(_SWEEPS):
        rightwards = sweep % 2 == 0
        order = columns[1:] if rightwards else columns[-2::-1]
        row = {item: i / len(column) for column in columns for i, item in enumerate(column)}
        for column in order:
            near = before if rightwards else after
            mean = {
                i: sum(row[n] + shift for n, shift in near[i]) / len(near[i]) if i in near else row[i] for i in column
            }
            column.sort(key=mean.__getitem__)
            row.update({item: i / len(column) for i, item in enumerate(column)})
