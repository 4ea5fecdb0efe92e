"""Claims of Gaba's course, chapters 1 to 12: one module per chapter."""

from didact.claims.gaba import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    chapter_08,
    chapter_09,
    chapter_10,
    chapter_11,
    chapter_11_measured,
    chapter_12,
)

__all__ = [
    "chapter_01", "chapter_02", "chapter_03", "chapter_04", "chapter_05", "chapter_06", "chapter_07", "chapter_08",
    "chapter_09", "chapter_10", "chapter_11", "chapter_11_measured", "chapter_12",
]  # fmt: skip
