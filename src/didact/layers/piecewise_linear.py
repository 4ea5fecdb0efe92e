"""Piecewise linear encoding: a number as how far it has come through each of its bins.

    bins  |——|—|——————|      x in the second bin -> (1, 0.4, 0)

A linear layer on top is a piecewise linear function of each feature, bent where the data are dense.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

_CLIP = 3.0


class PiecewiseLinearEncoding(nn.Module):
    """e_t = clip((x − b_{t−1}) / (b_t − b_{t−1}), 0, 1) for the bins t of each feature.  Gorishniy et al. 2022, eq. 1.

    As there, the first bin is not clipped below nor the last one above. A feature of two values (one bin, as 0/1
    features have) is standardized instead; one of more values also stands there as itself, less its median, over its
    interquartile range. What is not clipped is bounded smoothly, z / √(1 + (z/3)²) (Holzmüller et al. 2024, eq. 3).
    """

    left: Tensor
    width: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, edges: Sequence[Sequence[float]], mean: Tensor | None = None, std: Tensor | None = None):
        super().__init__()
        numbers = [f for f, feature_edges in enumerate(edges) if len(feature_edges) > 2]
        two_valued = [f for f, feature_edges in enumerate(edges) if len(feature_edges) == 2]
        bins = [(f, a, b) for f in numbers for a, b in pairwise(edges[f])]
        features = [f for f, _, _ in bins]
        num_features = len(edges)
        mean = torch.zeros(num_features) if mean is None else mean
        std = torch.ones(num_features) if std is None else std
        index = {"numbers": numbers, "two_valued": two_valued, "bin_features": features}
        for name, columns in index.items():
            self.register_buffer(name, torch.tensor(columns, dtype=torch.long), persistent=False)
        is_first = [k == 0 or features[k - 1] != f for k, f in enumerate(features)]
        is_last = [k + 1 == len(features) or features[k + 1] != f for k, f in enumerate(features)]
        statistics = {
            "left": [a for _, a, _ in bins],
            "width": [b - a for _, a, b in bins],
            "low": [-1e4 if first else 0.0 for first in is_first],
            "high": [1e4 if last else 1.0 for last in is_last],
            "median": [_quantile(edges[f], 0.5) for f in numbers],
            "spread": [_quantile(edges[f], 0.75) - _quantile(edges[f], 0.25) for f in numbers],
            "mean": mean[two_valued],
            "std": std[two_valued].clamp(min=0.1),       # a value that one row in a thousand has is no outlier
        }
        for name, values in statistics.items():
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32))
        self.num_outputs = len(bins) + len(numbers) + len(two_valued)

    def forward(self, x: Tensor) -> Tensor:                                    # (B, F) -> (B, num_outputs)
        e = (x[:, self.bin_features] - self.left) / self.width                 # type: ignore[index]
        e = e.maximum(self.low).minimum(self.high)
        z = (x[:, self.numbers] - self.median) / self.spread                   # type: ignore[index,operator]
        two_valued = (x[:, self.two_valued] - self.mean) / self.std            # type: ignore[index,operator]
        return torch.cat([_clip_smoothly(e), _clip_smoothly(z), two_valued], dim=1)


def _clip_smoothly(z: Tensor) -> Tensor:
    return z * torch.rsqrt(1 + (z / _CLIP) ** 2)


def _quantile(edges: Sequence[float], q: float) -> float:
    """A quantile of the bin edges, which are quantiles of the data or all of its values."""
    position = q * (len(edges) - 1)
    k = min(int(position), len(edges) - 2)
    return edges[k] + (position - k) * (edges[k + 1] - edges[k])
