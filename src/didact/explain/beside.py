"""The memory of several recurrent runs in one chart: ‖∂s_T/∂s_{T−d}‖ over the distance d.  Gaba Ex 5.2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.errors import UsageError
from didact.explain import sequences
from didact.explain.memory import fading, reader_of
from didact.explain.page import alone, cleared
from didact.report import svg
from didact.report.compare import differences
from didact.report.markup import tag
from didact.report.page import document, notes, section
from didact.report.svg import Series
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored

LEAST = 1e-12     # of a norm that is drawn


def reach(run: Run, inputs: Sequence[str], device: str) -> Tensor:
    """The norms over distance, geometric means over the texts, as far as the shortest of them goes."""
    objective, data = restored(run)
    network = objective.get_submodule("network")
    reader = reader_of(network)
    if reader is None or not hasattr(network, "embedding"):
        raise UsageError(f"{run.folder} has no recurrent layers that read tokens: recipe {run.facts['recipe']!r} builds none")
    place = pick_device(device, known=objective.devices)
    objective.to(place)
    given = sequences.texts(data, inputs) if inputs else sequences.kept(run)
    with torch.no_grad():
        norms = [fading(reader, network.embedding(batch["x"].to(place))[0]) for _, batch in given]  # type: ignore[operator]
    shortest = min(map(len, norms))
    return torch.stack([n[:shortest].clamp(min=LEAST).log() for n in norms]).mean(0).exp().cpu()


def explain(runs: Sequence[Run], inputs: Sequence[str] = (), *, to: Path | None = None, device: str = "auto") -> dict[str, Any]:
    """A page with one chart, a line for each run, named by what differs between them; in the first run's folder where none is given."""
    norms = [reach(run, inputs, device) for run in runs]
    differing = differences([run.facts for run in runs])
    told = [", ".join(f"{k} {v[i]}" for k, v in differing.items() if k not in ("recipe", "data")) for i in range(len(runs))]
    labels = [words[:40] or run.folder.name for words, run in zip(told, runs, strict=True)]
    lines = [Series(label, list(range(len(n))), n.tolist(), tone=k) for k, (label, n) in enumerate(zip(labels, norms, strict=True))]
    chart = svg.chart("How far a gradient reaches back", lines, x="tokens before the last", log_y=True)
    folder = to or runs[0].folder / "explanations"
    if to is None:
        cleared(folder)
    files.write_text(folder / "memory.svg", alone(chart))
    about = [sequences.ABOUT["memory"], "Of several texts the geometric mean. Of an LSTM s is h and c together: c is its memory."]
    files.write_text(folder / "memory.html", document(
        "Memory side by side",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", "Memory", tag("span", " side by side"))),
        section("How to read it", notes(about)),
        section("‖∂s_T/∂s_{T−d}‖", tag("figure", chart, class_="wide")),
    ))
    rows = [{"memory": label, "run": str(run.folder), "norms": n.tolist()} for label, run, n in zip(labels, runs, norms, strict=True)]
    return {"run": str(runs[0].folder), "page": str(folder / "memory.html"), "explained": rows}
