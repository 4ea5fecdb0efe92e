"""The memory of several recurrent runs in one chart: ‖∂s_T/∂s_{T−d}‖ over the distance d.  Gaba Ex 5.2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.data.core import Batch, Given
from didact.errors import UsageError
from didact.explain import sequences
from didact.explain.memory import Reader, fading, heard, reader_of
from didact.explain.page import alone, cleared
from didact.objectives.abilities import Forecasts, Translates
from didact.objectives.core import Objective
from didact.report import svg
from didact.report.compare import differences
from didact.report.markup import tag
from didact.report.page import document, notes, section
from didact.report.svg import Series
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored

LEAST = 1e-12     # of a norm that is drawn


def reach(run: Run, inputs: Sequence[Given], device: str) -> Tensor:
    """The norms over distance, geometric means over the texts or windows, as far as the shortest of them goes."""
    objective, data = restored(run)
    network = objective.get_submodule("network")
    reader = reader_of(network)
    if reader is None:
        raise UsageError(f"{run.folder} has no recurrent layers: recipe {run.facts['recipe']!r} builds none")
    place = pick_device(device, known=objective.devices)
    objective.to(place)
    given = sequences.texts(data, inputs) if inputs else sequences.kept(run)
    with torch.no_grad():
        read = [read_by(objective, reader, {key: v.to(place) for key, v in batch.items()}) for _, batch in given]
        norms = [fading(reader, x) for x in read]
    shortest = min(map(len, norms))
    return torch.stack([n[:shortest].clamp(min=LEAST).log() for n in norms]).mean(0).exp().cpu()


def read_by(objective: Objective, reader: Reader, batch: Batch) -> Tensor:
    """What the reader is given of one text or window, (T, D): tokens by their embedding, values as they come to it."""
    if isinstance(objective, Forecasts):
        with heard(reader) as inputs:
            objective.forecast(batch)
        return inputs[0][0]
    table = objective.get_submodule("network.source" if isinstance(objective, Translates) else "network.embedding")
    x: Tensor = table(batch["x"])[0]
    return x


def explain(runs: Sequence[Run], inputs: Sequence[Given] = (), *, to: Path | None = None, device: str = "auto") -> dict[str, Any]:
    """A page with one chart, a line for each run, named by what differs between them; in the first run's folder where none is given."""
    norms = [reach(run, inputs, device) for run in runs]
    differing = differences([run.facts for run in runs])
    told = [", ".join(f"{k} {v[i]}" for k, v in differing.items() if k not in ("recipe", "data")) for i in range(len(runs))]
    labels = [words[:40] or run.folder.name for words, run in zip(told, runs, strict=True)]
    lines = [Series(label, list(range(len(n))), n.tolist(), tone=k) for k, (label, n) in enumerate(zip(labels, norms, strict=True))]
    steps = "values" if all(run.facts["data"]["kind"] == "series" for run in runs) else "tokens"
    chart = svg.chart("How far a gradient reaches back", lines, x=f"{steps} before the last", log_y=True)
    folder = to or runs[0].folder / "explanations"
    if to is None:
        cleared(folder)
    files.write_text(folder / "memory.svg", alone(chart))
    about = [
        sequences.ABOUT["memory"], "Of several texts the geometric mean. Of an LSTM s is h and c together: c is its memory.",
        "Of Mamba s is h, of an mLSTM C, of an sLSTM (c, n, h) as it is kept.",
    ]
    files.write_text(folder / "memory.html", document(
        "Memory side by side",
        tag("header", tag("p", "didact · explanations", class_="overline"), tag("h1", "Memory", tag("span", " side by side"))),
        section("How to read it", notes(about)),
        section("‖∂s_T/∂s_{T−d}‖", tag("figure", chart, class_="wide")),
    ))
    rows = [{"memory": label, "run": str(run.folder), "norms": n.tolist()} for label, run, n in zip(labels, runs, norms, strict=True)]
    return {"run": str(runs[0].folder), "page": str(folder / "memory.html"), "explained": rows}
