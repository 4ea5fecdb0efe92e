"""Explanations as images: panels of one image side by side, bars for the parts of other inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.html import Html, ellipsize, format_number
from didact.explain.colormap import (
    HEAT_COLORMAP,
    SIGNED_COLORMAP,
    apply_colormap,
    overlay_heatmap,
    scale_to_unit,
    tile_images,
    upscale_nearest,
)
from didact.explain.methods import FEATURE_METHODS, IMAGE_METHODS

_MAX_BARS = 12      # bars for the strongest parts
_GAP_PX, _LINE_HEIGHT = 14, 20
_INK_COLOR, _SOFT_COLOR, _PAPER_COLOR = "#1d2129", "#5a6270", "#ffffff"


@dataclass(frozen=True)
class Panel:
    """An image with a title: (3, h, w) in [0, 1]."""

    title: str
    image: Tensor


def _to_rgb(x: Tensor) -> Tensor:
    """An image to be shown: one channel as gray, three as colors, others as their mean."""
    x = x.detach().float().cpu().clamp(0, 1)
    return x if x.shape[0] == 3 else x.mean(0, keepdim=True).expand(3, -1, -1)


def make_panels(x: Tensor, heatmaps: Mapping[str, Tensor]) -> list[Panel]:
    """The image, then each method's map over it."""
    map_panels = [
        Panel(_format_map_title(name, heatmap), overlay_heatmap(x, heatmap, signed=IMAGE_METHODS[name].is_signed))
        for name, heatmap in heatmaps.items()
    ]
    return [Panel("image", _to_rgb(x)), *map_panels]


def _format_map_title(name: str, heatmap: Tensor) -> str:
    """The title of a map; one that is zero everywhere says so."""
    return IMAGE_METHODS[name].title + ("" if heatmap.any() else ": zero everywhere")


def make_maps_panel(maps: Tensor, title: str) -> Panel:
    """All feature maps of a layer, (C, h, w), on one scale; signed where some values are negative."""
    signed = bool((maps < 0).any())
    strength = scale_to_unit(maps.cpu(), signed=signed)
    images = apply_colormap(strength, SIGNED_COLORMAP if signed else HEAT_COLORMAP).movedim(0, 1)        # (C, 3, h, w)
    return Panel(title, tile_images(images))


def make_filters_panel(kernels: Tensor) -> Panel:
    """Filters (n, C, kh, kw): of three channels as colors around gray, others summed over channels as signed values."""
    kernels = kernels.float().cpu()
    if kernels.shape[1] == 3:
        images = scale_to_unit(kernels, signed=True, quantile=0.995)
    else:
        images = apply_colormap(scale_to_unit(kernels.sum(1), signed=True, quantile=0.995), SIGNED_COLORMAP).movedim(
            0, 1
        )
    return Panel("filters of the first layer", tile_images(images))


def render_panels_png(panels: Sequence[Panel], heading: str) -> bytes:
    """Panels side by side with their titles, and one heading, as a PNG."""
    from PIL import Image, ImageDraw, ImageFont

    images = [upscale_nearest(p.image) for p in panels]
    width = sum(p.shape[2] for p in images) + _GAP_PX * (len(images) + 1)
    height = max(p.shape[1] for p in images) + _GAP_PX + 2 * _LINE_HEIGHT + 12
    sheet = Image.new("RGB", (width, height), _PAPER_COLOR)
    draw, left = ImageDraw.Draw(sheet), _GAP_PX
    large, small = ImageFont.load_default(15), ImageFont.load_default(13)
    draw.text((_GAP_PX, 8), _ellipsize_to_width(heading, width - 2 * _GAP_PX, large), fill=_INK_COLOR, font=large)
    for panel, image in zip(panels, images, strict=True):
        draw.text(
            (left, _LINE_HEIGHT + 9),
            _ellipsize_to_width(panel.title, image.shape[2], small),
            fill=_SOFT_COLOR,
            font=small,
        )
        sheet.paste(Image.fromarray(_to_uint8_array(image)), (left, 2 * _LINE_HEIGHT + 10))
        left += image.shape[2] + _GAP_PX
    file = BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def _ellipsize_to_width(text: str, width: float, font: Any) -> str:
    """The text, shortened in the middle until it fits."""
    length = len(text)
    while length > 4 and font.getlength(text) > width:
        length -= 1
        text = ellipsize(text, length)
    return text


def _to_uint8_array(image: Tensor) -> np.ndarray[Any, Any]:
    return (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()


def draw_attribution_bars(
    title: str, names: Sequence[str], values: Mapping[str, Tensor], notes: Sequence[str] = ()
) -> Html:
    """A row for each part of the input, the strongest first, and a column of bars for each method: (d,) each.

    Each column has its own scale; a bar to the right is evidence for the class, one to the left against it.
    """
    last = list(values.values())[-1]
    order = last.abs().argsort(descending=True)[:_MAX_BARS].tolist()
    left, column_width, row_height = 230, 150, 21
    top = 58 if title else 34
    width, height = left + column_width * len(values), top + row_height * len(order) + 8
    parts = [svg.draw_text(0, 14, title, "title")] if title else []
    for k, i in enumerate(order):
        y = top + (k + 0.5) * row_height
        label = f"{ellipsize(names[i], 24)}{f' = {notes[i]}' if notes else ''}"
        parts.append(svg.draw_text(left - 10, y + 4, label, "tick", "end"))
    for j, (name, scores) in enumerate(values.items()):
        method, max_value = FEATURE_METHODS[name], max(map(abs, scores.tolist()), default=0.0) or 1.0
        start, end = left + j * column_width + 8, left + (j + 1) * column_width - 8
        zero = (start + end) / 2 if method.is_signed else start
        parts.append(svg.draw_text(start, top - 18, method.title, "axis"))
        parts.append(svg.draw_line(zero, top - 4, zero, height - 6, "base"))
        for k, i in enumerate(order):
            v = float(scores[i])
            bar_length = v / max_value * (end - zero)
            hint = f"{names[i]}: {method.title} {format_number(v)}"
            style = svg.color_style(int(v > 0) if method.is_signed else "soft")
            bar_start, bar_width = min(zero, zero + bar_length), max(0.6, abs(bar_length))
            parts.append(
                svg.draw_rect(
                    bar_start, top + k * row_height + 4, bar_width, row_height - 8, "bar", hint, style=style, rx=1.5
                )
            )
    return svg.make_svg(title or "attributions of the parts", width, height, *parts)


def read_patch_grid(heatmap: Tensor, patches: int) -> list[list[float]]:
    """The value of each patch of a map that is constant on patches."""
    side = torch.arange(patches)
    # the first pixel of each patch
    row_starts, column_starts = (-(-side * n // patches) for n in heatmap.shape)
    values: list[list[float]] = heatmap[row_starts][:, column_starts].tolist()
    return values
