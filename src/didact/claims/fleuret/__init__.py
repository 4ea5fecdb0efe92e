"""Claims of Fleuret's Little Book of Deep Learning, chapters 1 to 7 and the missing bits: one module per chapter."""

from didact.claims.fleuret import (
    chapter_01,
    chapter_02,
    chapter_03,
    chapter_04,
    chapter_05,
    chapter_06,
    chapter_07,
    missing_bits,
)

__all__ = [
    "chapter_01", "chapter_02", "chapter_03", "chapter_04", "chapter_05", "chapter_06", "chapter_07", "missing_bits",
]  # fmt: skip
