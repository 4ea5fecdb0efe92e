"""Text in which some tokens are hidden, <mask> in their place: what a masked language model reads."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from didact.data.core import Batch, Data, Given
from didact.data.sequences import StreamEncoder, opened, padded
from didact.data.tokens import BytePairs
from didact.errors import UsageError

MASK = "<mask>"
PADDING = -1      # the network counts tokens from 1, and 0 is its padding


@dataclass(frozen=True)
class HidingEncoder(StreamEncoder):
    """The same tokens, and one more behind the last for <mask>. Texts are as long as a window at most, padded behind with −1."""

    @property
    def mask(self) -> int:
        return len(self.tokenizer.names)

    def encode(self, text: str) -> list[int]:
        parts = text.split(MASK)
        if isinstance(self.tokenizer, BytePairs):
            parts = [re.sub(" $", "", part) for part in parts[:-1]] + parts[-1:]     # the space before a word is part of its token
        first, *rest = map(self.tokenizer.encode, parts)
        return [*first, *(i for part in rest for i in (self.mask, *part))]

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Texts, or as paths text files."""
        rows = [self.encode(opened(text)) for text in inputs]
        for text, row in zip(inputs, rows, strict=True):
            if not 1 <= len(row) <= self.window:
                raise UsageError(f"the run reads texts of 1 to {self.window} tokens, got {len(row)} in {str(text)[:60]!r}")
        return list(map(str, inputs)), {"x": padded(rows, pad=PADDING), "length": torch.tensor([len(row) for row in rows])}


def hiding(data: Data) -> Data:
    """Running text whose new inputs may hold masks."""
    kept = data.encoder
    assert isinstance(kept, StreamEncoder)
    return replace(data, encoder=HidingEncoder(kept.tokenizer, kept.window, kept.rate))
