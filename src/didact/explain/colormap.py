"""Colormaps, and heatmaps laid over the image that they explain."""

import torch
from torch import Tensor
from torch.nn import functional as F

# Perceptually uniform: even steps of lightness (OKLab 0.16 to 0.96; 0.40 to 0.97 and back). A grayscale print keeps the
# order.
HEAT_COLORMAP = "#0f0528", "#330b5c", "#6e0e75", "#b41755", "#e1493e", "#f5872c", "#fac355", "#faf5be"
SIGNED_COLORMAP = "#0f428f", "#2a6cca", "#699ae2", "#aec7ed", "#f4f3f4", "#edb6ad", "#de7868", "#be3b2c", "#861309"


def apply_colormap(values: Tensor, colormap: tuple[str, ...] = HEAT_COLORMAP) -> Tensor:
    """Values from 0 to 1 as colors: (…) -> (3, …)."""
    anchors = torch.tensor([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in colormap])
    positions = values.detach().float().cpu().nan_to_num().clamp(0, 1) * (len(colormap) - 1)
    k = positions.long().clamp(max=len(colormap) - 2)
    weight = (positions - k)[..., None]
    return ((1 - weight) * anchors[k] + weight * anchors[k + 1]).movedim(-1, 0)


def scale_to_unit(values: Tensor, *, signed: bool, quantile: float = 0.99) -> Tensor:
    """Values scaled to [0, 1], with 0 at 0.5 if signed.

    The largest percent is cut, so that one pixel cannot dim all others.
    """
    values = values.detach().float()
    scale = float(torch.quantile(values.abs().flatten()[: 2**24], quantile)) or float(values.abs().max()) or 1.0
    return (values / scale / 2 + 0.5 if signed else values / scale).clamp(0, 1)


def overlay_heatmap(image: Tensor, heatmap: Tensor, *, signed: bool) -> Tensor:
    """A heatmap over the gray image, opaque where it is strong: (C, H, W) in [0, 1], (H, W) -> (3, H, W)."""
    # low contrast, so that the colors stand out
    gray = 0.15 + 0.7 * image.detach().float().cpu().mean(0).clamp(0, 1)
    strength = scale_to_unit(heatmap.cpu(), signed=signed)
    opacity = (2 * strength - 1).abs() if signed else strength
    opacity = 0.85 * opacity.sqrt()
    return (1 - opacity) * gray + opacity * apply_colormap(strength, SIGNED_COLORMAP if signed else HEAT_COLORMAP)


def upscale_nearest(image: Tensor, min_side: int = 176) -> Tensor:
    """Enlarged by whole factors until the larger side has at least `min_side` pixels: pixels stay squares."""
    factor = max(1, -(-min_side // max(image.shape[-2:])))
    return image.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


def tile_images(images: Tensor, *, gap: float = 1.0, max_images: int = 64) -> Tensor:
    """(N, C, h, w) in [0, 1] as one image: rows of equal tiles, separated by lines of brightness `gap`."""
    images = images[:max_images]
    n, c, h, w = images.shape
    num_columns = next(k for k in range(1, n + 1) if k * k * w >= n * h) if n > 1 else 1
    num_rows = -(-n // num_columns)
    padded = F.pad(images, (0, 1, 0, 1), value=gap)
    empty = torch.full((num_rows * num_columns - n, c, h + 1, w + 1), gap)
    # (rows, columns, C, h + 1, w + 1)
    grid = torch.cat([padded, empty]).unflatten(0, (num_rows, num_columns))
    joined: Tensor = grid.permute(2, 0, 3, 1, 4).reshape(c, num_rows * (h + 1), num_columns * (w + 1))
    return joined[:, :-1, :-1]
