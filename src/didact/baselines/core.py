"""Baselines of any data, and their scores in the metrics of a run."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.core import Data, TensorSplit
from didact.objectives.supervised import likelihood_for

# the function of each kind of data: its module is imported when it is needed
_FITTERS = {
    "table": "tables.fit_table_baselines",
    "series": "series.fit_series_baselines",
    "text": "texts.fit_text_baselines",
}


@dataclass(frozen=True)
class Baseline:
    """A simple model that was fitted and scored on the test rows of a run."""

    name: str
    description: str
    metrics: dict[str, float]
    seconds: float


def has_baselines(data: Data) -> bool:
    """Whether there are baselines for this kind of data, and its examples are in memory."""
    return data.kind in _FITTERS and all(isinstance(s, TensorSplit) for s in (data.train, data.test))


def fit_baselines(data: Data) -> Iterator[Baseline]:
    """The baselines of these data, one after the other as they are fitted; none where there are none."""
    if not has_baselines(data):
        return
    module, _, function = _FITTERS[data.kind].partition(".")
    fit: Callable[[Data], Iterator[Baseline]] = getattr(import_module(f"didact.baselines.{module}"), function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")        # of scikit-learn, on steps that did not converge
        try:
            yield from fit(data)
        except ValueError:                     # rows of a single class, say: no baseline may end a finished training
            return


def predict_probabilities(model: Any, x: Any, num_classes: int) -> NDArray[np.float64]:
    """(N, K) of a fitted classifier of scikit-learn: 0 for a class that the fitted rows lack."""
    given = model.predict_proba(x)
    probabilities = np.zeros((len(given), num_classes))
    probabilities[:, model.classes_.astype(int)] = given
    return probabilities


def score_predictions(data: Data, prediction: NDArray[np.float64], y: Tensor) -> dict[str, float]:
    """The metrics that a run on these data has, of predicted numbers (N,) or probabilities (N, K) of each class or
    label."""
    likelihood = likelihood_for(data)
    p = torch.from_numpy(np.ascontiguousarray(prediction)).double()
    if data.task == "regression":
        out = likelihood.standardize(p)[:, None]  # type: ignore[operator]
    else:
        p = p.clamp(1e-12, 1 - 1e-12)
        out = {"binary": lambda: p.logit()[:, 1:], "multilabel": p.logit, "multiclass": p.log}[data.task]()
    return likelihood.compute_metrics(out, y.cpu())
