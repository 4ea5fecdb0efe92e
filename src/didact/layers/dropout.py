"""Dropout that stays on at test time: each pass is then a sample from an ensemble of thinned networks."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def keep_dropout(module: nn.Module) -> Iterator[None]:
    """Everything in eval mode but dropout, then as before: MC dropout.  Gaba Ex 3.3, Gal & Ghahramani 2016."""
    before = {m: m.training for m in module.modules()}
    module.eval()
    for m in before:
        if isinstance(m, _DropoutNd) or isinstance(getattr(m, "dropout", None), float):  # a layer, or a share that attention and LSTM heed
            m.training = True
    try:
        yield
    finally:
        for m, training in before.items():
            m.training = training
