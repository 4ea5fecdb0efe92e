"""Vector quantisation: a code is one of a few learned vectors, and the gradient passes as if nothing had happened."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def straight_through(z: Tensor, e: Tensor) -> Tensor:
    """Forward e, backward z: z + sg(e − z), so that dL/dz = dL/de.  Gaba Rem. 9.9, Bengio et al. 2013."""
    return z + (e - z).detach()


class VectorQuantizer(nn.Module):
    """e_k with k = argmin_j ‖z − e_j‖², at every place of a map.  Van den Oord et al. 2017, eqs. 1-2; Gaba eq. 9.24."""

    def __init__(self, codebook_size: int, code_dim: int):
        super().__init__()
        self.codebook = nn.Parameter(
            torch.empty(codebook_size, code_dim).uniform_(-1 / codebook_size, 1 / codebook_size)
        )

    def nearest(self, z: Tensor) -> Tensor:
        """(B, D, H, W) -> (B, H, W), the number of the nearest code.

        Differences are squared, in single precision: as products, which autocast and tensor cores round, near codes
        would be confused.
        """
        distances = torch.cdist(
            z.float().movedim(1, -1), self.codebook.detach().float(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        return distances.argmin(-1)                                      # (B, H, W, K) -> (B, H, W)

    def embed_codes(self, k: Tensor) -> Tensor:
        """(B, H, W) -> (B, D, H, W)."""
        return F.embedding(k, self.codebook).movedim(-1, 1)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        k = self.nearest(z.detach())
        return self.embed_codes(k), k
