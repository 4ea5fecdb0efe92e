"""GPT-2 (Radford et al. 2019): a decoder-only Transformer that predicts the next token.

    tokens + positions -> layers x [x + attention(LN x), x + MLP(LN x)] -> LN -> logits (output matrix = embedding)

Names and shapes are those of the published weights (`h.0.attn.c_attn.weight`, inputs first), so that those files load
as they are. Attention is GPT-2's, or a variant of `layers.attention.variants` with the same matrices.
"""

from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError, look_up
from didact.layers.attention.kv_cache import KVCache, StepPositions
from didact.layers.attention.multihead import add_causal_mask, dot_product_attention, fused_attention
from didact.layers.attention.variants import VARIANTS, AttentionVariant
from didact.layers.moe import MixtureOfExperts
from didact.layers.positional import take_positions
from didact.models.text.gpt_decode import make_fast_decoder
from didact.registry import register_model


class Conv1D(nn.Module):
    """y = x W + b with W (inputs, outputs), as in the published files: the transpose of nn.Linear's."""

    inputs_first = True

    def __init__(self, in_features: int, out_features: int, *, std: float):
        super().__init__()
        self.weight = nn.Parameter(std * torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.mT, self.bias)


def _init_std(dim: int) -> float:
    """Standard deviation of the initial weights: GPT-2's 0.02 from width 768 on, and ∝ 1 / √D below, where 0.02 learns
    slowly.
    """
    return 0.02 * sqrt(max(1.0, 768 / dim))


class CausalSelfAttention(nn.Module):
    """Causal multi-head attention; queries, keys and values come from one matrix."""

    def __init__(self, dim: int, num_heads: int, *, dropout: float, std: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.c_attn, self.c_proj = Conv1D(dim, 3 * dim, std=_init_std(dim)), Conv1D(dim, dim, std=std)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D)
        return self.merge_heads(
            fused_attention(*self.project_qkv(x), causal=True, dropout=self.dropout if self.training else 0.0)
        )

    def forward_with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output by the explicit form, and the attention weights, (B, heads, T, T)."""
        q, k, v = self.project_qkv(x)
        y, a = dot_product_attention(q, k, v, add_causal_mask(None, q, k))
        return self.merge_heads(y), a

    def decode_step(self, x: Tensor, cache: KVCache, step: StepPositions, layer: int) -> Tensor:
        """Attention of new tokens to all tokens of the cache and to themselves."""
        return self.merge_heads(cache.attend(step, layer, *self.project_qkv(x)))

    def project_qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, T, D / heads)."""
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return q, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        out: Tensor = self.c_proj(y.transpose(1, 2).flatten(2))
        return out


class CausalVariantAttention(CausalSelfAttention):
    """Causal attention with the same matrices and a variant of the weights: a window, the largest scores, a kernel, …
    Gaba 6.12.
    """

    def __init__(self, dim: int, num_heads: int, variant: AttentionVariant, *, std: float):
        super().__init__(dim, num_heads, dropout=0.0, std=std)
        self.form = variant

    def forward(self, x: Tensor) -> Tensor:
        return self.merge_heads(self.form(*self.project_qkv(x), causal=True))

    def forward_with_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.project_qkv(x)
        y, a = self.form.attend_with_weights(q, k, v, add_causal_mask(None, q, k))
        return self.merge_heads(y), a

    def decode_step(self, x: Tensor, cache: KVCache, step: StepPositions, layer: int) -> Tensor:
        """Attention of new tokens; the cache holds all keys, the variant says which of them count."""
        q, k, v = self.project_qkv(x)
        return self.merge_heads(
            self.form.attend_with_weights(q, *cache.update(step, layer, k, v), step.mask, step.positions)[0]
        )


class MLP(nn.Module):
    """W2 gelu(W1 x + b1) + b2, with the tanh approximation of GELU with which the weights were trained."""

    def __init__(self, dim: int, *, std: float):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(dim, 4 * dim, std=_init_std(dim)), Conv1D(4 * dim, dim, std=std)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return y


class Block(nn.Module):
    """u = x + attention(LN(x)),  y = u + MLP(LN(u)).  Gaba eq. 7.10, Fleuret 5.3.

    With `num_experts` the MLP is a mixture of that many experts (top 2), a third narrower since each has three
    matrices. Gaba 7.10.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        dropout: float,
        std: float,
        num_experts: int | None = None,
        variant: AttentionVariant | None = None,
    ):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = (
            CausalSelfAttention(dim, num_heads, dropout=dropout, std=std)
            if variant is None
            else CausalVariantAttention(dim, num_heads, variant, std=std)
        )
        self.mlp = MLP(dim, std=std) if num_experts is None else MixtureOfExperts(
            dim, 8 * dim // 3, num_experts=num_experts, std=_init_std(dim), out_std=std
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self._feed_forward(x + self.dropout(self.attn(self.ln_1(x))))

    def decode_step(self, x: Tensor, cache: KVCache, step: StepPositions, layer: int) -> Tensor:
        return self._feed_forward(x + self.attn.decode_step(self.ln_1(x), cache, step, layer))

    def _feed_forward(self, u: Tensor) -> Tensor:
        y: Tensor = u + self.dropout(self.mlp(self.ln_2(u)))
        return y


@register_model("gpt_small", context_length=64, embed_dim=128, num_layers=4, num_heads=4)            # characters, CPU
@register_model("gpt_characters", context_length=256, embed_dim=384, num_layers=6, num_heads=6)      # characters, GPU
@register_model("gpt2", context_length=1024, embed_dim=768, num_layers=12, num_heads=12)              # 124M
@register_model("gpt2_medium", context_length=1024, embed_dim=1024, num_layers=24, num_heads=16)      # 355M
@register_model("gpt2_large", context_length=1024, embed_dim=1280, num_layers=36, num_heads=20)       # 774M
@register_model("gpt2_xl", context_length=1024, embed_dim=1600, num_layers=48, num_heads=25)          # 1558M
@register_model("gpt_experts", context_length=64, embed_dim=128, num_layers=4, num_heads=4, num_experts=8)
class GPT(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W_E LN(h_t)), W_E the embedding.  Radford et al. 2019; Gaba 7.7, Fleuret 5.3, Lhotte
    9.1.
    """

    def __init__(
        self,
        vocab_size: int = 50_257,
        *,
        context_length: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float = 0.0,
        num_experts: int | None = None,
        attention: str = "full",
        window: int = 8,
    ):
        super().__init__()
        if embed_dim % num_heads:
            raise UsageError(f"embed_dim must be a multiple of num_heads={num_heads}, got {embed_dim}")
        self.vocab_size, self.context_length, self.num_heads = vocab_size, context_length, num_heads
        self.wte, self.wpe = nn.Embedding(vocab_size, embed_dim), nn.Embedding(context_length, embed_dim)
        # of matrices that write to the residual path, whose variance then does not grow with depth
        std = _init_std(embed_dim) / sqrt(2 * num_layers)
        factory = look_up("attention variant", attention, VARIANTS)
        variants = [
            None if factory is None else factory(embed_dim // num_heads, window, depth) for depth in range(num_layers)
        ]
        self.h = nn.ModuleList(
            Block(embed_dim, num_heads, dropout=dropout, std=std, num_experts=num_experts, variant=variant)
            for variant in variants
        )
        self.ln_f, self.dropout = nn.LayerNorm(embed_dim), nn.Dropout(dropout)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=_init_std(embed_dim))

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D): the embedding itself (weight tying, Press & Wolf 2017)."""
        return self.wte.weight

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.h if isinstance(block, Block)]

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, T) -> (B, T, V)
        return F.linear(self.forward_features(tokens), self.head)

    def forward_features(self, tokens: Tensor) -> Tensor:
        """Input of the output matrix: (B, T, D). A loss may multiply it in chunks, so that (B, T, V) never exists as a
        whole.
        """
        x = self.dropout(self.wte(tokens) + take_positions(self.wpe.weight, tokens.shape[1]))
        for block in self.h:
            x = block(x)
        y: Tensor = self.ln_f(x)
        return y

    def init_cache(self, batch_size: int, capacity: int) -> KVCache:
        """An empty KV cache for this many texts of at most `capacity` tokens."""
        w = self.wte.weight
        cache = KVCache(
            [block.attn.num_heads for block in self.blocks],
            batch_size,
            min(capacity, self.context_length),
            w.shape[1] // self.num_heads,
            like=w,
        )
        # the fast decoder's kernels compute full attention only
        if not any(isinstance(block.attn, CausalVariantAttention) for block in self.blocks):
            cache.fast_decoder = make_fast_decoder(self, batch_size)
        return cache

    def decode_step(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """Logits of the token after the last of these, (B, V), given the cached ones; afterwards the cache holds these,
        too.
        """
        if cache.fast_decoder is not None and tokens.shape[1] == 1 and not torch.is_grad_enabled():
            return cache.fast_decoder(tokens, cache)
        step = cache.advance(tokens.shape[1])
        x = self.wte(tokens) + self.wpe(step.positions)
        for layer, block in enumerate(self.blocks):
            x = block.decode_step(x, cache, step, layer)
        return F.linear(self.ln_f(x[:, -1]), self.head)

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> Tensor:
        """Attention weights of every layer: (B, layers, heads, T, T)."""
        x, maps = self.wte(tokens) + take_positions(self.wpe.weight, tokens.shape[1]), []
        for block in self.h:
            assert isinstance(block, Block)
            maps.append(block.attn.forward_with_weights(block.ln_1(x))[1])
            x = block(x)
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        small = {"vocab_size": 30, "context_length": 9, "embed_dim": 20, "num_layers": 2, "num_heads": 4}
        return small, torch.randint(30, (batch_size, 9))
