"""Stochastic depth (drop path): train an ensemble of shallower networks, test with the whole one."""

from torch import Tensor, nn

from didact.errors import UsageError


def block_survival_probability(l: int, L: int, p_L: float) -> float:
    """p_l = 1 - (l / L) (1 - p_L): survival probability of block l of L; early blocks, which all others need, survive
    more often.

    Gaba 3.12.
    """
    return 1 - l / L * (1 - p_L)


class DropPath(nn.Module):
    """y = m x / (1 - p), m ~ Bernoulli(1 - p) for each sample; in eval mode y = x.  Gaba 3.12, Huang et al. 2016.

    It stands at the end of a residual branch: for a dropped sample only the skip connection remains.
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        if not 0 <= p < 1:
            raise UsageError(f"drop path expects a probability from 0 to below 1, got {p:g}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        m = x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(1 - self.p)    # (B, 1, ...)
        return x * (m / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
