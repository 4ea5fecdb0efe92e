"""Tiled inference: large images tile by tile, with the memory of one tile and exactly the output of the whole image."""

import torch
from torch import Tensor

from didact.analysis.receptive_field import trace_receptive_fields
from didact.layers.conv.reflect_pad import NeedsInputSize

_TILE_PIXELS = 1024  # side of a tile's output; its input is larger by the margin


class TiledInference:
    """y = f(x) from tiles that overlap by the receptive field of f; the margin of each tile's output is cropped.

    Tiles begin at multiples of the smallest side that f accepts, since a layer of stride 2 counts pixels from the edge.
    """

    def __init__(self, network: NeedsInputSize, tile_size: int = _TILE_PIXELS):
        self.network, self.tile_size = network, network.input_size_for(tile_size)

    def input_size_for(self, output_size: int) -> int:
        return self.network.input_size_for(output_size)

    def __call__(self, x: Tensor) -> Tensor:                           # (B, C, H, W), sides that f accepts
        margin = self.receptive_margin(x) if max(x.shape[2:]) > self.tile_size else None
        if margin is None:
            return self.network(x)
        y = torch.empty_like(x)
        for top in range(0, x.shape[2], self.tile_size):
            for left in range(0, x.shape[3], self.tile_size):
                top_margin, left_margin, side = min(top, margin), min(left, margin), self.tile_size
                rows = slice(top - top_margin, top + side + margin)
                columns = slice(left - left_margin, left + side + margin)
                tile = self.network(x[:, :, rows, columns])
                tile = tile[:, :, top_margin : top_margin + side, left_margin : left_margin + side]
                y[:, :, top : top + side, left : left + side] = tile
        return y

    def receptive_margin(self, x: Tensor) -> int | None:
        """A side accepted by f that is not smaller than its receptive field; None where an output sees the whole image.
        """
        probe_size = self.input_size_for(64)
        field = trace_receptive_fields(self.network, x.new_zeros(1, x.shape[1], probe_size, probe_size))[-1].field  # type: ignore[arg-type]
        return None if field is None else self.input_size_for(max(field))
