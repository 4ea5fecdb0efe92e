"""Four ways to a gradient, side by side (Groudiev 2.2).

`by_hand` is the delta recursion of an MLP, `numerical` finite differences, `symbolic` the rules of differentiation,
`dual` forward mode; reverse mode is `didact.scratch.autograd`. `expression` parses a formula once for all of them, and
`compare_gradients` puts them side by side.
"""

from didact.scratch.gradients.compare_gradients import compare_gradients
from didact.scratch.gradients.dual import Dual, gradient, jvp
from didact.scratch.gradients.expression import evaluate
from didact.scratch.gradients.numerical import central_difference, error_curve, forward_difference
from didact.scratch.gradients.symbolic import derive, expression_swell

__all__ = [
    "Dual", "central_difference", "compare_gradients", "derive", "error_curve", "evaluate", "expression_swell",
    "forward_difference", "gradient", "jvp",
]
