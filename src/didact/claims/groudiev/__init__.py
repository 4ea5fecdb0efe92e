"""Claims of Groudiev's notes, chapters 1 to 12: one module per chapter."""

from didact.claims.groudiev import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_03_convergence,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    chapter_07_measured,
    chapter_08,
    chapter_09,
    chapter_10,
    chapter_11,
    chapter_12,
)

__all__ = [
    "chapter_01", "chapter_02", "chapter_03", "chapter_03_convergence", "chapter_04", "chapter_05", "chapter_06",
    "chapter_07", "chapter_07_measured", "chapter_08", "chapter_09", "chapter_10", "chapter_11", "chapter_12",
]  # fmt: skip
