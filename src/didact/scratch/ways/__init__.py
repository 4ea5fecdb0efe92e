"""Four ways to a gradient, side by side (Groudiev 2.2): by hand, numerical, symbolic, automatic (forward here, reverse in engine.py)."""

from didact.scratch.ways.expression import evaluate
from didact.scratch.ways.four import four_ways

__all__ = ["evaluate", "four_ways"]
