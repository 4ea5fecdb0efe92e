"""Letters and numerals drawn on the spot: tasks to learn from before another one. No download."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.data.assemble import assemble
from didact.data.augment import uniform, warp
from didact.data.core import Data
from didact.data.fetch import source
from didact.data.folder import ImageEncoder

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
EACH, SIDE = 200, 28
GLYPHS = "0123456789" + ALPHABET + ALPHABET.lower()


@source(kind="images", task="multiclass", licence="made here; the font, Aileron, is inside Pillow and CC0")
def letters(seed: int = 0) -> Data:
    """5,200 letters A to Z of 28 x 28 pixels, each slanted, turned, stretched and moved in its own way."""
    y = torch.arange(len(ALPHABET)).repeat_interleave(EACH)
    x = hurried(stencils()[y], torch.Generator().manual_seed(0))
    return assemble(
        "letters", "images", {"x": (255 * x).round().to(torch.uint8), "y": y},
        task="multiclass", labels=list(ALPHABET), target="letter", encoder=ImageEncoder(shape=(1, SIDE, SIDE)), seed=seed,
    )


@source(kind="images", task="multiclass", licence="made here; the font, Aileron, is inside Pillow and CC0")
def glyphs(seed: int = 0) -> Data:
    """6,200 printed numerals and letters of 28 x 28 pixels, 62 classes, bent as if by hand; they fill their images, as digits do."""
    x, y = drawn_glyphs()
    return assemble(
        "glyphs", "images", {"x": x, "y": y},
        task="multiclass", labels=list(GLYPHS), target="glyph", encoder=ImageEncoder(shape=(1, SIDE, SIDE)), seed=seed,
    )


@cache  # each training that begins with them looks at them again
def drawn_glyphs() -> tuple[Tensor, Tensor]:
    y = torch.arange(len(GLYPHS)).repeat_interleave(EACH // 2)
    g = torch.Generator().manual_seed(1)
    x = hurried(bent(stencils(GLYPHS)[y], g), g, scale=(1.2, 1.7))
    return (255 * x).round().to(torch.uint8), y


def bent(x: Tensor, g: torch.Generator, by: float = 0.06) -> Tensor:
    """x(p + d(p)): d is drawn at 5 x 5 places and smooth between them.  After Simard et al. 2003, elastic distortions."""
    d = by * torch.randn(len(x), 2, 5, 5, generator=g)
    d = F.interpolate(d, size=x.shape[2:], mode="bicubic", align_corners=True)               # (B, 2, H, W)
    u = (torch.arange(x.shape[3]) * 2 + 1) / x.shape[3] - 1
    v = (torch.arange(x.shape[2]) * 2 + 1) / x.shape[2] - 1
    return F.grid_sample(x, torch.stack([u + d[:, 0], v[:, None] + d[:, 1]], dim=-1), align_corners=False)


def stencils(characters: str = ALPHABET) -> Tensor:
    """Each of them in the middle, white on black: (K, 1, 56, 56)."""
    from PIL import Image, ImageDraw, ImageFont

    font, found = ImageFont.load_default(size=42), []
    for letter in characters:
        image = Image.new("L", (2 * SIDE, 2 * SIDE))
        ImageDraw.Draw(image).text((SIDE, SIDE), letter, fill=255, font=font, anchor="mm")
        found.append(torch.tensor(list(image.tobytes())).view(1, 2 * SIDE, 2 * SIDE) / 255)
    return torch.stack(found)


def hurried(x: Tensor, g: torch.Generator, scale: tuple[float, float] = (0.8, 1.15)) -> Tensor:
    """As by hand: strokes of three widths, then a slant, a turn, a size and a place of their own; half as large."""
    pen = torch.randint(3, (len(x), 1, 1, 1), generator=g)
    for _ in range(2):
        x = torch.where(pen > 0, F.max_pool2d(x, 3, stride=1, padding=1), x)  # a wider pen
        pen = pen - 1
    x = warp(
        x, uniform(x, g, -0.3, 0.3), scale=uniform(x, g, *scale), shear=uniform(x, g, -0.4, 0.4),
        right=uniform(x, g, -4, 4), down=uniform(x, g, -4, 4),
    )
    return F.avg_pool2d(x, 2).clamp(0, 1)
