"""Pictures as pixels: images as PNG, masks in the colours of their classes, boxes as frames."""

import struct
import zlib
from collections.abc import Sequence
from colorsys import hsv_to_rgb

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TYPES = {1: 0, 3: 2, 4: 6}  # channels -> colour type of a PNG
GOLDEN = 0.6180339887       # turns of the colour circle from one class to the next: neighbours never look alike
GROUND, PALE = (0.17, 0.19, 0.23), (0.9, 0.9, 0.9)
READABLE = 256              # pixels of the longer side from which letters leave room for the image


def png(image: Tensor) -> bytes:
    """(C, H, W) in [0, 1] as a PNG: grey for one channel, colour for three, with opacity for four; others are averaged."""
    if image.shape[0] not in TYPES:
        image = image.mean(0, keepdim=True)
    pixels = (image.nan_to_num().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()  # (H, W, C)
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.numpy().tobytes() for row in pixels)  # filter 0 before each line

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, TYPES[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def colours(classes: int) -> Tensor:
    """(K, 3): class 0 dark, which is the ground in most sets, the others bright."""
    bright = [hsv_to_rgb((0.08 + GOLDEN * k) % 1, 0.78, 0.95) for k in range(classes - 1)]
    return torch.tensor([GROUND, *bright])[:classes]


def coloured(mask: Tensor, classes: int) -> Tensor:
    """A mask (H, W) in the colours of its classes, pale where it says none: (3, H, W)."""
    return torch.cat([colours(classes), torch.tensor([PALE])])[mask.long().clamp(max=classes)].permute(2, 0, 1)


def stretched(mask: Tensor, size: Sequence[int]) -> Tensor:
    """A mask in another size: the class of the nearest pixel."""
    return F.interpolate(mask[None, None].float(), size=tuple(size), mode="nearest-exact")[0, 0].long()


def overlaid(x: Tensor, mask: Tensor, classes: int, *, opacity: float = 0.5) -> Tensor:
    """An image (C, H, W) in [0, 1] with a mask of any size laid over it; class 0 stays clear."""
    mask = stretched(mask, x.shape[1:])
    x = x.expand(3, -1, -1) if x.shape[0] != 3 else x
    return torch.where(mask > 0, torch.lerp(x, coloured(mask, classes), opacity), x)


def framed(x: Tensor, found: Tensor, labels: Sequence[str]) -> Tensor:
    """An image (C, H, W) with a frame, a name and a score for each of (N, 6), best first: x1 y1 x2 y2 as shares, score, class.

    Each class has its colour, and the surest lies on top. Where letters would cover the image it is enlarged, pixel by pixel.
    """
    from PIL import Image, ImageDraw, ImageFont

    times = -(-READABLE // max(x.shape[1:]))
    pixels = (x.expand(3, -1, -1) * 255).round().byte().permute(1, 2, 0).repeat_interleave(times, 0).repeat_interleave(times, 1)
    image = Image.fromarray(pixels.numpy())
    pen, longest = ImageDraw.Draw(image), max(image.size)
    thick, font = max(1, round(longest / 200)), ImageFont.load_default(size=max(11.0, longest / 50))
    palette = [tuple(bright) for bright in (255 * colours(len(labels) + 1)[1:]).round().int().tolist()]  # no box is of the ground
    for *box, score, k in found.flip(0).tolist():
        x1, y1, x2, y2 = (round(share * side) for share, side in zip(box, 2 * image.size, strict=True))
        pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=palette[int(k)], width=thick)
        words = f"{labels[int(k)]} {score:.2f}"
        left, top, right, bottom = pen.textbbox((0, 0), words, font=font)
        across = max(0, min(x1, image.width - round(right - left) - 2))
        down = max(0, y1 - round(bottom - top) - 3)             # above the box, or inside where there is no room
        pen.rectangle((across, down, across + right - left + 2, down + bottom - top + 2), fill=palette[int(k)])
        ink = "black" if palette[int(k)][1] > 110 else "white"  # green is most of what is light
        pen.text((across + 1 - left, down + 1 - top), words, font=font, fill=ink)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
