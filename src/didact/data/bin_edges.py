"""Bin edges of the features of a table: where a piecewise linear encoding has its knots."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BinEdges = tuple[tuple[float, ...], ...]

MAX_BINS = 32
_MAX_TOTAL_EDGES = 2**14     # over all features: a table of thousands of columns has fewer bins in each
_MAX_ROWS = 2**16            # evenly spaced rows from which the quantiles are computed


def compute_bin_edges(x: Tensor) -> BinEdges:
    """The edges of each feature's bins, at quantiles of the training rows (N, F); none of a constant feature.

    Where many rows share a value, quantiles coincide; the bins that are left over go to quantiles of the distinct
    values, so that the few large values among many zeros have bins as well.
    """
    n, num_features = x.shape
    num_bins = max(1, min(MAX_BINS, _MAX_TOTAL_EDGES // max(1, num_features)))
    rows = torch.linspace(0, n - 1, min(n, _MAX_ROWS)).long()
    columns = x[rows].double().cpu().numpy().T
    return tuple(tuple(float(edge) for edge in _find_edges(column, num_bins)) for column in columns)


def _find_edges(values: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    distinct = np.unique(values)
    if len(distinct) <= num_bins:
        return distinct if len(distinct) > 1 else distinct[:0]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, num_bins + 1)))
    num_left = num_bins + 1 - len(edges)
    if num_left > num_bins // 4:
        edges = np.union1d(edges, np.quantile(distinct, np.linspace(0, 1, num_left // 2 + 1)))
    return edges
