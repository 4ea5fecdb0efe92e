"""Baselines of tables: the mean or majority, linear models, gradient boosting.

Gradient boosting is what a network has to be compared with on a table: Grinsztajn et al. 2022.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.baselines.core import Baseline, predict_probabilities, score_predictions
from didact.data.core import Batch, Data, TensorSplit
from didact.data.tables.columns import CategoricalColumn
from didact.data.tables.table import TableEncoder

_TASKS = ("binary", "multiclass", "multilabel", "regression")
_MAX_CELLS = 20_000_000       # rows times features that a model is fitted to; more rows are thinned out
_MAX_BOOSTED_FEATURES = 2_000
Numbers = NDArray[np.float64]         # (N,), or (N, K) probabilities
Features = NDArray[np.float64]


def fit_table_baselines(data: Data) -> Iterator[Baseline]:
    """Each is fitted to the training and validation rows and scored on the test rows."""
    if data.task not in _TASKS:
        return
    is_regression = data.task == "regression"
    rows = _select_rows(data)
    fit_x, fit_y = rows["x"].double().numpy(), rows["y"].double().numpy()
    test = _read_rows(data.test)
    test_x, test_y = test["x"].double().numpy(), test["y"]
    note = f", on {len(fit_y):,} of the rows" if len(fit_y) == _max_rows(data) else ""

    def score(name: str, description: str, predict: Callable[[], NDArray[np.float64]]) -> Iterator[Baseline]:
        start = time.perf_counter()
        try:
            prediction = predict()
        except ValueError:                     # rows of a single class, a matrix that is singular: there is none then
            return
        metrics = score_predictions(data, prediction, test_y)
        yield Baseline(name, description + note, metrics, time.perf_counter() - start)

    name = "mean" if is_regression else "class shares"
    description = f"the {name} of the training rows for every row"
    yield from score(name, description, lambda: _predict_constant(data, fit_y, test_y))
    weight = rows["weight"].double().numpy() if "weight" in rows else None

    def fit_each(fit: Callable[[Numbers, int], Numbers]) -> Numbers:
        """Of several labels a model for each, and the probability that it is 1."""
        if data.task == "multilabel":
            return np.stack([fit(label, 2)[:, 1] for label in fit_y.T], axis=1)
        return fit(fit_y, data.num_classes)

    yield from score(
        *_describe_linear(is_regression), lambda: fit_each(lambda y, k: _fit_linear(fit_x, y, k, weight, test_x))
    )
    if data.num_features <= _MAX_BOOSTED_FEATURES:
        yield from score(
            "gradient boosting",
            f"scikit-learn's histogram gradient boosting, 100 trees{'' if is_regression else ' for each class'}",
            lambda: fit_each(lambda y, k: _fit_boosting(data, fit_x, y, k, weight, test_x)),
        )


def _read_rows(split: Any) -> Batch:
    assert isinstance(split, TensorSplit)
    return {name: column.cpu() for name, column in split.batch(torch.arange(len(split), device=split.device)).items()}


def _select_rows(data: Data) -> Batch:
    """Training and validation rows; evenly spaced ones where there are too many."""
    # where training and validation rows are pooled for folds, both splits are all of them
    splits = [data.train] if data.train is data.validation else [data.train, data.validation]
    parts = [_read_rows(split) for split in splits]
    rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    n, limit = len(rows["y"]), _max_rows(data)
    index = torch.linspace(0, n - 1, limit).long() if n > limit else torch.arange(n)
    return {name: column[index] for name, column in rows.items()}


def _max_rows(data: Data) -> int:
    return max(1_000, _MAX_CELLS // data.num_features)


def _predict_constant(data: Data, fit_y: NDArray[np.float64], test_y: Tensor) -> NDArray[np.float64]:
    if data.task == "regression":
        return np.full(len(test_y), fit_y.mean())
    if data.task == "multilabel":
        return np.tile(fit_y.mean(0), (len(test_y), 1))
    shares = np.bincount(fit_y.astype(int), minlength=data.num_classes) / len(fit_y)
    return np.tile(shares, (len(test_y), 1))


def _describe_linear(is_regression: bool) -> tuple[str, str]:
    if is_regression:
        return "ridge regression", "linear, on standardized features, its penalty by leave-one-out cross-validation"
    return "logistic regression", "linear, on standardized features, an L2 penalty of 1"


def _fit_linear(
    fit_x: Features, fit_y: Numbers, num_classes: int, weight: Numbers | None, test_x: Features
) -> Numbers:
    """Predicted numbers, or probabilities of the classes where there are some."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not num_classes:
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
        return np.asarray(ridge.fit(fit_x, fit_y, ridgecv__sample_weight=weight).predict(test_x))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    model.fit(fit_x, fit_y, logisticregression__sample_weight=weight)
    return predict_probabilities(model, test_x, num_classes)


def _fit_boosting(
    data: Data, fit_x: Features, fit_y: Numbers, num_classes: int, weight: Numbers | None, test_x: Features
) -> Numbers:
    """Predicted numbers, or probabilities of the classes where there are some."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    is_categorical, fit_cells, test_cells = _to_cells(data, fit_x, test_x)
    kind = HistGradientBoostingClassifier if num_classes else HistGradientBoostingRegressor
    model = kind(categorical_features=is_categorical, random_state=0)
    model.fit(fit_cells, fit_y, sample_weight=weight)
    if not num_classes:
        return np.asarray(model.predict(test_cells))
    return predict_probabilities(model, test_cells, num_classes)


def _to_cells(data: Data, *parts: Features) -> tuple[list[bool], Features, Features]:
    """One column a category again, as trees split it, in place of its 0/1 features."""
    columns = data.encoder.columns if isinstance(data.encoder, TableEncoder) else ()
    widths = [len(column.feature_names) for column in columns]
    if sum(widths) != data.num_features:
        return [False] * data.num_features, *parts  # type: ignore[return-value]
    starts = np.cumsum([0, *widths])
    cells: list[list[NDArray[np.float64]]] = [[] for _ in parts]
    is_categorical: list[bool] = []
    for column, start, width in zip(columns, starts, widths, strict=False):
        is_category = isinstance(column, CategoricalColumn) and width < 255      # scikit-learn's limit
        is_categorical += [True] if is_category else [False] * width
        for part, out in zip(parts, cells, strict=True):
            x = part[:, start : start + width]
            out.append(np.where(x.any(1), x.argmax(1), np.nan)[:, None] if is_category else x)
    return is_categorical, *(np.concatenate(part_cells, axis=1) for part_cells in cells)  # type: ignore[return-value]
