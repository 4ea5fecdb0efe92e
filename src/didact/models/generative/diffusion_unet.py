"""The U-Net of diffusion models (Ho et al. 2020): from a noisy image and its timestep to the noise.

    x -> stem -> [block, halve] x levels -> block, attention, block -> [double, concat skip, block] x levels -> image

SimpleUNet is the smaller one of Gaba 10.8: no attention, one block in the middle, max pooling.
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.layers.conv.norm_pool import make_norm2d
from didact.layers.timestep_embedding import TimestepEmbedding, timestep_features
from didact.registry import register_model

SIMPLE_UNET_GROUPS = 8  # of SimpleUNet's group norms


class TimeResBlock(nn.Module):
    """Residual block with timestep: h = conv(silu(GN(x))) + W τ, y = skip(x) + conv(dropout(silu(GN(h)))).  Gaba 10.8.
    """

    def __init__(self, n_in: int, n_out: int, time_dim: int, *, dropout: float = 0.0, groups: int | None = None):
        super().__init__()
        self.norm1, self.norm2 = (nn.GroupNorm(groups, n) if groups else make_norm2d("group", n) for n in (n_in, n_out))
        self.conv1, self.conv2 = nn.Conv2d(n_in, n_out, 3, padding=1), nn.Conv2d(n_out, n_out, 3, padding=1)
        self.time, self.dropout = nn.Linear(time_dim, n_out), nn.Dropout(dropout)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:           # (B, n_in, H, W), (B, time)
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(tau))[:, :, None, None]
        y: Tensor = self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(h))))
        return y


class SpatialAttention(nn.Module):
    """Self-attention over pixels: x + W_o attention(W_q n, W_k n, W_v n), n = GN(x)."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = make_norm2d("group", channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W)
        q, k, v = self.qkv(self.norm(x)).flatten(2).mT.chunk(3, dim=-1)   # (B, HW, C) each
        y = F.scaled_dot_product_attention(q, k, v).mT.reshape(x.shape)
        out: Tensor = x + self.out(y)
        return out


def _check_widths(shape: Shape, widths: tuple[int, ...]) -> None:
    if min(shape[1:]) < 2 ** (len(widths) - 1):
        pixels = f"{shape[2]}×{shape[1]}"
        raise UsageError(
            f"{len(widths)} widths halve the image {len(widths) - 1} times, but it has {pixels} pixels; give fewer "
            "--channels"
        )


# Gaba 10.8's widths, with a stem and attention at 7×7
@register_model("denoise_unet", widths=(32, 64, 128))
@register_model("denoise_unet_tiny", widths=(24, 48))
class DiffusionUNet(nn.Module):
    """f(x_t, t, y).  Gaba 10.5, 10.8; Ho et al. 2020, appendix B.

    The stem is a 3×3 convolution, since eight groups cannot share one channel (M50); attention is at the lowest
    resolution (M49). With `num_classes` a label embedding is added to the timestep embedding; one more class means "no
    label", for classifier-free guidance (Ho and Salimans 2022).
    """

    def __init__(
        self, *, shape: Shape, widths: tuple[int, ...], time_dim: int = 128, num_classes: int = 0, dropout: float = 0.0
    ):
        super().__init__()
        _check_widths(shape, widths)
        self.num_classes = num_classes
        self.time = TimestepEmbedding(time_dim)
        self.label = nn.Embedding(num_classes + 1, time_dim) if num_classes else None
        self.stem = nn.Conv2d(shape[0], widths[0], 3, padding=1)
        self.down = nn.ModuleList(TimeResBlock(a, a, time_dim, dropout=dropout) for a in widths[:-1])
        self.halve = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        bottleneck_width = widths[-1]
        self.before, self.after = (
            TimeResBlock(bottleneck_width, bottleneck_width, time_dim, dropout=dropout) for _ in range(2)
        )
        self.attention = SpatialAttention(bottleneck_width)
        up_widths = list(pairwise(reversed(widths)))
        self.grow = nn.ModuleList(nn.Conv2d(b, a, 3, padding=1) for b, a in up_widths)
        self.up = nn.ModuleList(TimeResBlock(2 * a, a, time_dim, dropout=dropout) for _, a in up_widths)
        self.norm, self.head = make_norm2d("group", widths[0]), nn.Conv2d(widths[0], shape[0], 3, padding=1)

    def forward(self, x: Tensor, t: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        """(B, C, H, W), t (B,) in [0, 1], labels (B,) -> (B, C, H, W); without t, t = 0."""
        tau = self.time(torch.zeros(len(x), device=x.device) if t is None else t)
        if self.label is not None:
            tau = tau + self.label(torch.full((len(x),), self.num_classes, device=x.device) if y is None else y)
        x = self.stem(x)
        bridges = []
        for block, halve in zip(self.down, self.halve, strict=True):
            x = block(x, tau)
            bridges.append(x)
            x = halve(x)                                           # side s -> ⌈s / 2⌉
        x = self.after(self.attention(self.before(x, tau)), tau)
        for grow, block, bridge in zip(self.grow, self.up, reversed(bridges), strict=True):
            x = grow(F.interpolate(x, size=bridge.shape[2:], mode="nearest"))
            x = block(torch.cat([x, bridge], dim=1), tau)
        out: Tensor = self.head(F.silu(self.norm(x)))
        return out

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (3, 11, 9), "widths": (8, 16), "time_dim": 12, "num_classes": 4}, torch.randn(
            batch_size, 3, 11, 9
        )


@register_model("simple_unet", widths=(32, 64, 128))
class SimpleUNet(nn.Module):
    """f(x_t, t, y) of Gaba 10.8: 555,041 parameters for 28×28 gray pixels.

    Changed as little as it takes: a 3×3 stem, since its first norm would share one channel among eight groups (M50).
    The frequencies of the timestep are those of equation 10.19, 10000^(−2i/D); its code divides by D/2 − 1 instead of
    D/2, which is as good (C10.14). Odd sides are rounded up where they are halved, and cropped where they are doubled.
    """

    def __init__(
        self, *, shape: Shape, widths: tuple[int, ...], time_dim: int = 128, num_classes: int = 0, dropout: float = 0.0
    ):
        super().__init__()
        _check_widths(shape, widths)
        if any(width % SIMPLE_UNET_GROUPS for width in widths):
            raise UsageError(
                f"the simple U-Net normalizes {SIMPLE_UNET_GROUPS} groups of channels: --channels must be multiples of "
                f"{SIMPLE_UNET_GROUPS}, got {widths}"
            )
        self.num_classes = num_classes
        self.time_dim, self.time = time_dim, nn.Linear(time_dim, time_dim)
        self.label = nn.Embedding(num_classes + 1, time_dim) if num_classes else None
        self.stem = nn.Conv2d(shape[0], widths[0], 3, padding=1)
        down_widths, up_widths = list(pairwise((widths[0], *widths))), list(pairwise(reversed(widths)))
        *down, self.middle = (
            TimeResBlock(a, b, time_dim, dropout=dropout, groups=SIMPLE_UNET_GROUPS) for a, b in down_widths
        )
        self.down = nn.ModuleList(down)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for b, a in up_widths)
        self.up = nn.ModuleList(
            TimeResBlock(2 * a, a, time_dim, dropout=dropout, groups=SIMPLE_UNET_GROUPS) for _, a in up_widths
        )
        self.head = nn.Conv2d(widths[0], shape[0], 1)

    def forward(self, x: Tensor, t: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        """(B, C, H, W), t (B,) in [0, 1], labels (B,) -> (B, C, H, W); without t, t = 0."""
        t = torch.zeros(len(x), device=x.device) if t is None else t
        tau = F.silu(self.time(timestep_features(1000 * t, self.time_dim)))
        if self.label is not None:
            tau = tau + self.label(torch.full((len(x),), self.num_classes, device=x.device) if y is None else y)
        x, bridges = self.stem(x), []
        for block in self.down:
            x = block(x, tau)
            bridges.append(x)
            x = F.max_pool2d(x, 2, ceil_mode=True)
        x = self.middle(x, tau)
        for grow, block, bridge in zip(self.grow, self.up, reversed(bridges), strict=True):
            height, width = bridge.shape[2:]
            x = block(torch.cat([grow(x)[:, :, :height, :width], bridge], dim=1), tau)
        out: Tensor = self.head(x)
        return out

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (3, 11, 9), "widths": (8, 16), "time_dim": 12, "num_classes": 4}, torch.randn(
            batch_size, 3, 11, 9
        )
