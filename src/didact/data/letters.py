"""Letters drawn on the spot: a task to learn from before another one. No download."""

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


@source(kind="images", task="multiclass", licence="made here; the font, Aileron, is inside Pillow and CC0")
def letters(seed: int = 0) -> Data:
    """5,200 letters A to Z of 28 x 28 pixels, each slanted, turned, stretched and moved in its own way."""
    y = torch.arange(len(ALPHABET)).repeat_interleave(EACH)
    x = hurried(stencils()[y], torch.Generator().manual_seed(0))
    return assemble(
        "letters", "images", {"x": (255 * x).round().to(torch.uint8), "y": y},
        task="multiclass", labels=list(ALPHABET), target="letter", encoder=ImageEncoder(shape=(1, SIDE, SIDE)), seed=seed,
    )


def stencils() -> Tensor:
    """Each letter of the alphabet in the middle, white on black: (26, 1, 56, 56)."""
    from PIL import Image, ImageDraw, ImageFont

    font, found = ImageFont.load_default(size=42), []
    for letter in ALPHABET:
        image = Image.new("L", (2 * SIDE, 2 * SIDE))
        ImageDraw.Draw(image).text((SIDE, SIDE), letter, fill=255, font=font, anchor="mm")
        found.append(torch.tensor(list(image.tobytes())).view(1, 2 * SIDE, 2 * SIDE) / 255)
    return torch.stack(found)


def hurried(x: Tensor, g: torch.Generator) -> Tensor:
    """As by hand: strokes of three widths, then a slant, a turn, a size and a place of their own; half as large."""
    pen = torch.randint(3, (len(x), 1, 1, 1), generator=g)
    for _ in range(2):
        x = torch.where(pen > 0, F.max_pool2d(x, 3, stride=1, padding=1), x)  # a wider pen
        pen = pen - 1
    x = warp(
        x, uniform(x, g, -0.3, 0.3), scale=uniform(x, g, 0.8, 1.15), shear=uniform(x, g, -0.4, 0.4),
        right=uniform(x, g, -4, 4), down=uniform(x, g, -4, 4),
    )
    return F.avg_pool2d(x, 2).clamp(0, 1)
