"""Inside a network that reads token by token: who attends to whom, what the gates do, how far back a gradient reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from didact import files
from didact.data.core import Batch, Data, Given, Resident
from didact.data.hiding import MASK
from didact.data.pairs import PairEncoder
from didact.data.tokens import BEGIN, Tokenizer
from didact.errors import UsageError, nearest
from didact.explain.heads import titles, watched
from didact.explain.maps import attention_maps
from didact.explain.memory import Reader, fading, gates, heard, reader_of
from didact.explain.page import alone
from didact.layers.alignment import Bahdanau, Luong
from didact.layers.attention import CrossAttention
from didact.layers.cells import Gates
from didact.layers.heads import attentions
from didact.objectives.abilities import Classifies, Fills, Forecasts, Tags, Translates
from didact.objectives.core import Objective
from didact.report import svg
from didact.report.markup import Html, tag
from didact.report.page import document, notes, section
from didact.report.svg import Cell, Series
from didact.run import Run

WORST = 6     # kept test examples that are explained when no input is given

ABOUT = {
    "attention": "attention: row what looks, column what is looked at, the first token above and to the left; bright is much,"
    " or, where weights can be negative (differential attention), red adds and blue takes away."
    " Across: what is written looks at what was read",
    "alignment": "alignment: for each token that is written, which of those that were read it looks at; of several heads their mean"
    " (Gaba 6.2, 7.4)",
    "gates": "gates: the mean over the units of a layer at each step, 0 closed, 1 open; candidates are from −1 to 1 (Gaba 5.5, 5.6)",
    "memory": "memory: ‖∂s_T/∂s_{T−d}‖, how much the last state would change with the one d tokens before (Gaba 5.4)",
}


def visible(tokens: Sequence[str]) -> list[str]:
    """With signs for spaces and line ends."""
    return [token.replace(" ", "␣").replace("\n", "↵") for token in tokens]


@dataclass(frozen=True)
class Heads:
    """One layer of attention: who looks at what, (heads, T, S)."""

    title: str
    weights: Tensor
    rows: list[str]         # the T tokens that look
    columns: list[str]      # the S tokens that are looked at

    @property
    def chart(self) -> Html:
        return attention_maps(self.title, self.weights, visible(self.rows), visible(self.columns))

    @property
    def favourites(self) -> list[str]:
        """Of each head what most is looked at, all in all."""
        return [self.columns[k] for k in self.weights.mean(-2).argmax(-1).tolist()]


@dataclass(frozen=True)
class Reading:
    """One text: its tokens, those that are written of it, and what was found inside meanwhile."""

    name: str
    tokens: list[str]
    answer: tuple[str, float | None]      # what it says and how likely that is; of numbers it does not say
    found: dict[str, Any]
    file: str
    written: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        what, p = self.answer
        says = f" · says {what!r} ({100 * p:.1f} %)" if what and p is not None else f" · says {what}" if what else ""   # of no mask nothing
        return f"{len(self.tokens)} {'values' if p is None else 'tokens'}{says}"

    def facts(self, folder: Path) -> dict[str, Any]:
        kept = {"input": self.name, "tokens": self.tokens, "predicted": self.answer[0], "probability": self.answer[1]}
        return kept | {"methods": {name: self.brief(name) for name in self.found}, "figures": [str(folder / f) for f in self.figures]}

    def brief(self, name: str) -> Any:
        """As JSON: of each head what most is looked at; of each written token the one it comes from; means of gates; the norms."""
        if name == "attention":
            return [layer.favourites for layer in self.found[name]]
        if name == "alignment":
            return [[token, self.tokens[k]] for token, k in zip(self.written, self.found[name].argmax(-1).tolist(), strict=True)]
        if name == "gates":
            return {gate: float(values.mean()) for gate, values in self.found[name].items()}
        return self.found[name].tolist()

    @property
    def figures(self) -> list[str]:
        """An SVG for each layer of attention, and for each chart."""
        layers = len(self.found.get("attention", ()))
        charts = [f"{self.file}-{name}.svg" for name in self.found if name != "attention"]
        return [f"{self.file}-attention-{i + 1}.svg" for i in range(layers)] + charts

    def chart(self, name: str) -> Html:
        if name == "alignment":
            rows, columns = visible(self.written), visible(self.tokens)
            cells = [
                [Cell(a, "", f"{row} looks at {column}: {100 * a:.1f} %") for a, column in zip(weights, columns, strict=True)]
                for weights, row in zip(self.found[name].tolist(), rows, strict=True)
            ]
            return svg.heat("Alignment", cells, rows, columns, x="read", y="written")
        if name == "gates":
            lines = [
                Series(gate, list(range(len(self.tokens))), values.mean(1).tolist(), tone=k)
                for k, (gate, values) in enumerate(self.found[name].items())
            ]
            return svg.chart("Gates over time, mean of the units", lines, x="token", names=visible(self.tokens))
        norms = self.found[name].clamp(min=1e-12).tolist()
        line = Series("norm", list(range(len(norms))), norms)
        return svg.chart("How far a gradient reaches back", [line], x="tokens before the last", log_y=True)


def methods_of(network: nn.Module) -> tuple[str, ...]:
    """What there is to see inside: nothing in most networks."""
    found = ["attention"] if attentions(network) else []
    found += ["alignment"] if across(network) else []
    return (*found, "gates", "memory") if reader_of(network) is not None else tuple(found)


def asked(words: Sequence[str], known: Sequence[str]) -> list[str]:
    if "all" in words:
        return list(known)
    for name in words:
        if name not in known:
            raise UsageError(f"no method for this network named {name!r}; {nearest(name, [*known, 'all'])}")
    return list(dict.fromkeys(words))


@torch.no_grad()
def look(objective: Objective, data: Data, batch: Batch, name: str, methods: Sequence[str], file: str) -> Reading:
    """Read one text or window of a series, a batch of one row without padding."""
    network, x = objective.get_submodule("network"), batch["x"]
    reader = reader_of(network)
    if isinstance(objective, Forecasts):
        assert reader is not None
        with heard(reader) as inputs:
            said = objective.forecast(batch)[0]
        return Reading(name, figures(x[0, :, 0]), (" ".join(figures(said)), None), recurrent(reader, inputs[0][0], methods), file)
    known = (*data.labels, MASK) if data.task == "language" else data.names
    tokens, written = [known[k] for k in x[0].tolist()], list[str]()
    if isinstance(objective, Translates) and isinstance(data.encoder, PairEncoder):
        y = objective.translate(batch)
        y = y[:, : int((y != 0).sum())]
        tokens, written = spelled(data.encoder.source, x[0]), spelled(data.encoder.target, y[0])
        with watched(network) as seen:
            answer = data.encoder.target.decode(y[0].tolist()), likely(network, x, y)
    elif isinstance(objective, Tags | Fills):
        with watched(network) as seen:
            p = (objective.tag if isinstance(objective, Tags) else objective.fill)(batch)[0]
        best, label = p[p.sum(-1) > 0].max(-1)
        answer = " ".join(data.labels[k] for k in label.tolist()), float(best.prod())
    else:
        assert isinstance(objective, Classifies)
        with watched(network) as seen:
            p = objective.classify(batch)[0]
        answer = data.labels[int(p.argmax())], float(p.max())
    maps = {part: a[0].float().cpu() for part, a in seen.items()}
    found: dict[str, Any] = {}
    if "attention" in methods:
        found["attention"] = layers(network, maps, tokens, written)
    if "alignment" in methods:
        found["alignment"] = torch.stack([maps[part].mean(0) for part in across(network)]).mean(0)     # (T, S)
    if reader is not None:
        table = network.get_submodule("source" if written else "embedding")
        found |= recurrent(reader, cast(Tensor, table(x))[0], methods)
    return Reading(name, tokens, answer, found, file, written)


def recurrent(reader: Reader, x: Tensor, methods: Sequence[str]) -> dict[str, Any]:
    """Gates and memory while it reads x, (T, D), as far as they are asked for."""
    of: dict[str, Callable[[Reader, Tensor], Any]] = {"gates": shown_gates, "memory": fading}
    return {method: of[method](reader, x) for method in methods if method in of}


def figures(values: Tensor) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]


def spelled(tokenizer: Tokenizer, ids: Tensor) -> list[str]:
    """Each token as text; those that are none, as <eos>, by their names."""
    return [tokenizer.decode([k]) or tokenizer.names[k] for k in ids.tolist()]


def likely(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Π_t p(y_t | y_<t, x) of one sentence, (1, S) and (1, T): the decoder is told its own words."""
    told = torch.cat([torch.full_like(y[:, :1], BEGIN), y[:, :-1]], dim=1)
    return float(network(x, told).log_softmax(-1).gather(-1, y[..., None]).sum().exp())


def layers(network: nn.Module, maps: dict[str, Tensor], read: list[str], written: list[str]) -> list[Heads]:
    """Every layer of attention with the tokens of both sides: a translator's decoder looks back at what it was told, and across."""
    known, told = attentions(network), ["<bos>", *written[:-1]]

    def sides(name: str) -> tuple[list[str], list[str]]:
        if isinstance(known[name], CrossAttention):
            return written, read
        return (told, told) if name.startswith("decoder.") else (read, read)

    return [Heads(title, maps[name], *sides(name)) for name, title in titles(network).items()]


def across(network: nn.Module) -> list[str]:
    """What looks from the sequence that is written at the one that was read."""
    return [name for name, m in network.named_modules() if isinstance(m, CrossAttention | Bahdanau | Luong)]


def shown_gates(reader: Reader, x: Tensor) -> Gates:
    """The gates without the states that they lead to; of a plain RNN, which has none, the size of its state."""
    every = {name: values.cpu() for name, values in gates(reader, x).items()}
    return {name: values for name, values in every.items() if name not in ("cell", "h")} or {"size of h": every["h"].abs()}


def texts(data: Data, inputs: Sequence[Given]) -> list[tuple[str, Batch]]:
    """Each text as a batch of its own, cut where its padding begins."""
    assert data.encoder is not None
    names, columns = data.encoder.read(inputs)
    split, found = Resident(columns, data.encoder.decoders), []
    for k, name in enumerate(names):
        batch = split.batch(torch.tensor([k]))
        length = int(batch["length"]) if "length" in batch else max(1, int((batch["x"] != 0).sum()))
        found.append((name, batch if data.kind == "series" else {**batch, "x": batch["x"][:, :length]}))
    return found


def kept(run: Run) -> list[tuple[str, Batch]]:
    """The tokens of the test examples with the highest loss, or their values."""
    found = run.load("examples") if run.has("examples.safetensors") else {}
    if not {"worst", "worst_x"} <= found.keys():
        raise UsageError(f"{run.folder} keeps no test examples to explain: finish it with didact resume, or give inputs")
    series, running = run.facts["data"]["kind"] == "series", run.facts["data"]["task"] == "language"
    given = []
    for name, row, x in zip(run.called("worst")[:WORST], found["worst"][:WORST, None], found["worst_x"][:WORST], strict=True):
        x = x if series else x.long()
        n = len(x) if series or running else max(1, int((x != 0).sum()))     # classifiers pad with 0; in running text 0 is a token
        given.append((name, {"x": x[None, :n], "row": row}))
    return given


def page(folder: Path, facts: Any, readings: Sequence[Reading]) -> Path:
    """index.html with everything in it, and the figures beside it."""
    shown = []
    for one in readings:
        parts: list[Html] = []
        for layer, file in zip(one.found.get("attention", ()), one.figures, strict=False):
            files.write_text(folder / file, alone(layer.chart))
            parts.append(tag("figure", layer.chart, class_="wide"))
        for name in (name for name in one.found if name != "attention"):
            files.write_text(folder / f"{one.file}-{name}.svg", alone(one.chart(name)))
            parts.append(tag("figure", one.chart(name), class_="wide"))
        shown.append(section(one.name, *parts, lead=f"{one.said}: {' '.join(visible(one.tokens))}"))
    on = f" on {facts['data']['name']}"
    files.write_text(folder / "index.html", document(
        f"Inside: {facts['recipe']}{on}",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", facts["recipe"], tag("span", on))),
        section("How to read it", notes([ABOUT[name] for name in readings[0].found])),
        *shown,
    ))
    return folder / "index.html"
