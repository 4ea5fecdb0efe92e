"""Pictures that are not of one example: what was drawn, given back, walked through; codes in a plane, and how often each is used."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from didact.report import svg
from didact.report.examples import inline
from didact.report.markup import Html, tag
from didact.report.rows import columns_drawn
from didact.report.surface import MIDTONES, SIZE, rgb
from didact.report.svg import Series
from didact.report.words import epochs
from didact.run import Run

CLOUD = 1500  # dots of the plane
WORDS = 512   # bars of a codebook
PICTURES = "Made from the test split and from fixed noise, once, by the model that was kept."
POINTS = "Points of the same plane: each pixel in which there is one or more."
TOLD = {
    "samples": "Drawn from noise alone; of a conditional model, a row of each class.",
    "reconstructions": "Above, test images as they are; below, what came back. A row between them is what the network saw.",
    "out of noise": "The way of eight samples, from noise to image.",
    "into noise": "Test images on their way into noise, as the network met them while learning.",
    "density": "What the flow says of every place in the plane.",
    "completions": "Test images, their upper halves, and three ways in which the model goes on from there.",
    "interpolation": "Ways between two codes, a row each: straight, or along a circle where a code is noise.",
    "one dimension at a time": "One test image's code; in each row one of its numbers goes from −3 to 3, the one that varies most first.",
    "plane of codes": "Images all over the plane of codes, evenly by probability.",
    "few steps": "The same noise in one step, in two and in four.",
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


def pictures(run: Run, rows: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Html:
    """The run's gallery, how it came to it, where its codes lie and which are used."""
    grids = run.load("gallery") if run.has("gallery.safetensors") else {}
    kept = run.load("glimpses") if run.has("glimpses.safetensors") else {}
    plane = plane_of_density(grids, [column.name for column in columns_drawn(grids, facts)])
    shown = [picture(name, grids[name]) for name in sorted(grids, key=order) if grids[name].ndim == 5 and not (plane and name == "density")]
    shown[1:1] = [strip(kept, facts)] if kept else []
    shown[:0] = plane
    shown += [found for found in (latent_plane(rows, list(facts["data"].get("labels", ()))), codebook(rows, facts)) if found]
    return tag("div", shown, class_="pair") if shown else Html("")


def strip(kept: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Html:
    """What became of the same noise: a row of images for each step at which it was looked at."""
    epoch = facts.get("plan", {}).get("epoch", 0)
    cells = []
    for step in sorted(map(int, kept)):
        when = f"epoch {epochs(step / epoch)}" if epoch and step >= epoch else f"step {step:,}"
        row = inline(sheet(kept[f"{step}"][None] / 255))
        cells += [tag("span", when), tag("img", src=row, alt=f"samples at {when}", class_="pixels", style="width:100%;border-radius:4px")]
    table = tag("div", cells, style="display:grid;grid-template-columns:max-content 1fr;gap:6px 12px;align-items:center")
    told = "The same noise from the beginning of training to its end."
    if facts.get("best_step"):
        told += f" The model that was kept is that of step {facts['best_step']:,}."
    return tag("figure", tag("h3", "Samples over training"), table, tag("figcaption", told))


def order(name: str) -> tuple[int, str]:
    known = list(TOLD)
    return (known.index(name) if name in known else len(known)), name


def picture(name: str, grid: Tensor) -> Html:
    image = tag("img", src=inline(sheet(grid)), alt=name, class_="pixels", style="width:100%;border-radius:4px")
    return tag("figure", tag("h3", name.capitalize()), image, tag("figcaption", TOLD[name]) if name in TOLD else None)


def plane_of_density(grids: Mapping[str, Tensor], names: list[str]) -> list[Html]:
    """A density over two features and points drawn from it, each on the features' own axes; nothing where there is none."""
    if "density ends" not in grids:
        return []
    shades, (low, high) = grids["density"][0, :, 0], grids["density ends"]       # (2, n, n)
    half = (high - low) / (shades.shape[-1] - 1) / 2                             # a place of the density is the middle of its pixel
    x, y = names if len(names) == 2 else ("first feature", "second feature")
    found = []
    for title, shade, out, told in (("Density", shades[0], half, TOLD["density"]), ("Drawn from it", shades[1], 0 * half, POINTS)):
        colour = torch.tensor(rgb(MIDTONES[0]))[:, None, None].expand(3, *shade.shape)
        ranges = [(float(a), float(b)) for a, b in zip(low - out, high + out, strict=True)]
        image = inline(torch.cat([colour, shade[None]]))
        chart = svg.chart(title, [], x=x, y=y, x_range=ranges[0], y_range=ranges[1], image=image, size=SIZE)
        found.append(tag("figure", chart, tag("figcaption", told)))
    return found


def latent_plane(rows: Mapping[str, Tensor], labels: list[str]) -> Html | None:
    """Codes of the test images as dots, by class where there are any; codes of many numbers along the two directions of most variance."""
    z = rows.get("latent")
    if z is None or z.ndim != 2 or min(z.shape) < 2 or not z.isfinite().all():    # a single example spreads nowhere
        return None
    names, told = ("first number", "second number"), "Where the test examples lie in the plane of codes."
    if z.shape[1] > 2:
        z, share = principal(z)
        names = ("first direction", "second direction")
        told = f"Codes of the test examples, seen from where they spread most: {100 * share:.0f} % of their variance lies in this plane."
    y = rows["y"][:CLOUD] if labels and "y" in rows else torch.zeros(len(z))[:CLOUD]      # a number as target has no classes
    series = []
    for k, name in enumerate(labels or [""]):
        right, up = z[:CLOUD][y == k].T.tolist()
        series.append(Series(name, right, up, "dots", svg.class_colour(k, len(labels))))
    return tag("figure", svg.chart("The plane of codes", series, x=names[0], y=names[1]), tag("figcaption", told))


def principal(z: Tensor) -> tuple[Tensor, float]:
    """(N, D) in the plane of its two leading principal axes, and the share of the variance that lies there."""
    centred = z.double() - z.double().mean(0)
    _, s, v = torch.linalg.svd(centred, full_matrices=False)
    total = float(s.square().sum())
    return centred @ v[:2].T, float(s[:2].square().sum()) / total if total else 0.0


def codebook(rows: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Html | None:
    """How often each code of a vocabulary stands for a place of a test image, the most frequent first."""
    if "codes" not in rows or (size := facts.get("arguments", {}).get("codes")) is None:
        return None
    counts = torch.bincount(rows["codes"].flatten().long(), minlength=size).sort(descending=True).values
    share = (100 * counts / counts.sum())[:WORDS].tolist()
    bars = Series("", list(range(1, len(share) + 1)), share, "bars", width=0.8)
    told = f"{int((counts > 0).sum())} of {size} codes are used on the test split; the others stand for nothing."
    chart = svg.chart("Use of the codebook", [bars], x="code, the most frequent first", y="% of all places")
    return tag("figure", chart, tag("figcaption", told))
