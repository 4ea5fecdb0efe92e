"""Vector quantization: a code is one of a few learned vectors; the gradient passes straight through."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def straight_through(z: Tensor, e: Tensor) -> Tensor:
    """Straight-through estimator: forward e, backward z, by z + sg(e − z), so that dL/dz = dL/de.

    Gaba Rem. 9.9, Bengio et al. 2013.
    """
    return z + (e - z).detach()


class VectorQuantizer(nn.Module):
    """e_k with k = argmin_j ‖z − e_j‖², at every position of a map.  Van den Oord et al. 2017, eqs. 1-2; Gaba eq. 9.24.
    """

    def __init__(self, codebook_size: int, code_dim: int):
        super().__init__()
        self.codebook = nn.Parameter(
            torch.empty(codebook_size, code_dim).uniform_(-1 / codebook_size, 1 / codebook_size)
        )

    def nearest(self, z: Tensor) -> Tensor:
        """Index of the nearest code: (B, D, H, W) -> (B, H, W).

        Differences are squared, in float32: products, which autocast and tensor cores round, would confuse codes that
        lie close together.
        """
        distances = torch.cdist(
            z.float().movedim(1, -1), self.codebook.detach().float(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        return distances.argmin(-1)                                      # (B, H, W, K) -> (B, H, W)

    def embed_codes(self, k: Tensor) -> Tensor:
        """Vectors of code indices: (B, H, W) -> (B, D, H, W)."""
        return F.embedding(k, self.codebook).movedim(-1, 1)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        k = self.nearest(z.detach())
        return self.embed_codes(k), k
