"""Augmentation of whole image batches, on the device.

An augmentation takes a batch and a generator and returns the batch with another "x", (B, C, H, W) in [0, 1]; mixup and
CutMix change "y" too. All randomness comes from the generator, on the batch's device; shapes are fixed and nothing
waits for the host, so a CUDA graph with the generator registered can capture it. Gaba 3.7, Lhotte 6.5.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import radians

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.errors import UsageError, look_up

Augmentation = Callable[[Batch, Generator], Batch]


def get_images(batch: Batch) -> Tensor:
    """The batch's images; refuses a table."""
    x = batch["x"]
    if x.ndim != 4:
        raise UsageError(f"this augmentation is for images (batch, channels, height, width), got {tuple(x.shape)}")
    return x


def sample_uniform(x: Tensor, generator: Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """U(low, high) for each image, ready to broadcast: (B, 1, 1, 1)."""
    samples = torch.rand(len(x), 1, 1, 1, generator=generator, device=x.device, dtype=x.dtype)
    return low + (high - low) * samples


def _to_pixels(size: float, side: int) -> int:
    """Pixels: an int is pixels already, a float a fraction of the side."""
    return size if isinstance(size, int) else round(size * side)


@dataclass(frozen=True)
class Flip:
    """Random horizontal and vertical flip with these probabilities."""

    horizontal: float = 0.5
    vertical: float = 0.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = get_images(batch)
        for p, axis in ((self.horizontal, -1), (self.vertical, -2)):
            if p:
                x = torch.where(sample_uniform(x, generator) < p, x.flip(axis), x)
        return {**batch, "x": x}


@dataclass(frozen=True)
class RandomCrop:
    """Random crop of a padded image: a shift by whole pixels, at most `padding`.

    The padding is black, or with `reflect` the image's reflection, which looks more like the world beyond a photograph.
    """

    padding: float = 4
    reflect: bool = False

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = get_images(batch)
        n, _, height, width = x.shape
        p, q = _to_pixels(self.padding, height), _to_pixels(self.padding, width)
        mode = "reflect" if self.reflect and p < height and q < width else "constant"
        # (B, C, 2p+1, 2q+1, H, W), a view
        windows = F.pad(x, (q, q, p, p), mode=mode).unfold(2, height, 1).unfold(3, width, 1)
        row = torch.arange(n, device=x.device)
        down = torch.randint(2 * p + 1, (n,), generator=generator, device=x.device)
        right = torch.randint(2 * q + 1, (n,), generator=generator, device=x.device)
        return {**batch, "x": windows[row, :, down, right]}


def warp(
    x: Tensor, angle: Tensor, *, scale: Tensor | float = 1.0, shear: Tensor | float = 0.0,
    right: Tensor | float = 0.0, down: Tensor | float = 0.0, mode: str = "bilinear",
) -> Tensor:
    """Affine transform: shear, counterclockwise rotation and scaling about the center, then translation; zeros outside.

    Pixel q goes to p = scale R K q + t, so p is read at q = K^-1 R^-1 (p - t) / scale, linearly between pixels.
    In pixels, not in fractions of the sides: those would make ellipses of circles where an image is not square.
    By multiply-adds, not F.affine_grid: its matrix product may round coordinates to TF32, a tenth of a pixel.
    """
    height, width = x.shape[-2:]
    u = torch.arange(width, device=x.device, dtype=x.dtype) - (width - 1) / 2 - right             # (B, 1, 1, W)
    v = torch.arange(height, device=x.device, dtype=x.dtype)[:, None] - (height - 1) / 2 - down   # (B, 1, H, 1)
    a = angle.cos() * u - angle.sin() * v                                                         # (B, 1, H, W)
    b = angle.sin() * u + angle.cos() * v
    a = a - shear * b
    grid = torch.stack((a / scale * (2 / width), b / scale * (2 / height)), dim=-1).squeeze(1)    # (B, H, W, 2)
    return F.grid_sample(x, grid, mode=mode, align_corners=False)


@dataclass(frozen=True)
class Rotate:
    """Rotation about the center by U(-degrees, degrees).  Gaba 3.10 takes 10."""

    degrees: float = 10.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, a = get_images(batch), radians(self.degrees)
        return {**batch, "x": warp(x, sample_uniform(x, generator, -a, a))}


@dataclass(frozen=True)
class Affine:
    """Random rotation and shear in degrees, scale U(1-s, 1+s), translation in fractions of the sides.

    Without the scale: Gaba 3.10.
    """

    degrees: float = 10.0
    translate: float = 0.1
    scale: float = 0.1
    shear: float = 0.0

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, a, t, k = get_images(batch), radians(self.degrees), self.translate, radians(self.shear)
        height, width = x.shape[-2:]
        warped = warp(
            x,
            sample_uniform(x, generator, -a, a),
            scale=sample_uniform(x, generator, 1 - self.scale, 1 + self.scale),
            shear=sample_uniform(x, generator, -k, k).tan(),
            right=sample_uniform(x, generator, -t, t) * width,
            down=sample_uniform(x, generator, -t, t) * height,
        )
        return {**batch, "x": warped}


def to_grayscale(x: Tensor) -> Tensor:
    """Luma of ITU-R 601 for red, green and blue; the mean of any other number of channels."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    return 0.299 * x[:, 0:1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3]


@dataclass(frozen=True)
class ColorJitter:
    """x = c + f (x - c), f ~ U(1-a, 1+a): c black (brightness), the mean gray (contrast), its own gray (saturation)."""

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = get_images(batch)
        if self.brightness:
            x = self._scale_about(x, torch.zeros_like(x), self.brightness, generator)
        if self.contrast:
            x = self._scale_about(x, to_grayscale(x).mean(dim=(2, 3), keepdim=True), self.contrast, generator)
        if self.saturation:
            x = self._scale_about(x, to_grayscale(x), self.saturation, generator)
        return {**batch, "x": x}

    @staticmethod
    def _scale_about(x: Tensor, c: Tensor, a: float, generator: Generator) -> Tensor:
        return torch.lerp(c, x, sample_uniform(x, generator, max(0.0, 1 - a), 1 + a)).clamp(0, 1)


@dataclass(frozen=True)
class GaussianNoise:
    """x + std e, e ~ N(0, 1); not clipped to [0, 1], which would brighten black."""

    std: float = 0.05

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = batch["x"]
        e = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        return {**batch, "x": torch.add(x, e, alpha=self.std)}


def sample_box_mask(x: Tensor, generator: Generator, height: Tensor | int, width: Tensor | int) -> Tensor:
    """True inside a box of that size around a random pixel, clipped at the border: (B, 1, H, W)."""
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    for size, axis in ((height, -2), (width, -1)):
        side = x.shape[axis]
        start = torch.randint(side, (len(x), 1, 1, 1), generator=generator, device=x.device) - size // 2
        positions = torch.arange(side, device=x.device).view((-1, 1) if axis == -2 else (1, -1))
        inside = inside & (positions >= start) & (positions < start + size)
    return inside


@dataclass(frozen=True)
class Cutout:
    """Cutout: a black square around a random pixel, clipped at the border.  DeVries & Taylor 2017."""

    size: float = 8

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x = get_images(batch)
        height, width = x.shape[-2:]
        return {
            **batch,
            "x": x.masked_fill(
                sample_box_mask(x, generator, _to_pixels(self.size, height), _to_pixels(self.size, width)), 0
            ),
        }


def sample_beta(alpha: float, n: int, generator: Generator) -> Tensor:
    """n samples of Beta(alpha, alpha) = G1 / (G1 + G2), with G ~ Gamma(alpha), from the generator.

    In logarithms and by Gamma(alpha) = Gamma(alpha + 1) U^(1/alpha): for small alpha both G would underflow to 0 / 0.
    """
    if alpha <= 0:
        raise UsageError(f"alpha of mixup and CutMix must be more than 0, got {alpha:g}")
    shape = torch.full((2, n), alpha + 1, device=generator.device)
    u = torch.rand(2, n, generator=generator, device=generator.device)
    log_g = torch._standard_gamma(shape, generator=generator).log() + torch.log1p(-u) / alpha
    return torch.sigmoid(log_g[0] - log_g[1])


def _sample_permutation(n: int, generator: Generator) -> Tensor:
    """The partner of each example: a random permutation of the batch."""
    return torch.rand(n, generator=generator, device=generator.device).argsort()


def _to_probabilities(y: Tensor, num_classes: int) -> Tensor:
    """Class indices -> (B, K) one-hot, or the probability of class 1 where `num_classes` is 1; floats stay."""
    if y.is_floating_point():
        return y
    if num_classes == 1:
        return y.float()
    return (y[:, None] == torch.arange(num_classes, device=y.device)).float()  # F.one_hot may read y on the host


def _interpolate(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """w a + (1 - w) b with one weight for each example."""
    return torch.lerp(b, a, weight.to(a.dtype).view(-1, *[1] * (a.ndim - 1)))


@dataclass(frozen=True)
class Mixup:
    """x = l x_i + (1-l) x_j, y likewise, l ~ Beta(alpha, alpha) for each example.  Zhang et al. 2018, Gaba 3.7.2."""

    alpha: float
    num_classes: int

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = batch["x"], _to_probabilities(batch["y"], self.num_classes)
        l, j = sample_beta(self.alpha, len(x), generator), _sample_permutation(len(x), generator)
        return {**batch, "x": _interpolate(x, x[j], l), "y": _interpolate(y, y[j], l)}


@dataclass(frozen=True)
class CutMix:
    """A box of x_j with area 1 - l, l ~ Beta(alpha, alpha), pasted into x_i; y by the pixels pasted.  Yun et al. 2019.

    The box is clipped at the border, so labels follow the pixels counted, not l.  Gaba 3.7.3.
    """

    alpha: float
    num_classes: int

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        x, y = get_images(batch), _to_probabilities(batch["y"], self.num_classes)
        height, width = x.shape[-2:]
        r = (1 - sample_beta(self.alpha, len(x), generator)).sqrt().view(-1, 1, 1, 1)
        j = _sample_permutation(len(x), generator)
        pasted_mask = sample_box_mask(x, generator, (height * r).round().long(), (width * r).round().long())
        kept_share = 1 - pasted_mask.sum(dim=(1, 2, 3)) / (height * width)
        return {**batch, "x": torch.where(pasted_mask, x[j], x), "y": _interpolate(y, y[j], kept_share)}


@dataclass(frozen=True)
class Compose:
    """Augmentations one after the other."""

    augmentations: tuple[Augmentation, ...]

    def __call__(self, batch: Batch, generator: Generator) -> Batch:
        for augmentation in self.augmentations:
            batch = augmentation(batch, generator)
        return batch


def compose(*augmentations: Augmentation) -> Compose:
    """These augmentations in this order."""
    return Compose(augmentations)


# by name, made for a number of classes; sizes are fractions of the side, so that they suit 8 x 8 digits too
AUGMENTATIONS: dict[str, Callable[[int], Augmentation]] = {
    "flip": lambda classes: Flip(),
    "crop": lambda classes: RandomCrop(padding=1 / 8, reflect=True),
    "crop_black": lambda classes: RandomCrop(padding=1 / 8),             # Gaba 4.6
    "rotate": lambda classes: Rotate(),
    "affine": lambda classes: Affine(),
    "rigid": lambda classes: Affine(scale=0.0),                         # Gaba 3.10
    "jitter": lambda classes: ColorJitter(),
    "light": lambda classes: ColorJitter(saturation=0.0),                    # Gaba 4.6
    "noise": lambda classes: GaussianNoise(),
    "cutout": lambda classes: Cutout(size=1 / 4),
    "mixup": lambda classes: Mixup(alpha=0.2, num_classes=classes),
    "cutmix": lambda classes: CutMix(alpha=1.0, num_classes=classes),
}


def make_augmentations(names: tuple[str, ...], *, num_classes: int) -> Augmentation | None:
    """The named augmentations in this order, or None where there are none."""
    steps = [look_up("augmentation", name, AUGMENTATIONS)(num_classes) for name in names]
    return compose(*steps) if steps else None
