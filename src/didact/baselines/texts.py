"""Baselines of texts: TF-IDF of words and of pieces of characters, with logistic regression or ridge.

On short texts, and where there are few, they are hard to beat: Wang and Manning 2012.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.baselines.core import Baseline, predict_probabilities, score_predictions
from didact.data.core import Data, TensorSplit
from didact.data.text.token_choice import TextStatistics

_TASKS = ("binary", "multiclass", "regression")
_MAX_TEXTS = 20_000            # that a model is fitted to; more are thinned out
_MAX_CHARACTERS = 5_000_000    # of all texts that are cut into pieces; of longer ones words are as good, and cheaper
_MAX_FEATURES = 100_000        # the most frequent words or pieces

WORD_OPTIONS: dict[str, Any] = {"ngram_range": (1, 2)}
PIECE_OPTIONS: dict[str, Any] = {"analyzer": "char", "ngram_range": (2, 5)}


@dataclass(frozen=True)
class _TextRows:
    """Texts and targets: those that models are fitted to, of training and validation, and those of the test split."""

    fit: list[str]
    test: list[str]
    fit_y: Tensor
    test_y: Tensor
    num_rows: int              # of training and validation, before they are thinned out


def fit_text_baselines(data: Data) -> Iterator[Baseline]:
    """The mean or class shares; TF-IDF of words, and of pieces, with logistic regression or ridge.

    None where the texts are not at hand, or the targets are neither classes nor numbers.
    """
    rows = _collect_rows(data)
    if rows is None:
        return
    note = f", on {len(rows.fit):,} of {rows.num_rows:,} texts" if len(rows.fit) < rows.num_rows else ""
    is_regression = data.task == "regression"

    def score(name: str, description: str, predict: Callable[[], NDArray[np.float64]]) -> Baseline:
        start = time.perf_counter()
        metrics = score_predictions(data, predict(), rows.test_y)
        return Baseline(name, description + note, metrics, time.perf_counter() - start)

    constant = "mean" if is_regression else "class shares"
    yield score(constant, f"the {constant} of the training texts for every text", lambda: _predict_constant(data, rows))
    model = "ridge regression" if is_regression else "logistic regression"
    if _has_pieces(rows.fit, WORD_OPTIONS):
        yield score(
            "TF-IDF of words",
            f"words and pairs of words by TF-IDF, {model}",
            lambda: _fit_tf_idf(data, rows, WORD_OPTIONS),
        )
    # in names and formulas capitals matter
    options = {**PIECE_OPTIONS, "lowercase": TextStatistics.measure(rows.fit).is_prose}
    num_characters = sum(map(len, rows.fit)) + sum(map(len, rows.test))
    if num_characters <= _MAX_CHARACTERS and _has_pieces(rows.fit, options):
        yield score(
            "TF-IDF of characters",
            f"pieces of 2 to 5 characters by TF-IDF, {model}",
            lambda: _fit_tf_idf(data, rows, options),
        )


def _collect_rows(data: Data) -> _TextRows | None:
    """The texts of a dataset; evenly spaced ones where there are too many to fit a model to."""
    splits = {part: data.split(part) for part in ("train", "validation", "test")}
    texts = {part: data.read_texts(part) for part in splits}
    if data.task not in _TASKS or any(len(texts[part]) != len(split) for part, split in splits.items()):
        return None
    y = {part: split.columns["y"].cpu() for part, split in splits.items() if isinstance(split, TensorSplit)}
    fit, fit_y = texts["train"] + texts["validation"], torch.cat([y["train"], y["validation"]])
    index = torch.linspace(0, len(fit) - 1, min(len(fit), _MAX_TEXTS)).long()
    return _TextRows([fit[i] for i in index.tolist()], texts["test"], fit_y[index], y["test"], len(fit))


def _predict_constant(data: Data, rows: _TextRows) -> NDArray[np.float64]:
    if data.task == "regression":
        return np.full(len(rows.test), float(rows.fit_y.double().mean()))
    shares = np.bincount(rows.fit_y.numpy(), minlength=data.num_classes) / len(rows.fit_y)
    return np.tile(shares, (len(rows.test), 1))


def _has_pieces(texts: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Whether any text has something to be counted: words of one letter, say, are left out."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return any(map(TfidfVectorizer(**options).build_analyzer(), texts))


def make_tf_idf_pipeline(task: str, options: Mapping[str, Any], max_features: int | None = None) -> Any:
    """scikit-learn's TF-IDF with logistic regression, or ridge for numbers."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    model = Ridge() if task == "regression" else LogisticRegression(max_iter=300)
    return make_pipeline(TfidfVectorizer(max_features=max_features, **options), model)


def _fit_tf_idf(data: Data, rows: _TextRows, options: Mapping[str, Any]) -> NDArray[np.float64]:
    """Predicted numbers, or the probability of each class."""
    pipeline = make_tf_idf_pipeline(data.task, options, _MAX_FEATURES).fit(rows.fit, rows.fit_y.numpy())
    if data.task == "regression":
        return np.asarray(pipeline.predict(rows.test))
    return predict_probabilities(pipeline, rows.test, data.num_classes)
