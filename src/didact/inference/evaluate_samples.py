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

from didact.data.core import Batch, Data, Split, TensorSplit
from didact.errors import UsageError
from didact.inference.sample_images import class_index
from didact.layers.standardize import Standardize
from didact.metrics.generative import (
    class_metrics,
    gaussian_frechet_distance,
    inception_score,
    kernel_distance,
    manifold_precision_recall,
)
from didact.models.pretrained.weights import IMAGENET_MEAN, IMAGENET_STD, load_weights, read_weights
from didact.models.vision.inception import FID_NUM_CLASSES, INPUT_PIXELS, InceptionV3
from didact.objectives.abilities import CanClassify
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.restore import load_model, rebuild

MAX_REAL_IMAGES = 10_000   # real images that are read
MIN_IMAGES = 5       # on each side: a ball reaches to the third neighbour
QualityScorer = Callable[[Tensor], dict[str, Any]]
HALF_RGB = torch.full((3, 1, 1), 0.5)


class ImageClassifier(Protocol):
    """A module that gives each class a probability."""

    def classify(self, batch: Batch) -> Tensor: ...
    def modules(self) -> Iterator[nn.Module]: ...


class InceptionFeatures(nn.Module):
    """Any image as the published network saw its own: in colour, 299×299, and with its mean and deviation."""

    def __init__(self, path: Path):
        super().__init__()
        head = read_weights(path).get("fc.weight", torch.empty(0))
        num_classes = head.shape[0] if head.ndim == 2 and head.numel() else 1   # a shape of (10⁹, 0) needs no bytes
        is_2015_file = num_classes == FID_NUM_CLASSES                         # which saw pixels in [−1, 1]
        self.network = InceptionV3(num_classes=num_classes)
        report = load_weights(self.network, path)
        if report.missing or report.reshaped:
            raise UsageError(
                f"{path} is not Inception v3 as torchvision or the 2015 file of FID name it ({report}); give one of "
                "these"
            )
        self.standardize = Standardize(*((HALF_RGB, HALF_RGB) if is_2015_file else (IMAGENET_MEAN, IMAGENET_STD)))

    def classify(self, batch: Batch) -> Tensor:
        x = batch["x"] if batch["x"].shape[1] == 3 else batch["x"].mean(1, keepdim=True).expand(-1, 3, -1, -1)
        out: Tensor = self.network(
            self.standardize(F.interpolate(x, (INPUT_PIXELS, INPUT_PIXELS), mode="bilinear", align_corners=False))
        )
        return out.softmax(1)


def _classifier_head(classifier: ImageClassifier) -> nn.Linear:
    """The affine layer whose inputs are the classifier's features."""
    layers = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise UsageError(
            "the judge has no affine layer at its end to take features from; train `didact train cnn` on the same data"
        )
    return layers[-1]


@contextmanager
def capture_features(classifier: ImageClassifier) -> Iterator[list[Tensor]]:
    """What enters the last affine layer: the classifier's features."""
    features: list[Tensor] = []
    handle = _classifier_head(classifier).register_forward_pre_hook(
        lambda _, inputs: features.append(inputs[0].float().flatten(1))
    )
    try:
        yield features
    finally:
        handle.remove()


@torch.no_grad()
def _extract_features(
    classifier: ImageClassifier, split: Split, device: torch.device, batch_size: int = 512
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, probabilities and labels (where there are any) of a split's first images."""
    p, y = [], []
    with capture_features(classifier) as features:
        for stored in split.batches(torch.arange(min(MAX_REAL_IMAGES, len(split))).split(batch_size)):
            rows = {name: column.to(device) for name, column in split.decode(stored).items()}
            p.append(classifier.classify(rows))
            y.append(rows.get("y", torch.zeros(0, device=device)).long())
    return torch.cat(features), torch.cat(p), torch.cat(y)


def quality_vs_classifier(
    run: Run, classifier_run: Run, images: Tensor, *, label: str | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Images that the run drew beside its test split, or the one class of it that was asked for, as another run's
    classifier sees both.

    `recognised` is the share of drawn images of one class that the judge takes for it; of all classes it says how
    many are there.
    """
    return classifier_quality(run, classifier_run, len(images), label=label, device=device)(images)


def classifier_quality(
    run: Run, classifier_run: Run, n: int, *, label: str | None = None, device: str = "cpu"
) -> QualityScorer:
    """Who will judge n images, opened and checked: what does not fit is said before anything is drawn."""
    classifier, classifier_data = load_model(classifier_run)
    data = rebuild(run, with_data=True).experiment.data
    if not isinstance(classifier, CanClassify):
        raise UsageError(
            f"the judge {classifier_run.folder} does not classify; train one with: didact train cnn --data {data.name}"
        )
    if classifier_data.shape != data.shape:
        raise UsageError(
            f"the judge learned images of {classifier_data.shape}, but these are {data.shape}; train one with --data "
            f"{data.name}"
        )
    _classifier_head(classifier)
    _check_sample_size(n, _count_real_images(data, class_index(label, data, run)), label)

    def score_images(images: Tensor) -> dict[str, Any]:
        scores, (p, real_probabilities, labels) = _quality_metrics(
            data, classifier.to(resolve_device(device)), images, label=label, device=device
        )
        if not len(labels) or classifier_data.class_names != data.class_names:
            accuracy = classifier_run.metadata.get("test", {}).get("accuracy")
            return {
                "judge": str(classifier_run.folder),
                "judge_accuracy": accuracy,
                "accuracy_on": f"the test split of {classifier_data.name}",
                **scores,
            }
        predicted, num_classes, is_correct = p.argmax(1), p.shape[1], real_probabilities.argmax(1) == labels
        result = {
            "judge": str(classifier_run.folder),
            "judge_accuracy": float(is_correct.double().mean()),
            "accuracy_on": "the real images",
        } | scores
        if label is not None:
            return result | {"recognised": float((predicted == data.class_names.index(label)).double().mean())}
        return result | class_metrics(predicted, labels, num_classes)

    return score_images


def inception_quality(
    run: Run, weights: str, n: int, *, label: str | None = None, device: str = "cpu"
) -> QualityScorer:
    """The same in the features of a published Inception v3, from its file."""
    network = InceptionFeatures(Path(weights)).eval()
    data = rebuild(run, with_data=True).experiment.data
    _check_sample_size(n, _count_real_images(data, class_index(label, data, run)), label)

    def score_images(images: Tensor) -> dict[str, Any]:
        scores, _ = _quality_metrics(
            data, network.to(resolve_device(device)), images, label=label, device=device, batch_size=64
        )
        return {
            "judge": f"Inception v3 of {weights}",
            "judge_accuracy": "not measured",
            "accuracy_on": "its classes are others",
            **scores,
        }

    return score_images


def _count_real_images(data: Data, class_index: int | None) -> int:
    """How many the test split has, of class k where one is asked for."""
    return len(data.test) if class_index is None else data.class_counts["test"][class_index]


def _check_sample_size(num_drawn: int, num_real: int, label: str | None) -> None:
    if min(num_drawn, num_real) < MIN_IMAGES:
        of_class, remedy = (
            "" if label is None else f" of {label!r}",
            "raise --num-samples" if num_drawn < MIN_IMAGES else "leave out the judge, or train on more",
        )
        raise UsageError(
            f"at least {MIN_IMAGES} drawn and {MIN_IMAGES} test images can be compared, got {num_drawn} and "
            f"{num_real}{of_class}; {remedy}"
        )


def _quality_metrics(
    data: Data, classifier: ImageClassifier, images: Tensor, *, label: str | None, device: str, batch_size: int = 512
) -> tuple[dict[str, Any], tuple[Tensor, Tensor, Tensor]]:
    """The scores; probabilities of the drawn, of the real, and the labels of these."""
    torch_device = resolve_device(device)
    real, real_probabilities, labels = _extract_features(classifier, data.test, torch_device, batch_size)
    if label is not None:
        real, real_probabilities, labels = (
            rows[labels == data.class_names.index(label)] for rows in (real, real_probabilities, labels)
        )
    _check_sample_size(len(images), len(real), label)                # of the first images, which are not always all
    drawn, p, _ = _extract_features(classifier, TensorSplit({"x": images}), torch_device, batch_size)
    precision, recall = manifold_precision_recall(real, drawn)
    scores = {
        "features": drawn.shape[1],
        "drawn": len(drawn),
        "real": len(real),
        "split": "test" if label is None else f"test, {label} alone",
        "frechet": float(gaussian_frechet_distance(real, drawn)),
        "kernel_distance": float(kernel_distance(real, drawn)),
        "precision": float(precision),
        "recall": float(recall),
        "inception_score": float(inception_score(p)),
        "confidence": float(p.max(1).values.mean()),
        # more than this is not to be asked of drawn ones
        "confidence_in_real": float(real_probabilities.max(1).values.mean()),
    }
    return scores, (p, real_probabilities, labels)
