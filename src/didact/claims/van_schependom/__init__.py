"""Claims of Van Schependom's notes, chapters 1 to 8: one module per chapter."""

from didact.claims.van_schependom import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    chapter_08,
)

__all__ = [
    "chapter_01", "chapter_02", "chapter_03", "chapter_04", "chapter_05", "chapter_06", "chapter_07", "chapter_08",
]  # fmt: skip
