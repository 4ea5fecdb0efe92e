"""Texts as code points, from which a network makes n-grams of characters and of words: no character is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.core import Data, Decode
from didact.data.text.classification import BagEncoder, encode_splits
from didact.errors import UsageError

_REPLACEMENT = 0xFFFD      # the character for one that cannot be shown


def encode_characters(texts: Sequence[str], length: int) -> NDArray[np.int32]:
    """(N, length): each character as 2 c, 2 c + 1 of a letter or digit, c its code point; 0 behind the end."""
    x = np.zeros((len(texts), length), dtype=np.int32)
    for row, text in zip(x, texts, strict=True):
        codes = np.frombuffer(text[:length].encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        row[: len(codes)] = np.where(codes == 0, _REPLACEMENT, codes)      # 0 is padding
    alphabet, index = np.unique(x, return_inverse=True)
    is_word = np.array([c > 0 and chr(c).isalnum() for c in alphabet.tolist()])
    coded: NDArray[np.int32] = (2 * alphabet + is_word).astype(np.int32)[index].reshape(x.shape)
    return coded


@dataclass(frozen=True)
class CharacterEncoder(BagEncoder):
    """The first `ngram_length` characters of a text, as code points."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N, ngram_length), in two bytes each where they fit."""
        x = encode_characters([text.lower() if self.lowercase else text for text in texts], self.ngram_length)
        return torch.from_numpy(x.astype(np.int16) if x.max(initial=0) < 2**15 else x)

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": Tensor.long}


def as_characters(data: Data, max_length: int | None = None) -> Data:
    """Texts that were loaded as bags, as code points instead, at most `max_length` of each text."""
    bag = data.encoder
    if not isinstance(bag, BagEncoder):
        raise UsageError(f"{data.name!r} does not hold texts with labels: give a CSV file and --text COLUMN")
    values: dict[str, Any] = {field.name: getattr(bag, field.name) for field in fields(BagEncoder)}
    encoder = CharacterEncoder(**values)
    if max_length is not None:
        encoder = replace(encoder, ngram_length=min(max_length, bag.ngram_length or max_length))
    return encode_splits(data, encoder, shape=(encoder.ngram_length,), feature_names=())
