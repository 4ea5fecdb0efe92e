"""A page of explanations and a figure for each input: PNG for images, SVG for rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didact import files
from didact.explain.figures import Panel, bars, grid_of, maps_panel, panels, strip
from didact.explain.methods import FEATURES, IMAGES
from didact.report.examples import picture
from didact.report.markup import Html, number, tag
from didact.report.page import document, notes, section, style

SIGNS = "Of signed maps, red speaks for the class and blue against it; of the others, bright is strong."
SHARES = "A bar to the right speaks for the class, one to the left against it; each column has its own scale."
WARNING = "An explanation shows what the model used, not what is true: it can be right for reasons that are wrong."


@dataclass(frozen=True)
class Told:
    """What was found of one input."""

    name: str
    found: Mapping[str, Any]
    file: str
    true: str = ""

    @property
    def said(self) -> str:
        """What the model said, and what is explained."""
        f = self.found
        words = [f"said {f['predicted']} ({100 * f['probability']:.1f} %)", f"why {f['class']}: score {number(f['score'], 3)}"]
        return " · ".join([f"true {self.true}", *words] if self.true else words)

    @property
    def heading(self) -> str:
        return f"{self.name} · {self.said}"

    @property
    def pictures(self) -> list[Panel]:
        found = panels(self.found["image"], self.found["values"])
        return [*found, maps_panel(self.found["maps"], "feature maps")] if "maps" in self.found else found

    def bars(self, title: str = "") -> Html:
        return bars(title, self.found["parts"], self.found["values"], self.found["notes"])

    def facts(self, folder: Path) -> dict[str, Any]:
        """As JSON: of an image, where each map is strongest; of a row, what each part of it counts."""
        f = self.found
        kept = {key: f[key] for key in ("predicted", "probability", "class", "class_probability", "score")}
        true = {"true": self.true} if self.true else {}
        if "image" not in f:
            values = {name: dict(zip(f["parts"], v.tolist(), strict=True)) for name, v in f["values"].items()}
            return {"input": self.name, **true, **kept, "methods": values, "figure": str(folder / f"{self.file}.svg")}
        values = {name: {"peak": [int(v.argmax()) // v.shape[1], int(v.argmax()) % v.shape[1]]} for name, v in f["values"].items()}
        if "shapley" in values:
            values["shapley"]["patches"] = grid_of(f["values"]["shapley"], f["patches"])
        return {"input": self.name, **true, **kept, "methods": values, "figure": str(folder / f"{self.file}.png")}


def page(folder: Path, facts: Mapping[str, Any], told: Sequence[Told], kernels: Panel | None) -> Path:
    """index.html with everything in it, and the figures beside it; returns the page's path."""
    for one in told:
        if "image" in one.found:
            write_bytes(folder / f"{one.file}.png", strip(one.pictures, one.heading))
        else:
            files.write_text(folder / f"{one.file}.svg", alone(one.bars(one.heading)))
    on = f" on {facts['data']['name']}"
    if kernels is not None:
        write_bytes(folder / "filters.png", strip([kernels], f"{facts['recipe']}{on}"))
    images = "image" in told[0].found
    table = IMAGES if images else FEATURES
    used = [f"{table[name].title}: {table[name].about}" for name in told[0].found["values"]]
    text = document(
        f"Why: {facts['recipe']}{on}",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", facts["recipe"], tag("span", on))),
        section("How to read it", tag("p", SIGNS if images else SHARES, " ", WARNING, class_="summary"), notes(used)),
        *(section(one.name, shown(one), lead=one.said) for one in told),
        section("Filters of the first layer", tag("ul", card(kernels), class_="examples")) if kernels is not None else None,
    )
    files.write_text(folder / "index.html", text)
    return folder / "index.html"


def cleared(folder: Path) -> None:
    """Nothing that an earlier call drew: in the run's own folder, where the report shows whatever lies there."""
    for kind in ("*.png", "*.svg", "*.html"):
        for old in folder.glob(kind):
            old.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    files.replace_with(path, lambda beside: beside.write_bytes(content))


def shown(one: Told) -> Html:
    if "image" not in one.found:
        return tag("figure", one.bars(), class_="wide")
    return tag("ul", [card(panel) for panel in one.pictures], class_="examples pictures")


def card(panel: Panel) -> Html:
    return tag("li", picture(panel.picture, panel.title), tag("small", panel.title))


def alone(drawn: Html) -> str:
    """A chart that carries its own colours."""
    return drawn.replace(">", f"><style>{style('chart.css')}svg {{ background: var(--paper); }}</style>", 1)
