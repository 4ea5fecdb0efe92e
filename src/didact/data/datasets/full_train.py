"""Public datasets as the courses use them: all training examples train, and the test split is evaluated every epoch.

For `didact reproduce`, which measures what a course measured, in the course's way. Validation and test are the same
examples here: what was chosen by them cannot be judged by them.
"""

import torch

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Data, TensorSplit
from didact.data.datasets.download import register_dataset
from didact.data.datasets.public import cifar10, fashion_mnist, imdb, mnist

_NOTE = "as the courses use it: no validation split of its own, the test split stands in for it"


@register_dataset(kind="images", task="multiclass", license="that of mnist")
def mnist_whole(seed: int = 0) -> Data:
    """MNIST with all 60,000 for training and the 10,000 test digits as validation too: for `didact reproduce`."""
    return _merge_train_val("mnist_whole", mnist(seed))


@register_dataset(kind="images", task="multiclass", license="that of fashion_mnist")
def fashion_mnist_whole(seed: int = 0) -> Data:
    """Fashion-MNIST with all 60,000 for training and the 10,000 test images as validation: for `didact reproduce`."""
    return _merge_train_val("fashion_mnist_whole", fashion_mnist(seed))


@register_dataset(kind="images", task="multiclass", license="that of cifar10")
def cifar10_whole(seed: int = 0) -> Data:
    """CIFAR-10 with all 50,000 for training and the 10,000 test images as validation too: for `didact reproduce`."""
    return _merge_train_val("cifar10_whole", cifar10(seed))


@register_dataset(kind="text", task="binary", license="that of imdb")
def imdb_whole(seed: int = 0) -> Data:
    """IMDB with all 25,000 for training and the 25,000 test reviews as validation too: for `didact reproduce`."""
    return _merge_train_val("imdb_whole", imdb(seed))


def _merge_train_val(name: str, data: Data) -> Data:
    """The same examples: training and validation merged in their old order, then the test examples twice."""
    parts = {part: split for part in SPLITS if isinstance(split := data.split(part), TensorSplit)}
    order = torch.cat([data.indices["train"], data.indices["validation"]]).argsort()
    test = parts["test"].columns
    learning_columns = {
        key: torch.cat([parts[part].columns[key] for part in ("train", "validation")])[order] for key in test
    }
    columns = {key: torch.cat([learning_columns[key], test[key], test[key]]) for key in test}
    num_train, num_test = len(order), len(data.test)
    rows = torch.arange(num_train + 2 * num_test)
    indices = {
        "train": rows[:num_train],
        "validation": rows[num_train : num_train + num_test],
        "test": rows[num_train + num_test :],
    }
    return build_data(
        Examples(
            name,
            data.kind,
            columns,
            task=data.task,
            class_names=data.class_names,
            feature_names=data.feature_names,
            target=data.target,
            encoder=data.encoder,
            standardize=data.kind == "images",
            notes=(*data.notes, _NOTE),
        ),
        indices=indices,
    )
