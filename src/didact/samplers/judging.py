"""Drawn images judged by a classifier of didact's own; which one, its accuracy and the counts go with every score."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from didact.data.core import Resident, Split
from didact.errors import UsageError
from didact.metrics.generative import class_coverage, class_entropy, frechet, inception_score, kernel_distance, manifold
from didact.objectives.abilities import Classifies
from didact.objectives.core import Objective
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.session import rebuild, restored

MOST = 10_000   # real images that are read


@contextmanager
def listening(objective: Objective) -> Iterator[list[Tensor]]:
    """What enters the last affine layer: the classifier's features."""
    layers = [m for m in objective.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise UsageError("the judge has no affine layer at its end to take features from; train `didact train cnn` on the same data")
    heard: list[Tensor] = []
    handle = layers[-1].register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0].float().flatten(1)))
    try:
        yield heard
    finally:
        handle.remove()


@torch.no_grad()
def looked_at(objective: Objective, split: Split, batch: int = 512) -> tuple[Tensor, Tensor, Tensor]:
    """Features, probabilities and labels (where there are any) of a split's first images."""
    assert isinstance(objective, Classifies)
    p, y = [], []
    with listening(objective) as heard:
        for stored in split.batches(torch.arange(min(MOST, len(split))).split(batch)):
            rows = split.decode(stored)
            p.append(objective.classify(rows))
            y.append(rows.get("y", torch.zeros(0)).long())
    return torch.cat(heard), torch.cat(p), torch.cat(y)


def judged(run: Run, by: Run, n: int, *, seed: int = 0, **way: Any) -> dict[str, Any]:
    """n images of the run, drawn in that way, beside its test split, as another run's classifier sees both."""
    referee, its_data = restored(by)
    data = rebuild(run, with_data=True).experiment.data
    if not isinstance(referee, Classifies):
        raise UsageError(f"the judge {by.folder} does not classify; train one with: didact train cnn --data {data.name}")
    if its_data.shape != data.shape:
        raise UsageError(f"the judge learned images of {its_data.shape}, but these are {data.shape}; train one with --data {data.name}")
    real, answers, truth = looked_at(referee, data.test)
    drawn, p, _ = looked_at(referee, Resident({"x": draw(run, n, seed=seed, **way)}))
    precision, recall = manifold(real, drawn)
    found = {
        "judge": str(by.folder), "features": drawn.shape[1], "drawn": len(drawn), "real": len(real), "split": "test",
        "frechet": float(frechet(real, drawn)), "kernel_distance": float(kernel_distance(real, drawn)),
        "precision": float(precision), "recall": float(recall),
        "inception_score": float(inception_score(p)), "confidence": float(p.max(1).values.mean()),
    }
    if len(truth) and its_data.labels == data.labels:
        guess, classes = p.argmax(1), p.shape[1]
        found |= {
            "judge_accuracy": float((answers.argmax(1) == truth).double().mean()),
            "class_coverage": float(class_coverage(guess, truth, classes)), "class_entropy": float(class_entropy(guess, classes)),
        }
    return found
