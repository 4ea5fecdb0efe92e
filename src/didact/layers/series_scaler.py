"""Standardization of time series by training statistics, of the logarithms where growth is in proportion.

    z = (x − μ) / σ,   or   z = (log x − log μ) / (σ / μ):  for small changes the same
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from didact.data.core import Batch

_MIN_SHARE = 1e-4       # of the mean: the smallest value whose logarithm is taken
_MAX_EXPONENT = 80.0    # beyond it float32 has no number


class SeriesScaler(nn.Module):
    """Windows (B, T, C), the target as channel 0. A batch of many series brings each one's "location" and "scale"."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, log_transform: bool = False):
        super().__init__()
        self.log_transform = log_transform
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)
        self.mean: Tensor
        self.std: Tensor

    def standardize_window(self, batch: Batch) -> Tensor:
        location, scale = self._get_statistics(batch)
        z = (batch["x"] - location[:, None]) / scale[:, None]
        if self.log_transform:
            z = torch.cat([self.standardize(batch["x"][..., 0], batch)[..., None], z[..., 1:]], dim=-1)
        return z

    def standardize(self, target: Tensor, batch: Batch) -> Tensor:
        """Values of the target, (B, n)."""
        location, scale = (v[:, :1] for v in self._get_statistics(batch))
        if not self.log_transform:
            return (target - location) / scale
        return (target.clamp(min=_MIN_SHARE * location).log() - location.log()) * (location / scale)

    def restore(self, z: Tensor, batch: Batch) -> Tensor:
        """Standardized values of the target, (B, n), in their own units."""
        location, scale = (v[:, :1] for v in self._get_statistics(batch))
        if not self.log_transform:
            return location + scale * z
        return (location.log() + z * (scale / location)).clamp(max=_MAX_EXPONENT).exp()

    def get_scale(self, batch: Batch) -> Tensor:
        """The training standard deviation of each example's target, (B, 1)."""
        return self._get_statistics(batch)[1][:, :1]

    def _get_statistics(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if "location" in batch:
            return batch["location"], batch["scale"]
        rows = len(batch["x"])
        return self.mean.expand(rows, -1), self.std.expand(rows, -1)
