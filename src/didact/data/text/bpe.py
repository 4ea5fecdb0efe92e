"""Byte-pair encoding (BPE) in plain Python: begin with bytes, and repeatedly merge the most frequent pair of neighbors.

Sennrich et al. 2016, on bytes as in GPT-2 (Radford et al. 2019), so that no text holds an unknown symbol; Lhotte 7.4.
The `tokenizers` library learns the same merges, much faster (`data/text/tokenizers.py` uses it where it is installed).
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from unicodedata import category

Pair = tuple[str, str]


@cache
def _compile_pattern() -> re.Pattern[str]:
    """GPT-2's pattern: words with the space before them, numbers, punctuation; spaces before a word stay with it.

    By Unicode's categories, as in GPT-2: Python's own have ², ½ and Ⅷ among the letters, and four control characters
    among the spaces.
    """
    number_letters = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if category(c) in ("Nl", "No"))
    letter, number, sign, space = (
        rf"[^\W\d_{number_letters}]",
        rf"[\d{number_letters}]",
        r"(?:[^\s\w]|[_\x1c-\x1f])",
        r"[^\S\x1c-\x1f]",
    )
    return re.compile(rf"'(?:s|t|re|ve|m|ll|d)| ?{letter}+| ?{number}+| ?{sign}+|{space}+(?![\S\x1c-\x1f])|{space}+")


@cache
def bytes_to_unicode() -> dict[int, str]:
    """A visible character for each byte: itself where it is printable, else one above 255; the space becomes Ġ."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in printed]
    return {b: chr(b) for b in printed} | {b: chr(256 + n) for n, b in enumerate(hidden)}


def pair(line: str) -> Pair:
    """A merge as written in files: two symbols with a space between."""
    left, _, right = line.partition(" ")
    return left, right


def pretokenize(text: str) -> list[str]:
    """The pieces of a text that no merge crosses, their bytes as visible characters."""
    visible = bytes_to_unicode()
    return ["".join(visible[b] for b in piece.encode()) for piece in _compile_pattern().findall(text)]


def train_bpe(text: str | Iterable[str], num_merges: int) -> list[Pair]:
    """The first `num_merges` merges, in order; of equally frequent pairs the one whose symbols were known earlier."""
    counts = Counter(piece for t in ([text] if isinstance(text, str) else text) for piece in pretokenize(t))
    words = {piece: list(piece) for piece in counts}
    symbol_order = {symbol: i for i, symbol in enumerate(sorted(bytes_to_unicode().values()))}
    learned_merges: list[Pair] = []
    pairs: Counter[Pair] = Counter()
    pieces_with_pair: dict[Pair, set[str]] = {}
    for piece, word in words.items():
        _update_pair_counts(piece, word, counts[piece], pairs, pieces_with_pair)
    while len(learned_merges) < num_merges and pairs:
        best = max(pairs, key=lambda p: (pairs[p], -symbol_order[p[0]], -symbol_order[p[1]]))
        if pairs[best] < 1:
            break
        for piece in pieces_with_pair.pop(best):
            _update_pair_counts(piece, words[piece], -counts[piece], pairs, pieces_with_pair)
            words[piece] = _merge_pair(words[piece], best)
            _update_pair_counts(piece, words[piece], counts[piece], pairs, pieces_with_pair)
        del pairs[best]
        symbol_order.setdefault("".join(best), len(symbol_order))
        learned_merges.append(best)
    return learned_merges


def _update_pair_counts(
    piece: str, word: Sequence[str], count: int, pairs: Counter[Pair], pieces_with_pair: dict[Pair, set[str]]
) -> None:
    """Add a word's pairs of neighbors to the counts, or subtract them."""
    for pair in pairwise(word):
        pairs[pair] += count
        if count > 0:
            pieces_with_pair.setdefault(pair, set()).add(piece)


def _merge_pair(word: Sequence[str], pair: Pair) -> list[str]:
    """The word with each occurrence of this pair merged, from the left."""
    merged: list[str] = []
    for symbol in word:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged


def apply_merges(piece: str, ranks: dict[Pair, int]) -> list[str]:
    """The symbols of a piece: merges are applied in the order in which they were learned."""
    word = list(piece)
    while len(word) > 1:
        best = min(pairwise(word), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        word = _merge_pair(word, best)
    return word
