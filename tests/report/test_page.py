import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest
from sklearn.metrics import roc_curve

import didact
from didact import report
from didact.charts.format import format_citation, wilson_interval
from didact.report.examples import encode_png, show_unusual_features, show_unusual_words
from didact.report.figures import list_confusions, make_class_figure, make_roc_figure
from didact.report.page import _make_sources_section, describe_training, read_css
from didact.report.predictions import read_predictions
from helpers.run_folders import LINES, make_classifier_run, make_run, read_page


def test_page_is_complete_and_self_contained(tmp_path):
    run = make_classifier_run(tmp_path)
    page, text = read_page(report.write_report(run))
    expected_texts = [
        "mlp",
        "87.5 %",
        "didact train mlp --lr 0.1",
        "something to know",
        "2 of test also occur in training",
        "Gaba 1.2",
        "51",
    ]
    expected_texts += [
        "Loss",
        "Validation accuracy",
        "Learning rate",
        "Gradient norm by layer",
        "Confusion matrix",
        "Calibration",
        "Highest loss",
    ]
    expected_texts += ["Gaba, Deep Learning (lecture notes 2025–2026), section 1.2"]
    assert [expected_text for expected_text in expected_texts if expected_text not in text] == []
    external_links = [
        u for u in re.findall(r'(?:src|href)="([^"]*)"|url\(([^)]*)\)|@import', page) if not u[0].startswith("data:")
    ]
    assert not external_links
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    figures = sorted(p.name for p in (run.folder / "figures").glob("*.svg"))
    expected = ["calibration", "classes", "confusion", "gradients", "learning_rate", "loss", "validation_accuracy"]
    assert figures == [f"{name}.svg" for name in expected]
    for name in figures:
        ElementTree.parse(run.folder / "figures" / name)


def test_page_escapes_names(tmp_path):
    unsafe_text = "<script>alert(1)</script>"
    run = make_classifier_run(
        tmp_path,
        class_names=(unsafe_text, "b", "c"),
        summary=unsafe_text,
        command_to_repeat=unsafe_text,
        notes=[unsafe_text],
        sources=[unsafe_text],
        feature_names=[unsafe_text],
    )
    page, _ = read_page(report.write_report(run))
    assert page.count("<script>") == 1, "only the copy button's"


def test_page_of_an_unfinished_run(tmp_path):
    run = make_run(tmp_path, lines=LINES[:1], status="running", test=None, validation=None, best_step=None)
    _, text = read_page(report.write_report(run))
    assert "has no test metrics yet" in text and "Confusion" not in text
    run = make_run(tmp_path, lines=[], status="running", test=None)
    read_page(report.write_report(run))


def test_page_ignores_outputs_of_another_kind(tmp_path):
    run = make_run(
        tmp_path,
        {"loss": torch.rand(5), "sample": torch.rand(5, 3, 4, 4)},
        task="none",
        class_names=(),
        monitor=["loss", "min"],
    )
    _, text = read_page(report.write_report(run))
    assert "Confusion" not in text


@pytest.mark.parametrize("classes", [2, 20, 60])
def test_page_of_any_number_of_classes(tmp_path, classes):
    run = make_classifier_run(
        tmp_path, class_names=tuple(f"a long class name {k}" for k in range(classes)), n=3 * classes
    )
    read_page(report.write_report(run))


def test_page_shows_regression_in_the_units_of_the_target(tmp_path):
    output = torch.tensor([[0.0, 0.0], [1.0, 2 * np.log(3.0)], [2.0, -50.0]])
    rows = {"loss": torch.rand(3), "output": output, "y": torch.tensor([10.0, 12.0, 15.0])}
    metadata_changes = {"task": "regression", "class_names": (), "kind": "table", "shape": (2,)}
    metadata_changes |= {"monitor": ["rmse", "min"]}
    run = make_run(tmp_path, rows, test={"loss": 1.0, "rmse": 2.5}, **metadata_changes)
    metadata = run.metadata
    metadata["data"] |= {"target_mean": 10.0, "target_std": 2.0}
    predictions = read_predictions(metadata, rows)
    torch.testing.assert_close(predictions.mean, torch.tensor([10.0, 12.0, 14.0]).double())
    torch.testing.assert_close(predictions.std[:2], torch.tensor([2.0, 6.0]).double())
    assert predictions.std[2] == pytest.approx(2 * np.exp(-7.0)), "log-variances are bounded as in the likelihood"
    assert predictions.describe(1) == ("12", "12 ± 6.00", None)
    _, text = read_page(report.write_report(run))
    assert "Predicted vs. true" in text and "Residuals" in text and "2.500" in text


def test_binary_page_has_the_roc_curve_of_sklearn(tmp_path):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (50,), generator=generator)
    z = (torch.randn(50, 1, generator=generator) + y[:, None]).round(decimals=1)  # rounded: ties
    rows = {"loss": torch.rand(50), "output": z, "y": y}
    run = make_run(tmp_path, rows, task="binary", class_names=("no", "yes"))
    predictions = read_predictions(run.metadata, rows)
    torch.testing.assert_close(predictions.probabilities[:, 1], z[:, 0].double().sigmoid())
    path = re.search(r'<path d="([^"]*)" class="line" ', make_roc_figure(predictions).svg)[1]
    curve_points = np.array([[float(v) for v in point.split()] for point in path[1:].split("L")])
    fpr, tpr, _ = roc_curve(y.numpy(), z[:, 0].numpy(), drop_intermediate=False)
    unit = (curve_points - curve_points[0]) / (curve_points[-1] - curve_points[0])
    np.testing.assert_allclose(unit, np.stack([fpr, tpr], axis=1), atol=2e-3)
    _, text = read_page(report.write_report(run))
    assert "ROC, “yes” as positive" in text


def test_multilabel_page_shows_scores_per_label(tmp_path):
    output = torch.tensor([[3.0, -3.0], [3.0, 3.0], [-3.0, 3.0], [-3.0, -3.0]])
    rows = {"loss": torch.rand(4), "output": output, "y": torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0]])}
    examples = {
        "worst": torch.tensor([3]),
        "best": torch.tensor([0]),
        "worst_x": torch.rand(1, 2),
        "best_x": torch.rand(1, 2),
    }
    run = make_run(tmp_path, rows, examples, task="multilabel", class_names=("a", "b"), kind="table", shape=(2,))
    predictions = read_predictions(run.metadata, rows)
    assert predictions.describe(1) == ("a", "a, b", False) and predictions.describe(3) == ("a", "none", False)
    _, text = read_page(report.write_report(run))
    assert "66.7 %" in text and "80.0 %" in text, "label a: recall 2 of 3, F1 4 of 5"


def test_list_confusions_finds_the_most_frequent_mistakes(tmp_path):
    run = make_classifier_run(tmp_path)
    assert list_confusions(read_predictions(run.metadata, run.load("test"))) == [("2", "0", 1, 0.25)]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_is_read_back_by_pillow(channels):
    image = torch.rand(channels, 5, 7)
    decoded_image = np.array(Image.open(io.BytesIO(encode_png(image))))
    expected = (image.numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(decoded_image, expected[..., 0] if channels == 1 else expected)


def test_page_embeds_example_images(tmp_path):
    page, _ = read_page(report.write_report(make_classifier_run(tmp_path, shape=(3, 8, 6))))
    uris = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(uris) == 4
    assert Image.open(io.BytesIO(base64.b64decode(uris[0]))).size == (6, 8)


def test_features_of_a_row_start_with_the_most_unusual():
    data = {"feature_names": ["age", "height", "size"], "mean": [10.0, 0.0, 5.0], "std": [1.0, 1.0, 2.0]}
    texts = re.findall(r">([^<>]+)<", show_unusual_features(torch.tensor([10.5, -4.0, 9.0]), data))
    assert texts == ["height", "−4", "−4.0 σ", "size", "9", "+2.0 σ", "age", "10.50", "+0.5 σ"]


def test_words_of_a_text_start_with_the_least_usual():
    data = {"feature_names": ["the", "rare", "absent"], "mean": [5.0, 0.1, 0.1], "std": [2.0, 0.3, 0.3]}
    assert re.findall(r"<span>(\w+)", show_unusual_words(torch.tensor([5.0, 1.0, 0.0]), data)) == ["rare", "the"]


def test_interval_is_the_wilson_interval():
    for successes, n in ((90, 100), (10, 10), (0, 3)):
        expected = binomtest(successes, n).proportion_ci(method="wilson")
        assert wilson_interval(successes / n, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("Gaba 2.8", "Gaba, Deep Learning (lecture notes 2025–2026), section 2.8"),
        ("Gaba Ex 3.3", "Gaba, Deep Learning (lecture notes 2025–2026), exercise 3.3"),
        ("Van Schependom 3", "Van Schependom, course summary of DTU 02456 Deep Learning (2025), chapter 3"),
        ("Goodfellow 2016", "Goodfellow 2016"),
        ("Gaba", "Gaba"),
    ],
)
def test_citation_spells_out_course_sources(short, long):
    assert format_citation(short) == long


def test_sources_separates_courses_from_papers():
    metadata = {"sources": ["Gaba 2.8", "Cheng et al. 2016"]}
    courses, papers = (
        _make_sources_section(metadata, are_courses=True),
        _make_sources_section(metadata, are_courses=False),
    )
    assert "section 2.8" in courses and "Cheng" not in courses and "Cheng" in papers and "Gaba" not in papers
    assert not _make_sources_section({}, are_courses=True) and not _make_sources_section(
        {"sources": ["Gaba 2.8"]}, are_courses=False
    )


def compute_luminance(color):
    channels = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_text_has_wcag_contrast_in_both_themes(theme):
    """WCAG AA: 4.5 to 1 for text."""
    stylesheet = read_css("chart.css") + read_css("style.css")
    colors = {}
    for block in re.findall(r"(@media \(prefers-color-scheme: dark\) \{\s*)?:root \{([^}]*)\}", stylesheet):
        if theme == "dark" or not block[0]:
            colors |= dict(re.findall(r"--(\w+): (#\w{6})", block[1]))
    for ink, ground in [("ink", "back"), ("ink", "paper"), ("soft", "back"), ("soft", "paper"), ("accent", "back"),
        ("accent", "tint"),
                        ("paper", "accent"), ("good", "paper"), ("bad", "paper"), ("ink", "tint"),
                        ("paper", "heat")]:  # fmt: skip
        high, low = sorted((compute_luminance(colors[ink]), compute_luminance(colors[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


@pytest.mark.parametrize(("numbers", "words"), [
    ((8, 4, 4), "4 steps of 8 examples (1 epoch)."),
    ((1, 2, 1), "1 step of 1 example (0.5 epochs)."),
    ((673, 1, 2000), "2,000 steps of 673 examples (2,000 epochs)."),
])
def test_training_length_uses_the_singular(numbers, words):
    batch_size, rounds_per_epoch, steps = numbers
    plan = {"batch_size": batch_size, "rounds_per_epoch": rounds_per_epoch, "total_rounds": steps}
    assert describe_training({"steps": steps, "plan": plan}) == words


@pytest.mark.parametrize(
    ("task", "title"), [("multiclass", "Examples per class"), ("segmentation", "Pixels per class")]
)
def test_class_figure_counts_examples_or_pixels(task, title):
    figure = make_class_figure({"task": task, "class_names": ["a", "b"], "class_counts": {"train": [3, 4]}})
    assert figure is not None and title in figure.svg


def test_page_of_an_older_run_has_no_trainable_column(tmp_path):
    rows = [{"name": "a", "layer": "Linear", "shape": [3], "parameters": 51}]
    run = make_run(tmp_path)
    run.update_metadata(layers={"rows": rows, "total": 51, "trainable": 20, "tied": 0})
    _, text = read_page(report.write_report(run))
    assert "20 trainable" in text and "trained</th>" not in (run.folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("data", "expected_names"),
    [
        (
            "breast_cancer",
            ["precision (positive class: benign)", "F1 (positive class: benign)", "recall (macro)", "F1 (macro)"],
        ),
        ("iris", ["precision (macro)", "recall (macro)", "F1 (macro)"]),
    ],
)
def test_page_names_the_averaging_of_precision_recall_and_f1(tmp_path, monkeypatch, data, expected_names):
    monkeypatch.chdir(tmp_path)
    run = didact.train("mlp", data=data, hidden=(4,), steps=3)
    page = report.write_report(run).read_text()
    for name in expected_names:
        assert f"<span>{name}</span>" in page, name
    assert not re.search(r"<span>(precision|recall|F1)</span>", page)
    notes = [
        note
        for note in run.metadata["notes"]
        if note.startswith("precision, recall, f1: of the positive class 'benign'")
    ]
    assert bool(notes) == (data == "breast_cancer")
