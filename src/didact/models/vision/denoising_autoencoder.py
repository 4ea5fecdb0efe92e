"""Denoising autoencoder: from a noisy image to the clean one, with residual learning.

    x̃ -> convolution -> [halve, widen] x levels -> [double, narrow, add skip] x levels -> convolution -> + x̃
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.conv.convolution import upsample_conv
from didact.layers.standardize import Standardize
from didact.registry import register_model


@register_model("denoiser", widths=(32, 64, 128))
@register_model("denoiser_tiny", widths=(16, 32))
class DenoisingAutoencoder(nn.Module):
    """x̂ = x̃ + d(e(x̃)): the network learns the noise, not the image.  Vincent et al. 2008, Zhang et al. 2017; Fleuret
    6.1.

    Skip connections add the encoder's maps to the decoder's of equal size (Mao et al. 2016): noise must be separated
    pixel by pixel, for which the bottleneck of an autoencoder is too small.
    """

    def __init__(
        self, *, widths: tuple[int, ...], channels: int = 3, mean: Tensor | None = None, std: Tensor | None = None
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down, self.grow, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for a, b in pairwise(widths):
            down_conv, conv = nn.Conv2d(a, b, 3, stride=2, padding=1), nn.Conv2d(b, b, 3, padding=1)
            self.down.append(nn.Sequential(down_conv, nn.ReLU(inplace=True), conv, nn.ReLU(inplace=True)))
            self.grow.append(upsample_conv(b, a))
            self.up.append(nn.Sequential(nn.ReLU(), nn.Conv2d(a, a, 3, padding=1), nn.ReLU(inplace=True)))
        self.head = nn.Conv2d(widths[0], channels, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.head.weight, std=1e-3)                # starts near the identity

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W) in [0, 1], noisy
        if any(side % 2 ** len(self.down) for side in x.shape[2:]):
            raise UsageError(
                f"a denoiser that halves {len(self.down)} times needs sides that are multiples of "
                f"{2 ** len(self.down)}, got {x.shape[3]}×{x.shape[2]}; see --size and --channels"
            )
        h = torch.relu(self.first(self.standardize(x)))
        bridges = []
        for down in self.down:
            bridges.append(h)
            h = down(h)                                            # (B, w_l, H / 2^l, W / 2^l)
        for grow, up in zip(reversed(self.grow), reversed(self.up), strict=True):
            h = up(grow(h) + bridges.pop())
        y: Tensor = x + self.head(h)
        return y

    def input_size_for(self, output_size: int) -> int:
        """The next multiple of 2^levels."""
        multiple: int = 2 ** len(self.down)
        return -(-output_size // multiple) * multiple

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        return {"widths": (5, 6, 7), "mean": mean, "std": std}, torch.rand(batch_size, 3, 12, 20)
