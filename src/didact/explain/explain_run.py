"""Explanations of a run (`didact explain`), for given inputs or the test examples with the largest losses."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from didact.charts.html import format_number
from didact.data.core import Given, TensorSplit, describe_unseen_inputs
from didact.data.load import reject_options
from didact.data.tables.offsets import format_exact
from didact.errors import UsageError, look_up
from didact.explain import compare_memory, figures, head_ablation, sequences
from didact.explain.explained_model import ExplainedModel
from didact.explain.feature_maps import feature_maps, filters
from didact.explain.methods import (
    FEATURE_METHODS,
    IMAGE_METHODS,
    NETWORK_VIEWS,
    MethodOptions,
    find_first_convolution,
    find_map_layer,
    resolve_methods,
)
from didact.explain.page import Explanation, clear_figures, write_explanation_page
from didact.objectives.abilities import CanClassify, CanFillMask, CanForecast, CanTagTokens, CanTranslate
from didact.report.page import write_report
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.restore import load_model

_MAX_INPUTS = 64        # inputs at a time: each costs hundreds of passes
SLOW_PASS_S = 0.01     # from this time of one pass on a method may take a minute: progress is then reported by method


@dataclass(frozen=True)
class _NamedInputs:
    """Decoded inputs with names, and the true classes where they are known."""

    names: list[str]
    x: Tensor
    true_labels: list[str] = field(default_factory=list)


def explain_run(
    run: Run,
    inputs: Sequence[Given] = (),
    *,
    methods: Sequence[str] = ("all",),
    label: str | None = None,
    layer: str | None = None,
    patches: int | None = None,
    num_samples: int = 32,
    out_dir: Path | None = None,
    device: str = "auto",
    other_runs: Sequence[Run] = (),
    on_message: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Explain each input, write a page and a figure for each of them, and return the results.

    Without `out_dir` they go to the run's own folder, and the figures become a section of its report. `other_runs` are
    drawn with this one in a chart of the gradient norms over time.
    """
    if other_runs:
        if tuple(methods) != ("memory",) or (label, layer, patches) != (None, None, None):
            raise UsageError("--compare is for --method memory, and for it alone")
        return compare_memory.compare_gradient_reach([run, *other_runs], inputs, out_dir=out_dir, device=device)
    if "heads" in methods:
        if inputs or len(methods) > 1 or (label, layer, patches) != (None, None, None):
            raise UsageError(
                "--method heads evaluates the validation split and explains no input: give it alone, without inputs "
                "and options"
            )
        return head_ablation.explain_heads(run, out_dir=out_dir, device=device, on_message=on_message)
    if (
        sequence_results := _explain_sequences(
            run, inputs, methods, out_dir, device, on_message, **{"class": label}, layer=layer, patches=patches
        )
    ) is not None:
        return sequence_results
    model = ExplainedModel.from_run(run, device)
    named_inputs = _read_inputs(model, inputs) if inputs else _get_worst_examples(run, model)
    for warning in describe_unseen_inputs(model.data.encoder, inputs) if model.data.encoder else ():
        on_message(warning)
    x = named_inputs.x.to(model.device)
    method_names = resolve_methods(methods, model, x)
    _check_options(model, method_names, layer, patches)
    options = MethodOptions(find_map_layer(model, layer, x), patches, num_samples)
    class_index = model.data.class_names.index(_resolve_label(model, label)) if label is not None else None
    folder = out_dir or run.folder / "explanations"
    explanations = []
    for k, name in enumerate(named_inputs.names):
        on_message(f"{k + 1} of {len(named_inputs.names)}: {name}")
        results = _explain_input(model, x[k], method_names, options, class_index, on_message)
        explanations.append(
            Explanation(
                name,
                results,
                true_label=named_inputs.true_labels[k] if named_inputs.true_labels else "",
                file_stem=_make_file_stem(name, k),
            )
        )
    filter_panel = (
        figures.make_filters_panel(filters(model.objective, model.data.shape)) if "filters" in method_names else None
    )
    if out_dir is None:
        clear_figures(folder)
    page_path = write_explanation_page(folder, run.metadata, explanations, filter_panel)
    if out_dir is None and run.has("report.html"):
        write_report(run)
    return {
        "run": str(run.folder),
        "page": str(page_path),
        "explained": [results.to_json(folder) for results in explanations],
    }


def _explain_sequences(
    run: Run,
    inputs: Sequence[Given],
    methods: Sequence[str],
    out_dir: Path | None,
    device: str,
    on_message: Callable[[str], object],
    **options: Any,
) -> dict[str, Any] | None:
    """Networks that read tokens or values in order: attention, alignment, gates and memory; None for other networks."""
    objective, data = load_model(run)
    available = sequences.list_methods(getattr(objective, "network", objective))
    if isinstance(objective, CanForecast) and not available:
        raise UsageError(
            f"forecasts are explained by the gates and the memory of recurrent layers, which {run.folder} has not; "
            "train with --model lstm, gru or rnn"
        )
    if not available or data.kind not in ("text", "pairs", "tags", "series"):
        return None
    if not isinstance(objective, CanClassify | CanTranslate | CanTagTokens | CanFillMask | CanForecast):
        return None
    reject_options(f"{run.folder} reads a sequence, whose explanations are not of a class", **options)
    method_names, torch_device = (
        sequences.resolve_methods(methods, available),
        resolve_device(device, supported=objective.devices),
    )
    objective.to(torch_device)
    named_batches = sequences.read_texts(data, inputs) if inputs else sequences.load_worst_sequences(run)
    for warning in describe_unseen_inputs(data.encoder, inputs) if data.encoder else ():
        on_message(warning)
    if len(named_batches) > _MAX_INPUTS:
        raise UsageError(
            f"{len(named_batches):,} inputs are more than the {_MAX_INPUTS} that are explained at a time; give fewer"
        )
    if isinstance(objective, CanFillMask) and not inputs:
        named_batches = [(name, {**batch, "x": objective.mask_inputs(batch)}) for name, batch in named_batches]
    folder = out_dir or run.folder / "explanations"
    readings = [
        sequences.explain_sequence(
            objective,
            data,
            {key: v.to(torch_device) for key, v in batch.items()},
            name,
            method_names,
            _make_file_stem(name, k),
        )
        for k, (name, batch) in enumerate(named_batches)
    ]
    if out_dir is None:
        clear_figures(folder)
    page_path = sequences.write_sequence_page(folder, run.metadata, readings)
    if out_dir is None and run.has("report.html"):
        write_report(run)
    return {
        "run": str(run.folder),
        "page": str(page_path),
        "explained": [reading.to_json(folder) for reading in readings],
    }


def _explain_input(
    model: ExplainedModel,
    x: Tensor,
    method_names: Sequence[str],
    options: MethodOptions,
    class_index: int | None,
    on_message: Callable[[str], object],
) -> dict[str, Any]:
    """The prediction for one input, the explained class, and the values of each method."""
    p = model.probabilities(x[None])[0]
    predicted = int(p.argmax())
    c = predicted if class_index is None else class_index
    start_time = perf_counter()
    score = float(model.scores(x[None])[0, c].detach())
    is_slow = perf_counter() - start_time > SLOW_PASS_S
    methods = IMAGE_METHODS if model.is_image else FEATURE_METHODS
    values = {}
    for name in (name for name in method_names if name not in NETWORK_VIEWS):
        if is_slow:
            on_message(f"  {methods[name].title} …")
        values[name] = methods[name].compute(model, x, c, options).detach().cpu()
    results: dict[str, Any] = {
        "predicted": model.data.class_names[predicted], "probability": float(p[predicted]),
        "class": model.data.class_names[c], "class_probability": float(p[c]), "score": score, "values": values,
    }
    if model.is_image:
        size = x.shape[1], x.shape[2]
        results |= {"image": x.cpu(), "patches": options.patches_per_side(size)}
        if "feature_maps" in method_names:
            results["maps"] = feature_maps(model.scores, x[None], options.layer or find_first_convolution(model))[
                0
            ].cpu()
    else:
        results["parts"], members = model.get_parts(x)
        results["notes"] = (
            format_column_values(x, members, results["parts"], model) if model.data.kind == "table" else []
        )
    return results


def format_column_values(x: Tensor, part_index: Tensor, parts: Sequence[str], model: ExplainedModel) -> list[str]:
    """The value of each column as text: a number, or the category whose one-hot feature, `column=category`, is 1."""
    texts, feature_names = [], model.data.feature_names
    for k, (part, offset) in enumerate(zip(parts, model.get_column_offsets(len(parts)), strict=True)):
        feature_indices = (part_index == k).nonzero()[:, 0].tolist()
        categories = [
            feature_names[i].removeprefix(f"{part}=")
            for i in feature_indices
            if feature_names and feature_names[i] != part and float(x[i]) > 0.5
        ]
        value = (
            format_exact(float(x[feature_indices[0]]) + offset, offset)
            if offset
            else format_number(float(x[feature_indices[0]]), 3)
        )
        texts.append(
            value
            if offset or not feature_names or feature_names[feature_indices[0]] == part
            else "".join(categories[:1]) or "–"
        )
    return texts


def _read_inputs(model: ExplainedModel, inputs: Sequence[Given]) -> _NamedInputs:
    """Files, rows or texts, read as the training data were."""
    encoder = model.data.encoder
    if encoder is None:
        raise UsageError(
            f"the run was trained on {model.data.name!r}, whose inputs cannot be read from files; leave them out"
        )
    names, columns = encoder.read(inputs)
    if len(names) > _MAX_INPUTS:
        raise UsageError(
            f"{len(names):,} inputs are more than the {_MAX_INPUTS} that are explained at a time; give fewer"
        )
    return _NamedInputs(names, TensorSplit(columns, encoder.decoders).batch(torch.arange(len(names)))["x"])


def _get_worst_examples(run: Run, model: ExplainedModel) -> _NamedInputs:
    """The test examples with the largest losses, which the run keeps for its report."""
    examples = run.load("examples") if run.has("examples.safetensors") else {}
    if not {"worst", "worst_x"} <= examples.keys() or not len(examples["worst"]):
        raise UsageError(
            f"{run.folder} keeps no test examples to explain: finish it with didact resume, or give inputs"
        )
    rows = examples["worst"][: sequences.NUM_WORST].tolist()
    y = run.load("test").get("y") if run.has("test.safetensors") else None
    true_labels = [model.data.class_names[int(y[row])] for row in rows] if y is not None and y.ndim == 1 else []
    return _NamedInputs(run.example_names("worst")[: len(rows)], examples["worst_x"][: len(rows)], true_labels)


def _check_options(model: ExplainedModel, method_names: Sequence[str], layer: str | None, patches: int | None) -> None:
    """Refuse options that would have no effect."""
    if layer is not None and not {"grad_cam", "feature_maps"} & set(method_names):
        raise UsageError(
            f"--layer is for grad_cam and feature_maps, got --layer {layer} with {', '.join(method_names)}"
        )
    if patches is not None and not model.is_image:
        raise UsageError(f"--patches is for images, but this run reads a {model.data.kind}, got --patches {patches}")


def _resolve_label(model: ExplainedModel, label: str) -> str:
    return look_up("class", label, {class_name: class_name for class_name in model.data.class_names})


def _make_file_stem(name: str, k: int) -> str:
    """A file name without suffix: the input's number, and the part of its name that every file system allows."""
    stem = re.sub(r"[^\w]+", "-", name.rpartition("/")[2]).strip("-")[:40]
    return f"{k + 1:02d}-{stem or 'input'}"


