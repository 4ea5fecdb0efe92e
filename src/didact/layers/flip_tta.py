"""Test-time augmentation by flips: the mean of the outputs for an image and its mirror image."""

from torch import Tensor, nn


class FlipTTA(nn.Module):
    """½ (f(x) + f(mirror x)) in eval mode, f(x) in training: for a network that was trained on flipped images."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:                       # (B, C, H, W)
        y: Tensor = self.network(x)
        return y if self.training else (y + self.network(x.flip(-1))) / 2
