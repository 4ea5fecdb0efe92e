"""Early stopping: keep the best validation state, and stop after `patience` evaluations without improvement.

Any gain keeps the weights. Patience asks for a gain of more than `min_delta` over a reference, to which small gains
add up.
Gaba 3.8, Groudiev 7.2.4.
"""

from math import isfinite

from didact.objectives.base import Objective
from didact.training.checkpoint import TrainingState


def update_best(state: TrainingState, scores: dict[str, float], objective: Objective, min_delta: float) -> bool:
    """Enter an evaluation into the state; whether it is the best so far."""
    state.evaluations_without_improvement += 1
    if compute_improvement(scores, state.early_stopping_reference or state.validation, objective) > min_delta:
        state.evaluations_without_improvement, state.early_stopping_reference = 0, scores
    gain = compute_improvement(scores, state.validation, objective)
    is_best = gain > 0 or (gain == 0 and scores["loss"] < state.validation["loss"])
    if is_best:
        state.best_score, state.best_step, state.validation = scores[objective.monitor], state.step, scores
    return is_best


def compute_improvement(scores: dict[str, float], reference: dict[str, float], objective: Objective) -> float:
    """How much better the monitored metric is than in the reference, infinitely where there is none yet."""
    if not reference:
        return float("inf")
    new, old = scores[objective.monitor], reference[objective.monitor]
    if not (isfinite(new) and isfinite(old)):  # a metric that is not defined on this split: the loss decides
        return reference["loss"] - scores["loss"]
    return old - new if objective.mode == "min" else new - old


def find_stop_reason(state: TrainingState, total_rounds: int, patience: int | None) -> str:
    """Why training ends after this evaluation; empty while it goes on."""
    if state.step >= total_rounds:
        return "budget"
    return "patience" if patience is not None and state.evaluations_without_improvement >= patience else ""
