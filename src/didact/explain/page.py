"""A page of explanations, and a figure for each input: PNG for images, SVG for table rows and texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from didact import files
from didact.charts.html import Html, format_number, tag
from didact.explain.figures import (
    Panel,
    draw_attribution_bars,
    make_maps_panel,
    make_panels,
    read_patch_grid,
    render_panels_png,
)
from didact.explain.methods import FEATURE_METHODS, IMAGE_METHODS
from didact.report.examples import make_image_tag
from didact.report.page import make_document, make_note_list, make_section, read_css

_SIGNED_MAPS_NOTE = "In signed maps, red is evidence for the class and blue against it; in others, bright is strong."
_BARS_NOTE = "A bar to the right is evidence for the class, one to the left against it; each column has its own scale."
_WARNING = "An explanation shows what the model used, not what is true: a model can be right for the wrong reasons."


@dataclass(frozen=True)
class Explanation:
    """The explanation of one input."""

    name: str
    results: Mapping[str, Any]
    file_stem: str
    true_label: str = ""

    @property
    def summary(self) -> str:
        """The prediction and the class that is explained."""
        f = self.results
        parts = [
            f"predicted {f['predicted']} ({100 * f['probability']:.1f} %)",
            f"explained class {f['class']}: score {format_number(f['score'], 3)}",
        ]
        return " · ".join([f"true {self.true_label}", *parts] if self.true_label else parts)

    @property
    def heading(self) -> str:
        return f"{self.name} · {self.summary}"

    @property
    def panels(self) -> list[Panel]:
        panels = make_panels(self.results["image"], self.results["values"])
        return [*panels, make_maps_panel(self.results["maps"], "feature maps")] if "maps" in self.results else panels

    def draw_bars(self, title: str = "") -> Html:
        return draw_attribution_bars(title, self.results["parts"], self.results["values"], self.results["notes"])

    def to_json(self, folder: Path) -> dict[str, Any]:
        """As JSON: for an image the maximum of each map; for other inputs the value of each part."""
        f = self.results
        common = {key: f[key] for key in ("predicted", "probability", "class", "class_probability", "score")}
        truth = {"true": self.true_label} if self.true_label else {}
        if "image" not in f:
            values = {name: dict(zip(f["parts"], v.tolist(), strict=True)) for name, v in f["values"].items()}
            return {
                "input": self.name,
                **truth,
                **common,
                "methods": values,
                "figure": str(folder / f"{self.file_stem}.svg"),
            }
        values = {
            name: {"peak": [int(v.argmax()) // v.shape[1], int(v.argmax()) % v.shape[1]]}
            for name, v in f["values"].items()
        }
        if "shapley" in values:
            values["shapley"]["patches"] = read_patch_grid(f["values"]["shapley"], f["patches"])
        return {
            "input": self.name,
            **truth,
            **common,
            "methods": values,
            "figure": str(folder / f"{self.file_stem}.png"),
        }


def write_explanation_page(
    folder: Path, metadata: Mapping[str, Any], explanations: Sequence[Explanation], filter_panel: Panel | None
) -> Path:
    """Write index.html and the figures; returns the page's path."""
    for explanation in explanations:
        if "image" in explanation.results:
            _write_bytes(
                folder / f"{explanation.file_stem}.png", render_panels_png(explanation.panels, explanation.heading)
            )
        else:
            files.write_text(
                folder / f"{explanation.file_stem}.svg", make_standalone_svg(explanation.draw_bars(explanation.heading))
            )
    data_suffix = f" on {metadata['data']['name']}"
    if filter_panel is not None:
        _write_bytes(folder / "filters.png", render_panels_png([filter_panel], f"{metadata['recipe']}{data_suffix}"))
    is_image = "image" in explanations[0].results
    methods = IMAGE_METHODS if is_image else FEATURE_METHODS
    method_notes = [f"{methods[name].title}: {methods[name].description}" for name in explanations[0].results["values"]]
    page_html = make_document(
        f"Explanations: {metadata['recipe']}{data_suffix}",
        tag(
            "header",
            tag("p", "didact · explanations", class_="overline"),
            tag("h1", metadata["recipe"], tag("span", data_suffix)),
        ),
        make_section(
            "How to read this page",
            tag("p", _SIGNED_MAPS_NOTE if is_image else _BARS_NOTE, " ", _WARNING, class_="summary"),
            make_note_list(method_notes),
        ),
        *(
            make_section(explanation.name, _show_explanation(explanation), lead=explanation.summary)
            for explanation in explanations
        ),
        make_section("Filters of the first layer", tag("ul", _make_panel_card(filter_panel), class_="examples"))
        if filter_panel is not None
        else None,
    )
    files.write_text(folder / "index.html", page_html)
    return folder / "index.html"


def clear_figures(folder: Path) -> None:
    """Delete what an earlier call wrote to the run's own folder, where the report shows every figure."""
    for pattern in ("*.png", "*.svg", "*.html"):
        for path in folder.glob(pattern):
            path.unlink()


def _write_bytes(path: Path, content: bytes) -> None:
    files.atomic_write(path, lambda temporary: temporary.write_bytes(content))


def _show_explanation(explanation: Explanation) -> Html:
    if "image" not in explanation.results:
        return tag("figure", explanation.draw_bars(), class_="wide")
    return tag("ul", [_make_panel_card(panel) for panel in explanation.panels], class_="examples pictures")


def _make_panel_card(panel: Panel) -> Html:
    return tag("li", make_image_tag(panel.image, panel.title), tag("small", panel.title))


def make_standalone_svg(chart: Html) -> str:
    """A chart with its own colors, to be opened by itself."""
    return chart.replace(">", f"><style>{read_css('chart.css')}svg {{ background: var(--paper); }}</style>", 1)
