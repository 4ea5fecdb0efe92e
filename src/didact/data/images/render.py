"""Rendering: images as PNG, masks in the colors of their classes, boxes as frames with captions."""

import struct
import zlib
from collections.abc import Sequence
from colorsys import hsv_to_rgb

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_PNG_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> color type of a PNG
# of the color circle, from one class to the next: neighbors never look alike
_GOLDEN_FRACTION = 0.6180339887
_BACKGROUND_COLOR, IGNORE_COLOR = (0.17, 0.19, 0.23), (0.9, 0.9, 0.9)
_MIN_CAPTIONED_SIDE = 256             # longer side in pixels, below which captions would cover the image


def encode_png(image: Tensor) -> bytes:
    """(C, H, W) in [0, 1] as a PNG: gray for one channel, RGB for three, RGBA for four; others are averaged."""
    if image.shape[0] not in _PNG_COLOR_TYPES:
        image = image.mean(0, keepdim=True)
    pixels = (image.nan_to_num().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()  # (H, W, C)
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.numpy().tobytes() for row in pixels)  # filter 0 before each line

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOR_TYPES[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def make_palette(num_classes: int) -> Tensor:
    """(K, 3): class 0, the background in most datasets, is dark, the others bright."""
    bright = [hsv_to_rgb((0.08 + _GOLDEN_FRACTION * k) % 1, 0.78, 0.95) for k in range(num_classes - 1)]
    return torch.tensor([_BACKGROUND_COLOR, *bright])[:num_classes]


def colorize_mask(mask: Tensor, num_classes: int) -> Tensor:
    """A mask (H, W) in the colors of its classes, pale where it has none: (3, H, W)."""
    return torch.cat([make_palette(num_classes), torch.tensor([IGNORE_COLOR])])[
        mask.long().clamp(max=num_classes)
    ].permute(2, 0, 1)


def resize_mask(mask: Tensor, size: Sequence[int]) -> Tensor:
    """A mask resized by nearest neighbor."""
    return F.interpolate(mask[None, None].float(), size=tuple(size), mode="nearest-exact")[0, 0].long()


def overlay_mask(x: Tensor, mask: Tensor, num_classes: int, *, opacity: float = 0.5) -> Tensor:
    """An image (C, H, W) in [0, 1] with a mask of any size overlaid; class 0 stays clear."""
    mask = resize_mask(mask, x.shape[1:])
    x = x.expand(3, -1, -1) if x.shape[0] != 3 else x
    return torch.where(mask > 0, torch.lerp(x, colorize_mask(mask, num_classes), opacity), x)


def draw_boxes(x: Tensor, detections: Tensor, class_names: Sequence[str]) -> Tensor:
    """An image (C, H, W) with a frame, a name and a score for each of (N, 6), best first: x1 y1 x2 y2 as fractions,
    score, class.

    Each class has its color, and the highest score lies on top. A small image is enlarged, pixel by pixel, so that
    captions do not cover it.
    """
    from PIL import Image, ImageDraw, ImageFont

    magnification = -(-_MIN_CAPTIONED_SIDE // max(x.shape[1:]))
    pixels = (
        (x.expand(3, -1, -1) * 255)
        .round()
        .byte()
        .permute(1, 2, 0)
        .repeat_interleave(magnification, 0)
        .repeat_interleave(magnification, 1)
    )
    image = Image.fromarray(pixels.numpy())
    canvas, longest_side = ImageDraw.Draw(image), max(image.size)
    line_width, font = max(1, round(longest_side / 200)), ImageFont.load_default(size=max(11.0, longest_side / 50))
    # no box is of the background
    palette = [tuple(bright) for bright in (255 * make_palette(len(class_names) + 1)[1:]).round().int().tolist()]
    for *box, score, k in detections.flip(0).tolist():
        x1, y1, x2, y2 = (round(share * side) for share, side in zip(box, 2 * image.size, strict=True))
        canvas.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=palette[int(k)], width=line_width)
        caption = f"{class_names[int(k)]} {score:.2f}"
        left, top, right, bottom = canvas.textbbox((0, 0), caption, font=font)
        caption_x = max(0, min(x1, image.width - round(right - left) - 2))
        caption_y = max(0, y1 - round(bottom - top) - 3)  # above the box, or inside it at the top of the image
        canvas.rectangle(
            (caption_x, caption_y, caption_x + right - left + 2, caption_y + bottom - top + 2), fill=palette[int(k)]
        )
        text_color = "black" if palette[int(k)][1] > 110 else "white"  # green is most of what is light
        canvas.text((caption_x + 1 - left, caption_y + 1 - top), caption, font=font, fill=text_color)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
