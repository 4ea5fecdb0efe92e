"""Attention masks: boolean, True where a query may attend to a key, as scaled_dot_product_attention reads them.

nn.MultiheadAttention reads them the other way round: True there is forbidden.
"""

import torch
from torch import Tensor


def causal_mask(n: int, *, device: torch.device | str | None = None) -> Tensor:
    """j ≤ i: each position attends to itself and to earlier ones, (n, n).

    Gaba eq. 6.20, 7.15; Van Schependom 7.6.3 (says "strictly").
    """
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def padding_mask(lengths: Tensor, n: int) -> Tensor:
    """j < length: False at padding, (B,) -> (B, n). Attention takes `[:, None, None]` of it.  Van Schependom 7.6.1."""
    return torch.arange(n, device=lengths.device) < lengths[:, None]


def local_mask(
    n: int, radius: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Sliding window: |i − j| ≤ radius, (n, n), or (T, n) for queries at `positions` alone.  Gaba 6.12."""
    j = torch.arange(n, device=device)
    return ((j if positions is None else positions)[:, None] - j).abs() <= radius


def strided_mask(
    n: int, stride: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
) -> Tensor:
    """j ≡ i mod stride, (n, n), or (T, n) for queries at `positions` alone; with a window before it, two layers reach
    all.

    Child et al. 2019; Gaba 6.12.
    """
    j = torch.arange(n, device=device)
    return ((j if positions is None else positions)[:, None] - j) % stride == 0
