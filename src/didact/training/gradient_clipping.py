"""Gradient clipping: by value first, entry by entry, then by the norm of all gradients together."""

from collections.abc import Iterable

from torch import nn


def clip_gradients(parameters: Iterable[nn.Parameter], *, norm: float | None, value: float | None) -> None:
    """g_i ← clamp(g_i, −value, value);  g ← g min(1, norm / ‖g‖₂).  Gaba 2.6.2, Groudiev 7.1.2."""
    parameters = list(parameters)
    if value is not None:
        nn.utils.clip_grad_value_(parameters, value)
    if norm is not None:
        nn.utils.clip_grad_norm_(parameters, norm)
