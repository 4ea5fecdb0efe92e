"""Channel attention: weigh every feature map by what the whole image holds."""

import torch
from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """z = mean_HW(x), s = sigmoid(W2 relu(W1 z)), y = s * x.  Hu et al. 2018, eqs. 2-4."""

    def __init__(self, channels: int, *, reduction: int = 16):
        super().__init__()
        hidden = max(1, channels // reduction)  # toy widths must not shrink to nothing
        self.w1 = nn.Linear(channels, hidden)
        self.w2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        z = x.mean(dim=(2, 3))                                         # (B, C, H, W) -> (B, C)
        s = torch.sigmoid(self.w2(torch.relu(self.w1(z))))             # (B, C), each in (0, 1)
        return s[:, :, None, None] * x                                 # (B, C, H, W)
