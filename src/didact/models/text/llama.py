"""LLaMA (Touvron et al. 2023): a GPT with RMS norms, rotary positions, gated feed-forward networks and grouped-query
attention.

    tokens -> layers x [x + attention(RMS x), x + SwiGLU(RMS x)] -> RMS -> logits

Names and shapes are those of the published weights (`model.layers.0.self_attn.q_proj.weight`).  Gaba 7.10.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.kv_cache import KVCache, StepPositions
from didact.layers.feedforward import SwiGLU
from didact.layers.moe import MixtureOfExperts
from didact.layers.positional import RotaryAngles, rotary_angles
from didact.registry import register_model

_INIT_STD = 0.02      # standard deviation of all initial weights, as in the published training


class Block(nn.Module):
    """u = x + attention(RMS(x)),  y = u + SwiGLU(RMS(u)), or a mixture of `num_experts` experts (Jiang et al. 2024).
    Gaba 7.10.
    """

    def __init__(
        self, dim: int, num_heads: int, num_kv_heads: int, ffn_dim: int, *, eps: float, num_experts: int | None = None
    ):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(dim, eps=eps), nn.RMSNorm(dim, eps=eps)
        self.self_attn = GroupedQueryAttention(dim, num_heads, num_kv_heads)
        self.mlp = (
            SwiGLU(dim, ffn_dim)
            if num_experts is None
            else MixtureOfExperts(dim, ffn_dim, num_experts=num_experts, std=_INIT_STD, out_std=_INIT_STD)
        )

    def forward(self, x: Tensor, angles: RotaryAngles) -> Tensor:
        return self._feed_forward(x + self.self_attn(self.input_layernorm(x), angles, causal=True))

    def decode_step(self, x: Tensor, angles: RotaryAngles, cache: KVCache, step: StepPositions, layer: int) -> Tensor:
        y = cache.attend(step, layer, *self.self_attn.project_qkv(self.input_layernorm(x), angles))
        return self._feed_forward(x + self.self_attn.merge_heads(y))

    def _feed_forward(self, u: Tensor) -> Tensor:
        y: Tensor = u + self.mlp(self.post_attention_layernorm(u))
        return y


class LlamaModel(nn.Module):
    """The module that the published names call `model`."""

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        ffn_dim: int,
        eps: float,
        num_experts: int | None,
    ):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList(
            Block(dim, num_heads, num_kv_heads, ffn_dim, eps=eps, num_experts=num_experts) for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(dim, eps=eps)


@register_model(
    "llama_small",
    vocab_size=256,
    context_length=256,
    embed_dim=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    ffn_dim=344,
)
@register_model(
    "mixtral_small",
    vocab_size=256,
    context_length=256,
    embed_dim=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    ffn_dim=344,
    num_experts=8,
)
@register_model(
    "smollm2_135m",
    context_length=8192,
    embed_dim=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    ffn_dim=1536,
    base=100_000.0,
)
@register_model(
    "smollm2_360m",
    context_length=8192,
    embed_dim=960,
    num_layers=32,
    num_heads=15,
    num_kv_heads=5,
    ffn_dim=2560,
    base=100_000.0,
)
@register_model(
    "tinyllama_1b",
    vocab_size=32_000,
    context_length=2048,
    embed_dim=2048,
    num_layers=22,
    num_heads=32,
    num_kv_heads=4,
    ffn_dim=5632,
    tie_weights=False,
)
class Llama(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W RMS(h_t)); with `tie_weights` W is the embedding."""

    def __init__(
        self,
        vocab_size: int = 49_152,
        *,
        context_length: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        ffn_dim: int,
        base: float = 10_000.0,
        eps: float = 1e-5,
        tie_weights: bool = True,
        num_experts: int | None = None,
    ):
        super().__init__()
        if embed_dim % (2 * num_heads):  # rotary positions rotate pairs of numbers
            raise UsageError(
                f"embed_dim must be a multiple of {2 * num_heads}, an even number for each of {num_heads} heads, got "
                f"{embed_dim}"
            )
        self.vocab_size, self.context_length = vocab_size, context_length
        self.base, self.head_dim = base, embed_dim // num_heads
        self.model = LlamaModel(vocab_size, embed_dim, num_layers, num_heads, num_kv_heads, ffn_dim, eps, num_experts)
        self.lm_head = None if tie_weights else nn.Linear(embed_dim, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_INIT_STD)

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D)."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, T) -> (B, T, V)
        return F.linear(self.forward_features(tokens), self.head)

    def forward_features(self, tokens: Tensor) -> Tensor:
        """Input of the output matrix: (B, T, D)."""
        if tokens.shape[1] > self.context_length:
            raise UsageError(f"this model reads {self.context_length} tokens at most, got {tokens.shape[1]}")
        angles = rotary_angles(torch.arange(tokens.shape[1], device=tokens.device), self.head_dim, base=self.base)
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x, angles)
        y: Tensor = self.model.norm(x)
        return y

    def init_cache(self, batch_size: int, capacity: int) -> KVCache:
        """An empty KV cache for this many texts of at most `capacity` tokens."""
        kv_heads = [block.self_attn.num_kv_heads for block in self.model.layers if isinstance(block, Block)]
        return KVCache(
            kv_heads, batch_size, min(capacity, self.context_length), self.head_dim, like=self.model.embed_tokens.weight
        )

    def decode_step(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """Logits of the token after the last of these, (B, V), given the cached ones; afterwards the cache holds these,
        too.
        """
        step = cache.advance(tokens.shape[1])
        angles = rotary_angles(step.positions, self.head_dim, base=self.base)
        x = self.model.embed_tokens(tokens)
        for layer, block in enumerate(self.model.layers):
            assert isinstance(block, Block)
            x = block.decode_step(x, angles, cache, step, layer)
        return F.linear(self.model.norm(x[:, -1]), self.head)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        small = {
            "vocab_size": 30,
            "context_length": 9,
            "embed_dim": 24,
            "num_layers": 2,
            "num_heads": 4,
            "num_kv_heads": 2,
            "ffn_dim": 32,
        }
        return small, torch.randint(30, (batch_size, 9))
