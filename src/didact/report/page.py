"""The report of a run: one HTML file that needs nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as packaged
from pathlib import Path
from typing import Any

from torch import Tensor

from didact import files, metrics
from didact.charts.format import (
    COURSE_TITLES,
    MAIN_METRICS,
    find_best,
    find_metric_note,
    format_argument,
    format_citation,
    format_duration,
    format_epochs,
    format_metric_formula,
    format_metric_name,
    format_metric_value,
    get_positive_class,
    has_frozen_layers,
    wilson_interval,
)
from didact.charts.html import Html, format_number, tag, to_html
from didact.errors import format_count
from didact.report.box_strips import make_box_groups
from didact.report.decision_surfaces import make_surface_figure
from didact.report.examples import is_token_sequence, make_example_cards, to_data_uri
from didact.report.figures import (
    Figure,
    count_confusions,
    list_confusions,
    make_class_figure,
    make_prediction_figures,
    make_signal_figures,
    make_target_figure,
    make_training_figures,
)
from didact.report.gallery import GALLERY_LEAD, make_gallery_section
from didact.report.generative_figures import make_generative_figures
from didact.report.mask_strips import MASKS_LEAD, RESTORED_LEAD, make_mask_groups, make_restored_groups
from didact.report.nearest_words import NEIGHBORS_LEAD, make_neighbor_table
from didact.report.predictions import Predictions, read_predictions
from didact.report.sampled_rows import ROWS_LEAD, make_row_section
from didact.run import Run

STOP_REASONS = {"budget": "the budget was spent", "patience": "validation no longer improved"}
LEARNED_LEAD = (
    "Predictions over the range of the training examples and a margin beyond it."
)
BOXES_LEAD = (
    "The test images with the highest and the lowest loss. Dashed: true boxes. Solid: detected boxes, with their "
    "confidence."
)
BASELINES_LEAD = (
    "Simple models on the same test rows, fitted to the training and validation rows. The best of each column is bold."
)
MAX_EXPLANATIONS = 12  # figures shown at most
EXPLANATIONS_LEAD = "Red speaks for the class, blue against it; in maps without a sign, bright is strong."
SIGNAL_LEAD = (
    "At initialization. A variance that shrinks or grows from layer to layer does so exponentially with depth, and "
    "then the layers at one end hardly learn (Gaba 1.5)."
)
COPY_SCRIPT = """
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = !navigator.clipboard;
  button.onclick = async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
}
"""


def read_css(name: str) -> str:
    return (packaged("didact.report") / name).read_text(encoding="utf-8")


def make_document(title: str, *body: object) -> str:
    head = tag(
        "head", Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Html(read_css("chart.css") + read_css("style.css"))),
    )
    foot = tag("footer", "Written by didact. This page is one file: it can be saved, sent and opened anywhere.")
    return "<!doctype html>\n" + tag(
        "html", head, tag("body", tag("main", *body, foot), tag("script", Html(COPY_SCRIPT))), lang="en"
    )


def make_section(name: str, *parts: object, lead: str = "") -> Html:
    return (
        tag("section", tag("h2", name), tag("p", lead, class_="lead") if lead else None, *parts)
        if any(parts)
        else Html("")
    )


def make_figure(chart_figure: Figure | None) -> Html:
    return (
        tag(
            "figure",
            chart_figure.svg,
            tag("figcaption", chart_figure.caption) if chart_figure.caption else None,
            class_="wide" if chart_figure.is_wide else None,
        )
        if chart_figure
        else Html("")
    )


def _make_large_figure(chart_figure: Figure | None) -> Html:
    """A figure across the page, its caption beside it."""
    return (
        tag("figure", chart_figure.svg, tag("figcaption", chart_figure.caption), class_="hero")
        if chart_figure
        else Html("")
    )


def make_figure_grid(figures: Iterable[Figure | None], css_class: str = "pair") -> Html:
    tags = [make_figure(chart_figure) for chart_figure in figures if chart_figure]
    return tag("div", tags, class_=css_class) if tags else Html("")


def make_table(
    headings: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    footer_cells: Sequence[object] = (),
    numeric: int = 1,
    css_class: str = "",
) -> Html:
    """A table that scrolls in its own box; columns from `numeric` on are right-aligned numbers."""
    def cell(k: int, content: object) -> Html:
        css_class = "n" if k >= numeric else None
        return tag("th", content, scope="row", class_=css_class) if k == 0 else tag("td", content, class_=css_class)

    header = tag(
        "thead",
        tag(
            "tr",
            [
                tag("th", heading, scope="col", class_="n" if k >= numeric else None)
                for k, heading in enumerate(headings)
            ],
        ),
    )
    body = tag("tbody", [tag("tr", [cell(k, c) for k, c in enumerate(row)]) for row in rows])
    footer = tag("tfoot", tag("tr", [cell(k, c) for k, c in enumerate(footer_cells)])) if footer_cells else None
    return tag("div", tag("table", header, body, footer), class_=f"scroll {css_class}".strip(), tabindex=0)


def _make_fact_list(pairs: Mapping[str, object]) -> Html:
    return tag(
        "dl",
        [tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs.items() if v not in (None, "", "–")],
        class_="facts",
    )


def _make_bar_cell(fraction: float, text: str) -> Html:
    """A number with a bar behind it."""
    return tag("span", text, class_="meter", style=f"--share:{100 * min(1.0, max(0.0, fraction)):.1f}%")


def write_report(run: Run) -> Path:
    """Write report.html and figures/*.svg into the run's folder; returns the page's path."""
    metadata, log = run.metadata | {"status": run.status}, run.metrics
    outputs = run.load("test") if run.has("test.safetensors") else {}
    examples = run.load("examples") if run.has("examples.safetensors") else {}
    names = {group: run.example_names(group) for group in ("worst", "best")} if examples else {}
    surface = run.load("surface") if run.has("surface.safetensors") else {}
    predictions = read_predictions(metadata, outputs)
    main_figures, small_figures = make_training_figures(metadata, log) if log else ([], [])
    class_chart = make_class_figure(metadata["data"]) or make_target_figure(
        predictions, metadata["data"].get("target", "")
    )
    prediction_figures = make_prediction_figures(predictions) if predictions else []
    surface_figure = make_surface_figure(
        metadata["data"], surface, includes_noise=predictions is not None and predictions.std is not None
    )
    signal_figures = make_signal_figures(metadata)
    generative_figures = make_generative_figures(outputs, run.load("gallery") if run.has("gallery.safetensors") else {})
    page = make_document(
        f"{metadata['recipe']} on {metadata['data']['name']}",
        _make_header(run.folder.name, metadata, len(outputs["loss"]) if "loss" in outputs else 0),
        make_section("Command", _make_repeat_section(metadata)),
        make_section("Data", _make_data_section(metadata, class_chart)),
        make_section(
            "Training",
            make_figure_grid(main_figures),
            make_figure_grid(small_figures, "trio"),
            lead=describe_training(metadata),
        ),
        make_section("Learned function", _make_large_figure(surface_figure), lead=LEARNED_LEAD),
        make_section("Samples and codes", make_gallery_section(run, outputs, metadata), lead=GALLERY_LEAD),
        make_section("Inside the model", make_figure_grid(generative_figures)),
        make_section("Sampled rows", make_row_section(run, metadata), lead=ROWS_LEAD),
        make_section("Nearest words", make_neighbor_table(run, metadata["data"]), lead=NEIGHBORS_LEAD),
        make_section(
            "Test split",
            _make_test_section(prediction_figures, predictions),
            _make_mask_table(outputs, metadata["data"]),
            lead=_describe_test_split(outputs),
        ),
        make_section("Baselines", _make_baseline_table(metadata), lead=BASELINES_LEAD),
        _make_examples_section(examples, names, predictions, metadata["data"], metadata.get("example_texts", {})),
        make_section("Masks", make_mask_groups(examples, names, outputs, metadata["data"]), lead=MASKS_LEAD),
        make_section("Restored images", make_restored_groups(examples, names, outputs), lead=RESTORED_LEAD),
        make_section("Boxes", make_box_groups(examples, names, outputs, metadata["data"]), lead=BOXES_LEAD),
        make_section(
            "Explanations", _make_explanations_section(run.folder / "explanations"), lead=EXPLANATIONS_LEAD
        ),
        make_section("Model summary", _make_layer_section(metadata.get("layers")),
        _make_signal_section(signal_figures)),
        make_section("Run", _make_run_section(run.folder.name, metadata)),
        make_section("Sources in the courses", _make_sources_section(metadata, are_courses=True)),
        make_section("Papers", _make_sources_section(metadata, are_courses=False)),
    )
    for f in (
        *main_figures,
        *small_figures,
        *prediction_figures,
        *signal_figures,
        *generative_figures,
        *(f for f in (class_chart, surface_figure) if f),
    ):
        standalone = f.svg.replace(
            ">", f"><style>{read_css('chart.css')}svg {{ background: var(--paper); }}</style>", 1
        )
        files.write_text(run.folder / "figures" / f.file_name, standalone)
    path = run.folder / "report.html"
    files.write_text(path, page)
    return path


def _make_header(name: str, metadata: Mapping[str, Any], num_test: int) -> Html:
    started = str(metadata.get("started", ""))[:16].replace("T", " ")
    time_text = format_duration(metadata["seconds"]) if "seconds" in metadata else metadata.get("status", "")
    items = [
        started,
        metadata.get("device"),
        metadata.get("precision"),
        f"seed {metadata.get('settings', {}).get('seed', '–')}",
        time_text,
    ]
    return tag(
        "header",
        tag("p", f"didact · {metadata.get('chapter') or 'run'} · {name}", class_="overline"),
        tag("h1", metadata["recipe"], tag("span", f" on {metadata['data']['name']}")),
        tag("p", metadata.get("summary", ""), class_="summary"),
        tag("ul", [tag("li", text) for text in items if text], class_="meta"),
        _make_tiles(metadata, num_test),
    )


def _make_tiles(metadata: Mapping[str, Any], num_test: int) -> Html:
    """The test metrics; the monitored one first and largest."""
    test, validation, monitor = (
        metadata.get("test") or {},
        metadata.get("validation") or {},
        (metadata.get("monitor") or ["loss"])[0],
    )
    if not test:
        return tag(
            "p", f"This run has no test metrics yet: it is {metadata['status'] or 'not finished'}.", class_="warning"
        )
    monitor = "accuracy" if monitor == "loss" and "accuracy" in test else monitor
    main_metric = monitor if monitor in test else next(iter(test))
    notes = metadata.get("notes", ())
    positive_class = get_positive_class(metadata)
    other_tiles = [
        _make_tile(
            format_metric_name(name, positive_class),
            format_metric_value(name, test[name]),
            _format_validation(name, validation),
            find_metric_note(name, notes),
        )
        for name in test
        if name != main_metric
    ]
    headline = _make_headline(
        main_metric,
        test[main_metric],
        validation.get(main_metric),
        num_test,
        format_metric_formula(main_metric, test) or find_metric_note(main_metric, notes),
    )
    style = f"--across:{(len(other_tiles) + 1) // 2 if len(other_tiles) > 4 else max(1, len(other_tiles))}"
    return tag("div", headline, tag("div", other_tiles, class_="rest", style=style), class_="tiles")


def _format_validation(name: str, validation: Mapping[str, float]) -> str:
    return f"validation {format_metric_value(name, validation[name])}" if validation.get(name) is not None else ""


def _make_tile(title: str, value: str, caption: str, hint: str = "") -> Html:
    lines = tag("span", title), tag("strong", value), tag("small", caption)
    return tag("div", *lines, class_="tile", title=hint or None)


def _make_headline(name: str, value: float, validation: float | None, num_test: int, hint: str = "") -> Html:
    captions = [hint] if hint else []
    captions += [f"validation {format_metric_value(name, validation)}"] if validation is not None else []
    if name == "accuracy" and num_test:
        low, high = wilson_interval(value, num_test)
        captions.insert(0, f"95 % interval {100 * low:.1f} to {100 * high:.1f} %")
    lines = [tag("small", line) for line in captions]
    return tag(
        "div",
        tag("span", f"test {format_metric_name(name)}"),
        tag("strong", format_metric_value(name, value)),
        lines,
        class_="tile first",
    )


def _make_baseline_table(metadata: Mapping[str, Any]) -> Html | None:
    """This run and the baselines, by the test metrics that they share."""
    test, baselines = metadata.get("test") or {}, metadata.get("baselines") or []
    if not (test and baselines):
        return None
    names = [name for name in dict.fromkeys((*MAIN_METRICS, *test)) if name in test and name in baselines[0]["metrics"]]
    scores = {f"this run, {metadata['recipe']}": test} | {b["name"]: b["metrics"] for b in baselines}
    best = {name: find_best(name, {model: values.get(name) for model, values in scores.items()}) for name in names}
    descriptions = {b["name"]: b["description"] for b in baselines}
    rows = [
        [
            tag("span", model, title=descriptions.get(model)),
            *(
                tag("strong" if model in best[name] else "span", format_metric_value(name, values.get(name)))
                for name in names
            ),
        ]
        for model, values in scores.items()
    ]
    positive_class = get_positive_class(metadata)
    return make_table(["model", *(format_metric_name(name, positive_class) for name in names)], rows)


def _make_repeat_section(metadata: Mapping[str, Any]) -> list[Html]:
    command = tag(
        "div",
        tag("code", metadata.get("command_to_repeat", "")),
        tag("button", "copy", type="button", class_="copy"),
        class_="command",
    )
    arguments = {name: format_argument(value) for name, value in metadata.get("arguments", {}).items()}
    chips = tag(
        "ul", [tag("li", tag("span", k.replace("_", " ")), f" {v}") for k, v in arguments.items()], class_="chips"
    )
    return [
        command,
        tag("details", tag("summary", f"All {len(arguments)} arguments"), chips),
        make_note_list(metadata.get("notes", ())),
    ]


def make_note_list(lines: Iterable[str]) -> Html:
    items = [tag("li", line) for line in lines]
    return tag("ul", items, class_="notes") if items else Html("")


def _make_data_section(metadata: Mapping[str, Any], class_chart: Figure | None) -> Html:
    health = metadata.get("health", {})
    splits, class_names = health.get("splits", {}), metadata["data"].get("class_names")
    pairs = {
        "dataset": metadata["data"]["name"],
        "kind": f"{health.get('kind', metadata['data']['kind'])}, {health.get('task', metadata['data']['task'])}",
        "target": health.get("target"),
        "input shape": " × ".join(f"{n:,}" for n in health.get("shape", ())),
        "classes": format_number(len(class_names)) if class_names else None,
        "imbalance": f"{health['imbalance']:.2f} : 1, most to least frequent class"
        if class_names and "imbalance" in health
        else None,
        "duplicates": _describe_duplicates(health.get("duplicates")),
        "fingerprint": tag("code", health.get("fingerprint", "")),
    }
    # shown above
    health_notes = [
        line for line in health.get("notes", ()) if not line.startswith(f"{splits.get('train', 0):,} training")
    ]
    summary = tag("div", _make_split_bar(splits), _make_fact_list(pairs), make_note_list(health_notes))
    return tag("div", summary, make_figure(class_chart), class_="pair")


def _make_split_bar(splits: Mapping[str, int]) -> Html:
    """Sizes of the splits, to scale and in numbers."""
    numbered_splits = list(enumerate(splits.items()))
    bar = tag(
        "div", [tag("i", style=f"--c:var(--s{color});flex-grow:{count}") for color, (_, count) in numbered_splits]
    )
    keys = tag(
        "ul",
        [
            tag("li", tag("b", f"{count:,}"), f" {name}", style=f"--c:var(--s{color})")
            for color, (name, count) in numbered_splits
        ],
    )
    return tag("div", bar, keys, class_="splits") if splits else Html("")


def describe_training(metadata: Mapping[str, Any]) -> str:
    plan, sentences = metadata.get("plan", {}), []
    if plan:
        steps = metadata.get("steps", plan["total_rounds"])
        num_epochs = format_epochs(steps / plan["rounds_per_epoch"])
        sentences.append(
            f"{format_count(steps, 'step')} of {format_count(plan['batch_size'], 'example')} ({num_epochs} "
            f"epoch{'s' * (num_epochs != '1')})."
        )
    if metadata.get("stop_reason") == "patience":
        sentences.append("Stopped early: validation no longer improved.")
    if metadata.get("best_step"):
        sentences.append(
            f"The model is from step {metadata['best_step']:,}, the best on validation by "
            f"{format_metric_name(metadata['monitor'][0])}."
        )
    return " ".join(sentences)


def _describe_duplicates(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "not checked"
    text = " and ".join(f"{count:,} of {split}" for split, count in counts.items() if count)
    return f"{text} also occur in training" if text else "none across the splits"


def _describe_test_split(outputs: Mapping[str, Tensor]) -> str:
    return (
        f"{len(outputs['loss']):,} examples, used neither for training nor for choosing the model."
        if "loss" in outputs
        else ""
    )


def _make_test_section(prediction_figures: Sequence[Figure], predictions: Predictions | None) -> Html | None:
    if predictions is None:
        return None
    wide_figures, narrow_figures = (
        [make_figure(f) for f in prediction_figures if f.is_wide],
        [make_figure(f) for f in prediction_figures if not f.is_wide],
    )
    confusions = list_confusions(predictions) if predictions.task == "multiclass" else []
    if confusions:
        rows = [[true, predicted, f"{count:,}", f"{100 * share:.1f} %"] for true, predicted, count, share in confusions]
        title = tag("h3", "Most frequent confusions")
        narrow_figures.append(
            tag(
                "figure",
                title,
                make_table(["true", "predicted", "count", "of the class"], rows, numeric=2, css_class="bare"),
            )
        )
    half = max(1, len(narrow_figures) // 2)
    stacks = [tag("div", side, class_="stack") for side in (narrow_figures[:half], narrow_figures[half:])]
    return to_html([wide_figures, tag("div", stacks, class_="pair"), _make_class_table(predictions)])


def _make_class_table(predictions: Predictions) -> Html:
    """Precision, recall and F1 of each class, or of each label of a multi-label task."""
    if predictions.probabilities is None:
        return Html("")
    if predictions.task == "multilabel":
        predicted, truth = predictions.probabilities > 0.5, predictions.y > 0.5
        true_positives = (predicted & truth).sum(0)
        num_predicted, num_true = predicted.sum(0), truth.sum(0)
        scores = (
            true_positives / num_predicted.clamp(min=1),
            true_positives / num_true.clamp(min=1),
            2 * true_positives / (num_predicted + num_true).clamp(min=1),
        )
        support = truth.sum(0).tolist()
    else:
        matrix = count_confusions(predictions)
        scores = metrics.precision(matrix), metrics.recall(matrix), metrics.f1(matrix)
        support = matrix.sum(1).tolist()
    columns = [[_make_bar_cell(v, f"{100 * v:.1f} %") for v in c.tolist()] for c in scores]
    rows = [
        [label, *(column[k] for column in columns), f"{support[k]:,}"]
        for k, label in enumerate(predictions.class_names)
    ]
    return make_table(["class", "precision", "recall", "F1", "test examples"], rows, css_class="tall")


def _make_mask_table(outputs: Mapping[str, Tensor], data: Mapping[str, Any]) -> Html:
    """IoU and Dice of each class over all pixels of the test split."""
    class_names = data.get("class_names", ())
    if "confusion" not in outputs or outputs["confusion"].shape[1:] != (len(class_names), len(class_names)):
        return Html("")
    counts = outputs["confusion"].sum(0)
    columns = [
        [_make_bar_cell(v, f"{100 * v:.1f} %") if v == v else "–" for v in c.tolist()]
        for c in (metrics.iou(counts), metrics.dice(counts))
    ]
    pixels = (100 * counts.sum(1) / counts.sum()).tolist()
    table_rows = [
        [label, *(column[k] for column in columns), f"{pixels[k]:.1f} %"] for k, label in enumerate(class_names)
    ]
    return make_table(["class", "IoU", "Dice", "of all pixels"], table_rows, css_class="tall")


def _make_examples_section(
    examples: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    predictions: Predictions | None,
    data: Mapping[str, Any],
    texts: Mapping[str, Sequence[str]],
) -> Html:
    if predictions is None or not {"worst", "best", "worst_x", "best_x"} <= examples.keys():
        return Html("")
    unusual = {"table": " Of each row, the features furthest from the training mean."}
    if not is_token_sequence(examples["worst_x"]):
        unusual["text"] = " Of each text, its least usual words."
    css_class = "examples pictures" if examples["worst_x"].ndim == 4 else "examples"
    groups = [
        (
            tag("h3", title),
            tag(
                "ul",
                make_example_cards(group, examples, names[group], predictions, data, texts.get(group, ())),
                class_=css_class,
            ),
        )
        for group, title in (("worst", "Highest loss"), ("best", "Lowest loss"))
    ]
    lead = f"The test examples with the highest and the lowest loss.{unusual.get(data['kind'], '')}"
    return make_section("Worst and best predictions", groups, lead=lead)


def _make_explanations_section(folder: Path) -> Html:
    """Figures of `didact explain`, as images, in which no script can run."""
    kinds = {".png": "image/png", ".svg": "image/svg+xml"}
    paths = sorted(p for p in folder.glob("*") if p.suffix in kinds)[:MAX_EXPLANATIONS]
    images = [
        tag(
            "img",
            src=to_data_uri(p.read_bytes(), kinds[p.suffix]),
            alt=p.stem.replace("-", " "),
            style="max-width:100%",
        )
        for p in paths
    ]
    return tag("div", [tag("figure", image) for image in images], class_="stack") if images else Html("")


def _make_layer_section(layers: Mapping[str, Any] | None) -> Html:
    if not layers:
        return Html("")
    rows, has_frozen = [], has_frozen_layers(layers)
    for row in layers["rows"]:
        shape = " × ".join(map(str, row["shape"])) if row["shape"] is not None else "–"
        parameters_cell = (
            _make_bar_cell(row["parameters"] / max(1, layers["total"]), f"{row['parameters']:,}")
            if row["parameters"]
            else "–"
        )
        trainable_cell = [f"{row['trainable']:,}" if row["trainable"] else "–"] if has_frozen else []
        rows.append([row["name"], row["layer"], shape, parameters_cell, *trainable_cell])
    totals = f"{layers['trainable']:,} trainable · {layers['tied']:,} tied"
    headings, footer = ["layer", "kind", "output", "parameters"], ["total", totals, "", f"{layers['total']:,}"]
    if has_frozen:
        headings, footer = [*headings, "trained"], [*footer, f"{layers['trainable']:,}"]
    return make_table(headings, rows, footer_cells=footer, numeric=2)


def _make_signal_section(figures: Sequence[Figure]) -> list[Html]:
    return (
        [tag("h3", "Signal propagation"), tag("p", SIGNAL_LEAD, class_="lead"), make_figure_grid(figures)]
        if figures
        else []
    )


def _make_run_section(name: str, metadata: Mapping[str, Any]) -> Html:
    git, machine = metadata.get("git"), metadata.get("machine", {})
    versions = {k: v for k, v in metadata.get("versions", {}).items() if v}
    return _make_fact_list(
        {
            "run": tag("code", name),
            "status": ", ".join(
                filter(None, [metadata.get("status"), STOP_REASONS.get(metadata.get("stop_reason", ""))])
            ),
            "started": metadata.get("started"),
            "seed": f"{metadata.get('settings', {}).get('seed', '–')} (split "
                    f"{metadata.get('settings', {}).get('split_seed', '–')})",
            "fingerprint of losses": " · ".join(
                f"step {step}: {value:.7g}" for step, value in metadata.get("fingerprint", {}).items()
            ),
            "versions": " · ".join(f"{package} {v}" for package, v in versions.items()),
            "git": f"{git['commit'][:12]}{' (modified)' if git['dirty'] else ''}" if git else "not in a repository",
            "machine": ", ".join(f"{value}" if key == "system" else f"{key} {value}" for key, value in machine.items()),
            "processes": metadata.get("processes"),
            "command": tag("code", metadata.get("command", "")),
        }
    )


def _make_sources_section(metadata: Mapping[str, Any], *, are_courses: bool) -> Html:
    """Sections of the courses, spelled out; or papers, where no course covers it."""
    citations = {s: format_citation(s) for s in metadata.get("sources") or ()}
    selected = {s: text for s, text in citations.items() if s.startswith(tuple(COURSE_TITLES)) == are_courses}
    return _make_fact_list(selected) if selected else Html("")
