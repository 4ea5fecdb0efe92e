"""Words with those nearest to them, as word vectors tell."""

from collections.abc import Mapping
from typing import Any

from didact.report.markup import Html, tag
from didact.run import Run

NEIGHBOURS = "The smallest angles between vectors, the nearest first; beside each word the cosine."


def neighbour_table(run: Run, data: Mapping[str, Any]) -> Html:
    """A row for each word that was probed."""
    kept = run.load("gallery") if run.has("gallery.safetensors") else {}
    if "neighbours" not in kept:
        return Html("")
    names = ("", "", *data["names"])                 # the first two numbers are padding and unknown words
    rows = []
    for (word, _), *near in kept["neighbours"].tolist():
        shown = [tag("span", f"{names[int(i)]} {like:.2f}".replace("-", "−")) for i, like in near]
        rows.append(tag("tr", tag("th", names[int(word)], scope="row"), tag("td", tag("p", shown, class_="words"))))
    return tag("div", tag("table", tag("tbody", rows)), class_="scroll tall", tabindex=0)
