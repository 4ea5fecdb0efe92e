"""Samples, reconstructions, interpolations; latent codes in a plane, and the usage of a codebook."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from didact.charts import svg
from didact.charts.format import format_epochs
from didact.charts.html import Html, tag
from didact.charts.svg import Series
from didact.errors import UsageError
from didact.report.decision_surfaces import MAP_SIZE, MIDTONES, hex_to_rgb
from didact.report.examples import image_to_data_uri
from didact.report.sampled_rows import get_generated_columns
from didact.run import Run

MAX_LATENT_DOTS = 1500  # dots of the latent plane
MAX_CODEBOOK_BARS = 512   # bars of a codebook
GALLERY_LEAD = "From the test split and from fixed noise, by the best model."
POINTS_CAPTION = "Samples in the same plane: each pixel with at least one."
CAPTIONS = {
    "samples": "Generated from noise; a class-conditional model has one row per class.",
    "reconstructions": "Top: test images. Bottom: reconstructions. A row between them is the network's input.",
    "reverse process": "Eight samples on their way from noise to image.",
    "forward process": "Test images under growing noise, as in training.",
    "density": "The density of the flow over the plane.",
    "completions": "Test images, their upper halves, and three completions by the model.",
    "interpolation": "Latent interpolation, one row per pair: linear, or spherical where codes are noise.",
    "latent traversal": "Latent traversal of one test image: in each row one dimension goes from −3 to 3, the "
                        "one with the highest variance first.",
    "latent plane": "Decoded images over the latent plane, evenly spaced by probability.",
    "few steps": "The same noise in one, two and four steps.",
    "random latents": "Codes sampled around the mean of all codes, which an autoencoder is not trained to decode.",
    "codewords": "The image of each codebook vector alone, the most frequent first.",
}


def make_image_sheet(grid: Tensor) -> Tensor:
    """(rows, columns, C, H, W) -> one image with transparent gaps."""
    grid = grid if grid.shape[2] == 3 else grid.mean(2, keepdim=True).expand(-1, -1, 3, -1, -1)
    gap = max(1, grid.shape[-1] // 14)
    framed = torch.nn.functional.pad(torch.cat([grid, torch.ones_like(grid[:, :, :1])], dim=2), (gap, 0, gap, 0))
    rows, columns, channels, height, width = framed.shape
    joined = framed.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
    return joined[:, gap:, gap:]


def make_gallery_section(run: Run, outputs: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Html:
    """The run's gallery, samples over training, its latent plane and codebook usage."""
    grids = run.load("gallery") if run.has("gallery.safetensors") else {}
    training_samples = run.load("training_samples") if run.has("training_samples.safetensors") else {}
    if not all(step.isdecimal() and images.ndim == 4 for step, images in training_samples.items()):
        path = run.folder / "training_samples.safetensors"
        raise UsageError(f"{path} expects images by step, got {', '.join(training_samples)}; it is damaged")
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
    """Samples from the same noise: a row of images for each recorded step."""
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
    caption = "The same noise from the start of training to its end."
    if metadata.get("best_step"):
        caption += f" The best model is from step {metadata['best_step']:,}."
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
    """A density over two features and samples from it, in the features' own units; nothing where there is none."""
    if "density limits" not in grids:
        return []
    shades, (low, high) = grids["density"][0, :, 0], grids["density limits"]       # (2, n, n)
    # a point of the density is the middle of its pixel
    half_pixel = (high - low) / (shades.shape[-1] - 1) / 2
    x, y = feature_names if len(feature_names) == 2 else ("first feature", "second feature")
    figures = []
    for title, shade, margin, caption in (
        ("Density", shades[0], half_pixel, CAPTIONS["density"]),
        ("Samples", shades[1], 0 * half_pixel, POINTS_CAPTION),
    ):
        color = torch.tensor(hex_to_rgb(MIDTONES[0]))[:, None, None].expand(3, *shade.shape)
        ranges = [(float(a), float(b)) for a, b in zip(low - margin, high + margin, strict=True)]
        image = image_to_data_uri(torch.cat([color, shade[None]]))
        chart = svg.draw_chart(title, [], x=x, y=y, x_range=ranges[0], y_range=ranges[1], image=image, size=MAP_SIZE)
        figures.append(tag("figure", chart, tag("figcaption", caption)))
    return figures


def draw_latent_plane(outputs: Mapping[str, Tensor], class_names: list[str]) -> Html | None:
    """Latent codes of the test images by class; codes of more than two dimensions on two principal components."""
    z = outputs.get("latent")
    if z is None or z.ndim != 2 or min(z.shape) < 2 or not z.isfinite().all():    # a single example has no variance
        return None
    axis_names, caption = ("dimension 1", "dimension 2"), "Latent codes of the test examples."
    if z.shape[1] > 2:
        z, share = project_pca(z)
        axis_names = ("component 1", "component 2")
        caption = (
            f"Latent codes of the test examples on their first two principal components, which hold {100 * share:.0f} "
            "% "
            "of the variance."
        )
    # a numeric target has no classes
    y = outputs["y"][:MAX_LATENT_DOTS] if class_names and "y" in outputs else torch.zeros(len(z))[:MAX_LATENT_DOTS]
    series = []
    for k, name in enumerate(class_names or [""]):
        xs, ys = z[:MAX_LATENT_DOTS][y == k].T.tolist()
        series.append(Series(name, xs, ys, "dots", svg.class_color(k, len(class_names))))
    return tag(
        "figure",
        svg.draw_chart("Latent space", series, x=axis_names[0], y=axis_names[1]),
        tag("figcaption", caption),
    )


def project_pca(z: Tensor) -> tuple[Tensor, float]:
    """(N, D) on the first two principal components, and the fraction of variance that they hold."""
    centered = z.double() - z.double().mean(0)
    _, s, v = torch.linalg.svd(centered, full_matrices=False)
    total = float(s.square().sum())
    return centered @ v[:2].T, float(s[:2].square().sum()) / total if total else 0.0


def draw_codebook_usage(outputs: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Html | None:
    """How often each code occurs on the test split, the most frequent first."""
    codebook_size = metadata.get("arguments", {}).get("codebook_size")
    if "codes" not in outputs or codebook_size is None:
        return None
    counts = torch.bincount(outputs["codes"].flatten().long(), minlength=codebook_size).sort(descending=True).values
    share = (100 * counts / counts.sum())[:MAX_CODEBOOK_BARS].tolist()
    bars = Series("", list(range(1, len(share) + 1)), share, "bars", width=0.8)
    caption = (
        f"{int((counts > 0).sum())} of {codebook_size} codes are used on the test split."
    )
    chart = svg.draw_chart("Codebook usage", [bars], x="code, most frequent first", y="% of all positions")
    return tag("figure", chart, tag("figcaption", caption))
