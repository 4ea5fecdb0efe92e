"""Four ways to a gradient, side by side (Groudiev 2.2): by hand, numerical, symbolic, automatic (forward here,
reverse in engine.py)."""

from didact.scratch.gradients.compare_gradients import compare_gradients
from didact.scratch.gradients.expression import evaluate

__all__ = [
    "compare_gradients", "evaluate",
]
