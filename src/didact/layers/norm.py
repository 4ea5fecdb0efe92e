"""Normalization in residual blocks: which norm, and whether it stands before the sublayer (pre-norm) or after the sum.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from didact.errors import look_up


def rms_norm(x: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> Tensor:
    """γ ⊙ x / √(mean x² + ε): layer norm without centering.  Zhang & Sennrich 2019; Gaba 7.10. Models use nn.RMSNorm.
    """
    return gamma * x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()


_NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "rms": lambda dim: nn.RMSNorm(dim, eps=1e-6)}


def make_norm(name: str, dim: int) -> nn.Module:
    """The norm of that name."""
    return look_up("norm", name, _NORMS)(dim)


class PreNorm(nn.Module):
    """Pre-norm residual block: x + drop(f(norm(x))). The identity path reaches through all depth.  Gaba eq. 7.10,
    Fleuret 5.3.
    """

    def __init__(self, sublayer: nn.Module, norm: nn.Module, *, dropout: float = 0.0):
        super().__init__()
        self.sublayer, self.norm, self.dropout = sublayer, norm, nn.Dropout(dropout)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y: Tensor = x + self.dropout(self.sublayer(self.norm(x), *args, **kwargs))
        return y


class PostNorm(PreNorm):
    """Post-norm residual block: norm(x + drop(f(x))), as in the 2017 paper; deep stacks need warmup.  Gaba eq. 7.9."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        y: Tensor = self.norm(x + self.dropout(self.sublayer(x, *args, **kwargs)))
        return y
