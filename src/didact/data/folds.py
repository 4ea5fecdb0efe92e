"""Folds of K-fold cross-validation."""

from dataclasses import replace

import torch
from torch import Tensor

from didact.data.core import Data, TensorSplit


def assign_folds(n: int, strata: Tensor | None, num_folds: int, *, seed: int = 0) -> Tensor:
    """The fold of each of n examples: shuffled, of equal size, and with the same share of each class."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if strata is not None:
        order = order[strata.cpu()[order].argsort(stable=True)]    # by class, shuffled inside it
    folds = torch.empty(n, dtype=torch.long)
    folds[order] = torch.arange(n) % num_folds
    return folds


def pool_folds(data: Data, num_folds: int, *, seed: int = 0) -> Data:
    """Training and validation rows together, as both splits, with a column "fold".

    For objectives that predict a row of a fold by what was not trained on it. The test split has no folds.
    """
    train, validation = data.train, data.validation
    if not (isinstance(train, TensorSplit) and isinstance(validation, TensorSplit)):
        return data                            # a run is rebuilt without its examples
    columns = {name: torch.cat([column, validation.columns[name]]) for name, column in train.columns.items()}
    y = columns["y"]
    is_class = data.task in ("binary", "multiclass")
    columns["fold"] = assign_folds(len(y), y if is_class else None, num_folds, seed=seed).to(y.device)
    pooled = TensorSplit(columns, train.decoders)
    return replace(data, train=pooled, validation=pooled)
