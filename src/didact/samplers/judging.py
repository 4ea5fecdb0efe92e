"""Drawn images judged in the features of a classifier: one of didact's own, or the published Inception v3.

Which one it is, its accuracy, how many images it saw and of which split go with every score.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.data.core import Batch, Data, Resident, Split
from didact.errors import UsageError
from didact.layers.standardise import Standardise
from didact.metrics.generative import frechet, inception_score, kernel_distance, manifold, which_classes
from didact.models.inception import FIRST, SIDE, InceptionV3
from didact.models.weights import IMAGENET_MEAN, IMAGENET_STD, load_weights, read_weights
from didact.objectives.abilities import Classifies
from didact.run import Run
from didact.samplers.draw import wanted
from didact.train.machine import pick_device
from didact.train.session import rebuild, restored

MOST = 10_000   # real images that are read
LEAST = 5       # on each side: a ball reaches to the third neighbour
Verdict = Callable[[Tensor], dict[str, Any]]
HALF = torch.full((3, 1, 1), 0.5)


class Judge(Protocol):
    """A module that gives each class a probability."""

    def classify(self, batch: Batch) -> Tensor: ...
    def modules(self) -> Iterator[nn.Module]: ...


class Inception(nn.Module):
    """Any image as the published network saw its own: in colour, 299×299, and with its mean and deviation."""

    def __init__(self, path: Path):
        super().__init__()
        head = read_weights(path).get("fc.weight", torch.empty(0))
        classes = head.shape[0] if head.ndim == 2 and head.numel() else 1   # a shape of (10⁹, 0) needs no bytes
        first = classes == FIRST                         # which saw pixels in [−1, 1]
        self.network = InceptionV3(classes=classes)
        report = load_weights(self.network, path)
        if report.missing or report.reshaped:
            raise UsageError(f"{path} is not Inception v3 as torchvision or the 2015 file of FID name it ({report}); give one of these")
        self.standardise = Standardise(*((HALF, HALF) if first else (IMAGENET_MEAN, IMAGENET_STD)))

    def classify(self, batch: Batch) -> Tensor:
        x = batch["x"] if batch["x"].shape[1] == 3 else batch["x"].mean(1, keepdim=True).expand(-1, 3, -1, -1)
        out: Tensor = self.network(self.standardise(F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)))
        return out.softmax(1)


def last_layer(judge: Judge) -> nn.Linear:
    """The affine layer whose inputs are the classifier's features."""
    layers = [m for m in judge.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise UsageError("the judge has no affine layer at its end to take features from; train `didact train cnn` on the same data")
    return layers[-1]


@contextmanager
def listening(judge: Judge) -> Iterator[list[Tensor]]:
    """What enters the last affine layer: the classifier's features."""
    heard: list[Tensor] = []
    handle = last_layer(judge).register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0].float().flatten(1)))
    try:
        yield heard
    finally:
        handle.remove()


@torch.no_grad()
def looked_at(judge: Judge, split: Split, device: torch.device, batch: int = 512) -> tuple[Tensor, Tensor, Tensor]:
    """Features, probabilities and labels (where there are any) of a split's first images."""
    p, y = [], []
    with listening(judge) as heard:
        for stored in split.batches(torch.arange(min(MOST, len(split))).split(batch)):
            rows = {name: column.to(device) for name, column in split.decode(stored).items()}
            p.append(judge.classify(rows))
            y.append(rows.get("y", torch.zeros(0, device=device)).long())
    return torch.cat(heard), torch.cat(p), torch.cat(y)


def judged(run: Run, by: Run, images: Tensor, *, label: str | None = None, device: str = "cpu") -> dict[str, Any]:
    """Images that the run drew beside its test split, or the one class of it that was asked for, as another run's classifier sees both.

    `recognised` is the share of drawn images of one class that the judge takes for it; of all classes it says how many are there.
    """
    return judge_of(run, by, len(images), label=label, device=device)(images)


def judge_of(run: Run, by: Run, n: int, *, label: str | None = None, device: str = "cpu") -> Verdict:
    """Who will judge n images, opened and checked: what does not fit is said before anything is drawn."""
    referee, its_data = restored(by)
    data = rebuild(run, with_data=True).experiment.data
    if not isinstance(referee, Classifies):
        raise UsageError(f"the judge {by.folder} does not classify; train one with: didact train cnn --data {data.name}")
    if its_data.shape != data.shape:
        raise UsageError(f"the judge learned images of {its_data.shape}, but these are {data.shape}; train one with --data {data.name}")
    last_layer(referee)
    enough(n, real_images(data, wanted(label, data, run)), label)

    def verdict(images: Tensor) -> dict[str, Any]:
        found, (p, answers, truth) = compared(data, referee.to(pick_device(device)), images, label=label, device=device)
        if not len(truth) or its_data.labels != data.labels:
            known = by.facts.get("test", {}).get("accuracy")
            return {"judge": str(by.folder), "judge_accuracy": known, "accuracy_on": f"the test split of {its_data.name}", **found}
        guess, classes, right = p.argmax(1), p.shape[1], answers.argmax(1) == truth
        told = {"judge": str(by.folder), "judge_accuracy": float(right.double().mean()), "accuracy_on": "the real images"} | found
        if label is not None:
            return told | {"recognised": float((guess == data.labels.index(label)).double().mean())}
        return told | which_classes(guess, truth, classes)

    return verdict


def inception_of(run: Run, weights: str, n: int, *, label: str | None = None, device: str = "cpu") -> Verdict:
    """The same in the features of a published Inception v3, from its file."""
    network = Inception(Path(weights)).eval()
    data = rebuild(run, with_data=True).experiment.data
    enough(n, real_images(data, wanted(label, data, run)), label)

    def verdict(images: Tensor) -> dict[str, Any]:
        found, _ = compared(data, network.to(pick_device(device)), images, label=label, device=device, batch=64)
        return {"judge": f"Inception v3 of {weights}", "judge_accuracy": "not measured", "accuracy_on": "its classes are others", **found}

    return verdict


def real_images(data: Data, k: int | None) -> int:
    """How many the test split has, of class k where one is asked for."""
    return len(data.test) if k is None else data.counts["test"][k]


def enough(drawn: int, real: int, label: str | None) -> None:
    if min(drawn, real) < LEAST:
        whose, then = "" if label is None else f" of {label!r}", "raise --n" if drawn < LEAST else "leave out the judge, or train on more"
        raise UsageError(f"at least {LEAST} drawn and {LEAST} test images can be compared, got {drawn} and {real}{whose}; {then}")


def compared(
    data: Data, judge: Judge, images: Tensor, *, label: str | None, device: str, batch: int = 512
) -> tuple[dict[str, Any], tuple[Tensor, Tensor, Tensor]]:
    """The scores; probabilities of the drawn, of the real, and the labels of these."""
    place = pick_device(device)
    real, answers, truth = looked_at(judge, data.test, place, batch)
    if label is not None:
        real, answers, truth = (rows[truth == data.labels.index(label)] for rows in (real, answers, truth))
    enough(len(images), len(real), label)                # of the first images, which are not always all
    drawn, p, _ = looked_at(judge, Resident({"x": images}), place, batch)
    precision, recall = manifold(real, drawn)
    found = {
        "features": drawn.shape[1], "drawn": len(drawn), "real": len(real), "split": "test" if label is None else f"test, {label} alone",
        "frechet": float(frechet(real, drawn)), "kernel_distance": float(kernel_distance(real, drawn)),
        "precision": float(precision), "recall": float(recall),
        "inception_score": float(inception_score(p)), "confidence": float(p.max(1).values.mean()),
        "confidence_in_real": float(answers.max(1).values.mean()),      # more than this is not to be asked of drawn ones
    }
    return found, (p, answers, truth)
