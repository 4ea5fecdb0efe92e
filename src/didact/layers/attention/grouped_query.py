"""Grouped-query attention (GQA): groups of query heads share keys and values, so that the KV cache is small."""

from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention.multihead import add_causal_mask, dot_product_attention, fused_attention
from didact.layers.positional import RotaryAngles, apply_rotary

QKV = tuple[Tensor, Tensor, Tensor]


class GroupedQueryAttention(nn.Module):
    """head_i = attention(X W_Q^i, X W_K^g, X W_V^g), g = ⌊i · groups / heads⌋.  Ainslie et al. 2023; Gaba 6.12, 7.10.

    num_kv_heads = num_heads is multi-head attention, num_kv_heads = 1 multi-query attention (Shazeer 2019; Gaba eq.
    6.22). Names and shapes are those of LLaMA's published weights; `rotary` rotates queries and keys by their
    positions.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        head_dim: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if num_heads % num_kv_heads:
            raise UsageError(f"num_heads must be a multiple of num_kv_heads={num_kv_heads}, got num_heads={num_heads}")
        if head_dim is None and dim % num_heads:
            raise UsageError(f"dim must be a multiple of num_heads={num_heads}, got dim={dim}")
        self.num_heads, self.num_kv_heads, self.dropout = num_heads, num_kv_heads, dropout
        d = head_dim or dim // num_heads
        self.q_proj = nn.Linear(dim, num_heads * d, bias=bias)
        self.k_proj = nn.Linear(dim, num_kv_heads * d, bias=bias)
        self.v_proj = nn.Linear(dim, num_kv_heads * d, bias=bias)
        self.o_proj = nn.Linear(num_heads * d, dim, bias=bias)

    def forward(
        self, x: Tensor, rotary: RotaryAngles | None = None, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        q, k, v = self.project_qkv(x, rotary)
        dropout, enable_gqa = self.dropout if self.training else 0.0, self.num_kv_heads < self.num_heads
        y = fused_attention(q, k, v, mask, causal=causal, dropout=dropout, enable_gqa=enable_gqa)
        return self.merge_heads(y)

    def forward_with_weights(
        self, x: Tensor, rotary: RotaryAngles | None = None, mask: Tensor | None = None, *, causal: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The output by the explicit form, and the attention weights, (B, heads, S, S)."""
        q, k, v = self.project_qkv(x, rotary)
        k, v = (t.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1) for t in (k, v))
        y, a = dot_product_attention(q, k, v, add_causal_mask(mask, q, k) if causal else mask)
        return self.merge_heads(y), a

    def project_qkv(self, x: Tensor, rotary: RotaryAngles | None = None) -> QKV:
        """Queries (B, heads, S, d); keys and values (B, kv_heads, S, d), which are what a KV cache holds."""
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (f(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2) for f in (self.k_proj, self.v_proj))
        return (q, k, v) if rotary is None else (apply_rotary(q, rotary), apply_rotary(k, rotary), v)

    def merge_heads(self, y: Tensor) -> Tensor:
        out: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))     # (B, heads, S, d) -> (B, S, D)
        return out
