"""What several recipes choose from the size and class balance of their data."""

from math import ceil

from torch import Tensor

from didact.data.balance import class_weights, oversample, undersample
from didact.data.core import Data
from didact.data.images.augment import Augmentation, make_augmentations
from didact.errors import UsageError
from didact.training.experiment import BudgetNote

CLASSIFICATION_TASKS = ("binary", "multiclass")
SUPERVISED_TASKS = (*CLASSIFICATION_TASKS, "multilabel", "regression")     # all that one vector of outputs can predict
SMALL_TRAIN_SIZE = 5_000  # a dataset with fewer training examples is small


def choose_budget(
    data: Data,
    epochs: int | None,
    batch_size: int | None,
    *,
    target_steps: int = 1_500,
    large_batch_size: int = 128,
) -> tuple[int, int, tuple[str, ...]]:
    """Epochs and batch size; where not given, so many steps on a small dataset, ten epochs on a large one."""
    num_examples = len(data.train)
    chosen_batch_size = batch_size or (32 if num_examples < SMALL_TRAIN_SIZE else large_batch_size)
    chosen_epochs = epochs or min(60, max(10, ceil(target_steps * chosen_batch_size / max(1, num_examples))))
    epochs_note = "" if epochs else f"{chosen_epochs} epochs"
    batch_note = "" if batch_size else f"batches of {chosen_batch_size}"
    note = BudgetNote(
        _describe_choices(num_examples, epochs_note, batch_note),
        without_budget=_describe_choices(num_examples, batch_note),
    )
    return chosen_epochs, chosen_batch_size, (note,) if note else ()


def _describe_choices(num_examples: int, *choices: str) -> str:
    """What was chosen from the number of examples; empty if nothing was."""
    choices_text = ", ".join(filter(None, choices))
    return choices_text and f"chosen from {num_examples:,} training examples: {choices_text}"


def choose_epochs(
    data: Data, batch_size: int, epochs: int | None, *, steps: int, min_epochs: int
) -> tuple[int, int | None, tuple[str, ...]]:
    """Epochs, where not given: `steps` steps in all on few images, at least `min_epochs` epochs on many.

    Also returns the steps between evaluations: 50 evaluations in all where there are more than 50 epochs.
    """
    if epochs:
        return epochs, None, ()
    steps_per_epoch = ceil(len(data.train) / batch_size)
    num_epochs = max(min_epochs, ceil(steps / steps_per_epoch))
    return (
        num_epochs,
        num_epochs * steps_per_epoch // 50 if num_epochs > 50 else None,
        (BudgetNote(_describe_choices(len(data.train), f"{num_epochs} epochs")),),
    )


def choose_lr(data: Data, optimizer: str, lr: float | None) -> float | None:
    """The learning rate; where not given, AdamW takes larger steps on a small dataset, which has few of them."""
    return 3e-3 if lr is None and optimizer == "adamw" and len(data.train) < SMALL_TRAIN_SIZE else lr


def apply_balance(data: Data, balance: str) -> tuple[Data, Tensor | None]:
    """The data and class weights for a way to treat class imbalance."""
    if balance == "none":
        return data, None
    if data.task not in ("binary", "multiclass"):
        raise UsageError(f"--balance {balance} is for classes, but the targets of {data.name!r} are {data.task}")
    if balance == "weights":
        return data, class_weights(data)
    return (oversample if balance == "over" else undersample)(data, seed=0), None


def make_image_augmentation(data: Data, names: tuple[str, ...]) -> Augmentation | None:
    """The named augmentations, for images only; mixup and cutmix only for classes."""
    if names and data.kind != "images":
        raise UsageError(f"--augment is for images, but {data.name!r} is {data.kind}")
    mixing_names = {"mixup", "cutmix"} & set(names)
    if mixing_names and data.task != "multiclass":
        raise UsageError(
            f"--augment {min(mixing_names)} mixes labels of several classes, but the targets of {data.name!r} are "
            f"{data.task}"
        )
    return make_augmentations(names, num_classes=data.num_classes)
