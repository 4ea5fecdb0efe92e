"""Adaptive normalization: scale and shift of each feature map come from a style vector (AdaIN) or from a class."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AdaIN(nn.Module):
    """y = s(w) (x − μ(x)) / σ(x) + b(w), moments of each channel of each image.

    Adaptive instance normalization.  Huang and Belongie 2017, eq. 8; Gaba 8.10.
    """

    def __init__(self, channels: int, style_dim: int):
        super().__init__()
        self.style = nn.Linear(style_dim, 2 * channels)
        nn.init.normal_(self.style.weight, std=style_dim**-0.5)  # N(0, 1) styles change scales and shifts by about 1
        with torch.no_grad():
            self.style.bias[:channels].fill_(1.0)
            self.style.bias[channels:].zero_()

    def forward(self, x: Tensor, w: Tensor) -> Tensor:             # (B, C, H, W), (B, style)
        s, b = self.style(w)[:, :, None, None].chunk(2, dim=1)     # (B, C, 1, 1) each
        y: Tensor = s * F.instance_norm(x) + b
        return y


class ConditionalBatchNorm2d(nn.Module):
    """y = γ_k (x − μ) / σ + β_k, moments of the batch, scale and shift of the example's class k.

    Dumoulin et al. 2017, eq. 5.
    """

    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gamma, self.beta = nn.Embedding(num_classes, channels), nn.Embedding(num_classes, channels)
        nn.init.ones_(self.gamma.weight)
        nn.init.zeros_(self.beta.weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:             # (B, C, H, W), (B,)
        gamma, beta = (table(y)[:, :, None, None] for table in (self.gamma, self.beta))
        out: Tensor = gamma * self.norm(x) + beta
        return out
