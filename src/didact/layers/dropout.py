"""MC dropout: dropout that stays on at test time, so that each pass is a sample from an ensemble of thinned networks.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def has_dropout(module: nn.Module) -> bool:
    """Whether a module applies dropout in training mode: a dropout layer, or one with a dropout option (attention,
    LSTM).
    """
    probability = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0.0)
    return isinstance(probability, int | float) and probability > 0


@contextmanager
def dropout_enabled(module: nn.Module) -> Iterator[None]:
    """Eval mode for all layers but those with dropout; their modes are restored afterwards.  Gaba Ex 3.3, Gal &
    Ghahramani 2016.
    """
    modes = {m: m.training for m in module.modules()}
    for m in modes:
        m.training = has_dropout(m)
    try:
        yield
    finally:
        for m, training in modes.items():
            m.training = training
