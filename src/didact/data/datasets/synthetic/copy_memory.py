"""The copy task: symbols to be repeated after a long delay.  Hochreiter & Schmidhuber 1997; Gaba Ex 5.4.

    x   b a d ␣ ␣ ␣ … ␣ ? ? ?        y   ignored, but at the question marks: b a d

Only the symbols are stored; blanks and queries are added batch by batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Batch, Data, Decode, Given, TensorSplit
from didact.data.datasets.download import register_dataset
from didact.errors import UsageError

_SYMBOLS = "abcdefgh"
TOKENS = ("<pad>", "␣", "?", *_SYMBOLS)
_BLANK, QUERY, _FIRST_SYMBOL = 1, 2, 3    # token ids; symbol k is _FIRST_SYMBOL + k
IGNORE_INDEX = -100                     # target without a label, as in PyTorch's cross-entropy
MAX_SYMBOLS = 8                         # of an example
_NUM_EXAMPLES = 20_000


def make_copy_inputs(symbols: Tensor, *, delay: int) -> Tensor:
    """(B, k) -> (B, 2k + delay): the symbols, blanks, and as many queries."""
    x = pad(symbols.long() + _FIRST_SYMBOL, (0, delay), value=_BLANK)
    return pad(x, (0, symbols.shape[1]), value=QUERY)


def make_copy_targets(symbols: Tensor, *, delay: int) -> Tensor:
    """(B, k) -> (B, 2k + delay): the symbols at the queries."""
    return pad(symbols.long(), (symbols.shape[1] + delay, 0), value=IGNORE_INDEX)


@dataclass(frozen=True)
class CopyEncoder:
    """Words of `sequence_length` symbols with a delay behind them."""

    sequence_length: int = MAX_SYMBOLS
    delay: int = 10

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": partial(make_copy_inputs, delay=self.delay), "y": partial(make_copy_targets, delay=self.delay)}

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        words = list(map(str, inputs))
        for text in words:
            if len(text) != self.sequence_length or set(text) - set(_SYMBOLS):
                raise UsageError(
                    f"expected {self.sequence_length} letters from {_SYMBOLS[0]} to {_SYMBOLS[-1]}, got {text!r}"
                )
        return words, {"x": torch.tensor([[_SYMBOLS.index(c) for c in text] for text in words], dtype=torch.uint8)}

    def spec(self) -> dict[str, Any]:
        return {"kind": "copy", "remember": self.sequence_length, "delay": self.delay}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CopyEncoder":
        return cls(spec["remember"], spec["delay"])


@register_dataset(kind="tags", task="tagging", license="made by didact")
def copies(seed: int = 0) -> Data:
    """20,000 words of eight letters from a to h, to be repeated after a pause (Gaba Ex 5.4)."""
    words = torch.randint(
        len(_SYMBOLS), (_NUM_EXAMPLES, MAX_SYMBOLS), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    return _build_copy_data(words, CopyEncoder(), seed=seed)


def _build_copy_data(words: Tensor, encoder: CopyEncoder, **split: Any) -> Data:
    """(N, k) symbol ids as inputs and targets."""
    return build_data(
        Examples(
            "copies",
            "tags",
            {"x": words, "y": words.clone()},
            task="tagging",
            feature_names=TOKENS,
            target="symbol",
            encoder=encoder,
            class_names=tuple(_SYMBOLS),
            standardize=False,
        ),
        **split,
    )


def with_delay(data: Data, *, sequence_length: int, delay: int) -> Data:
    """The first `sequence_length` symbols of each word, to be repeated after `delay` blanks."""
    if not isinstance(data.encoder, CopyEncoder):
        raise UsageError(
            f"the copy task is for the letters of 'copies', but {data.name!r} is {data.kind}; leave out --data"
        )
    encoder = CopyEncoder(sequence_length, delay)
    words = [
        split.columns["x"][:, :sequence_length] for split in map(data.split, SPLITS) if isinstance(split, TensorSplit)
    ]
    if len(words) < len(SPLITS):                    # a run that is loaded without its data
        return replace(data, shape=(2 * sequence_length + delay,), encoder=encoder)
    rows = torch.arange(sum(map(len, words))).split([len(part) for part in words])
    # shorter words repeat more often: duplicates are counted again
    data_with_delay = _build_copy_data(torch.cat(words), encoder, indices=dict(zip(SPLITS, rows, strict=True)))
    return replace(data_with_delay, source=data.source, indices=data.indices, fingerprint=data.fingerprint)
