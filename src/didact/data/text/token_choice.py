"""Tokens that suit texts by how they look: characters for words, names, codes and formulas, words for prose."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from didact.errors import UsageError, format_count

TextTokens = Literal["characters", "words", "bpe"]
TEXT_TOKENS: tuple[TextTokens, ...] = ("characters", "words", "bpe")
_MAX_SHORT_WORDS = 2           # words of a text between spaces, up to which it is not prose
_MAX_CHARACTERS = 300          # of a long text (95th percentile), up to which n-grams of characters are cheap


@dataclass(frozen=True)
class TextStatistics:
    """Lengths of texts in words between spaces and in characters."""

    median_words: float
    median_characters: float
    long_characters: int       # 95th percentile
    max_characters: int

    @classmethod
    def measure(cls, texts: Sequence[str]) -> "TextStatistics":
        lengths = sorted(map(len, texts))
        long_characters = lengths[max(0, -(-19 * len(lengths) // 20) - 1)]
        return cls(median(len(text.split()) for text in texts), median(lengths), long_characters, lengths[-1])

    @property
    def is_prose(self) -> bool:
        """Whether most texts have several words; a sentence without spaces, as in Chinese, is read by characters."""
        return self.median_words > _MAX_SHORT_WORDS

    @property
    def is_short(self) -> bool:
        """Whether all n-grams of characters of nearly every text are few enough to be read."""
        return self.long_characters <= _MAX_CHARACTERS

    @property
    def ngram_length(self) -> int:
        """Characters of a text that n-grams are made of: all, but of a few that are very much longer than the others;
        0 where texts are not short.
        """
        return max(1, min(self.max_characters, 2 * self.long_characters)) if self.is_short else 0

    def choose_tokens(self) -> tuple[TextTokens, str]:
        """Characters or words, and a note that says why."""
        num_words, num_characters = round(self.median_words), round(self.median_characters)
        look = f"{format_count(num_words, 'word')} and {format_count(num_characters, 'character')} (median)"
        if self.is_prose:
            return "words", f"read as words: a text has {look}"
        return "characters", f"read as characters: a text has {look}; --tokens words or bpe reads them otherwise"


def check_text_tokens(tokens: str) -> TextTokens:
    """The tokens of labeled texts; others are for running text."""
    if tokens not in TEXT_TOKENS:
        raise UsageError(f"texts with labels are read as {', '.join(TEXT_TOKENS[:-1])} or bpe, got --tokens {tokens}")
    return next(kind for kind in TEXT_TOKENS if kind == tokens)
