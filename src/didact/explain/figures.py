"""Explanations as pictures: panels of one image side by side, bars of one row's parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.explain.colour import HEAT, SIGNED, coloured, enlarged, overlay, scaled, tiled
from didact.explain.methods import FEATURES, IMAGES
from didact.report import svg
from didact.report.markup import Html, number, shorten

ROWS = 12      # parts that bars are drawn for: the strongest
GAP, LINE = 14, 20
INK, SOFT, PAPER = "#1d2129", "#5a6270", "#ffffff"


@dataclass(frozen=True)
class Panel:
    """One picture with a name: (3, h, w) in [0, 1]."""

    title: str
    picture: Tensor


def shown(x: Tensor) -> Tensor:
    """An image as people see it: one channel as grey, three as colours, others as their mean."""
    x = x.detach().float().cpu().clamp(0, 1)
    return x if x.shape[0] == 3 else x.mean(0, keepdim=True).expand(3, -1, -1)


def panels(x: Tensor, found: Mapping[str, Tensor]) -> list[Panel]:
    """The image, then each method's map over it."""
    over = [Panel(titled(name, heat), overlay(x, heat, signed=IMAGES[name].signed)) for name, heat in found.items()]
    return [Panel("image", shown(x)), *over]


def titled(name: str, heat: Tensor) -> str:
    """A map that is zero everywhere says so: nothing in that layer speaks for the class, or the score does not depend on it."""
    return IMAGES[name].title + ("" if heat.any() else ": zero everywhere")


def maps_panel(maps: Tensor, title: str) -> Panel:
    """(C, h, w): every map of a layer, all on one scale; signed where some are below zero."""
    signed = bool((maps < 0).any())
    strength = scaled(maps.cpu(), signed=signed)
    pictures = coloured(strength, SIGNED if signed else HEAT).movedim(0, 1)        # (C, 3, h, w)
    return Panel(title, tiled(pictures))


def filters_panel(kernels: Tensor) -> Panel:
    """(n, C, kh, kw): kernels over three channels as colours around grey, others as signed numbers, summed over channels."""
    kernels = kernels.float().cpu()
    if kernels.shape[1] == 3:
        pictures = scaled(kernels, signed=True, share=0.995)
    else:
        pictures = coloured(scaled(kernels.sum(1), signed=True, share=0.995), SIGNED).movedim(0, 1)
    return Panel("filters of the first layer", tiled(pictures))


def strip(parts: Sequence[Panel], heading: str) -> bytes:
    """Panels side by side with their names above them and one line of words over all, as a PNG."""
    from PIL import Image, ImageDraw, ImageFont

    pictures = [enlarged(p.picture) for p in parts]
    width = sum(p.shape[2] for p in pictures) + GAP * (len(pictures) + 1)
    height = max(p.shape[1] for p in pictures) + GAP + 2 * LINE + 12
    sheet = Image.new("RGB", (width, height), PAPER)
    draw, left = ImageDraw.Draw(sheet), GAP
    large, small = ImageFont.load_default(15), ImageFont.load_default(13)
    draw.text((GAP, 8), fitted(heading, width - 2 * GAP, large), fill=INK, font=large)
    for part, picture in zip(parts, pictures, strict=True):
        draw.text((left, LINE + 9), fitted(part.title, picture.shape[2], small), fill=SOFT, font=small)
        sheet.paste(Image.fromarray(pixels(picture)), (left, 2 * LINE + 10))
        left += picture.shape[2] + GAP
    file = BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def fitted(words: str, width: float, font: Any) -> str:
    """The words, shortened in the middle until they fit."""
    length = len(words)
    while length > 4 and font.getlength(words) > width:
        length -= 1
        words = shorten(words, length)
    return words


def pixels(picture: Tensor) -> np.ndarray[Any, Any]:
    return (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()


def bars(title: str, names: Sequence[str], values: Mapping[str, Tensor], notes: Sequence[str] = ()) -> Html:
    """A row for each part of the input, the strongest first, and a column of bars for each method: (d,) each.

    Each column has its own scale; a bar to the right speaks for the class, one to the left against it.
    """
    last = list(values.values())[-1]
    order = last.abs().argsort(descending=True)[:ROWS].tolist()
    left, wide, row = 230, 150, 21
    top = 58 if title else 34
    width, height = left + wide * len(values), top + row * len(order) + 8
    parts = [svg.write_at(0, 14, title, "title")] if title else []
    for k, i in enumerate(order):
        y = top + (k + 0.5) * row
        told = f"{shorten(names[i], 24)}{f' = {notes[i]}' if notes else ''}"
        parts.append(svg.write_at(left - 10, y + 4, told, "tick", "end"))
    for j, (name, found) in enumerate(values.items()):
        method, most = FEATURES[name], max(map(abs, found.tolist()), default=0.0) or 1.0
        start, end = left + j * wide + 8, left + (j + 1) * wide - 8
        zero = (start + end) / 2 if method.signed else start
        parts.append(svg.write_at(start, top - 18, method.title, "axis"))
        parts.append(svg.segment(zero, top - 4, zero, height - 6, "base"))
        for k, i in enumerate(order):
            v = float(found[i])
            reach = v / most * (end - zero)
            hint = f"{names[i]}: {method.title} {number(v)}"
            style = svg.paint(int(v > 0) if method.signed else "soft")
            at, wide_enough = min(zero, zero + reach), max(0.6, abs(reach))
            parts.append(svg.box(at, top + k * row + 4, wide_enough, row - 8, "bar", hint, style=style, rx=1.5))
    return svg.draw(title or "shares of the parts", width, height, *parts)


def grid_of(heat: Tensor, patches: int) -> list[list[float]]:
    """One number a patch of a map that is constant on each."""
    side = torch.arange(patches)
    rows, columns = (-(-side * n // patches) for n in heat.shape)                  # where each patch begins
    found: list[list[float]] = heat[rows][:, columns].tolist()
    return found
