"""Words with those nearest to them, as word vectors tell."""

from collections.abc import Mapping
from typing import Any

from didact.charts.html import Html, tag
from didact.run import Run

NEIGHBORS_LEAD = "The smallest angles between vectors, the nearest first; beside each word the cosine."


def make_neighbor_table(run: Run, data: Mapping[str, Any]) -> Html:
    """A row for each word that was probed."""
    gallery = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "neighbours" not in gallery:
        return Html("")
    vocab = ("", "", *data["feature_names"])                 # the first two numbers are padding and unknown words
    rows = []
    for (word, _), *neighbors in gallery["neighbours"].tolist():
        spans = [tag("span", f"{vocab[int(i)]} {similarity:.2f}".replace("-", "−")) for i, similarity in neighbors]
        rows.append(tag("tr", tag("th", vocab[int(word)], scope="row"), tag("td", tag("p", spans, class_="words"))))
    return tag("div", tag("table", tag("tbody", rows)), class_="scroll tall", tabindex=0)
