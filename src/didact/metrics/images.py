"""Similarity of images: PSNR and SSIM, (B, C, H, W) in [0, 1], one number for each image."""

import torch
import torch.nn.functional as F
from torch import Tensor


def psnr(x: Tensor, y: Tensor) -> Tensor:
    """10 log10(1 / mean (x − y)²) in decibels, at most 100, so that the mean over images is finite even if some are
    equal.
    """
    return -10 * (x.double() - y.double()).square().flatten(1).mean(1).clamp(min=1e-10).log10()


def ssim(x: Tensor, y: Tensor, *, window: int = 11, sigma: float = 1.5) -> Tensor:
    """mean of (2 μx μy + c1)(2 σxy + c2) / ((μx² + μy² + c1)(σx² + σy² + c2)) over windows.  Wang et al. 2004, eq. 13.

    Moments are Gaussian-weighted; only windows that lie inside the image count. An image smaller than the window gets a
    smaller window.
    """
    x, y = x.double(), y.double()  # variances are differences of means: float32 would cancel
    c1, c2 = 0.01**2, 0.03**2
    moments = torch.cat([x, y, x * x, y * y, x * y])
    mx, my, xx, yy, xy = gaussian_blur(moments, min(window, *x.shape[2:]), sigma).chunk(5)
    numerator = (2 * mx * my + c1) * (2 * (xy - mx * my) + c2)
    denominator = (mx * mx + my * my + c1) * (xx - mx * mx + yy - my * my + c2)
    return (numerator / denominator).flatten(1).mean(1)


def gaussian_blur(x: Tensor, window: int, sigma: float) -> Tensor:
    """Gaussian-weighted means over every window inside, along one axis and then the other."""
    g = _gaussian_window(window, sigma, x)
    c = x.shape[1]
    x = F.conv2d(x, g.view(1, 1, -1, 1).expand(c, 1, -1, 1), groups=c)
    return F.conv2d(x, g.view(1, 1, 1, -1).expand(c, 1, 1, -1), groups=c)


def _gaussian_window(window: int, sigma: float, like: Tensor) -> Tensor:
    """exp(−t² / 2σ²) at the window's pixels, summing to one."""
    t = torch.arange(window, device=like.device, dtype=like.dtype) - (window - 1) / 2
    return (-t.square() / (2 * sigma**2)).softmax(0)
