"""Attention heads: what each looks at, and what each is worth, the validation split judged with one after the other off."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from didact import files
from didact.data.core import Batch, Split
from didact.data.stream import placed
from didact.errors import UsageError
from didact.explain.page import alone, cleared
from didact.layers.alignment import Bahdanau, Luong
from didact.layers.attention import CrossAttention
from didact.layers.heads import attentions, without
from didact.objectives.core import Objective
from didact.report import svg
from didact.report.markup import Html, number, tag
from didact.report.page import document, notes, section
from didact.report.page import write as write_report
from didact.report.svg import Cell
from didact.report.words import SHARES, metric_name, metric_value
from didact.run import Run
from didact.train.evaluation import judge
from didact.train.machine import pick_device
from didact.train.precision import Precision
from didact.train.session import rebuild, restored

MOST = 2000   # validation examples that are judged with each head off
ABOUT = (
    "Each field is one head: how a metric of the validation split changes when the head gives zeros and nothing else is changed.",
    "Orange: it gets worse, the head was needed. Blue: it gets no worse; such a head can be taken out with didact.layers.heads.prune.",
    "Heads are off one at a time: two that do the same are each of no worth here, and both together may be (Gaba Ex 6.3, Ex 7.6).",
)


@contextmanager
def watched(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The weights of every attention inside while the network is called, by its name: (B, heads, T, S), of alignments (B, 1, T, S).

    Fused attention hands none out: what it read is asked for once more by the explicit form.
    """
    found: dict[str, Tensor] = {}

    def look(name: str) -> Callable[..., None]:
        def hook(module: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            seen = module.look(*inputs, **options)
            found[name] = seen if isinstance(seen, Tensor) else seen[1]
        return hook

    def listen(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
            a = output[1][:, None]
            found[name] = torch.cat([found[name], a], dim=2) if name in found else a      # Bahdanau's comes step by step
        return hook

    hooks = [m.register_forward_pre_hook(look(name), with_kwargs=True) for name, m in attentions(network).items()]
    hooks += [m.register_forward_hook(listen(name)) for name, m in network.named_modules() if isinstance(m, Bahdanau | Luong)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def titles(network: nn.Module) -> dict[str, str]:
    """Of each attention the words for people: layer 2, of a translator encoder 2, decoder 2 and across 2."""
    translates = hasattr(network, "encoder") and hasattr(network, "decoder")
    found = {}
    for name, attention in attentions(network).items():
        layer = re.search(r"\d+", name)
        kind = "across" if isinstance(attention, CrossAttention) else name.partition(".")[0] if translates else "layer"
        found[name] = f"{kind} {int(layer[0]) + 1}" if layer else name
    return found


@dataclass(frozen=True)
class Part:
    """Some rows of a split."""

    split: Split
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        return self.split.batches([self.rows[chunk] for chunk in chunks])

    def decode(self, stored: Batch) -> Batch:
        return self.split.decode(stored)

    def to(self, device: torch.device) -> "Part":
        return Part(self.split.to(device), self.rows)


@dataclass(frozen=True)
class Worth:
    """The metrics of a split as the network is, and without each head: of each attention, by its name, a row of metrics a head."""

    whole: dict[str, float]
    off: dict[str, list[dict[str, float]]]
    examples: int

    def cost(self, metric: str, *, lower: bool) -> dict[str, list[float]]:
        """How much worse it gets, head by head."""
        sign = 1 if lower else -1
        return {name: [sign * (row[metric] - self.whole[metric]) for row in rows] for name, rows in self.off.items()}


def worth(
    objective: Objective, split: Split, *, batch: int, precision: Precision, tell: Callable[[str], object] = lambda words: None
) -> Worth:
    """Judge a split, its examples evenly thinned to at most `MOST`, with each head off in turn.  Michel et al. 2019, sec. 3."""
    network = objective.get_submodule("network")
    n = min(MOST, len(split))
    part = Part(split, torch.arange(n) * len(split) // max(1, n))

    def scored() -> dict[str, float]:
        return objective.score(judge(objective, part, batch=batch, precision=precision))

    whole, off = scored(), dict[str, list[dict[str, float]]]()
    for name, attention in attentions(network).items():
        tell(f"{name}: {attention.heads} heads, one after the other off")
        off[name] = []
        for i in range(attention.heads):
            with without(network, {name: [i]}):
                off[name].append(scored())
    return Worth(whole, off, n)


def explain(
    run: Run, *, to: Path | None = None, device: str = "auto", tell: Callable[[str], object] = lambda words: None
) -> dict[str, Any]:
    """`didact explain RUN --method heads`: what each head is worth, as maps of layers and heads."""
    objective, _ = restored(run)
    network = getattr(objective, "network", None)
    if not isinstance(network, nn.Module) or not attentions(network):
        raise UsageError(f"{run.folder} has no attention heads to switch off: recipe {run.facts['recipe']!r} builds none")
    place = pick_device(device, known=objective.devices)
    prepared = rebuild(run, with_data=True)
    data, precision = placed(prepared.experiment.data, place), Precision(prepared.settings.precision, place, objective)
    found = worth(objective.to(place), data.validation, batch=4 * prepared.experiment.batch, precision=precision, tell=tell)
    metrics: dict[str, str] = {"loss": "lower", objective.watch: objective.better}
    named, folder = titles(network), to or run.folder / "explanations"
    if to is None:
        cleared(folder)
    written = page(folder, run.facts, found, metrics, named)
    if to is None and run.has("report.html"):
        write_report(run)
    rows = [
        {"attention": named[name], "module": name, "head": i + 1, **{metric: row[metric] for metric in metrics}}
        for name, each in found.off.items() for i, row in enumerate(each)
    ]
    whole = {metric: found.whole[metric] for metric in metrics}
    return {"run": str(run.folder), "page": str(written), "examples": found.examples, "whole": whole, "explained": rows}


def heat(found: Worth, metric: str, better: str, named: dict[str, str]) -> Html:
    """Layers down, heads across; the change of a metric in each field."""
    costs = found.cost(metric, lower=better == "lower")
    most = max((abs(c) for row in costs.values() for c in row), default=0.0) or 1.0
    wide = max(map(len, costs.values()))
    cells: list[list[Cell | None]] = []
    for name, row in costs.items():
        fields: list[Cell | None] = []
        for i, cost in enumerate(row):
            value = found.off[name][i][metric]
            change = value - found.whole[metric]
            words = f"{100 * change:+.1f}" if metric in SHARES else f"{change:+.2g}"
            hint = f"{named[name]} head {i + 1} off: {metric_name(metric)} {metric_value(metric, value)}"
            fields.append(Cell(abs(cost) / most, words.replace("-", "−"), hint, "wrong" if cost > 0 else "heat"))
        cells.append([*fields, *[None] * (wide - len(row))])
    title = f"{metric_name(metric)} with a head off, less {metric_value(metric, found.whole[metric])} with all"
    return svg.heat(title, cells, [named[name] for name in costs], [str(i + 1) for i in range(wide)], x="head", y="attention")


def page(folder: Path, facts: Any, found: Worth, metrics: dict[str, str], named: dict[str, str]) -> Path:
    """index.html, and a figure for each metric beside it."""
    maps = {metric: heat(found, metric, better, named) for metric, better in metrics.items()}
    for metric, drawn in maps.items():
        files.write_text(folder / f"heads-{metric}.svg", alone(drawn))
    on = f" on {facts['data']['name']}"
    lead = f"{number(found.examples)} validation examples, {sum(map(len, found.off.values()))} heads"
    files.write_text(folder / "index.html", document(
        f"Heads: {facts['recipe']}{on}",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", facts["recipe"], tag("span", on))),
        section("How to read it", notes(ABOUT)),
        section("What each head is worth", *(tag("figure", drawn, class_="wide") for drawn in maps.values()), lead=lead),
    ))
    return folder / "index.html"
