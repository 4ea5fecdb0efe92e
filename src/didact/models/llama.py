"""A LLaMA-style decoder (Touvron et al. 2023): GPT with RMS norms, rotary positions, gated perceptrons and shared keys.

    tokens -> layers x [x + attention(RMS x), x + SwiGLU(RMS x)] -> RMS -> logits

Names and shapes are those of the published weights (`model.layers.0.self_attn.q_proj.weight`).  Gaba 7.10.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.cache import Cache, Turn
from didact.layers.feedforward import SwiGLU
from didact.layers.grouped import GroupedQueryAttention
from didact.layers.moe import MixtureOfExperts
from didact.layers.positions import Rotation, rotation
from didact.registry import register

STD = 0.02      # deviation of all weights at first, as the published ones began


class Block(nn.Module):
    """u = x + attention(RMS(x)),  y = u + SwiGLU(RMS(u)), or two of so many `experts` (Jiang et al. 2024).  Gaba 7.10."""

    def __init__(self, dim: int, heads: int, groups: int, hidden: int, *, eps: float, experts: int | None = None):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(dim, eps=eps), nn.RMSNorm(dim, eps=eps)
        self.self_attn = GroupedQueryAttention(dim, heads, groups)
        self.mlp = SwiGLU(dim, hidden) if experts is None else MixtureOfExperts(dim, hidden, experts=experts, std=STD, out_std=STD)

    def forward(self, x: Tensor, angles: Rotation) -> Tensor:
        return self.widen(x + self.self_attn(self.input_layernorm(x), angles, causal=True))

    def go_on(self, x: Tensor, angles: Rotation, cache: Cache, turn: Turn, layer: int) -> Tensor:
        y = cache.attend(turn, layer, *self.self_attn.project(self.input_layernorm(x), angles))
        return self.widen(x + self.self_attn.join(y))

    def widen(self, u: Tensor) -> Tensor:
        y: Tensor = u + self.mlp(self.post_attention_layernorm(u))
        return y


class Body(nn.Module):
    """What the published names call `model`."""

    def __init__(self, vocabulary: int, dim: int, layers: int, heads: int, groups: int, hidden: int, eps: float, experts: int | None):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim, heads, groups, hidden, eps=eps, experts=experts) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=eps)


@register("llama_small", vocabulary=256, context=256, dim=128, layers=4, heads=4, groups=2, hidden=344)
@register("mixtral_small", vocabulary=256, context=256, dim=128, layers=4, heads=4, groups=2, hidden=344, experts=8)
@register("smollm2_135m", context=8192, dim=576, layers=30, heads=9, groups=3, hidden=1536, base=100_000.0)
@register("smollm2_360m", context=8192, dim=960, layers=32, heads=15, groups=5, hidden=2560, base=100_000.0)
@register("tinyllama_1b", vocabulary=32_000, context=2048, dim=2048, layers=22, heads=32, groups=4, hidden=5632, tie=False)
class Llama(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W RMS(h_t)); with `tie`, W is the embedding and not kept twice."""

    def __init__(
        self, vocabulary: int = 49_152, *, context: int, dim: int, layers: int, heads: int, groups: int, hidden: int,
        base: float = 10_000.0, eps: float = 1e-5, tie: bool = True, experts: int | None = None,
    ):
        super().__init__()
        if dim % (2 * heads):                  # rotary positions turn pairs of numbers
            raise UsageError(f"the width must be a multiple of {2 * heads}, an even number for each of {heads} heads, got {dim}")
        self.vocabulary, self.context, self.base, self.width = vocabulary, context, base, dim // heads
        self.model = Body(vocabulary, dim, layers, heads, groups, hidden, eps, experts)
        self.lm_head = None if tie else nn.Linear(dim, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=STD)

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D)."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, T) -> (B, T, V)
        return F.linear(self.hidden(tokens), self.head)

    def hidden(self, tokens: Tensor) -> Tensor:
        """What the output matrix reads: (B, T, D)."""
        if tokens.shape[1] > self.context:
            raise UsageError(f"this model reads {self.context} tokens at most, got {tokens.shape[1]}")
        angles = rotation(torch.arange(tokens.shape[1], device=tokens.device), self.width, base=self.base)
        x = self.model.embed_tokens(tokens)
        for block in self.model.layers:
            x = block(x, angles)
        y: Tensor = self.model.norm(x)
        return y

    def remember(self, rows: int, room: int) -> Cache:
        """An empty memory for so many texts of at most `room` tokens."""
        groups = [block.self_attn.groups for block in self.model.layers if isinstance(block, Block)]
        return Cache(groups, rows, min(room, self.context), self.width, like=self.model.embed_tokens.weight)

    def go_on(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Logits behind the last of these tokens, (B, V), from what the cache holds; it holds these too afterwards."""
        turn = cache.turn(tokens.shape[1])
        angles = rotation(turn.places, self.width, base=self.base)
        x = self.model.embed_tokens(tokens)
        for layer, block in enumerate(self.model.layers):
            assert isinstance(block, Block)
            x = block.go_on(x, angles, cache, turn, layer)
        return F.linear(self.model.norm(x[:, -1]), self.head)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        small = {"vocabulary": 30, "context": 9, "dim": 24, "layers": 2, "heads": 4, "groups": 2, "hidden": 32}
        return small, torch.randint(30, (batch, 9))
