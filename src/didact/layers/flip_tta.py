"""An image and its mirror image, judged together."""

from torch import Tensor, nn


class FlipTTA(nn.Module):
    """½ (f(x) + f(mirror x)) where it judges, f(x) while it trains: a network that learned from flipped images
    knows both."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:                       # (B, C, H, W)
        y: Tensor = self.network(x)
        return y if self.training else (y + self.network(x.flip(-1))) / 2
