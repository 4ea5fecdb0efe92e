"""Masked language modeling: texts in which <mask> stands for tokens to be predicted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from didact.data.core import Batch, Data, Given
from didact.data.text.language_modeling import TextEncoder, pad_rows, read_if_path
from didact.data.text.tokenizers import BPETokenizer
from didact.errors import UsageError

MASK_TOKEN = "<mask>"
_INPUT_PAD_ID = -1     # the network counts tokens from 1, and 0 is its padding


@dataclass(frozen=True)
class MaskedTextEncoder(TextEncoder):
    """A language model's tokens, and <mask> behind them. Texts of at most one context, padded behind with −1."""

    @property
    def mask_id(self) -> int:
        return len(self.tokenizer.vocab)

    def encode(self, text: str) -> list[int]:
        parts = text.split(MASK_TOKEN)
        if isinstance(self.tokenizer, BPETokenizer):
            # the space before a word is part of its token
            parts = [re.sub(" $", "", part) for part in parts[:-1]] + parts[-1:]
        first_ids, *other_ids = map(self.tokenizer.encode, parts)
        return [*first_ids, *(i for part in other_ids for i in (self.mask_id, *part))]

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Texts, or as paths text files."""
        rows = [self.encode(read_if_path(text)) for text in inputs]
        for text, row in zip(inputs, rows, strict=True):
            if not 1 <= len(row) <= self.context_length:
                raise UsageError(
                    f"the run reads texts of 1 to {self.context_length} tokens, got {len(row)} in {str(text)[:60]!r}"
                )
        return list(map(str, inputs)), {
            "x": pad_rows(rows, pad=_INPUT_PAD_ID),
            "length": torch.tensor([len(row) for row in rows]),
        }


def for_masked_lm(data: Data) -> Data:
    """Running text for a masked language model: new inputs may hold <mask>."""
    encoder = data.encoder
    assert isinstance(encoder, TextEncoder)
    return replace(data, encoder=MaskedTextEncoder(encoder.tokenizer, encoder.context_length, encoder.chars_per_token))
