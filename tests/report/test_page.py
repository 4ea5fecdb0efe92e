import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from run_folders import LINES, classified, make, read
from scipy.stats import binomtest
from sklearn.metrics import roc_curve

import didact
from didact import report
from didact.report.answers import answers
from didact.report.examples import features, png, words
from didact.report.figures import class_figure, mistakes, roc_figure
from didact.report.page import sources, style, trained
from didact.report.words import citation, interval


def test_a_page_holds_everything_and_asks_for_nothing(tmp_path):
    run = classified(tmp_path)
    page, said = read(report.write(run))
    held = ["mlp", "87.5 %", "didact train mlp --lr 0.1", "something to know", "2 of test also stand in training", "Gaba 1.2", "51"]
    held += ["Loss", "Validation accuracy", "Learning rate", "Gradient norm by layer", "Confusion matrix", "Calibration", "Most surprising"]
    held += ["Gaba, Deep Learning (lecture notes 2025–2026), section 1.2"]
    assert [words_ for words_ in held if words_ not in said] == []
    outside = [u for u in re.findall(r'(?:src|href)="([^"]*)"|url\(([^)]*)\)|@import', page) if not u[0].startswith("data:")]
    assert not outside
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    figures = sorted(p.name for p in (run.folder / "figures").glob("*.svg"))
    expected = ["calibration", "classes", "confusion", "gradients", "learning_rate", "loss", "validation_accuracy"]
    assert figures == [f"{name}.svg" for name in expected]
    for name in figures:
        ElementTree.parse(run.folder / "figures" / name)


def test_a_class_named_script_is_text(tmp_path):
    evil = "<script>alert(1)</script>"
    run = classified(tmp_path, labels=(evil, "b", "c"), summary=evil, repeat=evil, notes=[evil], sources=[evil], names=[evil])
    page, _ = read(report.write(run))
    assert page.count("<script>") == 1, "only the copy button's"


def test_a_run_that_has_not_finished_is_told_as_such(tmp_path):
    run = make(tmp_path, lines=LINES[:1], status="running", test=None, validation=None, best_step=None)
    _, said = read(report.write(run))
    assert "has not been tested yet" in said and "Confusion" not in said
    run = make(tmp_path, lines=[], status="running", test=None)
    read(report.write(run))


def test_outputs_of_another_kind_are_left_alone(tmp_path):
    run = make(tmp_path, {"loss": torch.rand(5), "sample": torch.rand(5, 3, 4, 4)}, task="none", labels=(), watch=["loss", "lower"])
    _, said = read(report.write(run))
    assert "Confusion" not in said


@pytest.mark.parametrize("classes", [2, 20, 60])
def test_any_number_of_classes(tmp_path, classes):
    run = classified(tmp_path, labels=tuple(f"a long class name {k}" for k in range(classes)), n=3 * classes)
    read(report.write(run))


def test_regression_is_shown_in_the_targets_own_units(tmp_path):
    output = torch.tensor([[0.0, 0.0], [1.0, 2 * np.log(3.0)], [2.0, -50.0]])
    rows = {"loss": torch.rand(3), "output": output, "y": torch.tensor([10.0, 12.0, 15.0])}
    about = {"task": "regression", "labels": (), "kind": "table", "shape": (2,), "watch": ["rmse", "lower"]}
    run = make(tmp_path, rows, test={"loss": 1.0, "rmse": 2.5}, **about)
    facts = run.facts
    facts["data"] |= {"target_mean": 10.0, "target_std": 2.0}
    said = answers(facts, rows)
    torch.testing.assert_close(said.mean, torch.tensor([10.0, 12.0, 14.0]).double())
    torch.testing.assert_close(said.std[:2], torch.tensor([2.0, 6.0]).double())
    assert said.std[2] == pytest.approx(2 * np.exp(-7.0)), "log-variances are bounded as in the likelihood"
    assert said.told(1) == ("12", "12 ± 6.00", None)
    _, text = read(report.write(run))
    assert "Predicted against true" in text and "Residuals" in text and "2.500" in text


def test_binary_logits_are_two_probabilities_and_the_roc_is_that_of_sklearn(tmp_path):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (50,), generator=generator)
    z = (torch.randn(50, 1, generator=generator) + y[:, None]).round(decimals=1)  # rounded: ties
    rows = {"loss": torch.rand(50), "output": z, "y": y}
    run = make(tmp_path, rows, task="binary", labels=("no", "yes"))
    said = answers(run.facts, rows)
    torch.testing.assert_close(said.probabilities[:, 1], z[:, 0].double().sigmoid())
    path = re.search(r'<path d="([^"]*)" class="line" ', roc_figure(said).svg)[1]
    drawn = np.array([[float(v) for v in point.split()] for point in path[1:].split("L")])
    fpr, tpr, _ = roc_curve(y.numpy(), z[:, 0].numpy(), drop_intermediate=False)
    unit = (drawn - drawn[0]) / (drawn[-1] - drawn[0])
    np.testing.assert_allclose(unit, np.stack([fpr, tpr], axis=1), atol=2e-3)
    _, text = read(report.write(run))
    assert "ROC, “yes” as positive" in text


def test_many_labels_at_once(tmp_path):
    output = torch.tensor([[3.0, -3.0], [3.0, 3.0], [-3.0, 3.0], [-3.0, -3.0]])
    rows = {"loss": torch.rand(4), "output": output, "y": torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0]])}
    kept = {"worst": torch.tensor([3]), "best": torch.tensor([0]), "worst_x": torch.rand(1, 2), "best_x": torch.rand(1, 2)}
    run = make(tmp_path, rows, kept, task="multilabel", labels=("a", "b"), kind="table", shape=(2,))
    said = answers(run.facts, rows)
    assert said.told(1) == ("a", "a, b", False) and said.told(3) == ("a", "none", False)
    _, text = read(report.write(run))
    assert "66.7 %" in text and "80.0 %" in text, "label a: recall 2 of 3, F1 4 of 5"


def test_most_frequent_mistakes(tmp_path):
    run = classified(tmp_path)
    assert mistakes(answers(run.facts, run.load("test"))) == [("2", "0", 1, 0.25)]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_is_read_back_by_pillow(channels):
    image = torch.rand(channels, 5, 7)
    seen = np.array(Image.open(io.BytesIO(png(image))))
    expected = (image.numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(seen, expected[..., 0] if channels == 1 else expected)


def test_pictures_stand_in_the_page(tmp_path):
    page, _ = read(report.write(classified(tmp_path, shape=(3, 8, 6))))
    uris = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(uris) == 4
    assert Image.open(io.BytesIO(base64.b64decode(uris[0]))).size == (6, 8)


def test_rows_tell_their_most_unusual_features_first():
    data = {"names": ["age", "height", "size"], "mean": [10.0, 0.0, 5.0], "std": [1.0, 1.0, 2.0]}
    told = re.findall(r">([^<>]+)<", features(torch.tensor([10.5, -4.0, 9.0]), data))
    assert told == ["height", "−4", "−4.0 σ", "size", "9", "+2.0 σ", "age", "10.50", "+0.5 σ"]


def test_texts_tell_their_least_usual_words():
    data = {"names": ["the", "rare", "absent"], "mean": [5.0, 0.1, 0.1], "std": [2.0, 0.3, 0.3]}
    assert re.findall(r"<span>(\w+)", words(torch.tensor([5.0, 1.0, 0.0]), data)) == ["rare", "the"]


def test_interval_is_wilsons():
    for right, n in ((90, 100), (10, 10), (0, 3)):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        assert interval(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


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
def test_sources_are_spelt_out(short, long):
    assert citation(short) == long


def test_a_paper_is_no_course():
    facts = {"sources": ["Gaba 2.8", "Cheng et al. 2016"]}
    courses, papers = sources(facts, courses=True), sources(facts, courses=False)
    assert "section 2.8" in courses and "Cheng" not in courses and "Cheng" in papers and "Gaba" not in papers
    assert not sources({}, courses=True) and not sources({"sources": ["Gaba 2.8"]}, courses=False)


def luminance(colour):
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(theme):
    """WCAG AA: 4.5 to 1 for text."""
    sheet = style("chart.css") + style("style.css")
    colours = {}
    for block in re.findall(r"(@media \(prefers-color-scheme: dark\) \{\s*)?:root \{([^}]*)\}", sheet):
        if theme == "dark" or not block[0]:
            colours |= dict(re.findall(r"--(\w+): (#\w{6})", block[1]))
    for ink, ground in [("ink", "back"), ("ink", "paper"), ("soft", "back"), ("soft", "paper"), ("accent", "back"), ("accent", "tint"),
                        ("paper", "accent"), ("good", "paper"), ("bad", "paper"), ("ink", "tint"), ("paper", "heat")]:  # fmt: skip
        high, low = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


@pytest.mark.parametrize(("about", "words"), [
    ({"steps": 4, "plan": {"batch": 8, "epoch": 4, "total": 4}}, "4 steps of 8 examples (1 epoch)."),
    ({"steps": 1, "plan": {"batch": 1, "epoch": 2, "total": 1}}, "1 step of 1 example (0.5 epochs)."),
    ({"steps": 2000, "plan": {"batch": 673, "epoch": 1, "total": 2000}}, "2,000 steps of 673 examples (2,000 epochs)."),
])
def test_one_of_a_kind_is_told_in_the_singular(about, words):
    assert trained(about) == words


@pytest.mark.parametrize(("task", "title"), [("multiclass", "Examples of each class"), ("segmentation", "Pixels of each class")])
def test_classes_are_those_of_examples_or_of_pixels(task, title):
    found = class_figure({"task": task, "labels": ["a", "b"], "counts": {"train": [3, 4]}})
    assert found is not None and title in found.svg


def test_a_run_that_is_older_than_the_column_has_none(tmp_path):
    rows = [{"name": "a", "layer": "Linear", "shape": [3], "parameters": 51}]
    run = make(tmp_path)
    run.note(layers={"rows": rows, "total": 51, "trainable": 20, "tied": 0})
    _, said = read(report.write(run))
    assert "20 trainable" in said and "trained</th>" not in (run.folder / "report.html").read_text()


@pytest.mark.parametrize(("data", "shown"), [
    ("breast_cancer", ["precision (positive class: benign)", "F1 (positive class: benign)", "recall (macro)", "F1 (macro)"]),
    ("iris", ["precision (macro)", "recall (macro)", "F1 (macro)"]),
])
def test_precision_recall_and_f1_say_what_they_are_of(tmp_path, monkeypatch, data, shown):
    monkeypatch.chdir(tmp_path)
    run = didact.train("mlp", data=data, hidden=(4,), steps=3)
    page = report.write(run).read_text()
    for name in shown:
        assert f"<span>{name}</span>" in page, name
    assert not re.search(r"<span>(precision|recall|F1)</span>", page)
    said = [note for note in run.facts["notes"] if note.startswith("precision, recall, f1: of the positive class 'benign'")]
    assert bool(said) == (data == "breast_cancer")
