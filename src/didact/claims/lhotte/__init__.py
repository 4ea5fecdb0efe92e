"""Claims of Lhotte's notes, chapters 1 to 9: one module per chapter."""

from didact.claims.lhotte import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    chapter_08,
    chapter_09,
)

__all__ = [
    "chapter_01", "chapter_02", "chapter_03", "chapter_04", "chapter_05", "chapter_06", "chapter_07", "chapter_08",
    "chapter_09",
]  # fmt: skip
