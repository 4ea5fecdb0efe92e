"""VQ-VAE: an image as a small map of words from a learned vocabulary.

    x -> [convolution of stride 2, BN, ReLU] x levels -> z_e -> nearest codes z_q -> mirrored -> x̂
"""

import torch
from torch import Tensor, nn

from didact.layers.coder import Shape
from didact.layers.quantize import Quantizer, straight_through
from didact.layers.resample import double, halve, halvings


class VQVAE(nn.Module):
    """x̂ = g(z_q), z_q the nearest of K codes at each place.  Van den Oord et al. 2017; Gaba eqs. 9.24-9.25, Ex 9.5."""

    def __init__(self, *, shape: Shape, widths: tuple[int, ...] = (32, 64), codes: int = 512, dim: int = 64):
        super().__init__()
        channels, *size = shape
        *sizes, self.grid = halvings((size[0], size[1]), len(widths))
        down: list[nn.Module] = []
        for n_in, n_out, at in zip((channels, *widths), widths, sizes, strict=False):
            down += [halve(n_in, n_out, at, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
        # codes of one scale: without it the encoder runs away from a codebook that follows slowly
        self.encoder = nn.Sequential(*down, nn.Conv2d(widths[-1], dim, 1), nn.BatchNorm2d(dim, affine=False))
        self.quantizer = Quantizer(codes, dim)
        nn.init.normal_(self.quantizer.codebook)
        up: list[nn.Module] = [nn.Conv2d(dim, widths[-1], 3, padding=1), nn.ReLU(inplace=True)]
        for n_in, n_out, to in zip(reversed(widths[1:]), reversed(widths[:-1]), reversed(sizes[1:]), strict=True):
            up += [double(n_in, n_out, to, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
        self.decoder = nn.Sequential(*up, double(widths[0], channels, sizes[0]))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the encoder said z_e, its nearest codes z_q, and their numbers (B, h, w)."""
        z = self.encoder(x).float()
        e, k = self.quantizer(z)
        return z, e, k

    def decode(self, z: Tensor) -> Tensor:
        x: Tensor = self.decoder(z)
        return x

    def decode_codes(self, k: Tensor) -> Tensor:
        """Numbers of codes (B, h, w) -> what the decoder says: where a prior over codes draws images from."""
        return self.decode(self.quantizer.look_up(k))

    def forward(self, x: Tensor) -> Tensor:
        z, e, _ = self.encode(x)
        return self.decode(straight_through(z, e))

    @property
    def codes(self) -> int:
        return len(self.quantizer.codebook)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, object], Tensor]:
        """Keywords of a small one and an input for it. Not registered: no output's gradient reaches the codebook, by design."""
        return {"shape": (2, 7, 12), "widths": (9, 10), "codes": 11, "dim": 5}, torch.rand(batch, 2, 7, 12)
