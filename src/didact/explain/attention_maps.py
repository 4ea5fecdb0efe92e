"""Attention maps: the weights of each head, with the tokens on both axes."""

import math
from collections.abc import Sequence

from torch import Tensor

from didact.charts import svg
from didact.charts.html import Html, ellipsize, tag
from didact.explain.colormap import HEAT_COLORMAP, SIGNED_COLORMAP, apply_colormap, scale_to_unit
from didact.report.examples import image_to_data_uri

_MAPS_PER_ROW = 4
_MAP_SIDE_PX, _MAP_GAP_PX = 210, 18    # side of a map, and the space between two
_MAX_AXIS_NAMES = 20                  # tokens of an axis that are labeled


def draw_attention_maps(title: str, heads: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Html:
    """(heads, T, S): one map per head, each on its own scale, the T queries as rows and the S keys as columns.

    Bright is large; where weights can be negative, red is positive and blue negative.
    """
    row_labels, column_labels = ([ellipsize(label, 12) for label in names] for names in (rows, columns))
    left, top = (8 + svg.CHAR_WIDTH * max(map(len, names)) for names in (row_labels, column_labels))
    tile_width, tile_height = left + _MAP_SIDE_PX + _MAP_GAP_PX, top + _MAP_SIDE_PX + _MAP_GAP_PX + 22
    is_signed = bool((heads < 0).any())    # the same colormap for all heads of a layer
    parts: list[Html] = []
    for j, a in enumerate(heads):
        x, y = tile_width * (j % _MAPS_PER_ROW) + left, tile_height * (j // _MAPS_PER_ROW) + top + 22
        parts.append(svg.draw_text(x, y - top - 6, f"{title} head {j + 1}", "title"))
        image = apply_colormap(
            scale_to_unit(a, signed=is_signed, quantile=1.0), SIGNED_COLORMAP if is_signed else HEAT_COLORMAP
        )
        parts.append(
            tag(
                "image",
                href=image_to_data_uri(image),
                x=round(x, 1),
                y=round(y, 1),
                width=_MAP_SIDE_PX,
                height=_MAP_SIDE_PX,
                preserveAspectRatio="none",
                style="image-rendering:pixelated",
            )
        )
        parts.append(svg.draw_rect(x, y, _MAP_SIDE_PX, _MAP_SIDE_PX, "frame"))
        cell_size, step = _MAP_SIDE_PX / len(row_labels), math.ceil(len(row_labels) / _MAX_AXIS_NAMES)
        parts += [
            svg.draw_text(x - 5, y + (i + 0.5) * cell_size + 4, row_labels[i], "tick", "end")
            for i in range(0, len(row_labels), step)
        ]
        cell_size, step = _MAP_SIDE_PX / len(column_labels), math.ceil(len(column_labels) / _MAX_AXIS_NAMES)
        parts += [
            svg.draw_text(x + (i + 0.5) * cell_size + 4, y - 5, column_labels[i], "tick", angle=-90)
            for i in range(0, len(column_labels), step)
        ]
    count = len(heads)
    return svg.make_svg(
        title, tile_width * min(_MAPS_PER_ROW, count), tile_height * math.ceil(count / _MAPS_PER_ROW), *parts
    )
