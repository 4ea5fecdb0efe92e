"""Pictures that are not of one example: what was drawn, given back, walked through; and the plane of codes, where they are two numbers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from didact.report import svg
from didact.report.examples import inline
from didact.report.markup import Html, tag
from didact.report.svg import Series
from didact.run import Run

CLOUD = 1500  # dots of the plane
PICTURES = "Made from the test split and from fixed noise, once, by the model that was kept."
TOLD = {
    "samples": "Drawn from noise alone; of a conditional model, a row of each class.",
    "reconstructions": "Above, test images as they are; below, what came back. A row between them is what the network saw.",
    "out of noise": "The way of eight samples, from noise to image.",
    "into noise": "Test images on their way into noise, as the network met them while learning.",
    "density": "Left, what the flow says of every place in the plane; right, points drawn from it.",
    "completions": "Test images, their upper halves, and three ways in which the model goes on from there.",
    "interpolation": "Straight ways between two codes, a row each.",
    "one dimension at a time": "One test image's code; in each row one of its numbers goes from −3 to 3, the one that varies most first.",
    "plane of codes": "Images all over the plane of codes, evenly by probability.",
    "random codes": "Codes drawn around the mean of all: nobody taught the decoder what they should mean.",
    "words": "What each code alone would draw, the most frequent first.",
}


def sheet(grid: Tensor) -> Tensor:
    """(rows, columns, C, H, W) -> one image with opacity, clear between the pictures."""
    grid = grid if grid.shape[2] == 3 else grid.mean(2, keepdim=True).expand(-1, -1, 3, -1, -1)
    gap = max(1, grid.shape[-1] // 14)
    framed = torch.nn.functional.pad(torch.cat([grid, torch.ones_like(grid[:, :, :1])], dim=2), (gap, 0, gap, 0))
    rows, columns, channels, height, width = framed.shape
    whole = framed.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
    return whole[:, gap:, gap:]


def pictures(run: Run, rows: Mapping[str, Tensor], data: Mapping[str, Any]) -> Html:
    """The run's gallery, and its plane of codes."""
    grids = run.load("gallery") if run.has("gallery.safetensors") else {}
    shown = [picture(name, grids[name]) for name in sorted(grids, key=order)]
    cloud = latent_plane(rows, list(data.get("labels", ())))
    shown += [tag("figure", cloud, tag("figcaption", "Where the test images lie in the plane of codes."))] if cloud else []
    return tag("div", shown, class_="pair") if shown else Html("")


def order(name: str) -> tuple[int, str]:
    known = list(TOLD)
    return (known.index(name) if name in known else len(known)), name


def picture(name: str, grid: Tensor) -> Html:
    image = tag("img", src=inline(sheet(grid)), alt=name, class_="pixels", style="width:100%;border-radius:4px")
    return tag("figure", tag("h3", name.capitalize()), image, tag("figcaption", TOLD[name]) if name in TOLD else None)


def latent_plane(rows: Mapping[str, Tensor], labels: list[str]) -> Html | None:
    """Codes of two numbers as dots, by class where there are any."""
    z = rows.get("latent")
    if z is None or z.ndim != 2 or z.shape[1] != 2:
        return None
    y = rows.get("y", torch.zeros(len(z)))[:CLOUD]
    series = []
    for k, name in enumerate(labels or [""]):
        right, up = z[:CLOUD][y == k].T.tolist()
        series.append(Series(name, right, up, "dots", svg.depth_colour(k, len(labels)) if len(labels) > svg.TONES else k))
    return svg.chart("The plane of codes", series, x="first number", y="second number")
