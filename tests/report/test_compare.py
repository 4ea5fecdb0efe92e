import math
import re

import pytest
from run_folders import LINES, classified, read

from didact import report
from didact.errors import UsageError
from didact.report.compare import average, differences


def test_runs_side_by_side(tmp_path):
    runs = [
        classified(
            tmp_path, arguments={"lr": 0.1, "width": 8}, test={"loss": 0.3, "accuracy": 0.7}, validation={"loss": 0.3, "accuracy": 0.9}
        ),
        classified(
            tmp_path, arguments={"lr": 0.01, "width": 8}, test={"loss": 0.2, "accuracy": 0.8, "auroc": 0.7},
            validation={"loss": 0.2, "accuracy": 0.8, "auroc": 0.6},
        ),
    ]
    report.write(runs[0])
    page, said = read(report.compare(runs, tmp_path / "pages" / "compare.html"))
    assert re.findall(r"<mark>([^<]*)", page) == ["70.0 %", "0.2000", "0.7000"], "the best on validation, its test value"
    assert "width" not in re.findall(r"<th[^>]*>([^<]*)", page) and "Test metrics" in said
    assert set(re.findall(r'href="([^"]*)"', page)) == {f"../mlp/{runs[0].folder.name}/report.html"}, "the other has no report yet"
    assert page.count('class="line"') >= 4


def test_a_metric_of_one_run_alone_says_whose_it_is(tmp_path):
    lines = [{"step": s, "epoch": s / 4, "validation": {"loss": 1.0, "rmse": 1 / s}} for s in (4, 8)]
    runs = [classified(tmp_path, arguments={"lr": 0.1}, lines=lines), classified(tmp_path, arguments={"lr": 0.01})]
    page, _ = read(report.compare(runs, tmp_path / "compare.html"))
    chart = page[page.index('aria-label="Validation RMSE"') :]
    assert re.findall(r'class="legend">([^<]*)', chart[: chart.index("</svg>")]) == ["lr 0.1"]


THUMBS = "frechet: of 8×8 thumbnails, 12 drawn beside as many real ones of the test split (validation: 9); elsewhere of features"
SEEN = "confidence, evenness: by a referee"


def test_a_metrics_note_stands_where_the_metric_does(tmp_path):
    """Two distances of one name are told apart by what their runs say of them."""
    drew = {"test": {"frechet": 0.5, "confidence": 0.9}, "validation": {"frechet": 0.6}, "watch": ["frechet", "lower"]}
    lines = [{"step": s, "epoch": s / 4, "validation": {"loss": 1.0, "frechet": 1 / s}} for s in (4, 8)]
    run = classified(tmp_path, notes=[THUMBS, SEEN, "batches of 32"], lines=lines, **drew)
    page, _ = read(report.write(run))
    first = page[page.index('class="tile first"') :]
    assert f"<small>{THUMBS.partition(': ')[2]}</small>" in first[: first.index('class="rest"')], "below the number itself"
    assert 'title="by a referee"' in first and f"<figcaption>{THUMBS.partition(': ')[2]}" in page
    other = classified(tmp_path, notes=["frechet: of rows"], **drew)
    _, said = read(report.compare([run, other, other], tmp_path / "compare.html"))
    assert said.count(THUMBS) == said.count(SEEN) == said.count("frechet: of rows") == 1 and "batches of 32" not in said


def test_only_what_differs_is_a_difference(tmp_path):
    facts = [classified(tmp_path, arguments={"lr": lr, "hidden": [8, 4]}).facts for lr in (0.1, 0.2)]
    facts[1]["settings"]["runs"] = "elsewhere"
    assert differences(facts) == {"lr": ["0.1", "0.2"]}
    assert differences(facts[:1]) == {}


def test_a_comparison_of_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="at least one run"):
        report.compare([], tmp_path / "x.html")


def test_an_unfinished_run_can_be_compared(tmp_path):
    runs = [classified(tmp_path), classified(tmp_path, test=None, lines=LINES[:1])]
    read(report.compare(runs, tmp_path / "compare.html"))


def rows(axes, values, metric="accuracy"):
    return [
        {"cell": dict(zip(axes, key, strict=True)), "seed": s, "run": f"runs/mlp/{i}-{s}", "validation": {metric: v}, "test": {metric: -v}}
        for i, (key, v, s) in enumerate(values)
    ]


def test_one_axis_is_a_curve_with_bars_over_seeds(tmp_path):
    values = [((lr,), a + s / 100, s) for lr, a in ((1e-4, 0.5), (1e-3, 0.9), (1e-2, 0.7)) for s in (0, 1)]
    page, _ = read(report.sweep_page("mlp by lr", {"lr": (1e-4, 1e-3, 1e-2)}, rows(["lr"], values), "accuracy", tmp_path / "sweep.html"))
    assert page.count('class="error"') == 3
    assert re.findall(r"<mark>([^<]*)", page) == ["90.5 % ± 0.7 %"]
    xs = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', page)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.3), "learning rates stand logarithmically"


def test_an_axis_of_words(tmp_path):
    values = [(("adam",), 0.9, 0), (("sgd",), 0.8, 0)]
    axes = {"optimizer": ("adam", "sgd")}
    _, said = read(report.sweep_page("by optimizer", axes, rows(list(axes), values), "accuracy", tmp_path / "s.html"))
    assert "adam" in said and "sgd" in said


def test_two_axes_are_a_map_where_stronger_is_better(tmp_path):
    values = [((d, w), d + w, 0) for d in (0.0, 0.5) for w in (1.0, 2.0)]
    axes = {"dropout": (0.0, 0.5), "weight_decay": (1.0, 2.0)}
    page, _ = read(report.sweep_page("grid", axes, rows(list(axes), values, "loss"), "loss", tmp_path / "s.html"))
    strength = [float(v) for v in re.findall(r'class="cell"[^>]*fill-opacity="([\d.]+)"', page)]
    assert strength == pytest.approx([1.0, 0.08 + 0.92 / 3, 0.08 + 0.92 * 2 / 3, 0.08], abs=1e-3)  # losses 1, 2, 1.5, 2.5


def test_a_failed_run_and_three_axes_do_not_stop_the_page(tmp_path):
    axes = {"a": (1, 2), "b": ("x",), "c": (True,)}
    values = [((1, "x", True), math.nan, 0), ((2, "x", True), 0.5, 0)]
    page, _ = read(report.sweep_page("three", axes, rows(list(axes), values), "accuracy", tmp_path / "s.html"))
    assert re.findall(r"<mark>([^<]*)", page) == ["50.0 %"]
    assert average([math.nan]) == (pytest.approx(math.nan, nan_ok=True), 0.0)


def test_a_sweep_is_ranked_by_validation_and_shows_test_beside(tmp_path):
    scores = {0.01: (0.9, 0.5), 0.02: (0.8, 0.99)}
    lines = [
        {"cell": {"lr": lr}, "seed": 0, "run": "runs/mlp/a", "validation": {"accuracy": v}, "test": {"accuracy": t}, "seconds": 1.0}
        for lr, (v, t) in scores.items()
    ]
    page, said = read(report.sweep_page("kept", {"lr": (0.01, 0.02)}, lines, "accuracy", tmp_path / "s.html"))
    assert re.findall(r"<mark>([^<]*)", page) == ["90.0 %"]
    assert said.index("0.01 90.0 % 50.0 %") < said.index("0.02 80.0 % 99.0 %")


def test_a_diverged_run_is_shown_as_such(tmp_path):
    lines = [*rows(["lr"], [((0.01,), 0.9, 0)]), {"cell": {"lr": 10.0}, "seed": 0, "run": "runs/mlp/b", "diverged": "at step 3"}]
    lines[1] |= {"validation": {}, "test": {}}
    page, said = read(report.sweep_page("s", {"lr": (0.01, 10.0)}, lines, "accuracy", tmp_path / "s.html"))
    assert "1 diverged." in said and re.findall(r"<mark>([^<]*)", page) == ["90.0 %"]


def test_a_sweep_leads_to_the_reports_that_exist(tmp_path):
    runs = [classified(tmp_path / "runs") for _ in range(2)]
    report.write(runs[0])
    both = {"validation": {"accuracy": 0.5}, "test": {"accuracy": 0.5}}
    lines = [{"cell": {"lr": k}, "seed": 0, "run": str(r.folder), **both} for k, r in enumerate(runs)]
    page, said = read(report.sweep_page("s", {"lr": (0, 1)}, lines, "accuracy", tmp_path / "runs" / "sweeps" / "a" / "report.html"))
    assert re.findall(r'href="([^"]*)"', page) == [f"../../mlp/{runs[0].folder.name}/report.html"]
    assert runs[1].folder.name in said


def test_a_metric_that_is_not_defined_is_passed_over(tmp_path):
    runs = [classified(tmp_path, test={"loss": 0.3, "auroc": a}, validation={"loss": 0.3, "auroc": a}) for a in (None, 0.7)]
    page, _ = read(report.compare(runs, tmp_path / "compare.html"))
    assert "0.7000" in re.findall(r"<mark>([^<]*)", page)
    assert average([None, 0.5]) == (0.5, 0.0)


def test_a_sweep_says_what_its_metrics_are_of(tmp_path):
    runs = [classified(tmp_path / "runs", notes=[THUMBS, "recall: of rows", "batches of 32"]) for _ in range(2)]
    lines = [{"cell": {"lr": k}, "seed": 0, "run": str(r.folder), "validation": {"frechet": k}, "test": {}} for k, r in enumerate(runs)]
    _, said = read(report.sweep_page("s", {"lr": (0, 1)}, lines, "frechet", tmp_path / "s.html"))
    assert said.count("8×8 thumbnails") == 1 and "of rows" not in said and "batches" not in said
