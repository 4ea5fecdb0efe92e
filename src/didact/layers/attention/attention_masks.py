"""Who may look at whom: boolean masks, True where looking is allowed, as scaled_dot_product_attention reads them.

nn.MultiheadAttention reads them the other way round: True there is forbidden.
"""

import torch
from torch import Tensor


def causal_mask(n: int, *, device: torch.device | str | None = None) -> Tensor:
    """j ≤ i: each position sees itself and what came before, (n, n).  Gaba eq. 6.20, 7.15; Van Schependom 7.6.3
    (says "strictly")."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def padding_mask(lengths: Tensor, n: int) -> Tensor:
    """j < length: padding is not looked at, (B,) -> (B, n). For attention, `[:, None, None]` of it.  Van Schependom
    7.6.1."""
    return torch.arange(n, device=lengths.device) < lengths[:, None]


def local_mask(
    n: int, radius: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
) -> Tensor:
    """|i − j| ≤ reach, (n, n); or of some places i alone, (T, n).  Gaba 6.12."""
    j = torch.arange(n, device=device)
    return ((j if positions is None else positions)[:, None] - j).abs() <= radius


def strided_mask(
    n: int, stride: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
) -> Tensor:
    """j ≡ i mod stride, (n, n), or (T, n); joined with a window it reaches everything in two steps.  Child et al.
    2019; Gaba 6.12."""
    j = torch.arange(n, device=device)
    return ((j if positions is None else positions)[:, None] - j) % stride == 0
