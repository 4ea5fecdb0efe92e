"""The Transformer (Vaswani et al. 2017): an encoder reads a sentence, a decoder writes its translation.

    source -> √D · embedding + positions -> layers x [attention, feed-forward] -> memory
    target -> √D · embedding + positions -> layers x [causal attention, attention to the memory, feed-forward] -> logits

Post-norm, as in the paper. Names of a layer's parts are those of torch.nn.Transformer. Token 0 is padding.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.layers.attention.kv_cache import KVCache, StepPositions
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention
from didact.layers.positional import SinusoidalPositions


class EncoderLayer(nn.Module):
    """u = LN(x + attention(x)),  y = LN(u + W2 relu(W1 u)).  Sec. 3.1 of the paper; Gaba 7.4."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, *, dropout: float):
        super().__init__()
        self.self_attn = MultiHeadAttention(dim, num_heads, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        u = self.norm1(x + self.dropout(self.self_attn(x, mask)))
        y: Tensor = self.norm2(u + self.dropout(self.linear2(self.dropout(torch.relu(self.linear1(u))))))
        return y


class DecoderLayer(nn.Module):
    """u = LN(x + causal(x)),  w = LN(u + cross(u, memory)),  y = LN(w + W2 relu(W1 w)): with cross-attention to the
    memory.
    """

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, *, dropout: float):
        super().__init__()
        self.self_attn = MultiHeadAttention(dim, num_heads, dropout=dropout)
        self.multihead_attn = CrossAttention(dim, num_heads, dropout=dropout)
        self.linear1, self.linear2 = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        return self._attend_to_memory(x, self.self_attn(x, causal=True), memory, mask)

    def decode_step(self, x: Tensor, decoder_state: "DecoderState", step: StepPositions, layer: int) -> Tensor:
        y = self.self_attn.merge_heads(decoder_state.cache.attend(step, layer, *self.self_attn.project_qkv(x)))
        return self._attend_to_memory(x, y, decoder_state.memory, decoder_state.mask)

    def _attend_to_memory(self, x: Tensor, attended: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        u = self.norm1(x + self.dropout(attended))
        w = self.norm2(u + self.dropout(self.multihead_attn(u, memory, mask)))
        y: Tensor = self.norm3(w + self.dropout(self.linear2(self.dropout(torch.relu(self.linear1(w))))))
        return y


@dataclass(frozen=True)
class DecoderState:
    """State of decoding: the encoded source and the KV cache of the target tokens."""

    memory: Tensor           # (B, S, D)
    mask: Tensor             # (B, 1, 1, S): not padding
    cache: KVCache

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    def narrow(self, visible: int) -> Self:
        return replace(self, cache=self.cache.narrow(visible))

    def clear(self) -> None:
        self.cache.clear()

    def reorder(self, indices: Tensor) -> None:
        self.cache.reorder(indices)
        self.memory.copy_(self.memory[indices])
        self.mask.copy_(self.mask[indices])


class Transformer(nn.Module):
    """p(y_{t+1} | y_≤t, x) = softmax(E h_t), E the target embedding.  Vaswani et al. 2017; Gaba 7.4, Fleuret 5.3,
    Lhotte 8.2.
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        *,
        embed_dim: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        context_length: int = 256,
    ):
        super().__init__()
        self.source = nn.Embedding(source_vocab_size, embed_dim, padding_idx=0)
        self.target = nn.Embedding(target_vocab_size, embed_dim, padding_idx=0)
        self.scale, self.positions = sqrt(embed_dim), SinusoidalPositions(context_length, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(
            EncoderLayer(embed_dim, num_heads, ffn_dim, dropout=dropout) for _ in range(num_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(embed_dim, num_heads, ffn_dim, dropout=dropout) for _ in range(num_layers)
        )
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.xavier_uniform_(p)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight[1:], std=1 / sqrt(embed_dim))      # times √D: as large as the positions

    def forward(self, source: Tensor, target: Tensor) -> Tensor:            # (B, S), (B, T) -> (B, T, V)
        memory, mask = self.encode(source)
        x = self.dropout(self.positions(self.scale * self.target(target)))
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return F.linear(x, self.target.weight)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """The memory, (B, S, D), and its mask, False at padding, (B, 1, 1, S)."""
        mask = (source != 0)[:, None, None]
        x = self.dropout(self.positions(self.scale * self.source(source)))
        for layer in self.encoder:
            x = layer(x, mask)
        return x, mask

    def encode_for_decoding(self, source: Tensor, capacity: int, *, num_copies: int = 1) -> DecoderState:
        """The encoded sentences, each `num_copies` times (for beams or samples), and an empty KV cache of `capacity`
        tokens.
        """
        memory, mask = (t.repeat_interleave(num_copies, dim=0) for t in self.encode(source))
        self_attentions = [layer.self_attn for layer in self.decoder if isinstance(layer, DecoderLayer)]
        capacity = min(capacity, len(self.positions.table))
        head_dim = self_attentions[0].out_proj.in_features // self_attentions[0].num_heads
        cache = KVCache([a.num_heads for a in self_attentions], len(memory), capacity, head_dim, like=memory)
        return DecoderState(memory, mask, cache)

    def decode_step(self, tokens: Tensor, cache: DecoderState) -> Tensor:
        """Logits of the token after the last of these target tokens, (B, V); afterwards the cache holds these, too."""
        step = cache.cache.advance(tokens.shape[1])
        x = self.scale * self.target(tokens) + self.positions.table[step.positions]
        for layer_index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            x = layer.decode_step(x, cache, step, layer_index)
        return F.linear(x[:, -1], self.target.weight)
