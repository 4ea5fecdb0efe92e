"""What a trained objective can do, as small protocols. Verbs work on abilities, never on a model's name."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from didact.data.core import Batch


class Predictive(NamedTuple):
    """A predicted number and how far off it may be (None: the model does not say)."""

    mean: Tensor
    std: Tensor | None


@runtime_checkable
class Classifies(Protocol):
    """Gives each class a probability."""

    def classify(self, batch: Batch) -> Tensor:
        """(B, K); rows sum to one, except where an example may carry several labels."""


@runtime_checkable
class Regresses(Protocol):
    """Predicts a number."""

    def regress(self, batch: Batch) -> Predictive:
        """(B,) in the target's own units."""


@runtime_checkable
class Draws(Protocol):
    """Offers a random prediction, as often as asked: the output is a distribution."""

    def draw(self, batch: Batch) -> Tensor:
        """One draw from p(y | x) for each example."""


@runtime_checkable
class Segments(Protocol):
    """Gives each pixel's class a probability."""

    def segment(self, batch: Batch) -> Tensor:
        """(B, K, H, W); sums over K are one."""


@runtime_checkable
class Restores(Protocol):
    """Gives back a damaged image as it was."""

    def restore(self, batch: Batch) -> Tensor:
        """(B, C, H, W) in [0, 1]."""


ABILITIES: dict[str, type] = {"classify": Classifies, "regress": Regresses, "draw": Draws, "segment": Segments, "restore": Restores}


def abilities(objective: object) -> tuple[str, ...]:
    """The names of what this objective can do."""
    return tuple(name for name, protocol in ABILITIES.items() if isinstance(objective, protocol))
