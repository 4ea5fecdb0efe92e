"""Numbers as colours, and a map laid over the image it explains."""

import torch
from torch import Tensor
from torch.nn import functional as F

# Even steps of lightness (OKLab 0.16 to 0.96; 0.40 to 0.97 and back): equal steps look equal, and a grey print keeps
# the order.
HEAT_COLORMAP = "#0f0528", "#330b5c", "#6e0e75", "#b41755", "#e1493e", "#f5872c", "#fac355", "#faf5be"
SIGNED_COLORMAP = "#0f428f", "#2a6cca", "#699ae2", "#aec7ed", "#f4f3f4", "#edb6ad", "#de7868", "#be3b2c", "#861309"


def apply_colormap(values: Tensor, colormap: tuple[str, ...] = HEAT_COLORMAP) -> Tensor:
    """Numbers from 0 to 1 along a table of colours: (…) -> (3, …)."""
    anchors = torch.tensor([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in colormap])
    positions = values.detach().float().cpu().nan_to_num().clamp(0, 1) * (len(colormap) - 1)
    k = positions.long().clamp(max=len(colormap) - 2)
    weight = (positions - k)[..., None]
    return ((1 - weight) * anchors[k] + weight * anchors[k + 1]).movedim(-1, 0)


def scale_to_unit(values: Tensor, *, signed: bool, quantile: float = 0.99) -> Tensor:
    """Into 0 … 1, with 0.5 for zero where signed. The largest percent is cut: one pixel must not make all others
    pale."""
    values = values.detach().float()
    scale = float(torch.quantile(values.abs().flatten()[: 2**24], quantile)) or float(values.abs().max()) or 1.0
    return (values / scale / 2 + 0.5 if signed else values / scale).clamp(0, 1)


def overlay_heatmap(image: Tensor, heatmap: Tensor, *, signed: bool) -> Tensor:
    """The map over the image in grey, the more opaque the stronger it is: (C, H, W) in [0, 1], (H, W) -> (3, H, W)."""
    # softer, so that the colours stand out
    gray = 0.15 + 0.7 * image.detach().float().cpu().mean(0).clamp(0, 1)
    strength = scale_to_unit(heatmap.cpu(), signed=signed)
    opacity = (2 * strength - 1).abs() if signed else strength
    opacity = 0.85 * opacity.sqrt()
    return (1 - opacity) * gray + opacity * apply_colormap(strength, SIGNED_COLORMAP if signed else HEAT_COLORMAP)


def upscale_nearest(image: Tensor, min_side: int = 176) -> Tensor:
    """Whole steps up until the larger side has so many pixels: small images stay squares of one colour."""
    factor = max(1, -(-min_side // max(image.shape[-2:])))
    return image.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


def tile_images(images: Tensor, *, gap: float = 1.0, max_images: int = 64) -> Tensor:
    """(N, C, h, w) in [0, 1] as one picture: rows of equal tiles with a line of `gap` between them."""
    images = images[:max_images]
    n, c, h, w = images.shape
    num_columns = next(k for k in range(1, n + 1) if k * k * w >= n * h) if n > 1 else 1
    num_rows = -(-n // num_columns)
    padded = F.pad(images, (0, 1, 0, 1), value=gap)
    empty = torch.full((num_rows * num_columns - n, c, h + 1, w + 1), gap)
    # (down, across, C, h + 1, w + 1)
    grid = torch.cat([padded, empty]).unflatten(0, (num_rows, num_columns))
    joined: Tensor = grid.permute(2, 0, 3, 1, 4).reshape(c, num_rows * (h + 1), num_columns * (w + 1))
    return joined[:, :-1, :-1]
