"""Self-attention variants by name: full, local (sliding window), strided, top-k, linear, differential, tiled (flash).

An `AttentionVariant` computes the heads from queries, keys and values, whoever projected them: `VariantSelfAttention`
does with MultiHeadAttention's matrices, `models.text.gpt` with GPT-2's. Dropout of attention weights exists for full
attention alone: the others do not hold the weights, or few of them.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from didact.errors import UsageError, look_up
from didact.layers.attention import attention_masks
from didact.layers.attention.differential import DifferentialAttention, DifferentialHeads
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.linear_attention import causal_linear_attention, feature_map, linear_attention, safe_divide
from didact.layers.attention.multihead import MultiHeadAttention, add_causal_mask, dot_product_attention
from didact.layers.attention.sparse import local_attention, strided_attention, top_k_mask

Variant = Literal["full", "local", "strided", "topk", "linear", "differential", "tiled"]
WINDOW_VARIANTS = ("local", "strided", "topk")   # those with a `window`: radius, stride, or k
DEFAULT_WINDOW = 8


class AttentionVariant(nn.Module):
    """y_i = Σ_j a_ij v_j for each head, with weights a of its own: (B, heads, S, d) three times -> (B, heads, S, d).

    `key_mask` (B, 1, S) is False at padding.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        mask = None if key_mask is None else key_mask[..., None, :]
        return self.attend_with_weights(q, k, v, add_causal_mask(mask, q, k) if causal else mask)[0]

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The output by the explicit form, and the attention weights, (B, heads, T, S).

        For decoding, queries may be a few: those at `positions` (T,) of the keys.
        """
        return dot_product_attention(q, k, v, mask)


class PatternAttention(AttentionVariant):
    """Attention to a fixed pattern of positions; `window` is its radius or stride."""

    pattern: Callable[..., Tensor]                # (length, window, positions=…) -> mask (T, S)

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        visible = self.pattern(k.shape[-2], self.window, positions=positions, device=q.device)
        return dot_product_attention(q, k, v, visible if mask is None else visible & mask)


class LocalAttention(PatternAttention):
    """Sliding window: |i − j| ≤ window."""

    pattern = staticmethod(attention_masks.local_mask)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        return local_attention(q, k, v, radius=self.window, causal=causal, key_mask=key_mask)


class StridedAttention(PatternAttention):
    """j ≡ i mod window."""

    pattern = staticmethod(attention_masks.strided_mask)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        return strided_attention(q, k, v, stride=self.window, causal=causal, key_mask=key_mask)


class TopKAttention(AttentionVariant):
    """The `window` largest scores of each query."""

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return dot_product_attention(q, k, v, top_k_mask(q, k, self.window, mask))


class LinearAttention(AttentionVariant):
    """φ(q)ᵀφ(k) instead of e^(qᵀk)."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        return (causal_linear_attention if causal else linear_attention)(q, k, v, key_mask=key_mask)

    def attend_with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        a = feature_map(q) @ feature_map(k).mT
        a = a if mask is None else a * mask
        a = safe_divide(a, a.sum(-1, keepdim=True))
        return a @ v, a


class DifferentialVariant(DifferentialHeads, AttentionVariant):
    """The difference of two softmaxes, of the first and the second half of each head's queries and keys."""

    def __init__(self, head_dim: int, *, depth: int):
        super().__init__()
        if head_dim % 2:
            raise UsageError(
                f"differential attention halves each head: its width, --embed-dim / --num-heads, must be even, "
                f"got {head_dim}"
            )
        self.lambda_init = self.compute_lambda_init(depth)
        self.lambdas, self.norm = nn.Parameter(0.1 * torch.randn(4, head_dim // 2)), nn.RMSNorm(head_dim, eps=1e-5)


class FlashAttention(AttentionVariant):
    """Full attention, a tile of keys at a time."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        return flash_attention(q, k, v, causal=causal, key_mask=key_mask)


# from the width of a head, the window and the index of the layer
_VARIANT_FACTORIES: dict[str, Callable[[int, int, int], AttentionVariant]] = {
    "local": lambda d, window, depth: LocalAttention(window),
    # alternating with local layers: two layers reach everything.  Child et al. 2019, section 4.2
    "strided": lambda d, window, depth: (StridedAttention if depth % 2 else LocalAttention)(window),
    "topk": lambda d, window, depth: TopKAttention(window),
    "linear": lambda d, window, depth: LinearAttention(),
    "differential": lambda d, window, depth: DifferentialVariant(d, depth=depth),
    "tiled": lambda d, window, depth: FlashAttention(),
}
VARIANTS = {"full": None, **_VARIANT_FACTORIES}
assert set(VARIANTS) == set(get_args(Variant))


def effective_window(variant: str, window: int | None) -> int | None:
    """The window that a variant uses; None for a variant without one."""
    return (window or DEFAULT_WINDOW) if variant in WINDOW_VARIANTS else None


class VariantSelfAttention(MultiHeadAttention):
    """Multi-head self-attention with one of these variants in each head.  `mask` (B, 1, 1, S) is True at tokens, False
    at padding."""

    def __init__(self, dim: int, num_heads: int, variant: AttentionVariant):
        super().__init__(dim, num_heads)
        self.form = variant

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        y: Tensor = self.form(q, k, v, None if mask is None else mask[..., 0, :], causal=causal)
        return y

    def _attend_with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.form.attend_with_weights(q, k, v, mask)


def make_self_attention(
    variant: str, dim: int, num_heads: int, *, dropout: float = 0.0, window: int = DEFAULT_WINDOW, depth: int = 0
) -> Any:
    """A self-attention layer of that variant."""
    factory = look_up("attention variant", variant, VARIANTS)
    if factory is None:
        return MultiHeadAttention(dim, num_heads, dropout=dropout)
    if variant == "differential":
        return DifferentialAttention(dim, num_heads, depth=depth)      # with the paper's projections, without biases
    return VariantSelfAttention(dim, num_heads, factory(dim // num_heads, window, depth))
