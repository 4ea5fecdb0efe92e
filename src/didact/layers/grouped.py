"""Grouped queries: heads that ask differently may share what is answered, so that the cache of past answers is small."""

from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention import attention, fused, joined
from didact.layers.positions import Rotation, turn

Projected = tuple[Tensor, Tensor, Tensor]


class GroupedQueryAttention(nn.Module):
    """head_i = attention(X W_Q^i, X W_K^g, X W_V^g), g = ⌊i · groups / heads⌋.  Ainslie et al. 2023; Gaba 6.12, 7.10.

    groups = heads is multi-head attention, groups = 1 multi-query attention (Shazeer 2019; Gaba eq. 6.22). Names and shapes are
    those of LLaMA's published weights; `rotation` turns queries and keys by their positions.
    """

    def __init__(self, dim: int, heads: int, groups: int, *, head_dim: int | None = None, bias: bool = False, dropout: float = 0.0):
        super().__init__()
        if heads % groups:
            raise UsageError(f"heads must be a multiple of groups={groups}, got heads={heads}")
        if head_dim is None and dim % heads:
            raise UsageError(f"dim must be a multiple of heads={heads}, got dim={dim}")
        self.heads, self.groups, self.dropout = heads, groups, dropout
        d = head_dim or dim // heads
        self.q_proj = nn.Linear(dim, heads * d, bias=bias)
        self.k_proj = nn.Linear(dim, groups * d, bias=bias)
        self.v_proj = nn.Linear(dim, groups * d, bias=bias)
        self.o_proj = nn.Linear(heads * d, dim, bias=bias)

    def forward(self, x: Tensor, rotation: Rotation | None = None, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        q, k, v = self.project(x, rotation)
        y = fused(q, k, v, mask, causal=causal, dropout=self.dropout if self.training else 0.0, grouped=self.groups < self.heads)
        return self.join(y)

    def look(
        self, x: Tensor, rotation: Rotation | None = None, mask: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The explicit form with its weights, (B, heads, S, S)."""
        q, k, v = self.project(x, rotation)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        y, a = attention(q, k, v, joined(mask, q, k) if causal else mask)
        return self.join(y), a

    def project(self, x: Tensor, rotation: Rotation | None = None) -> Projected:
        """Queries (B, heads, S, d); keys and values (B, groups, S, d), which is all that a cache holds."""
        q = self.q_proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (f(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for f in (self.k_proj, self.v_proj))
        return (q, k, v) if rotation is None else (turn(q, rotation), turn(k, rotation), v)

    def join(self, y: Tensor) -> Tensor:
        out: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))     # (B, heads, S, d) -> (B, S, D)
        return out
