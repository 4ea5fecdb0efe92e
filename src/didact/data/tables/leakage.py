"""Leakage: columns that alone tell the target, as a copy of it does, or a number that is known only afterwards."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS
from didact.data.checks import summarize_list
from didact.data.tables.columns import CategoricalColumn, Column

_MIN_SCORE = 0.999            # AUC, R² or accuracy of one column alone, from which on it is named
_MAX_MAJORITY = 0.99          # share of the most frequent class, from which on a high accuracy says little
_MAX_ROWS = 10_000            # training rows that are looked at
_MIN_ROWS = 30                # in fewer a column may tell the target by chance
_MAX_GROUPS = 50              # different values of a column that are taken for categories
_CHUNK_COLUMNS = 1_000        # features that are ranked at once


def describe_leaks(columns: Sequence[Column], x: Tensor, y: Tensor, task: str, train: Tensor) -> list[str]:
    """A note on the columns that alone tell the target of the training rows: x (N, features), y (N,)."""
    x, y = _select_rows(x, y, train)
    if len(y) < _MIN_ROWS or task not in (*CLASSIFICATION_TASKS, "regression"):
        return []
    features, target = x.numpy().astype(np.float64), y.numpy().astype(np.float64)
    if len(np.unique(target)) < 2:
        return []
    scores = _score_numbers(features, target, task)
    found = []
    start = 0
    for column in columns:
        width = len(column.feature_names)
        part = features[:, start : start + width]
        score, measure = (0.0, "") if isinstance(column, CategoricalColumn) else scores[start]
        groups = _find_groups(part)
        if score < _MIN_SCORE and groups is not None:
            score, measure = _score_groups(groups, target, task)
        if score >= _MIN_SCORE:
            found.append(f"{column.name!r} ({measure} {score:.4f})")
        start += width
    if not found:
        return []
    names = "columns" if len(found) > 1 else "column"
    each = "each alone tell" if len(found) > 1 else "alone tells"
    return [
        f"{names} {summarize_list(found)} {each} the target: leave out with --drop what would not be known beforehand"
    ]


def _select_rows(x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Their inputs and targets, or an even choice of them where they are many."""
    step = max(1, len(rows) // _MAX_ROWS)
    chosen = rows[torch.arange(0, len(rows), step)]
    return x[chosen], y[chosen]


def _score_numbers(x: NDArray[np.float64], y: NDArray[np.float64], task: str) -> list[tuple[float, str]]:
    """The AUC of each feature for two classes; the larger of R² and squared rank correlation for a number."""
    scores: list[tuple[float, str]] = []
    for start in range(0, x.shape[1], _CHUNK_COLUMNS):
        part = x[:, start : start + _CHUNK_COLUMNS]
        if task == "binary":
            auc = _compute_auc(part, y)
            scores += [(float(v), "AUC") for v in np.maximum(auc, 1 - auc)]
        elif task == "regression":
            linear, monotone = _correlate(part, y), _correlate(_rank(part), _rank(y[:, None])[:, 0])
            scores += [(float(v), "R²") for v in np.maximum(linear, monotone)]
        else:
            scores += [(0.0, "")] * part.shape[1]
    return scores


def _rank(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of each column, ties sharing their mean."""
    import pandas as pd

    ranks: NDArray[np.float64] = pd.DataFrame(x).rank().to_numpy()
    return ranks


def _compute_auc(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mann–Whitney: (Σ ranks of the positive rows − n₁ (n₁ + 1)/2) / (n₁ n₀), of each column."""
    is_positive = y == y.max()
    n1, n0 = int(is_positive.sum()), int((~is_positive).sum())
    auc: NDArray[np.float64] = (_rank(x)[is_positive].sum(0) - n1 * (n1 + 1) / 2) / (n1 * n0)
    return auc


def _correlate(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """r² of each column with y; 0 where one is constant."""
    dx, dy = x - x.mean(0), y - y.mean()
    denominator = (dx**2).sum(0) * (dy**2).sum()
    r2: NDArray[np.float64] = np.divide((dx.T @ dy) ** 2, denominator, out=np.zeros(x.shape[1]), where=denominator > 0)
    return r2


def _find_groups(part: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The group of each row by a column of few different values; None where they are many, or one."""
    if part.shape[1] == 1 and len(np.unique(part[:200])) > _MAX_GROUPS:
        return None
    values, groups = np.unique(part, axis=0, return_inverse=True) if part.shape[1] > 1 else np.unique(
        part[:, 0], return_inverse=True
    )
    limit = min(_MAX_GROUPS, len(part) // 10)
    return groups.reshape(-1).astype(np.int64) if 1 < len(values) <= limit else None


def _score_groups(groups: NDArray[np.int64], y: NDArray[np.float64], task: str) -> tuple[float, str]:
    """How well the most frequent class, or the mean, of each group tells the target."""
    if task == "regression":
        counts = np.bincount(groups)
        means = np.bincount(groups, weights=y) / np.maximum(counts, 1)
        return float(1 - ((y - means[groups]) ** 2).sum() / ((y - y.mean()) ** 2).sum()), "R²"
    table = np.zeros((groups.max() + 1, int(y.max()) + 1))
    np.add.at(table, (groups, y.astype(np.int64)), 1)
    accuracy = float(table.max(1).sum() / len(y))
    share = float(np.bincount(y.astype(np.int64)).max() / len(y))
    return (accuracy, "accuracy") if share < _MAX_MAJORITY else (0.0, "")
