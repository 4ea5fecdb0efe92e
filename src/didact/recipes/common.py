"""What several recipes choose alike from the size and balance of their data."""

from math import ceil

from torch import Tensor

from didact.data.augment import Augmentation, augmentations
from didact.data.balance import class_weights, oversample, undersample
from didact.data.core import Data
from didact.errors import UsageError
from didact.train.experiment import OfBudget

CLASSES = ("binary", "multiclass")
TARGETS = (*CLASSES, "multilabel", "regression")     # whatever one row of numbers can answer
SMALL = 5_000  # training examples below which a set is small


def budget(data: Data, epochs: int | None, batch: int | None, *, updates: int = 1_500) -> tuple[int, int, tuple[str, ...]]:
    """Epochs and batch size where they are not given: about so many steps for small sets, ten epochs for large ones."""
    rows = len(data.train)
    chosen_batch = batch or (32 if rows < SMALL else 128)
    chosen_epochs = epochs or min(60, max(10, ceil(updates * chosen_batch / max(1, rows))))
    passes = "" if epochs else f"{chosen_epochs} epochs"
    batches = "" if batch else f"batches of {chosen_batch}"
    told = OfBudget(from_size(rows, passes, batches), otherwise=from_size(rows, batches))
    return chosen_epochs, chosen_batch, (told,) if told else ()


def from_size(rows: int, *what: str) -> str:
    """What was chosen, and from what; nothing where nothing was."""
    chosen = ", ".join(filter(None, what))
    return chosen and f"chosen from {rows:,} training examples: {chosen}"


def passes(data: Data, batch: int, epochs: int | None, *, steps: int, least: int) -> tuple[int, int | None, tuple[str, ...]]:
    """Epochs where none are given: so many steps in all of few images, at least so many passes over many.

    Then the steps between evaluations where epochs are so many, since those of few images are over at once: 50 evaluations in all.
    """
    if epochs:
        return epochs, None, ()
    each = ceil(len(data.train) / batch)
    chosen = max(least, ceil(steps / each))
    return chosen, chosen * each // 50 if chosen > 50 else None, (OfBudget(from_size(len(data.train), f"{chosen} epochs")),)


def rate(data: Data, optimizer: str, lr: float | None) -> float | None:
    """A small set has few steps in an epoch: AdamW takes larger ones there, where no rate is given."""
    return 3e-3 if lr is None and optimizer == "adamw" and len(data.train) < SMALL else lr


def balanced(data: Data, how: str) -> tuple[Data, Tensor | None]:
    """The data and class weights that answer an imbalance."""
    if how == "none":
        return data, None
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"--balance {how} is for classes, but the targets of {data.name!r} are {data.task}")
    if how == "weights":
        return data, class_weights(data)
    return (oversample if how == "over" else undersample)(data, seed=0), None


def augmenting(data: Data, names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations, which are for images; mixed labels are for classes."""
    if names and data.kind != "images":
        raise UsageError(f"--augment changes images, but {data.name!r} is {data.kind}")
    mixes = {"mixup", "cutmix"} & set(names)
    if mixes and data.task != "multiclass":
        raise UsageError(f"--augment {min(mixes)} mixes the labels of several classes, but the targets of {data.name!r} are {data.task}")
    return augmentations(names, classes=data.classes)
