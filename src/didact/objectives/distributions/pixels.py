"""Pixel likelihoods p(x | out) of images in [0, 1], for decoders. Sums over pixels, in nats."""

from math import log, pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import look_up


class PixelDistribution(nn.Module):
    """A distribution of images in which pixels are independent given the decoder's output."""

    num_outputs: int = 1     # outputs of the decoder for each pixel and channel

    def nll(self, out: Tensor, x: Tensor) -> Tensor:
        """−log p(x | out), (B,)."""
        raise NotImplementedError

    def mean(self, out: Tensor) -> Tensor:
        """E x, the image to show."""
        raise NotImplementedError


class Bernoulli(PixelDistribution):
    """−Σ x log p + (1 − x) log(1 − p), p = sigmoid(out).  Gaba 9.8.

    For gray pixels this is not a normalized likelihood, and even x̂ = x leaves the entropy of x as its loss (M43).
    """

    def nll(self, out: Tensor, x: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out.float(), x, reduction="none").flatten(1).sum(1)

    def mean(self, out: Tensor) -> Tensor:
        return out.float().sigmoid()


class Gaussian(PixelDistribution):
    """½ Σ (x − out)² / σ² + log σ² + log 2π, one σ for all pixels, learned.  Groudiev 10.2; Rybkin et al. 2021."""

    def __init__(self) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.tensor(-2.0))

    def nll(self, out: Tensor, x: Tensor) -> Tensor:
        v = self.log_variance.clamp(-9, 9)  # σ is at least about 3 of 255 levels
        return 0.5 * ((out.float() - x).square() * (-v).exp() + v + log(2 * pi)).flatten(1).sum(1)

    def mean(self, out: Tensor) -> Tensor:
        return out.float().clamp(0, 1)


class Categorical(PixelDistribution):
    """−Σ log softmax(out)[level of x], each pixel one of L levels: a proper likelihood of quantized images."""

    def __init__(self, levels: int = 16):
        super().__init__()
        self.num_outputs = levels

    def nll(self, out: Tensor, x: Tensor) -> Tensor:
        level = (x * (self.num_outputs - 1)).round().long()
        return F.cross_entropy(self.split(out), level, reduction="none").flatten(1).sum(1)

    def mean(self, out: Tensor) -> Tensor:
        values = torch.linspace(0, 1, self.num_outputs, device=out.device)
        return torch.einsum("blchw,l->bchw", self.split(out).softmax(1), values)

    def split(self, out: Tensor) -> Tensor:
        """(B, L C, H, W) -> (B, L, C, H, W)."""
        levels: Tensor = out.float().unflatten(1, (self.num_outputs, -1))
        return levels


_PIXEL_DISTRIBUTIONS: dict[str, type[PixelDistribution]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "categorical": Categorical,
}


def make_pixel_distribution(name: str, *, levels: int = 16) -> PixelDistribution:
    """The pixel likelihood of a name."""
    kind = look_up("pixel likelihood", name, _PIXEL_DISTRIBUTIONS)
    return Categorical(levels) if kind is Categorical else kind()
