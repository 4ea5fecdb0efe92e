"""Bounding boxes on images: true ones dashed, detected ones solid, one color per class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from didact.charts.html import Html, format_number, tag
from didact.charts.svg import PALETTE_SIZE
from didact.layers.nms import confident_detections
from didact.report.examples import image_to_data_uri, make_description_entry

DRAWING_WIDTH = 320      # units of the drawing, whatever the size of the image


def draw_boxes_svg(x: Tensor, truth: Tensor, detected: Tensor, class_names: Sequence[str]) -> Html:
    """An image (C, H, W) with its boxes (G, 5) and (D, 6), as fractions of its sides, as one SVG."""
    height = DRAWING_WIDTH * x.shape[1] / x.shape[2]
    image = tag(
        "image",
        href=image_to_data_uri(x),
        width=DRAWING_WIDTH,
        height=height,
        class_="pixels" if x.shape[2] < 96 else None,
    )
    elements: list[object] = [
        _draw_box(row[:4], int(row[4]), height, dashed=True) for row in truth.tolist() if row[4] >= 0
    ]
    for *box, score, k in confident_detections(detected).flip(0).tolist():     # the most confident last, on top
        elements += [_draw_box(box, int(k), height), _draw_label(f"{class_names[int(k)]} {score:.2f}", box, height)]
    title = tag(
        "title",
        f"true: {_count_classes(truth[:, 4], class_names)}; detected: "
        f"{_count_classes(confident_detections(detected)[:, 5], class_names)}",
    )
    return tag(
        "svg",
        title,
        image,
        elements,
        viewBox=f"0 0 {DRAWING_WIDTH} {height:.6g}",
        role="img",
        style="width:100%;border-radius:5px",
    )


def _draw_box(box: Sequence[float], class_index: int, height: float, *, dashed: bool = False) -> list[Html]:
    """A frame with a pale one below it, visible on any image."""
    x1, y1, x2, y2 = box
    geometry = {
        "x": DRAWING_WIDTH * x1,
        "y": height * y1,
        "width": DRAWING_WIDTH * (x2 - x1),
        "height": height * (y2 - y1),
        "fill": "none",
    }
    dash = "6 4" if dashed else None
    halo = tag("rect", **geometry, stroke="#fff", stroke_width=4.0, stroke_opacity=0.6, stroke_dasharray=dash)
    return [
        halo,
        tag(
            "rect", **geometry, stroke=f"var(--s{class_index % PALETTE_SIZE})", stroke_width=2.0, stroke_dasharray=dash
        ),
    ]


def _draw_label(text: str, box: Sequence[float], height: float) -> Html:
    x, y = DRAWING_WIDTH * box[0] + 3, max(12.0, height * box[1] - 4)
    style = "font:600 11px system-ui,sans-serif;fill:#fff;stroke:#000;stroke-width:3px;paint-order:stroke"
    return tag("text", text, x=x, y=y, style=style)


def _count_classes(classes: Tensor, class_names: Sequence[str]) -> str:
    """"3 cat, 1 dog"."""
    counts = Counter(int(k) for k in classes.tolist() if k >= 0)
    return ", ".join(f"{counts[k]} {class_names[k]}" for k in sorted(counts)) or "nothing"


def _make_box_cards(
    group: str,
    examples: Mapping[str, Tensor],
    names: Sequence[str],
    outputs: Mapping[str, Tensor],
    data: Mapping[str, Any],
) -> list[Html]:
    """`group` is "worst" or "best": each example with its boxes, counts of true and detected boxes, its loss and name.
    """
    cards, class_names = [], list(data["class_names"])
    for name, row, x in zip(names, examples[group].tolist(), examples[f"{group}_x"], strict=True):
        truth, detected = outputs["truth"][row], outputs["detected"][row]
        details = tag(
            "dl",
            make_description_entry("true", _count_classes(truth[:, 4], class_names)),
            make_description_entry("detected", _count_classes(confident_detections(detected)[:, 5], class_names)),
            make_description_entry("loss", format_number(float(outputs["loss"][row]), 3)),
        )
        cards.append(tag("li", draw_boxes_svg(x, truth, detected, class_names), details, tag("small", name)))
    return cards


def make_box_groups(
    examples: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Tensor],
    data: Mapping[str, Any],
) -> list[Html]:
    """The test images with the highest and the lowest loss, for runs of detection."""
    if not {"worst", "best", "worst_x", "best_x"} <= examples.keys() or not {"detected", "truth"} <= outputs.keys():
        return []
    titles = (("worst", "Highest loss"), ("best", "Lowest loss"))
    cards_by_title = {title: _make_box_cards(group, examples, names[group], outputs, data) for group, title in titles}
    return [Html(tag("h3", title) + tag("ul", cards, class_="examples")) for title, cards in cards_by_title.items()]
