import math
import re

import pytest

from didact import report
from didact.errors import UsageError
from didact.report.run_comparison import find_differences, mean_std
from helpers.run_folders import LINES, make_classifier_run, read_page


def test_compare_marks_the_best_run_on_validation(tmp_path):
    runs = [
        make_classifier_run(
            tmp_path,
            arguments={"lr": 0.1, "width": 8},
            test={"loss": 0.3, "accuracy": 0.7},
            validation={"loss": 0.3, "accuracy": 0.9},
        ),
        make_classifier_run(
            tmp_path,
            arguments={"lr": 0.01, "width": 8},
            test={"loss": 0.2, "accuracy": 0.8, "auroc": 0.7},
            validation={"loss": 0.2, "accuracy": 0.8, "auroc": 0.6},
        ),
    ]
    report.write_report(runs[0])
    page, text = read_page(report.compare_runs(runs, tmp_path / "pages" / "compare.html"))
    assert re.findall(r"<mark>([^<]*)", page) == ["70.0 %", "0.2000", "0.7000"], (
        "the best on validation, its test value"
    )
    assert "width" not in re.findall(r"<th[^>]*>([^<]*)", page) and "Test metrics" in text
    assert set(re.findall(r'href="([^"]*)"', page)) == {f"../mlp/{runs[0].folder.name}/report.html"}, (
        "the other has no report yet"
    )
    assert page.count('class="line"') >= 4


def test_metric_of_one_run_is_labeled_with_that_run(tmp_path):
    lines = [{"step": s, "epoch": s / 4, "validation": {"loss": 1.0, "rmse": 1 / s}} for s in (4, 8)]
    runs = [
        make_classifier_run(tmp_path, arguments={"lr": 0.1}, lines=lines),
        make_classifier_run(tmp_path, arguments={"lr": 0.01}),
    ]
    page, _ = read_page(report.compare_runs(runs, tmp_path / "compare.html"))
    chart = page[page.index('aria-label="Validation RMSE"') :]
    assert re.findall(r'class="legend">([^<]*)', chart[: chart.index("</svg>")]) == ["lr 0.1"]


FRECHET_NOTE = (
    "frechet: of 8×8 thumbnails, 12 samples against as many real examples of the test split (validation: 9); elsewhere "
    "of features"
)
REFEREE_NOTE = "confidence, evenness: by a referee"


def test_metric_note_stands_beside_its_metric(tmp_path):
    """Two distances of one name are told apart by what their runs say of them."""
    score_metadata = {
        "test": {"frechet": 0.5, "confidence": 0.9},
        "validation": {"frechet": 0.6},
        "monitor": ["frechet", "min"],
    }
    lines = [{"step": s, "epoch": s / 4, "validation": {"loss": 1.0, "frechet": 1 / s}} for s in (4, 8)]
    run = make_classifier_run(
        tmp_path, notes=[FRECHET_NOTE, REFEREE_NOTE, "batches of 32"], lines=lines, **score_metadata
    )
    page, _ = read_page(report.write_report(run))
    first = page[page.index('class="tile first"') :]
    assert f"<small>{FRECHET_NOTE.partition(': ')[2]}</small>" in first[: first.index('class="rest"')], (
        "below the number itself"
    )
    assert 'title="by a referee"' in first and f"<figcaption>{FRECHET_NOTE.partition(': ')[2]}" in page
    other = make_classifier_run(tmp_path, notes=["frechet: of rows"], **score_metadata)
    _, text = read_page(report.compare_runs([run, other, other], tmp_path / "compare.html"))
    assert (
        text.count(FRECHET_NOTE) == text.count(REFEREE_NOTE) == text.count("frechet: of rows") == 1
        and "batches of 32" not in text
    )


def test_differences_lists_only_options_that_differ(tmp_path):
    metadata = [make_classifier_run(tmp_path, arguments={"lr": lr, "hidden": [8, 4]}).metadata for lr in (0.1, 0.2)]
    metadata[1]["settings"]["runs"] = "elsewhere"
    assert find_differences(metadata) == {"lr": ["0.1", "0.2"]}
    assert find_differences(metadata[:1]) == {}


def test_compare_refuses_no_runs(tmp_path):
    with pytest.raises(UsageError, match="at least one run"):
        report.compare_runs([], tmp_path / "x.html")


def test_compare_accepts_an_unfinished_run(tmp_path):
    runs = [make_classifier_run(tmp_path), make_classifier_run(tmp_path, test=None, lines=LINES[:1])]
    read_page(report.compare_runs(runs, tmp_path / "compare.html"))


def make_sweep_rows(axes, values, metric="accuracy"):
    return [
        {
            "cell": dict(zip(axes, key, strict=True)),
            "seed": s,
            "run": f"runs/mlp/{i}-{s}",
            "validation": {metric: v},
            "test": {metric: -v},
        }
        for i, (key, v, s) in enumerate(values)
    ]


def test_sweep_page_of_one_axis_is_a_curve_with_error_bars(tmp_path):
    values = [((lr,), a + s / 100, s) for lr, a in ((1e-4, 0.5), (1e-3, 0.9), (1e-2, 0.7)) for s in (0, 1)]
    page, _ = read_page(
        report.write_sweep_page(
            "mlp by lr",
            {"lr": (1e-4, 1e-3, 1e-2)},
            make_sweep_rows(["lr"], values),
            "accuracy",
            tmp_path / "sweep.html",
        )
    )
    assert page.count('class="error"') == 3
    assert re.findall(r"<mark>([^<]*)", page) == ["90.5 % ± 0.7 %"]
    xs = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', page)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.3), "learning rates stand logarithmically"


def test_sweep_page_of_a_categorical_axis(tmp_path):
    values = [(("adam",), 0.9, 0), (("sgd",), 0.8, 0)]
    axes = {"optimizer": ("adam", "sgd")}
    _, text = read_page(
        report.write_sweep_page(
            "by optimizer", axes, make_sweep_rows(list(axes), values), "accuracy", tmp_path / "s.html"
        )
    )
    assert "adam" in text and "sgd" in text


def test_sweep_page_of_two_axes_is_a_heat_map(tmp_path):
    values = [((d, w), d + w, 0) for d in (0.0, 0.5) for w in (1.0, 2.0)]
    axes = {"dropout": (0.0, 0.5), "weight_decay": (1.0, 2.0)}
    page, _ = read_page(
        report.write_sweep_page("grid", axes, make_sweep_rows(list(axes), values, "loss"), "loss", tmp_path / "s.html")
    )
    opacities = [float(v) for v in re.findall(r'class="cell"[^>]*fill-opacity="([\d.]+)"', page)]
    # losses 1, 2, 1.5, 2.5
    assert opacities == pytest.approx([1.0, 0.08 + 0.92 / 3, 0.08 + 0.92 * 2 / 3, 0.08], abs=1e-3)


def test_sweep_page_accepts_a_failed_run_and_three_axes(tmp_path):
    axes = {"a": (1, 2), "b": ("x",), "c": (True,)}
    values = [((1, "x", True), math.nan, 0), ((2, "x", True), 0.5, 0)]
    page, _ = read_page(
        report.write_sweep_page("three", axes, make_sweep_rows(list(axes), values), "accuracy", tmp_path / "s.html")
    )
    assert re.findall(r"<mark>([^<]*)", page) == ["50.0 %"]
    assert mean_std([math.nan]) == (pytest.approx(math.nan, nan_ok=True), 0.0)


def test_sweep_page_ranks_by_validation_and_shows_test(tmp_path):
    scores = {0.01: (0.9, 0.5), 0.02: (0.8, 0.99)}
    lines = [
        {
            "cell": {"lr": lr},
            "seed": 0,
            "run": "runs/mlp/a",
            "validation": {"accuracy": v},
            "test": {"accuracy": t},
            "seconds": 1.0,
        }
        for lr, (v, t) in scores.items()
    ]
    page, text = read_page(
        report.write_sweep_page("kept", {"lr": (0.01, 0.02)}, lines, "accuracy", tmp_path / "s.html")
    )
    assert re.findall(r"<mark>([^<]*)", page) == ["90.0 %"]
    assert text.index("0.01 90.0 % 50.0 %") < text.index("0.02 80.0 % 99.0 %")


def test_sweep_page_counts_diverged_runs(tmp_path):
    lines = [
        *make_sweep_rows(["lr"], [((0.01,), 0.9, 0)]),
        {"cell": {"lr": 10.0}, "seed": 0, "run": "runs/mlp/b", "diverged": "at step 3"},
    ]
    lines[1] |= {"validation": {}, "test": {}}
    page, text = read_page(report.write_sweep_page("s", {"lr": (0.01, 10.0)}, lines, "accuracy", tmp_path / "s.html"))
    assert "1 diverged." in text and re.findall(r"<mark>([^<]*)", page) == ["90.0 %"]


def test_sweep_page_links_to_existing_reports(tmp_path):
    runs = [make_classifier_run(tmp_path / "runs") for _ in range(2)]
    report.write_report(runs[0])
    scores = {"validation": {"accuracy": 0.5}, "test": {"accuracy": 0.5}}
    lines = [{"cell": {"lr": k}, "seed": 0, "run": str(r.folder), **scores} for k, r in enumerate(runs)]
    page, text = read_page(
        report.write_sweep_page(
            "s", {"lr": (0, 1)}, lines, "accuracy", tmp_path / "runs" / "sweeps" / "a" / "report.html"
        )
    )
    assert re.findall(r'href="([^"]*)"', page) == [f"../../mlp/{runs[0].folder.name}/report.html"]
    assert runs[1].folder.name in text


def test_compare_skips_an_undefined_metric(tmp_path):
    runs = [
        make_classifier_run(tmp_path, test={"loss": 0.3, "auroc": a}, validation={"loss": 0.3, "auroc": a})
        for a in (None, 0.7)
    ]
    page, _ = read_page(report.compare_runs(runs, tmp_path / "compare.html"))
    assert "0.7000" in re.findall(r"<mark>([^<]*)", page)
    assert mean_std([None, 0.5]) == (0.5, 0.0)


def test_sweep_page_shows_the_notes_of_its_metric(tmp_path):
    runs = [
        make_classifier_run(tmp_path / "runs", notes=[FRECHET_NOTE, "recall: of rows", "batches of 32"])
        for _ in range(2)
    ]
    lines = [
        {"cell": {"lr": k}, "seed": 0, "run": str(r.folder), "validation": {"frechet": k}, "test": {}}
        for k, r in enumerate(runs)
    ]
    _, text = read_page(report.write_sweep_page("s", {"lr": (0, 1)}, lines, "frechet", tmp_path / "s.html"))
    assert text.count("8×8 thumbnails") == 1 and "of rows" not in text and "batches" not in text
