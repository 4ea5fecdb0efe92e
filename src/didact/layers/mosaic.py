"""Large images tile by tile: what a network needs of memory is then that of a tile, and its answer the same."""

import torch
from torch import Tensor

from didact.layers.geometry import trace
from didact.layers.margin import Sided

SIDE = 1024  # pixels of a tile that are answered; it sees more


class Mosaic:
    """y = f(x) from tiles that overlap by the receptive field of f, cut off again: each output sees what it would see in the whole.

    Tiles begin at multiples of the least side that f takes, since a step that halves counts pixels from the edge.
    """

    def __init__(self, network: Sided, side: int = SIDE):
        self.network, self.side = network, network.side_for(side)

    def side_for(self, side: int) -> int:
        return self.network.side_for(side)

    def __call__(self, x: Tensor) -> Tensor:                           # (B, C, H, W), sides that f takes
        reach = self.reach(x) if max(x.shape[2:]) > self.side else None
        if reach is None:
            return self.network(x)
        y = torch.empty_like(x)
        for top in range(0, x.shape[2], self.side):
            for left in range(0, x.shape[3], self.side):
                above, before = min(top, reach), min(left, reach)
                seen = x[:, :, top - above : top + self.side + reach, left - before : left + self.side + reach]
                said = self.network(seen)[:, :, above : above + self.side, before : before + self.side]
                y[:, :, top : top + self.side, left : left + self.side] = said
        return y

    def reach(self, x: Tensor) -> int | None:
        """Farther than an output of f sees to either side, as a side that f takes; None: it sees the whole image."""
        little = self.side_for(64)
        field = trace(self.network, x.new_zeros(1, x.shape[1], little, little))[-1].field  # type: ignore[arg-type]
        return None if field is None else self.side_for(max(field))
