"""Hashed n-grams: each sequence of n tokens as a number (the hashing trick, Weinberger et al. 2009).

    "cat" as characters -> <c a t>, <ca at t>, <cat …, each hashed to a bucket 1 … B − 1; 0 is padding

No n-gram has to be spelled out, and no character is unknown. Sums are of 64-bit integers and overflow on purpose.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FACTOR, _MIXER = 1_000_003, 2_654_435_761     # of the polynomial hash, and of its bits (Knuth)


def hash_ngrams(tokens: Tensor, n: int, num_buckets: int) -> Tensor:
    """(B, L) -> (B, L − n + 1): bucket of the n tokens from each position, 0 where padding (0) is among them.

    h = Σ_i t_i f^(n−1−i) mod 2^64
    """
    length = tokens.shape[1] - n + 1
    h = torch.full_like(tokens[:, :length], n)                   # equal numbers of other sizes n differ
    for i in range(n):
        h = h * _FACTOR + tokens[:, i : i + length]
    return torch.where(tokens[:, n - 1 :] != 0, _to_buckets(h, num_buckets), 0)


def _to_buckets(h: Tensor, num_buckets: int) -> Tensor:
    """A 64-bit hash as a number 1 … B − 1; its high bits, in which similar n-grams differ, are mixed into the low."""
    h = (h ^ (h >> 29)) * _MIXER
    return (h ^ (h >> 32)).remainder(num_buckets - 1) + 1


def hash_words(characters: Tensor, is_word_character: Tensor) -> Tensor:
    """(B, L) -> (B, L // 2 + 1): a 64-bit hash of each run of word characters, 0 behind the last.

    h = Σ_i c_i f^(position of c_i in its word), a sum over the characters of the word
    """
    is_first = is_word_character & ~F.pad(is_word_character, (1, 0))[:, :-1]
    positions = torch.arange(characters.shape[1], device=characters.device).expand_as(characters)
    starts = torch.where(is_first, positions, 0).cummax(1).values
    powers = torch.full_like(positions[:1], _FACTOR).cumprod(1)
    terms = (characters * powers.expand_as(positions).gather(1, positions - starts)) * is_word_character
    word = is_first.cumsum(1) * is_word_character                # 1, 2, … within words, 0 between them
    sums = characters.new_zeros(len(characters), characters.shape[1] // 2 + 2).scatter_add(1, word, terms)
    return sums[:, 1:]


@torch.no_grad()
def count_texts(buckets: Tensor, num_buckets: int) -> Tensor:
    """(B, M) -> (buckets,): in how many of the texts each bucket occurs; 0 for padding."""
    ordered = buckets.sort(dim=1).values
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.bincount(ordered[is_first & (ordered > 0)], minlength=num_buckets)


class HashedNgrams(nn.Module):
    """Buckets of all n-grams of a sequence: of its tokens; or of its characters, and of the words that they form.

    Characters are code points as `encode_characters` gives them: 2 c + 1 in a word, 2 c elsewhere.
    """

    def __init__(
        self, num_buckets: int, *, token_sizes: Sequence[int] = (), character_sizes: Sequence[int] = (),
        word_sizes: Sequence[int] = (),
    ):  # fmt: skip
        super().__init__()
        self.num_buckets = num_buckets
        self.token_sizes, self.character_sizes, self.word_sizes = token_sizes, character_sizes, word_sizes

    def forward(self, x: Tensor) -> Tensor:                       # (B, L) -> (B, M)
        buckets = [hash_ngrams(x, n, self.num_buckets) for n in self.token_sizes if n <= x.shape[1]]
        if self.character_sizes:
            bounded = _add_boundaries(x)
            sizes = (n for n in self.character_sizes if n <= bounded.shape[1])
            buckets += [hash_ngrams(bounded, n, self.num_buckets) for n in sizes]
        if self.word_sizes:
            words = hash_words(x, x % 2 == 1)
            buckets += [hash_ngrams(words, n, self.num_buckets) for n in self.word_sizes if n <= words.shape[1]]
        return torch.cat(buckets, dim=1)


def _add_boundaries(x: Tensor) -> Tensor:
    """(B, L) -> (B, L + 2): a mark before the first and behind the last token: <cat>."""
    x = F.pad(x, (1, 1))
    is_end = torch.arange(x.shape[1], device=x.device) == (x != 0).sum(1, keepdim=True) + 1
    x = torch.where(is_end, -2, x)
    x[:, 0] = -1
    return x
