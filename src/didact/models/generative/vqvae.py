"""VQ-VAE: an image as a small map of codes from a learned codebook.

    x -> [convolution of stride 2, BN, ReLU] x levels -> z_e -> nearest codes z_q -> mirrored -> x̂
"""

import torch
from torch import Tensor, nn

from didact.layers.autoencoder_blocks import Shape
from didact.layers.conv.down_up import doubling_conv, downsampled_sizes, halving_conv
from didact.layers.vector_quantizer import VectorQuantizer, straight_through


class VQVAE(nn.Module):
    """x̂ = g(z_q), z_q the nearest of K codes at each position.  Van den Oord et al. 2017; Gaba eqs. 9.24-9.25, Ex 9.5.
    """

    def __init__(
        self, *, shape: Shape, widths: tuple[int, ...] = (32, 64), codebook_size: int = 512, code_dim: int = 64
    ):
        super().__init__()
        channels, *size = shape
        *sizes, self.grid = downsampled_sizes((size[0], size[1]), len(widths))
        encoder_layers: list[nn.Module] = []
        for n_in, n_out, in_size in zip((channels, *widths), widths, sizes, strict=False):
            encoder_layers += [
                halving_conv(n_in, n_out, in_size, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(inplace=True),
            ]
        # the norm fixes the scale of the codes: else the encoder's outputs outgrow a codebook that follows slowly
        self.encoder = nn.Sequential(
            *encoder_layers, nn.Conv2d(widths[-1], code_dim, 1), nn.BatchNorm2d(code_dim, affine=False)
        )
        self.quantizer = VectorQuantizer(codebook_size, code_dim)
        nn.init.normal_(self.quantizer.codebook)
        decoder_layers: list[nn.Module] = [nn.Conv2d(code_dim, widths[-1], 3, padding=1), nn.ReLU(inplace=True)]
        for n_in, n_out, out_size in zip(reversed(widths[1:]), reversed(widths[:-1]), reversed(sizes[1:]), strict=True):
            decoder_layers += [
                doubling_conv(n_in, n_out, out_size, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(inplace=True),
            ]
        self.decoder = nn.Sequential(*decoder_layers, doubling_conv(widths[0], channels, sizes[0]))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the encoder z_e, their nearest codes z_q, and the indices of these (B, h, w)."""
        z = self.encoder(x).float()
        e, k = self.quantizer(z)
        return z, e, k

    def decode(self, z: Tensor) -> Tensor:
        x: Tensor = self.decoder(z)
        return x

    def decode_codes(self, k: Tensor) -> Tensor:
        """Image of code indices (B, h, w), such as those that a prior over codes samples."""
        return self.decode(self.quantizer.embed_codes(k))

    def forward(self, x: Tensor) -> Tensor:
        z, e, _ = self.encode(x)
        return self.decode(straight_through(z, e))

    @property
    def codebook_size(self) -> int:
        return len(self.quantizer.codebook)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, object], Tensor]:
        """Not registered: no output's gradient reaches the codebook, by design."""
        return {"shape": (2, 7, 12), "widths": (9, 10), "codebook_size": 11, "code_dim": 5}, torch.rand(
            batch_size, 2, 7, 12
        )
