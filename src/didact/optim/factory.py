"""Optimizers by name, all with the same few options."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from didact.errors import UsageError, look_up
from didact.optim.lamb import LAMB
from didact.optim.lars import LARS
from didact.optim.lion import Lion
from didact.optim.muon import muon_with_adamw
from didact.optim.sam import SAM

OptimizerFactory = Callable[[Any], Optimizer]

# Each from (learning rate, weight decay, momentum); momentum is Adam's β1; plain SGD, Adagrad and RMSprop have none.
# SAM's radius comes later, from make_optimizer.
# LARS has ten times the trust coefficient of its paper, so that the learning rate that suits its biases is like SGD's.
# Weight decay is decoupled for adamw, muon, lion and lamb; for the others it is L2, added to the gradient.
OPTIMIZERS: dict[str, Callable[[float, float, float], OptimizerFactory]] = {
    "sgd": lambda lr, decay, μ: partial(SGD, lr=lr, weight_decay=decay),
    "momentum": lambda lr, decay, μ: partial(SGD, lr=lr, weight_decay=decay, momentum=μ),
    "nesterov": lambda lr, decay, μ: partial(SGD, lr=lr, weight_decay=decay, momentum=μ, nesterov=True),
    "adagrad": lambda lr, decay, μ: partial(Adagrad, lr=lr, weight_decay=decay),
    "rmsprop": lambda lr, decay, μ: partial(RMSprop, lr=lr, weight_decay=decay),
    "adam": lambda lr, decay, μ: partial(Adam, lr=lr, weight_decay=decay, betas=(μ, 0.999)),
    "amsgrad": lambda lr, decay, μ: partial(Adam, lr=lr, weight_decay=decay, betas=(μ, 0.999), amsgrad=True),
    "adamw": lambda lr, decay, μ: partial(AdamW, lr=lr, weight_decay=decay, betas=(μ, 0.999)),
    "muon": lambda lr, decay, μ: partial(muon_with_adamw, lr=lr, weight_decay=decay, momentum=μ),
    "lion": lambda lr, decay, μ: partial(Lion, lr=lr, weight_decay=decay, betas=(μ, 0.99)),
    "lars": lambda lr, decay, μ: partial(LARS, lr=lr, weight_decay=decay, momentum=μ, trust=0.01),
    "lamb": lambda lr, decay, μ: partial(LAMB, lr=lr, weight_decay=decay, betas=(μ, 0.999)),
    "sam": lambda lr, decay, μ: partial(SAM, base=partial(SGD, lr=lr, weight_decay=decay, momentum=μ)),
}

WITH_MOMENTUM = tuple(name for name in OPTIMIZERS if name not in ("sgd", "adagrad", "rmsprop"))
WITH_DECAY = ("adamw", "lion", "lamb", "muon")   # decoupled weight decay

# Gaba 2.8 gives those of sgd, momentum, adam and adamw; with the others a small network learns well without tuning.
DEFAULT_LR: dict[str, float] = {
    "sgd": 1e-2, "momentum": 1e-2, "nesterov": 1e-2, "adagrad": 1e-2, "rmsprop": 1e-3, "adam": 1e-3, "amsgrad": 1e-3,
    "adamw": 1e-3, "muon": 3e-3, "lion": 3e-4, "lars": 0.1, "lamb": 1e-2, "sam": 1e-2,
}  # fmt: skip


def make_optimizer(
    name: str, *, lr: float | None = None, weight_decay: float = 0.0, momentum: float = 0.9, rho: float = 0.05
) -> OptimizerFactory:
    """The factory of a named optimizer; it is called with the parameters. `rho` is the radius of SAM."""
    factory = look_up("optimizer", name, OPTIMIZERS)
    if name == "nesterov" and not momentum > 0:
        raise UsageError(f"nesterov needs a momentum of more than 0, got {momentum:g}; without momentum it is sgd")
    optimizer: Any = factory(DEFAULT_LR[name] if lr is None else lr, weight_decay, momentum)
    return partial(optimizer, rho=rho) if name == "sam" else optimizer
