"""GPT-2 (Radford et al. 2019): a decoder that says what comes next, and nothing else.

    tokens + positions -> layers x [x + attention(LN x), x + perceptron(LN x)] -> LN -> logits, with the embedding as output matrix

Names and shapes are those of the published weights (`h.0.attn.c_attn.weight`, inputs first), so that those files load as they are.
Attention is GPT-2's, or of another form that `layers.forms` names, with the same matrices.
"""

from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError, pick
from didact.layers.attention import attention, fused, joined
from didact.layers.cache import Cache, Turn
from didact.layers.forms import FORMS, Weighing
from didact.layers.moe import MixtureOfExperts
from didact.layers.positions import upto
from didact.models.swift import swift
from didact.registry import register


class Affine(nn.Module):
    """y = x W + b with W (inputs, outputs), as the published files hold it: nn.Linear's transposed."""

    inputs_first = True

    def __init__(self, inputs: int, outputs: int, *, std: float):
        super().__init__()
        self.weight = nn.Parameter(std * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.mT, self.bias)


def spread(dim: int) -> float:
    """Deviation of the weights at first: GPT-2's 0.02 from its smallest width on, and as 1 / √D below, where 0.02 would learn slowly."""
    return 0.02 * sqrt(max(1.0, 768 / dim))


class Attention(nn.Module):
    """Causal attention of `heads` heads; queries, keys and values come out of one matrix."""

    def __init__(self, dim: int, heads: int, *, dropout: float, std: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn, self.c_proj = Affine(dim, 3 * dim, std=spread(dim)), Affine(dim, dim, std=std)

    def forward(self, x: Tensor) -> Tensor:                                 # (B, T, D)
        return self.join(fused(*self.project(x), causal=True, dropout=self.dropout if self.training else 0.0))

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The explicit form with its weights, (B, heads, T, T)."""
        q, k, v = self.project(x)
        y, a = attention(q, k, v, joined(None, q, k))
        return self.join(y), a

    def go_on(self, x: Tensor, cache: Cache, turn: Turn, layer: int) -> Tensor:
        """New tokens look at all that the cache holds."""
        return self.join(cache.attend(turn, layer, *self.project(x)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, T, D / heads)."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return q, k, v

    def join(self, y: Tensor) -> Tensor:
        out: Tensor = self.c_proj(y.transpose(1, 2).flatten(2))
        return out


class FormedAttention(Attention):
    """Causal attention with the same matrices that weighs in a way of its own: a window, the largest scores, a kernel, …  Gaba 6.12."""

    def __init__(self, dim: int, heads: int, form: Weighing, *, std: float):
        super().__init__(dim, heads, dropout=0.0, std=std)
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.form(*self.project(x), causal=True))

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(x)
        y, a = self.form.explicit(q, k, v, joined(None, q, k))
        return self.join(y), a

    def go_on(self, x: Tensor, cache: Cache, turn: Turn, layer: int) -> Tensor:
        """All keys stay in the cache; the form says which of them a new token looks at."""
        q, k, v = self.project(x)
        return self.join(self.form.explicit(q, *cache.keep(turn, layer, k, v), turn.mask, turn.places)[0])


class Perceptron(nn.Module):
    """W2 gelu(W1 x + b1) + b2, with the tanh form of GELU that the weights were trained with."""

    def __init__(self, dim: int, *, std: float):
        super().__init__()
        self.c_fc, self.c_proj = Affine(dim, 4 * dim, std=spread(dim)), Affine(4 * dim, dim, std=std)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return y


class Block(nn.Module):
    """u = x + attention(LN(x)),  y = u + perceptron(LN(u)).  Gaba eq. 7.10, Fleuret 5.3.

    With `experts`, the perceptron is two of so many, a third narrower since each has three matrices.  Gaba 7.10.
    """

    def __init__(
        self, dim: int, heads: int, *, dropout: float, std: float, experts: int | None = None, form: Weighing | None = None
    ):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout=dropout, std=std) if form is None else FormedAttention(dim, heads, form, std=std)
        self.mlp = Perceptron(dim, std=std) if experts is None else MixtureOfExperts(
            dim, 8 * dim // 3, experts=experts, std=spread(dim), out_std=std
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.widen(x + self.dropout(self.attn(self.ln_1(x))))

    def go_on(self, x: Tensor, cache: Cache, turn: Turn, layer: int) -> Tensor:
        return self.widen(x + self.attn.go_on(self.ln_1(x), cache, turn, layer))

    def widen(self, u: Tensor) -> Tensor:
        y: Tensor = u + self.dropout(self.mlp(self.ln_2(u)))
        return y


@register("gpt_small", context=64, dim=128, layers=4, heads=4)             # characters, on a CPU
@register("gpt_characters", context=256, dim=384, layers=6, heads=6)       # characters, on a GPU
@register("gpt2", context=1024, dim=768, layers=12, heads=12)              # 124M
@register("gpt2_medium", context=1024, dim=1024, layers=24, heads=16)      # 355M
@register("gpt2_large", context=1024, dim=1280, layers=36, heads=20)       # 774M
@register("gpt2_xl", context=1024, dim=1600, layers=48, heads=25)          # 1558M
@register("gpt_experts", context=64, dim=128, layers=4, heads=4, experts=8)
class GPT(nn.Module):
    """p(x_{t+1} | x_≤t) = softmax(W_E LN(h_t)), W_E the embedding.  Radford et al. 2019; Gaba 7.7, Fleuret 5.3, Lhotte 9.1."""

    def __init__(
        self, vocabulary: int = 50_257, *, context: int, dim: int, layers: int, heads: int, dropout: float = 0.0,
        experts: int | None = None, attention: str = "full", span: int = 8,
    ):
        super().__init__()
        if dim % heads:
            raise UsageError(f"the width must be a multiple of heads={heads}, got {dim}")
        self.vocabulary, self.context, self.heads = vocabulary, context, heads
        self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        std = spread(dim) / sqrt(2 * layers)   # of what is added to the residual path: its size does not grow with depth
        made = pick("form of attention", attention, FORMS)
        forms = [None if made is None else made(dim // heads, span, depth) for depth in range(layers)]
        self.h = nn.ModuleList(Block(dim, heads, dropout=dropout, std=std, experts=experts, form=form) for form in forms)
        self.ln_f, self.dropout = nn.LayerNorm(dim), nn.Dropout(dropout)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=spread(dim))

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D): the embedding itself (Press & Wolf 2017)."""
        return self.wte.weight

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.h if isinstance(block, Block)]

    def forward(self, tokens: Tensor) -> Tensor:                            # (B, T) -> (B, T, V)
        return F.linear(self.hidden(tokens), self.head)

    def hidden(self, tokens: Tensor) -> Tensor:
        """What the output matrix reads: (B, T, D). A loss may take it piece by piece, so that no (B, T, V) is ever whole."""
        x = self.dropout(self.wte(tokens) + upto(self.wpe.weight, tokens.shape[1]))
        for block in self.h:
            x = block(x)
        y: Tensor = self.ln_f(x)
        return y

    def remember(self, rows: int, room: int) -> Cache:
        """An empty memory for so many texts of at most `room` tokens."""
        w = self.wte.weight
        cache = Cache([block.attn.heads for block in self.blocks], rows, min(room, self.context), w.shape[1] // self.heads, like=w)
        if not any(isinstance(block.attn, FormedAttention) for block in self.blocks):      # its kernels look at all that was read
            cache.swift = swift(self, rows)
        return cache

    def go_on(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Logits behind the last of these tokens, (B, V), from what the cache holds; it holds these too afterwards."""
        if cache.swift is not None and tokens.shape[1] == 1 and not torch.is_grad_enabled():
            return cache.swift(tokens, cache)
        turn = cache.turn(tokens.shape[1])
        x = self.wte(tokens) + self.wpe(turn.places)
        for layer, block in enumerate(self.blocks):
            x = block.go_on(x, cache, turn, layer)
        return F.linear(self.ln_f(x[:, -1]), self.head)

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> Tensor:
        """Who attends to whom in every layer: (B, layers, heads, T, T)."""
        x, maps = self.wte(tokens) + upto(self.wpe.weight, tokens.shape[1]), []
        for block in self.h:
            assert isinstance(block, Block)
            maps.append(block.attn.look(block.ln_1(x))[1])
            x = block(x)
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        small = {"vocabulary": 30, "context": 9, "dim": 20, "layers": 2, "heads": 4}
        return small, torch.randint(30, (batch, 9))
