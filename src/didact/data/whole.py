"""Public sets as the courses use them: all training examples train, and the test split is looked at after every epoch.

They are for `didact reproduce`, which measures what a course has measured in the course's own way. Validation and test are the same
examples here: what was chosen by them cannot be judged by them.
"""

import torch

from didact.data.assemble import assemble
from didact.data.core import SPLITS, Data, Resident
from didact.data.fetch import source
from didact.data.public import cifar10, fashion_mnist, imdb, mnist

NOTE = "as the courses use it: no validation split of its own, the test split is looked at in its place"


@source(kind="images", task="multiclass", licence="that of mnist")
def mnist_whole(seed: int = 0) -> Data:
    """MNIST with all 60,000 for training and the 10,000 test digits as validation too: for `didact reproduce`."""
    return whole("mnist_whole", mnist(seed))


@source(kind="images", task="multiclass", licence="that of fashion_mnist")
def fashion_mnist_whole(seed: int = 0) -> Data:
    """Fashion-MNIST with all 60,000 for training and the 10,000 test images as validation too: for `didact reproduce`."""
    return whole("fashion_mnist_whole", fashion_mnist(seed))


@source(kind="images", task="multiclass", licence="that of cifar10")
def cifar10_whole(seed: int = 0) -> Data:
    """CIFAR-10 with all 50,000 for training and the 10,000 test images as validation too: for `didact reproduce`."""
    return whole("cifar10_whole", cifar10(seed))


@source(kind="text", task="binary", licence="that of imdb")
def imdb_whole(seed: int = 0) -> Data:
    """IMDB with all 25,000 for training and the 25,000 test reviews as validation too: for `didact reproduce`."""
    return whole("imdb_whole", imdb(seed))


def whole(name: str, data: Data) -> Data:
    """The same examples: training and validation together in their old order, then the test examples twice."""
    parts = {part: split for part in SPLITS if isinstance(split := data.split(part), Resident)}
    order = torch.cat([data.indices["train"], data.indices["validation"]]).argsort()
    test = parts["test"].columns
    known = {key: torch.cat([parts[part].columns[key] for part in ("train", "validation")])[order] for key in test}
    columns = {key: torch.cat([known[key], test[key], test[key]]) for key in test}
    trained, tests = len(order), len(data.test)
    rows = torch.arange(trained + 2 * tests)
    indices = {"train": rows[:trained], "validation": rows[trained : trained + tests], "test": rows[trained + tests :]}
    return assemble(
        name, data.kind, columns, task=data.task, labels=data.labels, names=data.names, target=data.target, encoder=data.encoder,
        indices=indices, standardise=data.kind == "images", notes=(*data.notes, NOTE),
    )
