"""Attention heads: their attention weights, and head ablation: the validation metrics with one head at a time off."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from didact import files
from didact.adaptation.head_pruning import disable_heads, find_attention_layers
from didact.charts import svg
from didact.charts.format import PERCENT_METRICS, format_metric_name, format_metric_value
from didact.charts.html import Html, format_number, tag
from didact.charts.svg import Cell
from didact.data.core import Batch, Split
from didact.data.storage import to_device
from didact.errors import UsageError
from didact.explain.page import clear_figures, make_standalone_svg
from didact.layers.attention.additive import BahdanauAttention, LuongAttention
from didact.layers.attention.multihead import CrossAttention
from didact.objectives.base import Objective
from didact.report.page import make_document, make_note_list, make_section, write_report
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.evaluation import evaluate_split
from didact.training.precision import Precision
from didact.training.restore import load_model, rebuild

_MAX_EXAMPLES = 2000   # validation examples that are evaluated with each head off
_HOW_TO_READ = (
    "Each cell is one head: how a metric of the validation split changes when the head outputs zeros.",
    "Orange: the metric gets worse, the head was needed. Blue: it gets no worse; such a head can be pruned with "
    "didact.adaptation.head_pruning.prune_heads.",
    "Heads are off one at a time: two redundant heads each look unimportant, although both together may matter (Gaba "
    "Ex 6.3, Ex 7.6).",
)


@contextmanager
def record_attention(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside, the weights of every attention layer are recorded by its name: (B, heads, T, S).

    Those of alignments are (B, 1, T, S). Fused attention returns none: its inputs go through the explicit form once
    more.
    """
    weights_by_layer: dict[str, Tensor] = {}

    def make_pre_hook(name: str) -> Callable[..., None]:
        def hook(module: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            output = module.forward_with_weights(*inputs, **kwargs)
            weights_by_layer[name] = output if isinstance(output, Tensor) else output[1]
        return hook

    def make_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
            a = output[1][:, None]
            # Bahdanau attention is called once for each step
            weights_by_layer[name] = torch.cat([weights_by_layer[name], a], dim=2) if name in weights_by_layer else a
        return hook

    hooks = [
        m.register_forward_pre_hook(make_pre_hook(name), with_kwargs=True)
        for name, m in find_attention_layers(network).items()
    ]
    hooks += [
        m.register_forward_hook(make_hook(name))
        for name, m in network.named_modules()
        if isinstance(m, BahdanauAttention | LuongAttention)
    ]
    try:
        yield weights_by_layer
    finally:
        for hook in hooks:
            hook.remove()


def make_layer_titles(network: nn.Module) -> dict[str, str]:
    """The title of each attention layer: layer 2, or for encoder-decoders encoder 2, decoder 2 and cross 2."""
    is_translator = hasattr(network, "encoder") and hasattr(network, "decoder")
    titles = {}
    for name, attention in find_attention_layers(network).items():
        layer = re.search(r"\d+", name)
        kind = (
            "cross" if isinstance(attention, CrossAttention) else name.partition(".")[0] if is_translator else "layer"
        )
        titles[name] = f"{kind} {int(layer[0]) + 1}" if layer else name
    return titles


@dataclass(frozen=True)
class _SplitSubset:
    """Some examples of a split."""

    split: Split
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        return self.split.batches([self.rows[chunk] for chunk in chunks])

    def decode(self, stored: Batch) -> Batch:
        return self.split.decode(stored)

    def to(self, device: torch.device) -> "_SplitSubset":
        return _SplitSubset(self.split.to(device), self.rows)


@dataclass(frozen=True)
class _HeadImportance:
    """The metrics of a split with all heads, and without each head: by attention layer, a dict for each head."""

    full_metrics: dict[str, float]
    ablated_metrics: dict[str, list[dict[str, float]]]
    examples: int

    def compute_cost(self, metric: str, *, lower_is_better: bool) -> dict[str, list[float]]:
        """How much worse a metric gets without each head."""
        sign = 1 if lower_is_better else -1
        return {
            name: [sign * (row[metric] - self.full_metrics[metric]) for row in rows]
            for name, rows in self.ablated_metrics.items()
        }


def _measure_head_importance(
    objective: Objective,
    split: Split,
    *,
    batch_size: int,
    precision: Precision,
    on_message: Callable[[str], object] = lambda text: None,
) -> _HeadImportance:
    """Evaluate up to _MAX_EXAMPLES examples, evenly chosen, with each head off in turn.  Michel et al. 2019, sec. 3."""
    network = objective.get_submodule("network")
    n = min(_MAX_EXAMPLES, len(split))
    subset = _SplitSubset(split, torch.arange(n) * len(split) // max(1, n))

    def compute_scores() -> dict[str, float]:
        return objective.compute_metrics(evaluate_split(objective, subset, batch_size=batch_size, precision=precision))

    full_metrics, ablated_metrics = compute_scores(), dict[str, list[dict[str, float]]]()
    for name, attention in find_attention_layers(network).items():
        on_message(f"{name}: {attention.num_heads} heads, one at a time off")
        ablated_metrics[name] = []
        for i in range(attention.num_heads):
            with disable_heads(network, {name: [i]}):
                ablated_metrics[name].append(compute_scores())
    return _HeadImportance(full_metrics, ablated_metrics, n)


def explain_heads(
    run: Run,
    *,
    out_dir: Path | None = None,
    device: str = "auto",
    on_message: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Head ablation (`didact explain RUN --method heads`): heatmaps of each head's importance."""
    objective, _ = load_model(run)
    network = getattr(objective, "network", None)
    if not isinstance(network, nn.Module) or not find_attention_layers(network):
        raise UsageError(
            f"{run.folder} has no attention heads to ablate: recipe {run.metadata['recipe']!r} builds none"
        )
    torch_device = resolve_device(device, supported=objective.devices)
    prepared = rebuild(run, with_data=True)
    data, precision = (
        to_device(prepared.experiment.data, torch_device),
        Precision(prepared.settings.precision, torch_device, objective),
    )
    importance = _measure_head_importance(
        objective.to(torch_device),
        data.validation,
        batch_size=4 * prepared.experiment.batch_size,
        precision=precision,
        on_message=on_message,
    )
    modes: dict[str, str] = {"loss": "min", objective.monitor: objective.mode}
    titles, folder = make_layer_titles(network), out_dir or run.folder / "explanations"
    if out_dir is None:
        clear_figures(folder)
    page_path = _write_page(folder, run.metadata, importance, modes, titles)
    if out_dir is None and run.has("report.html"):
        write_report(run)
    rows = [
        {"attention": titles[name], "module": name, "head": i + 1, **{metric: row[metric] for metric in modes}}
        for name, head_metrics in importance.ablated_metrics.items() for i, row in enumerate(head_metrics)
    ]
    full_metrics = {metric: importance.full_metrics[metric] for metric in modes}
    return {
        "run": str(run.folder),
        "page": str(page_path),
        "examples": importance.examples,
        "all_heads": full_metrics,
        "explained": rows,
    }


def _draw_importance(importance: _HeadImportance, metric: str, mode: str, titles: dict[str, str]) -> Html:
    """A heatmap of layers and heads: the change of a metric without each head."""
    costs = importance.compute_cost(metric, lower_is_better=mode == "min")
    max_cost = max((abs(c) for row in costs.values() for c in row), default=0.0) or 1.0
    max_heads = max(map(len, costs.values()))
    cells: list[list[Cell | None]] = []
    for name, row in costs.items():
        fields: list[Cell | None] = []
        for i, cost in enumerate(row):
            value = importance.ablated_metrics[name][i][metric]
            change = value - importance.full_metrics[metric]
            text = f"{100 * change:+.1f}" if metric in PERCENT_METRICS else f"{change:+.2g}"
            hint = f"{titles[name]} head {i + 1} off: {format_metric_name(metric)} {format_metric_value(metric, value)}"
            fields.append(Cell(abs(cost) / max_cost, text.replace("-", "−"), hint, "wrong" if cost > 0 else "heat"))
        cells.append([*fields, *[None] * (max_heads - len(row))])
    title = (
        f"{format_metric_name(metric)} with a head off, minus "
        f"{format_metric_value(metric, importance.full_metrics[metric])} with all heads"
    )
    return svg.draw_heatmap(
        title, cells, [titles[name] for name in costs], [str(i + 1) for i in range(max_heads)], x="head", y="attention"
    )


def _write_page(
    folder: Path, metadata: Any, importance: _HeadImportance, modes: dict[str, str], titles: dict[str, str]
) -> Path:
    """Write index.html, and a figure for each metric."""
    charts = {metric: _draw_importance(importance, metric, mode, titles) for metric, mode in modes.items()}
    for metric, chart in charts.items():
        files.write_text(folder / f"heads-{metric}.svg", make_standalone_svg(chart))
    data_suffix = f" on {metadata['data']['name']}"
    lead = (
        f"{format_number(importance.examples)} validation examples, "
        f"{sum(map(len, importance.ablated_metrics.values()))} heads"
    )
    files.write_text(
        folder / "index.html",
        make_document(
            f"Heads: {metadata['recipe']}{data_suffix}",
            tag(
                "header",
                tag("p", "didact · explanations", class_="overline"),
                tag("h1", metadata["recipe"], tag("span", data_suffix)),
            ),
            make_section("How to read this page", make_note_list(_HOW_TO_READ)),
            make_section(
                "Head importance",
                *(tag("figure", chart, class_="wide") for chart in charts.values()),
                lead=lead,
            ),
        ),
    )
    return folder / "index.html"
