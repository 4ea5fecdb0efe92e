"""Generators and discriminators of GANs: dense, DCGAN, and style-based.

    dense   z -> [affine, act] -> tanh                          x -> [affine, act] -> score
    dcgan   z -> 4 × 4 -> [double, BN, ReLU] -> double -> tanh   x -> halve -> [halve, norm, act] -> score
    style   constant 4 × 4 -> [enlarge, convolution, AdaIN(w)] -> tanh, w = mapping(z)

Images are in [−1, 1], scores are logits. A network with `num_classes` is conditional on a label (Gaba Def. 8.9, Mirza
and Osindero 2014).
"""

from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.adaptive_norm import AdaIN, ConditionalBatchNorm2d
from didact.layers.autoencoder_blocks import Shape
from didact.layers.conv.down_up import doubling_conv, downsampled_sizes, halving_conv
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.registry import register_model

Norm = Literal["none", "batch", "layer"]
Conditioning = Literal["input", "batch_norm"]
_LEAKY_RELU_SLOPE = 0.2   # Gaba 8.6


def _concat_label(h: Tensor, y: Tensor | None, num_classes: int) -> Tensor:
    """(B, n) with the one-hot label appended."""
    return torch.cat([h, F.one_hot(y, num_classes).to(h.dtype)], dim=1) if num_classes and y is not None else h


def _resolution_pyramid(shape: Shape) -> list[tuple[int, int]]:
    """Sizes from the image down to the first of at most 4 × 4: 28, 14, 7, 4 or 64, 32, 16, 8, 4."""
    h, w = shape[1:]
    if min(h, w) < 5:
        raise UsageError(f"a convolutional GAN needs images of at least 5×5 pixels, got {w}×{h}; see --size")
    return downsampled_sizes((h, w), next(n for n in range(1, 32) if max(h, w) <= 4 * 2**n))


def _dcgan_init(module: nn.Module) -> None:
    """Convolutions N(0, 0.02²), norms N(1, 0.02²) and 0.  Gaba 8.7, Radford et al. 2016."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, std=0.02)
        elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm) and layer.affine:
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)


@register_model("dense_generator", widths=(128, 256))
class DenseGenerator(nn.Module):
    """x = tanh(MLP(z)): the first GAN's.  Goodfellow et al. 2014; Groudiev 11.2."""

    def __init__(
        self, *, shape: Shape, latent_dim: int = 100, widths: tuple[int, ...] = (128, 256), num_classes: int = 0
    ):
        super().__init__()
        self.latent_dim, self.num_classes, self.shape = latent_dim, num_classes, shape
        sizes = (latent_dim + num_classes, *widths)
        self.layers = nn.Sequential(*make_mlp_layers(sizes), nn.Linear(sizes[-1], prod(shape)), nn.Tanh())

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:   # (B, latent) -> (B, C, H, W)
        x: Tensor = self.layers(_concat_label(z, y, self.num_classes)).unflatten(1, self.shape)
        return x

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "latent_dim": 6}, torch.randn(batch_size, 6)


@register_model("dense_discriminator", widths=(256, 128))
class DenseDiscriminator(nn.Module):
    """D(x) = MLP(x), a logit."""

    def __init__(self, *, shape: Shape, widths: tuple[int, ...] = (256, 128), num_classes: int = 0):
        super().__init__()
        self.num_classes = num_classes
        sizes = (prod(shape) + num_classes, *widths)
        self.layers = nn.Sequential(*make_mlp_layers(sizes, "leaky_relu"), nn.Linear(sizes[-1], 1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:   # (B, C, H, W) -> (B,)
        score: Tensor = self.layers(_concat_label(x.flatten(1), y, self.num_classes)).flatten()
        return score

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12)}, torch.randn(batch_size, 2, 7, 12)


class UpsampleBlock(nn.Module):
    """Transposed convolution to the next size, batch norm (class-conditional with `num_classes`), ReLU."""

    def __init__(self, conv: nn.ConvTranspose2d, *, num_classes: int = 0):
        super().__init__()
        self.conv = conv
        n = conv.out_channels
        self.norm = ConditionalBatchNorm2d(n, num_classes) if num_classes else nn.BatchNorm2d(n)
        self.num_classes = num_classes

    def forward(self, x: Tensor, y: Tensor | None) -> Tensor:
        x = self.conv(x)
        return F.relu(self.norm(x, y) if self.num_classes else self.norm(x))


@register_model("dcgan_generator", shape=(1, 28, 28))
class DCGANGenerator(nn.Module):
    """100×1×1 -> 256×4×4 -> 128×7×7 -> 64×14×14 -> 1×28×28 at 28 px, 837,504 parameters.  Gaba 8.7, Radford et al.
    2016.

    Other sizes take as many doublings from about 4×4 as needed; the number of channels is halved at each, to `channels`
    at the last. A label is appended to z, or sets scale and shift of each batch norm.
    """

    def __init__(
        self,
        *,
        shape: Shape = (1, 28, 28),
        latent_dim: int = 100,
        channels: int = 64,
        num_classes: int = 0,
        conditioning: Conditioning = "input",
    ):
        super().__init__()
        self.latent_dim = latent_dim
        self.num_classes, norm_classes = (num_classes, 0) if conditioning == "input" else (0, num_classes)
        *sizes, smallest = _resolution_pyramid(shape)
        widths = [channels * 2**n for n in range(len(sizes))]             # the highest resolution first
        first_conv = nn.ConvTranspose2d(latent_dim + self.num_classes, widths[-1], smallest, bias=False)
        pairs = zip(reversed(widths[1:]), reversed(widths[:-1]), reversed(sizes[1:]), strict=True)
        up_convs = [doubling_conv(a, b, out_size, bias=False) for a, b, out_size in pairs]
        self.blocks = nn.ModuleList(UpsampleBlock(conv, num_classes=norm_classes) for conv in (first_conv, *up_convs))
        self.last = doubling_conv(channels, shape[0], sizes[0], bias=False)
        _dcgan_init(self)

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:   # (B, latent) -> (B, C, H, W)
        x = _concat_label(z, y, self.num_classes)[:, :, None, None]
        for block in self.blocks:
            x = block(x, y)
        return torch.tanh(self.last(x))

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "latent_dim": 6, "channels": 5}, torch.randn(batch_size, 6)


@register_model("dcgan_discriminator", shape=(1, 28, 28))
class DCGANDiscriminator(nn.Module):
    """28 -> 14 -> 7 -> 4 -> 1 with 64, 128, 256 channels at 28 px, 431,872 parameters; no norm in the first.  Gaba 8.7.

    A label is one more input channel, an image learned for each class (Gaba Ex 8.4). A gradient penalty is defined per
    example, which forbids batch norm: use `norm="layer"` (Gulrajani et al. 2017).
    """

    def __init__(self, *, shape: Shape = (1, 28, 28), channels: int = 64, num_classes: int = 0, norm: Norm = "batch"):
        super().__init__()
        *sizes, smallest = _resolution_pyramid(shape)
        self.plane = nn.Embedding(num_classes, prod(shape[1:])) if num_classes else None
        widths = [shape[0] + bool(num_classes), *(channels * 2**n for n in range(len(sizes)))]
        layers: list[nn.Module] = []
        for n_in, n_out, in_size in zip(widths, widths[1:], sizes, strict=False):
            layers.append(halving_conv(n_in, n_out, in_size, bias=False))
            if n_in != widths[0] and norm != "none":
                layers.append(nn.BatchNorm2d(n_out) if norm == "batch" else nn.GroupNorm(1, n_out))
            layers.append(nn.LeakyReLU(_LEAKY_RELU_SLOPE, inplace=True))
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, smallest, bias=False))
        _dcgan_init(self)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:   # (B, C, H, W) -> (B,)
        if self.plane is not None and y is not None:
            x = torch.cat([x, self.plane(y).view(-1, 1, *x.shape[2:])], dim=1)
        score: Tensor = self.layers(x).flatten()
        return score

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "channels": 5}, torch.randn(batch_size, 2, 7, 12)


class StyleBlock(nn.Module):
    """Upsampling, convolution 3×3, noise of learned strength, leaky ReLU, AdaIN(w).  Karras et al. 2019, fig. 1."""

    def __init__(self, n_in: int, n_out: int, size: tuple[int, int], style_dim: int):
        super().__init__()
        self.size = size
        self.conv = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.strength = nn.Parameter(torch.zeros(n_out, 1, 1))
        self.adain = AdaIN(n_out, style_dim)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        if x.shape[2:] != self.size:
            x = F.interpolate(x, self.size, mode="nearest")
        x = self.conv(x)
        if self.training:  # noise for random detail, such as freckles and strands of hair
            x = x + self.strength * torch.randn_like(x[:, :1])
        y: Tensor = self.adain(F.leaky_relu(x, _LEAKY_RELU_SLOPE), w)
        return y


@register_model("style_generator", channels=32)
class StyleGenerator(nn.Module):
    """w = MLP(z / ‖z‖); w sets the style of each resolution, from a learned constant 4×4 map up, through AdaIN.

    Karras et al. 2019; Gaba 8.10.
    """

    def __init__(
        self,
        *,
        shape: Shape,
        latent_dim: int = 64,
        channels: int = 32,
        style_dim: int = 64,
        mapping_layers: int = 3,
        num_classes: int = 0,
    ):
        super().__init__()
        self.latent_dim, self.num_classes = latent_dim, num_classes
        self.mapping = make_mlp_layers((latent_dim + num_classes, *[style_dim] * mapping_layers), "leaky_relu")
        sizes = _resolution_pyramid(shape)[::-1]                                    # from 4 × 4 up
        widths = [channels * 2**n for n in range(len(sizes))][::-1]
        self.constant = nn.Parameter(torch.randn(1, widths[0], *sizes[0]))
        pairs = zip((widths[0], *widths), widths, sizes, strict=False)
        self.blocks = nn.ModuleList(StyleBlock(a, b, size, style_dim) for a, b, size in pairs)
        self.last = nn.Conv2d(widths[-1], shape[0], 1)
        # He's variance: styles that hardly vary would give one image only
        init_weights(self.mapping, "he_normal", activation="leaky_relu")

    def forward(self, z: Tensor, y: Tensor | None = None) -> Tensor:   # (B, latent) -> (B, C, H, W)
        z = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()      # length √latent_dim: only its direction counts
        w = self.mapping(_concat_label(z, y, self.num_classes))
        x = self.constant.expand(len(z), -1, -1, -1)
        for block in self.blocks:
            x = block(x, w)
        return torch.tanh(self.last(x))

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (2, 7, 12), "latent_dim": 6, "channels": 5, "style_dim": 8}, torch.randn(batch_size, 6)
