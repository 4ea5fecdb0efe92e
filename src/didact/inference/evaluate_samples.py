"""Sample quality in a classifier's features: FID, KID, precision and recall (`didact sample RUN --classifier RUN`).

The classifier is one of didact's own or the published Inception v3. Which one it is, its accuracy, how many images it
saw and of which split go with every score.
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

_MAX_REAL_IMAGES = 10_000   # real images that are used
_MIN_IMAGES = 5             # of each kind: precision and recall use the third nearest neighbor
QualityScorer = Callable[[Tensor], dict[str, Any]]
_HALF_RGB = torch.full((3, 1, 1), 0.5)


class ImageClassifier(Protocol):
    """A module that classifies images."""

    def classify(self, batch: Batch) -> Tensor: ...
    def modules(self) -> Iterator[nn.Module]: ...


class InceptionFeatures(nn.Module):
    """Inception v3 with the preprocessing it was trained with: color, 299×299, its own mean and standard deviation."""

    def __init__(self, path: Path):
        super().__init__()
        head = read_weights(path).get("fc.weight", torch.empty(0))
        num_classes = head.shape[0] if head.ndim == 2 and head.numel() else 1   # a file may claim a shape of (10⁹, 0)
        is_2015_file = num_classes == FID_NUM_CLASSES                           # which takes pixels in [−1, 1]
        self.network = InceptionV3(num_classes=num_classes)
        report = load_weights(self.network, path)
        if report.missing or report.reshaped:
            raise UsageError(
                f"{path} is not Inception v3 of torchvision or the 2015 file of FID ({report}); give one of these"
            )
        self.standardize = Standardize(*((_HALF_RGB, _HALF_RGB) if is_2015_file else (IMAGENET_MEAN, IMAGENET_STD)))

    def classify(self, batch: Batch) -> Tensor:
        x = batch["x"] if batch["x"].shape[1] == 3 else batch["x"].mean(1, keepdim=True).expand(-1, 3, -1, -1)
        out: Tensor = self.network(
            self.standardize(F.interpolate(x, (INPUT_PIXELS, INPUT_PIXELS), mode="bilinear", align_corners=False))
        )
        return out.softmax(1)


def _classifier_head(classifier: ImageClassifier) -> nn.Linear:
    """The linear layer whose inputs are the classifier's features."""
    layers = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise UsageError(
            "the classifier has no linear layer at its end to take features from; train one with: didact train cnn"
        )
    return layers[-1]


@contextmanager
def capture_features(classifier: ImageClassifier) -> Iterator[list[Tensor]]:
    """Inside, the inputs of the last linear layer are recorded: the classifier's features."""
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
        for stored in split.batches(torch.arange(min(_MAX_REAL_IMAGES, len(split))).split(batch_size)):
            rows = {name: column.to(device) for name, column in split.decode(stored).items()}
            p.append(classifier.classify(rows))
            y.append(rows.get("y", torch.zeros(0, device=device)).long())
    return torch.cat(features), torch.cat(p), torch.cat(y)


def quality_vs_classifier(
    run: Run, classifier_run: Run, images: Tensor, *, label: str | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """The quality of a run's samples against its test split, or one class of it, in a classifier's features.

    `class_accuracy` is the fraction of samples of the requested class that the classifier assigns to it; without a
    class, the metrics of class coverage stand in its place.
    """
    return classifier_quality(run, classifier_run, len(images), label=label, device=device)(images)


def classifier_quality(
    run: Run, classifier_run: Run, n: int, *, label: str | None = None, device: str = "cpu"
) -> QualityScorer:
    """A function that scores n images; what does not fit together is refused here, before anything is sampled."""
    classifier, classifier_data = load_model(classifier_run)
    data = rebuild(run, with_data=True).experiment.data
    if not isinstance(classifier, CanClassify):
        raise UsageError(
            f"{classifier_run.folder} is no classifier; train one with: didact train cnn --data {data.name}"
        )
    if classifier_data.shape != data.shape:
        raise UsageError(
            f"the classifier was trained on images of {classifier_data.shape}, but these are {data.shape}; train one "
            f"with --data {data.name}"
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
                "classifier": str(classifier_run.folder),
                "classifier_accuracy": accuracy,
                "accuracy_on": f"the test split of {classifier_data.name}",
                **scores,
            }
        predicted, num_classes, is_correct = p.argmax(1), p.shape[1], real_probabilities.argmax(1) == labels
        result = {
            "classifier": str(classifier_run.folder),
            "classifier_accuracy": float(is_correct.double().mean()),
            "accuracy_on": "the real images",
        } | scores
        if label is not None:
            return result | {"class_accuracy": float((predicted == data.class_names.index(label)).double().mean())}
        return result | class_metrics(predicted, labels, num_classes)

    return score_images


def inception_quality(
    run: Run, weights: str, n: int, *, label: str | None = None, device: str = "cpu"
) -> QualityScorer:
    """The same in the features of a published Inception v3, from its weights file."""
    network = InceptionFeatures(Path(weights)).eval()
    data = rebuild(run, with_data=True).experiment.data
    _check_sample_size(n, _count_real_images(data, class_index(label, data, run)), label)

    def score_images(images: Tensor) -> dict[str, Any]:
        scores, _ = _quality_metrics(
            data, network.to(resolve_device(device)), images, label=label, device=device, batch_size=64
        )
        return {
            "classifier": f"Inception v3 of {weights}",
            "classifier_accuracy": "not measured",
            "accuracy_on": "none: its classes are not those of the data",
            **scores,
        }

    return score_images


def _count_real_images(data: Data, class_index: int | None) -> int:
    """The number of test images, or of those of one class."""
    return len(data.test) if class_index is None else data.class_counts["test"][class_index]


def _check_sample_size(num_samples: int, num_real: int, label: str | None) -> None:
    if min(num_samples, num_real) < _MIN_IMAGES:
        of_class, remedy = (
            "" if label is None else f" of {label!r}",
            "raise --num-samples" if num_samples < _MIN_IMAGES else "leave out --classifier, or train on more",
        )
        raise UsageError(
            f"expected at least {_MIN_IMAGES} samples and {_MIN_IMAGES} test images, got {num_samples} and "
            f"{num_real}{of_class}; {remedy}"
        )


def _quality_metrics(
    data: Data, classifier: ImageClassifier, images: Tensor, *, label: str | None, device: str, batch_size: int = 512
) -> tuple[dict[str, Any], tuple[Tensor, Tensor, Tensor]]:
    """The metrics; and the probabilities of the samples, those of the real images, and the labels of these."""
    torch_device = resolve_device(device)
    real, real_probabilities, labels = _extract_features(classifier, data.test, torch_device, batch_size)
    if label is not None:
        real, real_probabilities, labels = (
            rows[labels == data.class_names.index(label)] for rows in (real, real_probabilities, labels)
        )
    _check_sample_size(len(images), len(real), label)    # again: only the first _MAX_REAL_IMAGES were used
    sampled, p, _ = _extract_features(classifier, TensorSplit({"x": images}), torch_device, batch_size)
    precision, recall = manifold_precision_recall(real, sampled)
    scores = {
        "features": sampled.shape[1],
        "samples": len(sampled),
        "real_images": len(real),
        "split": "test" if label is None else f"test, {label} only",
        "frechet": float(gaussian_frechet_distance(real, sampled)),
        "kernel_distance": float(kernel_distance(real, sampled)),
        "precision": float(precision),
        "recall": float(recall),
        "inception_score": float(inception_score(p)),
        "confidence": float(p.max(1).values.mean()),
        # the confidence that perfect samples would have
        "confidence_in_real": float(real_probabilities.max(1).values.mean()),
    }
    return scores, (p, real_probabilities, labels)
