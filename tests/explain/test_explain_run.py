"""`didact explain` on runs of every kind: page, figures, numbers, and one-line errors."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import didact
from didact.cli.main import main
from didact.explain.explain_run import explain_run
from didact.explain.explained_model import ExplainedModel
from didact.registry import RECIPES
from didact.run import Run
from didact.training.restore import load_model

PRODUCTS = "size,colour,sold\n" + "".join(
    f"{i % 7}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(80)
)
REVIEWS = "review,mood\n" + "".join(
    f"a {'good' if i % 2 else 'bad'} film number {i % 5},{'pos' if i % 2 else 'neg'}\n" for i in range(60)
)


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    """A run of each kind, trained for seconds."""
    root = tmp_path_factory.mktemp("explain")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (root / "own.csv").write_text(PRODUCTS)
        (root / "texts.csv").write_text(REVIEWS)
        digit = torch.zeros(8, 8, dtype=torch.uint8)
        digit[1:7, 3:5] = 255
        Image.fromarray(digit.numpy()).save(root / "one.png")
        (root / "fake.png").write_text("this is no picture")
        configs = {
            "images": ("cnn", {"data": "digits", "epochs": 2}),
            "plain": ("mlp", {"data": "digits", "epochs": 1, "hidden": (16,)}),
            "table": ("mlp", {"data": "own.csv", "epochs": 30, "hidden": (16,), "lr": 0.03}),
            "text": ("mlp", {"data": "texts.csv", "text": "review", "epochs": 30, "hidden": (16,)}),
            "number": ("mlp", {"data": "diabetes", "epochs": 1, "hidden": (4,)}),
            "numpy": ("scratch_lenet", {"steps": 2}),
        }
        for name, (recipe, arguments) in configs.items():
            run = didact.train(RECIPES[recipe], **arguments)
            if name in ("images", "table"):
                didact.report.write_report(run)
            shutil.move(run.folder, root / name)
        yield root


@pytest.fixture
def workdir(runs_folder, monkeypatch):
    monkeypatch.chdir(runs_folder)
    yield runs_folder
    for explanations in runs_folder.glob("*/explanations"):
        shutil.rmtree(explanations)


def run_explain(capsys, *words):
    code = main(["explain", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_worst_test_images_are_explained_in_page_and_report(workdir, capsys):
    code, out, _ = run_explain(capsys, "images", "--json")
    result = json.loads(out)
    assert code == 0 and len(result["explained"]) == 6
    worst_rows = Run(Path("images")).load("examples")["worst"][:6].tolist()
    assert [explanation["input"] for explanation in result["explained"]] == [
        f"test example {row}" for row in worst_rows
    ]
    explanation = result["explained"][0]
    assert explanation["class"] == explanation["predicted"] != explanation["true"]
    assert set(explanation["methods"]) == {"saliency", "smooth_grad", "grad_cam", "occlusion", "shapley"}
    with Image.open(explanation["figure"]) as figure:
        assert figure.width > 6 * 176 and len(figure.getcolors(10**6)) > 100
    page = Path(result["page"]).read_text()
    # alt and name
    assert page.count("Grad-CAM") > 6 and page.count("feature maps") == 12 and "filters of the first layer" in page
    assert not re.search(r'(src|href)="(?!data:)', page), "the page needs something beside it"
    report = Path("images/report.html").read_text()
    assert "Explanations" in report and report.count("data:image/png") >= 7
    assert not re.search(r'(src|href)="(?!data:|#)', report)


def test_explanations_of_an_earlier_call_are_removed(workdir):
    explain_run(Run(Path("images")), methods=("saliency", "filters"))
    assert len(list(Path("images/explanations").glob("*.png"))) == 7
    explain_run(Run(Path("images")), ["one.png"], methods=("saliency",))
    assert sorted(path.name for path in Path("images/explanations").iterdir()) == ["01-one-png.png", "index.html"]
    assert Path("images/report.html").read_text().count('alt="01 one png"') == 1
    Path("elsewhere").mkdir(exist_ok=True)
    Path("elsewhere/mine.png").write_bytes(b"kept")
    explain_run(Run(Path("images")), ["one.png"], methods=("saliency",), out_dir=Path("elsewhere"))
    assert Path("elsewhere/mine.png").read_bytes() == b"kept"                # other folders are not cleared


def test_explain_run_is_deterministic(workdir):
    first, second = (
        explain_run(Run(Path("images")), ["one.png"], methods=("smooth_grad", "shapley"))["explained"] for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("seconds", "method_titles"),
    [(0.0, ["saliency", "SmoothGrad", "Grad-CAM", "occlusion", "Shapley values"]), (60.0, [])],
)
def test_slow_network_reports_progress_of_each_method(workdir, capsys, monkeypatch, seconds, method_titles):
    monkeypatch.setattr("didact.explain.explain_run.SLOW_PASS_S", seconds)
    code, _, err = run_explain(capsys, "images", "one.png")
    assert code == 0 and err.splitlines() == ["1 of 1: one.png", *(f"  {title} …" for title in method_titles)]


def test_shapley_values_of_patches_sum_to_the_score(workdir):
    run = Run(Path("images"))
    explained_model = ExplainedModel.from_run(run)
    explanation = explain_run(run, ["one.png"], methods=("shapley",), patches=3, label="7")["explained"][0]
    assert explanation["class"] == "7" and np.shape(explanation["methods"]["shapley"]["patches"]) == (3, 3)
    gray = explained_model.baseline.expand(1, 1, 8, 8)
    total = explanation["score"] - float(explained_model.scores(gray)[0, 7].detach())
    assert np.sum(explanation["methods"]["shapley"]["patches"]) == pytest.approx(total, abs=1e-3)


def test_scores_are_log_probabilities_up_to_a_constant(workdir):
    for name in ("images", "table", "text", "numpy"):
        explained_model = ExplainedModel.from_run(Run(Path(name)))
        x = Run(Path(name)).load("examples")["worst_x"][:3]
        s, p = explained_model.scores(x).detach(), explained_model.probabilities(x)
        expected = s.softmax(1) if s.shape[1] > 2 else s.sigmoid()
        torch.testing.assert_close(p, expected, atol=1e-5, rtol=1e-4)


def test_table_is_explained_by_its_columns(workdir, capsys):
    code, out, _ = run_explain(capsys, "table", "size=6.5,colour=red", "--json")
    explanation = json.loads(out)["explained"][0]
    assert code == 0 and set(explanation["methods"]) == {"saliency", "gradient_times_input", "occlusion", "shapley"}
    assert explanation["predicted"] == "yes"                         # sold where the size is large, whatever the color
    shares = explanation["methods"]["shapley"]
    assert set(shares) == {"size", "colour"} and shares["size"] > 3 * abs(shares["colour"])
    svg_text = Path(explanation["figure"]).read_text()
    assert "size = 6.5" in svg_text and "colour = red" in svg_text and "<script" not in svg_text
    assert "data:image/svg+xml" in Path("table/report.html").read_text()


def test_text_is_explained_by_its_words(workdir, capsys):
    code, out, _ = run_explain(capsys, "text", "a good film", "entirely unknown", "--class", "pos", "--json")
    explanation, empty_explanation = json.loads(out)["explained"]
    for method in ("gradient_times_input", "occlusion", "shapley"):
        values = explanation["methods"][method]
        assert set(values) == {"a", "good", "film"} and max(values, key=values.get) == "good" and values["good"] > 0
    assert code == 0 and empty_explanation["methods"]["shapley"] == {}


def test_explain_prints_lines_without_json(workdir, capsys):
    code, out, err = run_explain(capsys, "table", "size=6.5,colour=red", "--output", "elsewhere")
    assert code == 0 and "yes (" in out and "shapley" in out and "page elsewhere/index.html" in out and "1 of 1" in err
    assert Path("elsewhere/01-size-6-5-colour-red.svg").is_file() and not Path("table/explanations").exists()


def test_unsupported_methods_are_left_out(workdir, capsys):
    _, out, _ = run_explain(capsys, "plain", "one.png", "--json")
    assert set(json.loads(out)["explained"][0]["methods"]) == {"saliency", "smooth_grad", "occlusion", "shapley"}
    assert "filters of the first layer" in Path("plain/explanations/index.html").read_text()
    _, out, _ = run_explain(capsys, "numpy", "one.png", "--json")
    assert set(json.loads(out)["explained"][0]["methods"]) == {"occlusion", "shapley"}


def test_grad_cam_takes_any_layer(workdir):
    run = Run(Path("images"))
    first, last = (
        explain_run(run, ["one.png"], methods=("grad_cam",), layer=layer)["explained"][0]
        for layer in ("network.features.0", None)
    )
    assert first["methods"] != last["methods"]


@pytest.mark.parametrize(
    ("words", "expected", "hint"),
    [
        ("nowhere", "no run named 'nowhere'", "latest"),
        ("number", "number is no classifier", "`didact list`"),
        ("images gone.png", "no image at gone.png", "expected a file"),
        ("images fake.png", "fake.png cannot be read", "replace it"),
        ("images --class ten", "no class named 'ten'", "choose from: 0, 1"),
        ("table size=1,colour=red --class ye", "no class named 'ye'", "did you mean 'yes'?"),
        ("table size=1", "lacks the column 'colour'", "left empty"),
        ("images --method gradcam", "no method named 'gradcam'", "did you mean 'grad_cam'?"),
        ("images --method ''", "no method named ''", "choose from"),
        ("table --method grad_cam", "no method for table named 'grad_cam'", "choose from"),
        ("plain --method grad_cam", "no convolutional layer", "use saliency or occlusion"),
        ("numpy --method saliency", "gives no gradient of its input", "choose occlusion or shapley"),
        (
            "images --layer network.featres.0",
            "no layer named 'network.featres.0'",
            "did you mean 'network.features.0'?",
        ),
        (
            "images --layer network.head",
            "--layer network.head: the layer Linear outputs 10 numbers",
            "choose a convolutional one",
        ),
        (
            "images --layer network.features.0 --method saliency",
            "got --layer network.features.0",
            "for grad_cam and feature_maps",
        ),
        ("images --patches 9", "--patches 9 is more than the 8 pixels", "choose fewer"),
        ("images --patches 0", "--patches", "--help"),
        ("table --patches 3", "got --patches 3", "is for images"),
        ("images --num-samples 0", "--num-samples", "--help"),
        ("images --device gpu", "got 'gpu'", "auto, cpu, cuda"),
        ("images one.png --output one.png/x", "cannot write one.png/x", "--output"),
        ("table " + "size=1,colour=red " * 65, "65 inputs are more than the 64", "give fewer"),
    ],
)
def test_explain_refuses_bad_input_in_one_line(workdir, capsys, words, expected, hint):
    code, out, err = run_explain(capsys, *(word if word != "''" else "" for word in words.split()))
    line = err.strip().splitlines()[-1]
    assert code == 2 and out == "" and line.startswith("didact: ") and expected in line and hint in line, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("change", "message"), [({"feature_names": ()}, "texts word by word"), ({"kind": "audio"}, "reads audio")]
)
def test_unknown_kind_of_input_is_refused(workdir, capsys, monkeypatch, change, message):
    objective, data = load_model(Run(Path("text")))
    monkeypatch.setattr("didact.explain.explained_model.load_model", lambda run: (objective, replace(data, **change)))
    code, _, err = run_explain(capsys, "text")
    assert code == 2 and message in err and "images, tables and bags of words" in err


def test_run_without_examples_asks_for_inputs(workdir, capsys):
    shutil.copytree("images", "bare")
    Path("bare/examples.safetensors").unlink()
    code, _, err = run_explain(capsys, "bare")
    assert code == 2 and "keeps no test examples" in err and "give inputs" in err
    shutil.rmtree("bare")
