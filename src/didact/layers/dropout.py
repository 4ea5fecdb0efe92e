"""Dropout that stays on at test time: each pass is then a sample from an ensemble of thinned networks."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def has_dropout(module: nn.Module) -> bool:
    """Whether a module leaves out numbers while it learns: a layer of dropout, or one with a share that it heeds
    (attention, LSTM)."""
    probability = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0.0)
    return isinstance(probability, int | float) and probability > 0


@contextmanager
def dropout_enabled(module: nn.Module) -> Iterator[None]:
    """Everything in eval mode but dropout, then as before: MC dropout.  Gaba Ex 3.3, Gal & Ghahramani 2016."""
    modes = {m: m.training for m in module.modules()}
    for m in modes:
        m.training = has_dropout(m)
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training
