"""Pictures as pixels: images as PNG, masks in the colours of their classes, boxes as frames."""

import struct
import zlib
from colorsys import hsv_to_rgb

import torch
import torch.nn.functional as F
from torch import Tensor

TYPES = {1: 0, 3: 2, 4: 6}  # channels -> colour type of a PNG
GOLDEN = 0.6180339887       # turns of the colour circle from one class to the next: neighbours never look alike
GROUND = (0.17, 0.19, 0.23)


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
    """A mask (H, W) in the colours of its classes: (3, H, W)."""
    return colours(classes)[mask.long()].permute(2, 0, 1)


def overlaid(x: Tensor, mask: Tensor, classes: int, *, opacity: float = 0.5) -> Tensor:
    """An image (C, H, W) in [0, 1] with a mask of any size laid over it; class 0 stays clear."""
    mask = F.interpolate(mask[None, None].float(), size=x.shape[1:], mode="nearest-exact")[0, 0].long()
    x = x.expand(3, -1, -1) if x.shape[0] != 3 else x
    return torch.where(mask > 0, torch.lerp(x, coloured(mask, classes), opacity), x)


def framed(x: Tensor, boxes: Tensor, kinds: Tensor, classes: int) -> Tensor:
    """An image (C, H, W) with frames around boxes (N, 4), x1 y1 x2 y2 as shares of its sides, in the colours of their classes."""
    drawn = x.expand(3, -1, -1).clone() if x.shape[0] != 3 else x.clone()
    height, width = x.shape[1:]
    thick = max(1, round(max(height, width) / 200))
    palette = colours(classes + 1)[1:]                          # no class of a box is the ground
    sides = torch.tensor([width, height, width, height])
    for (x1, y1, x2, y2), k in zip((boxes * sides).round().int().tolist(), kinds.tolist(), strict=True):
        inside = torch.zeros(height, width, dtype=torch.bool)
        inside[max(0, y1) : y2, max(0, x1) : x2] = True
        inside[max(0, y1) + thick : max(0, y2 - thick), max(0, x1) + thick : max(0, x2 - thick)] = False
        drawn[:, inside] = palette[int(k)][:, None]
    return drawn
