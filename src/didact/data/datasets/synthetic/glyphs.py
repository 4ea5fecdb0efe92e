"""Synthetic letters and numerals, for pretraining. No download."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.images.augment import sample_uniform, warp
from didact.data.images.image_folder import ImageEncoder

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IMAGES_PER_CLASS, IMAGE_SIDE = 200, 28
GLYPHS = "0123456789" + ALPHABET + ALPHABET.lower()
_LICENSE = "made by didact; the font, Aileron, is inside Pillow and CC0"


@register_dataset(kind="images", task="multiclass", license=_LICENSE)
def letters(seed: int = 0) -> Data:
    """5,200 letters A to Z of 28 x 28 pixels, randomly slanted, rotated, scaled and moved."""
    y = torch.arange(len(ALPHABET)).repeat_interleave(_IMAGES_PER_CLASS)
    x = randomize_handwriting(render_glyphs()[y], torch.Generator().manual_seed(0))
    return build_data(
        Examples(
            "letters",
            "images",
            {"x": (255 * x).round().to(torch.uint8), "y": y},
            task="multiclass",
            class_names=list(ALPHABET),
            target="letter",
            encoder=ImageEncoder(shape=(1, IMAGE_SIDE, IMAGE_SIDE)),
        ),
        seed=seed,
    )


@register_dataset(kind="images", task="multiclass", license=_LICENSE)
def glyphs(seed: int = 0) -> Data:
    """6,200 printed numerals and letters of 28 x 28 pixels, 62 classes, distorted as if by hand; they fill images."""
    x, y = _render_glyph_set()
    return build_data(
        Examples(
            "glyphs",
            "images",
            {"x": x, "y": y},
            task="multiclass",
            class_names=list(GLYPHS),
            target="glyph",
            encoder=ImageEncoder(shape=(1, IMAGE_SIDE, IMAGE_SIDE)),
        ),
        seed=seed,
    )


@cache  # each pretraining asks for them again
def _render_glyph_set() -> tuple[Tensor, Tensor]:
    y = torch.arange(len(GLYPHS)).repeat_interleave(_IMAGES_PER_CLASS // 2)
    g = torch.Generator().manual_seed(1)
    x = randomize_handwriting(distort_elastically(render_glyphs(GLYPHS)[y], g), g, scale=(1.2, 1.7))
    return (255 * x).round().to(torch.uint8), y


def distort_elastically(x: Tensor, g: torch.Generator, strength: float = 0.06) -> Tensor:
    """Elastic distortion: x(p + d(p)), d sampled at 5 x 5 points and smooth between them.  After Simard et al. 2003."""
    d = strength * torch.randn(len(x), 2, 5, 5, generator=g)
    d = F.interpolate(d, size=x.shape[2:], mode="bicubic", align_corners=True)               # (B, 2, H, W)
    u = (torch.arange(x.shape[3]) * 2 + 1) / x.shape[3] - 1
    v = (torch.arange(x.shape[2]) * 2 + 1) / x.shape[2] - 1
    return F.grid_sample(x, torch.stack([u + d[:, 0], v[:, None] + d[:, 1]], dim=-1), align_corners=False)


def render_glyphs(characters: str = ALPHABET) -> Tensor:
    """Each character in the center, white on black: (K, 1, 56, 56)."""
    from PIL import Image, ImageDraw, ImageFont

    font, images = ImageFont.load_default(size=42), []
    for letter in characters:
        image = Image.new("L", (2 * IMAGE_SIDE, 2 * IMAGE_SIDE))
        ImageDraw.Draw(image).text((IMAGE_SIDE, IMAGE_SIDE), letter, fill=255, font=font, anchor="mm")
        images.append(torch.tensor(list(image.tobytes())).view(1, 2 * IMAGE_SIDE, 2 * IMAGE_SIDE) / 255)
    return torch.stack(images)


def randomize_handwriting(x: Tensor, g: torch.Generator, scale: tuple[float, float] = (0.8, 1.15)) -> Tensor:
    """As if by hand: random stroke width, rotation, scale, shear and translation; resized to half."""
    num_dilations = torch.randint(3, (len(x), 1, 1, 1), generator=g)
    for _ in range(2):
        x = torch.where(num_dilations > 0, F.max_pool2d(x, 3, stride=1, padding=1), x)  # a wider pen
        num_dilations = num_dilations - 1
    x = warp(
        x, sample_uniform(x, g, -0.3, 0.3), scale=sample_uniform(x, g, *scale), shear=sample_uniform(x, g, -0.4, 0.4),
        right=sample_uniform(x, g, -4, 4), down=sample_uniform(x, g, -4, 4),
    )
    return F.avg_pool2d(x, 2).clamp(0, 1)
