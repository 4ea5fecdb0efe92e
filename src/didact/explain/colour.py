"""Numbers as colours, and a map laid over the image it explains."""

import torch
from torch import Tensor
from torch.nn import functional as F

# Even steps of lightness (OKLab 0.16 to 0.96; 0.40 to 0.97 and back): equal steps look equal, and a grey print keeps the order.
HEAT = "#0f0528", "#330b5c", "#6e0e75", "#b41755", "#e1493e", "#f5872c", "#fac355", "#faf5be"
SIGNED = "#0f428f", "#2a6cca", "#699ae2", "#aec7ed", "#f4f3f4", "#edb6ad", "#de7868", "#be3b2c", "#861309"


def coloured(values: Tensor, table: tuple[str, ...] = HEAT) -> Tensor:
    """Numbers from 0 to 1 along a table of colours: (…) -> (3, …)."""
    anchors = torch.tensor([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in table])
    at = values.detach().float().cpu().nan_to_num().clamp(0, 1) * (len(table) - 1)
    k = at.long().clamp(max=len(table) - 2)
    rest = (at - k)[..., None]
    return ((1 - rest) * anchors[k] + rest * anchors[k + 1]).movedim(-1, 0)


def scaled(values: Tensor, *, signed: bool, share: float = 0.99) -> Tensor:
    """Into 0 … 1, with 0.5 for zero where signed. The largest percent is cut: one pixel must not make all others pale."""
    values = values.detach().float()
    top = float(torch.quantile(values.abs().flatten()[: 2**24], share)) or float(values.abs().max()) or 1.0
    return (values / top / 2 + 0.5 if signed else values / top).clamp(0, 1)


def overlay(image: Tensor, heat: Tensor, *, signed: bool) -> Tensor:
    """The map over the image in grey, the more opaque the stronger it is: (C, H, W) in [0, 1], (H, W) -> (3, H, W)."""
    grey = 0.15 + 0.7 * image.detach().float().cpu().mean(0).clamp(0, 1)           # softer, so that the colours stand out
    strength = scaled(heat.cpu(), signed=signed)
    opacity = (2 * strength - 1).abs() if signed else strength
    opacity = 0.85 * opacity.sqrt()
    return (1 - opacity) * grey + opacity * coloured(strength, SIGNED if signed else HEAT)


def enlarged(picture: Tensor, least: int = 176) -> Tensor:
    """Whole steps up until the larger side has so many pixels: small images stay squares of one colour."""
    step = max(1, -(-least // max(picture.shape[-2:])))
    return picture.repeat_interleave(step, -2).repeat_interleave(step, -1)


def tiled(pictures: Tensor, *, gap: float = 1.0, most: int = 64) -> Tensor:
    """(N, C, h, w) in [0, 1] as one picture: rows of equal tiles with a line of `gap` between them."""
    pictures = pictures[:most]
    n, c, h, w = pictures.shape
    across = next(k for k in range(1, n + 1) if k * k * w >= n * h) if n > 1 else 1
    down = -(-n // across)
    padded = F.pad(pictures, (0, 1, 0, 1), value=gap)
    empty = torch.full((down * across - n, c, h + 1, w + 1), gap)
    grid = torch.cat([padded, empty]).unflatten(0, (down, across))                 # (down, across, C, h + 1, w + 1)
    whole: Tensor = grid.permute(2, 0, 3, 1, 4).reshape(c, down * (h + 1), across * (w + 1))
    return whole[:, :-1, :-1]
