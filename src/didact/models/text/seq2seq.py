"""Sequence to sequence (Sutskever et al. 2014; Bahdanau et al. 2015): a recurrent encoder and a recurrent decoder.

    x -> embedding -> both directions -> h_1 … h_S;   s_0 = tanh(W h_end)
    none              s_t = cell(s_{t−1}, [y_{t−1}; h_end])                    one vector for everything: a bottleneck
    bahdanau          s_t = cell(s_{t−1}, [y_{t−1}; c_t]),  c_t from s_{t−1}   logits W [s_t; c_t]
    dot, general, …   s_t = cell(s_{t−1}, y_{t−1}),  c_t from s_t              logits W tanh(W_c [s_t; c_t])

The last line is Luong et al. 2015.

Gaba 6.1-6.3, Groudiev 6.1, Van Schependom 6.4.1, Lhotte 7.5. Token 0 is padding; y begins with <bos> and ends with
<eos>.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from didact.layers.attention import attention_masks
from didact.layers.attention.additive import make_alignment_attention
from didact.layers.recurrent.cells import State
from didact.layers.recurrent.recurrent import Bidirectional, Recurrent, final_states
from didact.models.text.rnn import sequence_lengths

AttentionScore = Literal["none", "bahdanau", "dot", "general", "concat"]


class EncoderOutput(NamedTuple):
    """States of the encoder (B, S, 2H), its final states (B, 2H), and a mask that is False at padding (B, S)."""

    h: Tensor
    end: Tensor
    mask: Tensor


@dataclass
class DecoderState:
    """State of decoding: the encoded source, and the decoder's state, now and before the first token."""

    memory: EncoderOutput
    initial_state: State
    state: State
    capacity: int

    def narrow(self, visible: int) -> Self:
        return self

    def clear(self) -> None:
        self.state = self.initial_state

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes a copy of row indices[i]. The memory stays: all beams of a sentence have the same."""
        self.state = tuple(part[:, indices] for part in self.state)


class Seq2Seq(nn.Module):
    """p(y | x) = Π_t p(y_t | y_<t, x).  Gaba eq. 6.1."""

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        *,
        cell: str = "gru",
        attention: AttentionScore = "bahdanau",
        embed_dim: int = 128,
        hidden_size: int = 128,
        num_layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.cell, self.hidden_size, self.num_layers, self.attention = cell, hidden_size, num_layers, attention
        self.source = nn.Embedding(source_vocab_size, embed_dim, padding_idx=0)
        self.target = nn.Embedding(target_vocab_size, embed_dim, padding_idx=0)
        self.reader = Bidirectional(cell, embed_dim, hidden_size, num_layers=num_layers, dropout=dropout)
        input_size = embed_dim + 2 * hidden_size if attention in ("none", "bahdanau") else embed_dim
        self.writer = Recurrent(cell, input_size, hidden_size, num_layers=num_layers, dropout=dropout)
        # s_0, and c_0 of an LSTM
        self.bridge = nn.Linear(2 * hidden_size, num_layers * hidden_size * (2 if cell == "lstm" else 1))
        query_dim = 2 * hidden_size if attention == "dot" else hidden_size
        # as wide as the memory
        self.widen = nn.Linear(hidden_size, 2 * hidden_size) if attention == "dot" else nn.Identity()
        self.align = (
            None
            if attention == "none"
            else make_alignment_attention(attention, query_dim, 2 * hidden_size, attention_dim=hidden_size)
        )
        is_luong = attention not in ("none", "bahdanau")
        self.combine = nn.Linear(3 * hidden_size, hidden_size) if is_luong else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(3 * hidden_size if attention == "bahdanau" else hidden_size, target_vocab_size)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of the token after each token of y (teacher forcing): (B, S), (B, T) -> (B, T, V)."""
        return self.forward_with_weights(x, y)[0]

    def forward_with_weights(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, and the attention weights (B, T, S): row of the target, column of the source."""
        memory = self.encode(x)
        logits, _, a = self.forward_from_state(y, self.initial_state(memory), memory)
        return logits, a

    def encode(self, x: Tensor) -> EncoderOutput:
        lengths = sequence_lengths(x)
        h = self.reader(self.dropout(self.source(x)), lengths)
        return EncoderOutput(h, final_states(h, lengths), attention_masks.padding_mask(lengths, x.shape[1]))

    def initial_state(self, memory: EncoderOutput) -> State:
        """s_0 = tanh(W h_end), (layers, B, H); and c_0 of an LSTM in the same way."""
        parts = torch.tanh(self.bridge(memory.end)).unflatten(-1, (-1, self.num_layers, self.hidden_size))
        return tuple(part.transpose(0, 1).contiguous() for part in parts.unbind(1))

    def encode_for_decoding(self, x: Tensor, capacity: int, *, num_copies: int = 1) -> DecoderState:
        """The encoded sentences, each `num_copies` times; the state's size does not depend on `capacity`."""
        memory = EncoderOutput(*(t.repeat_interleave(num_copies, dim=0) for t in self.encode(x)))
        initial_state = self.initial_state(memory)
        return DecoderState(memory, initial_state, initial_state, capacity)

    def decode_step(self, tokens: Tensor, cache: DecoderState) -> Tensor:
        """Logits of the token after the last of these target tokens, (B, V)."""
        logits, cache.state, _ = self.forward_from_state(tokens, cache.state, cache.memory)
        return logits[:, -1]

    def forward_from_state(self, y: Tensor, state: State, memory: EncoderOutput) -> tuple[Tensor, State, Tensor | None]:
        """Logits after each token of y, the new state, and the attention weights."""
        embedded = self.dropout(self.target(y))                                     # (B, T, width)
        if self.attention == "bahdanau":
            return self._decode_step_by_step(embedded, state, memory)
        if self.attention == "none":
            embedded = torch.cat([embedded, memory.end[:, None].expand(-1, y.shape[1], -1)], dim=-1)
        s, state = self.writer(embedded, state)
        a = None
        if self.align is not None:
            # all steps at once: c_t is not an input of the next step
            c, a = self.align(self.widen(s), memory.h, memory.mask)
            s = torch.tanh(self.combine(torch.cat([s, c], dim=-1)))
        return self.head(self.dropout(s)), state, a

    def _decode_step_by_step(
        self, embedded: Tensor, state: State, memory: EncoderOutput
    ) -> tuple[Tensor, State, Tensor]:
        """Bahdanau's decoder: c_t depends on s_{t−1} and is an input of s_t, so steps run one after the other."""
        assert self.align is not None
        out, weights = [], []
        for y_t in embedded.split(1, dim=1):
            c, a = self.align(state[0][-1][:, None], memory.h, memory.mask)    # (B, 1, 2H), (B, 1, S)
            s, state = self.writer(torch.cat([y_t, c], dim=-1), state)
            out.append(torch.cat([s, c], dim=-1))
            weights.append(a)
        return self.head(self.dropout(torch.cat(out, dim=1))), state, torch.cat(weights, dim=1)
