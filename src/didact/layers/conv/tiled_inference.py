"""Large images tile by tile: what a network needs of memory is then that of a tile, and its answer the same."""

import torch
from torch import Tensor

from didact.analysis.receptive_field import trace_receptive_fields
from didact.layers.conv.reflect_pad import NeedsInputSize

_TILE_PIXELS = 1024  # pixels of a tile that are answered; it sees more


class TiledInference:
    """y = f(x) from tiles that overlap by the receptive field of f, cut off again: each output sees what it would
    see in the whole.

    Tiles begin at multiples of the least side that f takes, since a step that halves counts pixels from the edge.
    """

    def __init__(self, network: NeedsInputSize, tile_size: int = _TILE_PIXELS):
        self.network, self.tile_size = network, network.input_size_for(tile_size)

    def input_size_for(self, output_size: int) -> int:
        return self.network.input_size_for(output_size)

    def __call__(self, x: Tensor) -> Tensor:                           # (B, C, H, W), sides that f takes
        margin = self.receptive_margin(x) if max(x.shape[2:]) > self.tile_size else None
        if margin is None:
            return self.network(x)
        y = torch.empty_like(x)
        for top in range(0, x.shape[2], self.tile_size):
            for left in range(0, x.shape[3], self.tile_size):
                top_margin, left_margin = min(top, margin), min(left, margin)
                tile = x[
                    :,
                    :,
                    top - top_margin : top + self.tile_size + margin,
                    left - left_margin : left + self.tile_size + margin,
                ]
                tile_output = self.network(tile)[
                    :, :, top_margin : top_margin + self.tile_size, left_margin : left_margin + self.tile_size
                ]
                y[:, :, top : top + self.tile_size, left : left + self.tile_size] = tile_output
        return y

    def receptive_margin(self, x: Tensor) -> int | None:
        """Farther than an output of f sees to either side, as a side that f takes; None: it sees the whole image."""
        probe_size = self.input_size_for(64)
        field = trace_receptive_fields(self.network, x.new_zeros(1, x.shape[1], probe_size, probe_size))[-1].field  # type: ignore[arg-type]
        return None if field is None else self.input_size_for(max(field))
