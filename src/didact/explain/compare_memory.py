"""The memory of several recurrent runs in one chart: ‖∂s_T/∂s_{T−d}‖ over the distance d.  Gaba Ex 5.2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.charts import svg
from didact.charts.html import tag
from didact.charts.svg import Series
from didact.data.core import Batch, Given
from didact.errors import UsageError
from didact.explain import sequences
from didact.explain.gradient_memory import RecurrentReader, compute_gradient_decay, find_reader, record_inputs
from didact.explain.page import clear_figures, make_standalone_svg
from didact.objectives.abilities import CanForecast, CanTranslate
from didact.objectives.base import Objective
from didact.report.page import make_document, make_note_list, make_section
from didact.report.run_comparison import find_differences
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.restore import load_model


def _measure_gradient_reach(run: Run, inputs: Sequence[Given], device: str) -> Tensor:
    """The norms over distance, geometric means over the texts or windows, up to the length of the shortest."""
    objective, data = load_model(run)
    network = objective.get_submodule("network")
    reader = find_reader(network)
    if reader is None:
        raise UsageError(f"{run.folder} has no recurrent layers: recipe {run.metadata['recipe']!r} builds none")
    torch_device = resolve_device(device, supported=objective.devices)
    objective.to(torch_device)
    named_batches = sequences.read_texts(data, inputs) if inputs else sequences.load_worst_sequences(run)
    with torch.no_grad():
        reader_inputs = [
            _get_reader_inputs(objective, reader, {key: v.to(torch_device) for key, v in batch.items()})
            for _, batch in named_batches
        ]
        norms = [compute_gradient_decay(reader, x) for x in reader_inputs]
    shortest = min(map(len, norms))
    return torch.stack([n[:shortest].log() for n in norms]).mean(0).exp()


def _get_reader_inputs(objective: Objective, reader: RecurrentReader, batch: Batch) -> Tensor:
    """The recurrent layers' input for one text or window, (T, D): embedded tokens, or standardized values."""
    if isinstance(objective, CanForecast):
        with record_inputs(reader) as inputs:
            objective.forecast(batch)
        return inputs[0][0]
    embedding = objective.get_submodule(
        "network.source" if isinstance(objective, CanTranslate) else "network.embedding"
    )
    x: Tensor = embedding(batch["x"])[0]
    return x


def compare_gradient_reach(
    runs: Sequence[Run], inputs: Sequence[Given] = (), *, out_dir: Path | None = None, device: str = "auto"
) -> dict[str, Any]:
    """A page with one chart, a line for each run, labeled by what differs between them.

    It goes to the first run's folder where `out_dir` is not given.
    """
    norms = [_measure_gradient_reach(run, inputs, device) for run in runs]
    differences = find_differences([run.metadata for run in runs])
    difference_texts = [
        ", ".join(f"{k} {v[i]}" for k, v in differences.items() if k not in ("recipe", "data"))
        for i in range(len(runs))
    ]
    labels = [text[:40] or run.folder.name for text, run in zip(difference_texts, runs, strict=True)]
    series = [
        Series(label, list(range(len(n))), sequences.get_charted_norms(n), color=k)
        for k, (label, n) in enumerate(zip(labels, norms, strict=True))
    ]
    steps = "values" if all(run.metadata["data"]["kind"] == "series" for run in runs) else "tokens"
    chart = svg.draw_chart("Gradient norm over distance", series, x=f"{steps} before the last", log_y=True)
    folder = out_dir or runs[0].folder / "explanations"
    if out_dir is None:
        clear_figures(folder)
    files.write_text(folder / "memory.svg", make_standalone_svg(chart))
    method_notes = [
        sequences.METHOD_NOTES["memory"],
        "Over several texts the geometric mean. For an LSTM s is h and c together: c is its memory.",
        "For Mamba s is h, for an mLSTM C, for an sLSTM (c, n, h).",
    ]
    files.write_text(
        folder / "memory.html",
        make_document(
            "Memory compared",
            tag(
                "header",
                tag("p", "didact · explanations", class_="overline"),
                tag("h1", "Memory", tag("span", " compared")),
            ),
            make_section("How to read this page", make_note_list(method_notes)),
            make_section("‖∂s_T/∂s_{T−d}‖", tag("figure", chart, class_="wide")),
        ),
    )
    rows = [
        {"memory": label, "run": str(run.folder), "norms": n.tolist()}
        for label, run, n in zip(labels, runs, norms, strict=True)
    ]
    return {"run": str(runs[0].folder), "page": str(folder / "memory.html"), "explained": rows}
