"""Nearest words by word vectors."""

from collections.abc import Mapping
from typing import Any

from didact.charts.html import Html, tag
from didact.run import Run

NEIGHBORS_LEAD = "Nearest words by cosine similarity."


def make_neighbor_table(run: Run, data: Mapping[str, Any]) -> Html:
    """A row for each probed word."""
    gallery = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "neighbors" not in gallery:
        return Html("")
    vocab = ("", "", *data["feature_names"])                 # ids 0 and 1 are padding and unknown words
    rows = []
    for (word, _), *neighbors in gallery["neighbors"].tolist():
        spans = [tag("span", f"{vocab[int(i)]} {similarity:.2f}".replace("-", "−")) for i, similarity in neighbors]
        rows.append(tag("tr", tag("th", vocab[int(word)], scope="row"), tag("td", tag("p", spans, class_="words"))))
    return tag("div", tag("table", tag("tbody", rows)), class_="scroll tall", tabindex=0)
