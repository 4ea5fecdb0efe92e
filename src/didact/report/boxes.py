"""Boxes on images: true ones dashed, found ones drawn through, each class in its colour."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from didact.metrics.detection import shown
from didact.report.examples import entry, inline
from didact.report.markup import Html, number, tag
from didact.report.svg import TONES

WIDE = 320      # units of the drawing: lines and letters are of one size, however large the image


def drawn(x: Tensor, truth: Tensor, detected: Tensor, labels: Sequence[str]) -> Html:
    """An image (C, H, W) with its boxes (G, 5) and (D, 6), shares of its sides, as one SVG."""
    height = WIDE * x.shape[1] / x.shape[2]
    image = tag("image", href=inline(x), width=WIDE, height=height, class_="pixels" if x.shape[2] < 96 else None)
    marks: list[object] = [outline(row[:4], int(row[4]), height, dashed=True) for row in truth.tolist() if row[4] >= 0]
    for *box, score, k in shown(detected).flip(0).tolist():     # the surest last, on top of the others
        marks += [outline(box, int(k), height), word(f"{labels[int(k)]} {score:.2f}", box, height)]
    alternative = tag("title", f"true: {counted(truth[:, 4], labels)}; found: {counted(shown(detected)[:, 5], labels)}")
    return tag("svg", alternative, image, marks, viewBox=f"0 0 {WIDE} {height:.6g}", role="img", style="width:100%;border-radius:5px")


def outline(box: Sequence[float], k: int, height: float, *, dashed: bool = False) -> list[Html]:
    """A frame with a pale one below it, to be seen on any image."""
    x1, y1, x2, y2 = box
    place = {"x": WIDE * x1, "y": height * y1, "width": WIDE * (x2 - x1), "height": height * (y2 - y1), "fill": "none"}
    dash = "6 4" if dashed else None
    below = tag("rect", **place, stroke="#fff", stroke_width=4.0, stroke_opacity=0.6, stroke_dasharray=dash)
    return [below, tag("rect", **place, stroke=f"var(--s{k % TONES})", stroke_width=2.0, stroke_dasharray=dash)]


def word(words: str, box: Sequence[float], height: float) -> Html:
    x, y = WIDE * box[0] + 3, max(12.0, height * box[1] - 4)
    style = "font:600 11px system-ui,sans-serif;fill:#fff;stroke:#000;stroke-width:3px;paint-order:stroke"
    return tag("text", words, x=x, y=y, style=style)


def counted(classes: Tensor, labels: Sequence[str]) -> str:
    """3 cats, as people count: "3 cat, 1 dog"."""
    counts = Counter(int(k) for k in classes.tolist() if k >= 0)
    return ", ".join(f"{counts[k]} {labels[k]}" for k in sorted(counts)) or "nothing"


def box_cards(
    which: str, kept: Mapping[str, Tensor], names: Sequence[str], rows: Mapping[str, Tensor], data: Mapping[str, Any]
) -> list[Html]:
    """`which` is "worst" or "best": each example with its boxes, what was there, what was found, the loss and what it is called."""
    found, labels = [], list(data["labels"])
    for name, row, x in zip(names, kept[which].tolist(), kept[f"{which}_x"], strict=True):
        truth, detected = rows["truth"][row], rows["detected"][row]
        verdict = tag(
            "dl", entry("true", counted(truth[:, 4], labels)), entry("found", counted(shown(detected)[:, 5], labels)),
            entry("loss", number(float(rows["loss"][row]), 3)),
        )
        found.append(tag("li", drawn(x, truth, detected, labels), verdict, tag("small", name)))
    return found


def box_groups(
    kept: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], rows: Mapping[str, Tensor], data: Mapping[str, Any]
) -> list[Html]:
    """The test images with the highest and the lowest loss, where the run is one that finds boxes."""
    if not {"worst", "best", "worst_x", "best_x"} <= kept.keys() or not {"detected", "truth"} <= rows.keys():
        return []
    titles = (("worst", "Most surprising"), ("best", "Least surprising"))
    shown = {title: box_cards(which, kept, names[which], rows, data) for which, title in titles}
    return [Html(tag("h3", title) + tag("ul", cards, class_="examples")) for title, cards in shown.items()]
