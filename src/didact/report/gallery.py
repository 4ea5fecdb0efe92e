"""Pictures that are not of one example: what was drawn, given back, walked through; codes in a plane, and how often
each is used."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.format import format_epochs
from didact.charts.html import Html, tag
from didact.charts.svg import Series
from didact.report.decision_surfaces import MAP_SIZE, MIDTONES, hex_to_rgb
from didact.report.examples import image_to_data_uri
from didact.report.sampled_rows import get_generated_columns
from didact.run import Run

MAX_LATENT_DOTS = 1500  # dots of the plane
MAX_CODEBOOK_BARS = 512   # bars of a codebook
GALLERY_LEAD = "Made from the test split and from fixed noise, once, by the model that was kept."
POINTS_CAPTION = "Points of the same plane: each pixel in which there is one or more."
CAPTIONS = {
    "samples": "Drawn from noise alone; of a conditional model, a row of each class.",
    "reconstructions": "Above, test images as they are; below, what came back. A row between them is what the network "
                       "saw.",
    "out of noise": "The way of eight samples, from noise to image.",
    "into noise": "Test images on their way into noise, as the network met them while learning.",
    "density": "What the flow says of every place in the plane.",
    "completions": "Test images, their upper halves, and three ways in which the model goes on from there.",
    "interpolation": "Ways between two codes, a row each: straight, or along a circle where a code is noise.",
    "one dimension at a time": "One test image's code; in each row one of its numbers goes from −3 to 3, the one that "
                               "varies most first.",
    "plane of codes": "Images all over the plane of codes, evenly by probability.",
    "few steps": "The same noise in one step, in two and in four.",
    "random codes": "Codes drawn around the mean of all: nobody taught the decoder what they should mean.",
    "words": "What each code alone would draw, the most frequent first.",
}


def make_image_sheet(grid: Tensor) -> Tensor:
    """(rows, columns, C, H, W) -> one image with opacity, clear between the pictures."""
    grid = grid if grid.shape[2] == 3 else grid.mean(2, keepdim=True).expand(-1, -1, 3, -1, -1)
    gap = max(1, grid.shape[-1] // 14)
    framed = torch.nn.functional.pad(torch.cat([grid, torch.ones_like(grid[:, :, :1])], dim=2), (gap, 0, gap, 0))
    rows, columns, channels, height, width = framed.shape
    joined = framed.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
    return joined[:, gap:, gap:]


def make_gallery_section(run: Run, outputs: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Html:
    """The run's gallery, how it came to it, where its codes lie and which are used."""
    grids = run.load("gallery") if run.has("gallery.safetensors") else {}
    training_samples = run.load("training_samples") if run.has("training_samples.safetensors") else {}
    plane = draw_density_plane(grids, [column.name for column in get_generated_columns(grids, metadata)])
    figures = [
        _make_grid_figure(name, grids[name])
        for name in sorted(grids, key=_gallery_order)
        if grids[name].ndim == 5 and not (plane and name == "density")
    ]
    figures[1:1] = [draw_training_samples(training_samples, metadata)] if training_samples else []
    figures[:0] = plane
    figures += [
        figure
        for figure in (
            draw_latent_plane(outputs, list(metadata["data"].get("class_names", ()))),
            draw_codebook_usage(outputs, metadata),
        )
        if figure
    ]
    return tag("div", figures, class_="pair") if figures else Html("")


def draw_training_samples(training_samples: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Html:
    """What became of the same noise: a row of images for each step at which it was looked at."""
    steps_per_epoch = metadata.get("plan", {}).get("rounds_per_epoch", 0)
    cells = []
    for step in sorted(map(int, training_samples)):
        time_text = (
            f"epoch {format_epochs(step / steps_per_epoch)}"
            if steps_per_epoch and step >= steps_per_epoch
            else f"step {step:,}"
        )
        image_uri = image_to_data_uri(make_image_sheet(training_samples[f"{step}"][None] / 255))
        cells += [
            tag("span", time_text),
            tag(
                "img",
                src=image_uri,
                alt=f"samples at {time_text}",
                class_="pixels",
                style="width:100%;border-radius:4px",
            ),
        ]
    table = tag(
        "div", cells, style="display:grid;grid-template-columns:max-content 1fr;gap:6px 12px;align-items:center"
    )
    caption = "The same noise from the beginning of training to its end."
    if metadata.get("best_step"):
        caption += f" The model that was kept is that of step {metadata['best_step']:,}."
    return tag("figure", tag("h3", "Samples over training"), table, tag("figcaption", caption))


def _gallery_order(name: str) -> tuple[int, str]:
    names = list(CAPTIONS)
    return (names.index(name) if name in names else len(names)), name


def _make_grid_figure(name: str, grid: Tensor) -> Html:
    image = tag(
        "img",
        src=image_to_data_uri(make_image_sheet(grid)),
        alt=name,
        class_="pixels",
        style="width:100%;border-radius:4px",
    )
    return tag(
        "figure", tag("h3", name.capitalize()), image, tag("figcaption", CAPTIONS[name]) if name in CAPTIONS else None
    )


def draw_density_plane(grids: Mapping[str, Tensor], feature_names: list[str]) -> list[Html]:
    """A density over two features and points drawn from it, each on the features' own axes; nothing where there is
    none."""
    if "density ends" not in grids:
        return []
    shades, (low, high) = grids["density"][0, :, 0], grids["density ends"]       # (2, n, n)
    # a place of the density is the middle of its pixel
    half_pixel = (high - low) / (shades.shape[-1] - 1) / 2
    x, y = feature_names if len(feature_names) == 2 else ("first feature", "second feature")
    figures = []
    for title, shade, margin, caption in (
        ("Density", shades[0], half_pixel, CAPTIONS["density"]),
        ("Drawn from it", shades[1], 0 * half_pixel, POINTS_CAPTION),
    ):
        color = torch.tensor(hex_to_rgb(MIDTONES[0]))[:, None, None].expand(3, *shade.shape)
        ranges = [(float(a), float(b)) for a, b in zip(low - margin, high + margin, strict=True)]
        image = image_to_data_uri(torch.cat([color, shade[None]]))
        chart = svg.draw_chart(title, [], x=x, y=y, x_range=ranges[0], y_range=ranges[1], image=image, size=MAP_SIZE)
        figures.append(tag("figure", chart, tag("figcaption", caption)))
    return figures


def draw_latent_plane(outputs: Mapping[str, Tensor], class_names: list[str]) -> Html | None:
    """Codes of the test images as dots, by class where there are any; codes of many numbers along the two
    directions of most variance."""
    z = outputs.get("latent")
    if z is None or z.ndim != 2 or min(z.shape) < 2 or not z.isfinite().all():    # a single example spreads nowhere
        return None
    axis_names, caption = ("first number", "second number"), "Where the test examples lie in the plane of codes."
    if z.shape[1] > 2:
        z, share = project_pca(z)
        axis_names = ("first direction", "second direction")
        caption = (
            f"Codes of the test examples, seen from where they spread most: {100 * share:.0f} % of their variance lies "
            "in this plane."
        )
    # a number as target has no classes
    y = outputs["y"][:MAX_LATENT_DOTS] if class_names and "y" in outputs else torch.zeros(len(z))[:MAX_LATENT_DOTS]
    series = []
    for k, name in enumerate(class_names or [""]):
        xs, ys = z[:MAX_LATENT_DOTS][y == k].T.tolist()
        series.append(Series(name, xs, ys, "dots", svg.class_color(k, len(class_names))))
    return tag(
        "figure",
        svg.draw_chart("The plane of codes", series, x=axis_names[0], y=axis_names[1]),
        tag("figcaption", caption),
    )


def project_pca(z: Tensor) -> tuple[Tensor, float]:
    """(N, D) in the plane of its two leading principal axes, and the share of the variance that lies there."""
    centered = z.double() - z.double().mean(0)
    _, s, v = torch.linalg.svd(centered, full_matrices=False)
    total = float(s.square().sum())
    return centered @ v[:2].T, float(s[:2].square().sum()) / total if total else 0.0


def draw_codebook_usage(outputs: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Html | None:
    """How often each code of a vocabulary stands for a place of a test image, the most frequent first."""
    codebook_size = metadata.get("arguments", {}).get("codebook_size")
    if "codes" not in outputs or codebook_size is None:
        return None
    counts = torch.bincount(outputs["codes"].flatten().long(), minlength=codebook_size).sort(descending=True).values
    share = (100 * counts / counts.sum())[:MAX_CODEBOOK_BARS].tolist()
    bars = Series("", list(range(1, len(share) + 1)), share, "bars", width=0.8)
    caption = (
        f"{int((counts > 0).sum())} of {codebook_size} codes are used on the test split; the others stand for nothing."
    )
    chart = svg.draw_chart("Use of the codebook", [bars], x="code, the most frequent first", y="% of all places")
    return tag("figure", chart, tag("figcaption", caption))
