"""Inside a network that reads token by token: who attends to whom, what the gates do, how far back a gradient reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from didact import files
from didact.data.core import Batch, Data, Resident
from didact.errors import UsageError, nearest
from didact.explain.colour import coloured
from didact.explain.figures import Panel, strip
from didact.explain.memory import fading, gates, reader_of
from didact.explain.page import alone, card, write_bytes
from didact.layers.cells import Gates
from didact.layers.recurrent import Recurrent
from didact.objectives.abilities import Classifies
from didact.objectives.core import Objective
from didact.report import svg
from didact.report.markup import Html, tag
from didact.report.page import document, notes, section
from didact.report.svg import Series

ABOUT = {
    "attention": "attention: row what looks, column what is looked at, the first token above and to the left; bright is much",
    "gates": "gates: the mean over the units of a layer at each token, 0 closed, 1 open; candidates are from −1 to 1 (Gaba 5.5, 5.6)",
    "memory": "memory: ‖∂s_T/∂s_{T−d}‖, how much the last state would change with the one d tokens before (Gaba 5.3)",
}


class Attends(Protocol):
    def attention_maps(self, tokens: Tensor) -> Tensor:
        """(B, layers, heads, S, S)."""


@dataclass(frozen=True)
class Reading:
    """One text: its tokens and what was found inside while it was read."""

    name: str
    tokens: list[str]
    answer: tuple[str, float]
    found: dict[str, Any]
    file: str

    @property
    def visible(self) -> list[str]:
        """The tokens with signs for spaces and line ends."""
        return [token.replace(" ", "␣").replace("\n", "↵") for token in self.tokens]

    @property
    def said(self) -> str:
        return f"{len(self.tokens)} tokens · says {self.answer[0]!r} ({100 * self.answer[1]:.1f} %)"

    def facts(self, folder: Path) -> dict[str, Any]:
        kept = {"input": self.name, "tokens": self.tokens, "predicted": self.answer[0], "probability": self.answer[1]}
        return kept | {"methods": {name: self.brief(name) for name in self.found}, "figures": [str(folder / f) for f in self.figures]}

    def brief(self, name: str) -> Any:
        """As JSON: of each head what most is looked at, all in all; of each gate its mean over time; the norms."""
        if name == "attention":
            often = self.found[name].mean(-2)                                   # (layers, heads, S)
            return [[self.tokens[k] for k in layer.argmax(-1).tolist()] for layer in often]
        if name == "gates":
            return {gate: float(values.mean()) for gate, values in self.found[name].items()}
        return self.found[name].tolist()

    @property
    def figures(self) -> list[str]:
        """A PNG for each layer of attention, an SVG for each chart."""
        layers = len(self.found.get("attention", ()))
        charts = [f"{self.file}-{name}.svg" for name in self.found if name != "attention"]
        return [f"{self.file}-attention-{i + 1}.png" for i in range(layers)] + charts

    def panels(self) -> list[list[Panel]]:
        """A row of heads for each layer; each head on its own scale."""
        return [
            [Panel(f"layer {i} head {j}", coloured(a / a.max())) for j, a in enumerate(layer, 1)]
            for i, layer in enumerate(self.found["attention"], 1)
        ]

    def chart(self, name: str) -> Html:
        if name == "gates":
            lines = [
                Series(gate, list(range(len(self.tokens))), values.mean(1).tolist(), tone=k)
                for k, (gate, values) in enumerate(self.found[name].items())
            ]
            return svg.chart("Gates over time, mean of the units", lines, x="token", names=self.visible)
        norms = self.found[name].clamp(min=1e-12).tolist()
        line = Series("norm", list(range(len(norms))), norms)
        return svg.chart("How far a gradient reaches back", [line], x="tokens before the last", log_y=True)


def methods_of(network: nn.Module) -> tuple[str, ...]:
    """What there is to see inside: nothing in most networks."""
    if callable(getattr(network, "attention_maps", None)):
        return ("attention",)
    return ("gates", "memory") if reader_of(network) is not None else ()


def asked(words: Sequence[str], known: Sequence[str]) -> list[str]:
    if "all" in words:
        return list(known)
    for name in words:
        if name not in known:
            raise UsageError(f"no method for this network named {name!r}; {nearest(name, [*known, 'all'])}")
    return list(dict.fromkeys(words))


@torch.no_grad()
def look(objective: Objective, data: Data, batch: Batch, name: str, methods: Sequence[str], file: str) -> Reading:
    """Read one text, a batch of one row without padding."""
    network, x = objective.get_submodule("network"), batch["x"]
    known, found = data.labels if data.task == "language" else data.names, dict[str, Any]()
    if "attention" in methods:
        found["attention"] = cast(Attends, network).attention_maps(x)[0].float().cpu()
    reader = reader_of(network)
    if reader is not None and methods:
        embedded = cast(Tensor, network.get_submodule("embedding")(x))[0]
        of: dict[str, Callable[[Recurrent, Tensor], Any]] = {"gates": shown_gates, "memory": fading}
        found |= {method: of[method](reader, embedded) for method in methods}
    assert isinstance(objective, Classifies)
    p = objective.classify(batch)[0]
    answer = data.labels[int(p.argmax())], float(p.max())
    return Reading(name, [known[k] for k in x[0].tolist()], answer, found, file)


def shown_gates(reader: Recurrent, x: Tensor) -> Gates:
    """The gates without the states that they lead to; of a plain RNN, which has none, the size of its state."""
    every = {name: values.cpu() for name, values in gates(reader, x).items()}
    return {name: values for name, values in every.items() if name not in ("cell", "h")} or {"size of h": every["h"].abs()}


def texts(data: Data, inputs: Sequence[str]) -> list[tuple[str, Batch]]:
    """Each text as a batch of its own, cut where its padding begins."""
    assert data.encoder is not None
    names, columns = data.encoder.read(inputs)
    split, found = Resident(columns, data.encoder.decoders), []
    for k, name in enumerate(names):
        batch = split.batch(torch.tensor([k]))
        length = int(batch["length"]) if "length" in batch else max(1, int((batch["x"] != 0).sum()))
        found.append((name, {**batch, "x": batch["x"][:, :length]}))
    return found


def page(folder: Path, facts: Any, readings: Sequence[Reading]) -> Path:
    """index.html with everything in it, and the figures beside it."""
    shown = []
    for one in readings:
        parts: list[Html] = []
        rows = one.panels() if "attention" in one.found else []
        for row, file in zip(rows, one.figures, strict=False):
            write_bytes(folder / file, strip(row, f"{one.name} · {one.said}"))
            parts.append(tag("ul", [card(panel) for panel in row], class_="examples pictures"))
        for name in (name for name in one.found if name != "attention"):
            files.write_text(folder / f"{one.file}-{name}.svg", alone(one.chart(name)))
            parts.append(tag("figure", one.chart(name), class_="wide"))
        shown.append(section(one.name, *parts, lead=f"{one.said}: {' '.join(one.visible)}"))
    on = f" on {facts['data']['name']}"
    files.write_text(folder / "index.html", document(
        f"Inside: {facts['recipe']}{on}",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", facts["recipe"], tag("span", on))),
        section("How to read it", notes([ABOUT[name] for name in readings[0].found])),
        *shown,
    ))
    return folder / "index.html"
