"""From a folder of images with boxes to a run that is evaluated, resumed, used and reported from its folder alone."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

import didact
from didact import metrics
from didact.cli.main import main
from didact.data.core import Resident
from didact.data.load import load
from didact.layers.anchors import anchor_grid, cluster
from didact.recipes.detection import typical
from didact.registry import RECIPES
from didact.report import page
from didact.report.boxes import drawn
from didact.run import Run
from didact.train.session import evaluate, rebuild, restored, resume
from didact.train.use import predict

WORDS = {"epochs": 2, "batch": 8, "augment": ("flips", "zoom", "jitter"), "lr": 1e-2}


def write(root, n=40):
    """Some images of the made set as files of one's own, twice as large, with COCO's annotations."""
    data = load("scatter")
    columns = {name: column[:n] for name, column in data.test.columns.items()}
    (root / "images").mkdir(parents=True)
    marked = []
    for i, (x, y, box) in enumerate(zip(columns["x"], columns["y"], columns["box"], strict=True)):
        Image.fromarray(x.permute(1, 2, 0).numpy()).resize((128, 128)).save(root / "images" / f"{i}.png")
        for k, (x1, y1, x2, y2) in zip(y.tolist(), (128 * box).tolist(), strict=True):
            if k >= 0:
                marked.append({"image_id": i, "category_id": k, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(n)]
    categories = [{"id": k, "name": label} for k, label in enumerate(data.labels)]
    (root / "boxes.json").write_text(json.dumps({"images": images, "annotations": marked, "categories": categories}))
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write(tmp_path_factory.mktemp("detection") / "shapes")


@pytest.fixture(scope="module", params=["ssd", "yolo"])
def run(request, place, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return didact.train(RECIPES["detection"], data=str(place), size=64, model=request.param, runs=str(folder), **WORDS)


def test_its_facts(run):
    assert run.facts["abilities"] == ["detect"] and run.facts["watch"] == ["map50", "higher"]
    assert set(run.facts["test"]) == {"loss", "map50", "map", "ap50_disc", "ap50_square", "ap50_triangle"}
    assert any(note.startswith("anchors by k-means of") for note in run.facts["notes"])
    rows = run.load("test")
    assert rows["detected"].shape == (6, 100, 6) and rows["truth"].shape[::2] == (6, 5)


def test_judged_again_it_is_the_same(run):
    again = evaluate(run, device="cpu")
    for part in ("validation", "test"):
        assert again[part]["loss"] == pytest.approx(run.facts[part]["loss"], rel=1e-4)
        assert again[part]["map50"] == pytest.approx(run.facts[part]["map50"], abs=1e-3)


def test_it_is_used_from_its_folder_alone(run, place, tmp_path):
    alone = Run(shutil.copytree(run.folder, tmp_path / "alone"))
    data = rebuild(run, with_data=True).data
    facts = json.loads((alone.folder / "run.json").read_text())
    facts["data"]["source"]["path"] = "/nowhere"
    (alone.folder / "run.json").write_text(json.dumps(facts))
    objective, _ = restored(alone)
    levels = 2 if type(objective).__name__ == "SSDDetect" else 1
    sizes, _ = typical(data, levels, 3)
    maps = [(8, 8), (4, 4)][:levels]
    torch.testing.assert_close(objective.anchors, anchor_grid(maps, sizes))     # those of the data, though the data are not there

    Image.open(place / "images" / "0.png").resize((300, 200)).save(tmp_path / "wide.png")
    with torch.no_grad():                                                       # make it sure of something
        head = objective.network.heads[0] if levels == 2 else objective.network.head
        head.conv.bias.view(head.k, head.n)[:, 4] += 20
    weights = {name: v.contiguous() for name, v in objective.state_dict().items()}
    alone.save("model", weights)
    (answer,) = predict(alone, [str(tmp_path / "wide.png")], to=tmp_path / "drawn")
    with Image.open(answer["frames"]) as drawn:
        assert drawn.size == (300, 200)
    assert answer["boxes"] and all(b["label"] in data.labels and 0.3 <= b["score"] <= 1 for b in answer["boxes"])
    sides = torch.tensor([b["box"] for b in answer["boxes"]])
    assert sides[:, 0::2].max() <= 300 and sides[:, 1::2].max() <= 200 and sides[:, 2].max() > 200
    assert [b["score"] for b in answer["boxes"]] == sorted((b["score"] for b in answer["boxes"]), reverse=True)


def test_predict_lists_and_draws_boxes(run, place, tmp_path, capsys):
    image = str(place / "images" / "0.png")
    assert main(["predict", str(run.folder), image, "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{image}:") and (tmp_path / "0-frames.png").is_file()


def test_each_thing_is_told_once_and_surely(run, place, tmp_path, capsys):
    if run.facts["arguments"]["model"] == "yolo":
        pytest.skip("after two epochs it is sure of nothing")
    image = str(place / "images" / "0.png")
    told = [len(predict(run, [image], sure=sure)[0]["boxes"]) for sure in (0.02, 0.99)]
    assert told[0] > 2 and told[1] == 0
    assert main(["predict", str(run.folder), image, "--to", str(tmp_path), "--sure", "0.02"]) == 0
    assert capsys.readouterr().out.count("\n  ") == told[0] + 1               # and where it is drawn
    boxes = torch.tensor([b["box"] for b in predict(run, [image], sure=0.02)[0]["boxes"]])
    near = metrics.box_iou(boxes, boxes).fill_diagonal_(0) > 0.52               # boxes are told to a tenth of a pixel
    assert not near.any(), "one thing is told twice"


def test_the_report_names_a_thing_once():
    labels, box = ("disc", "square"), [0.2, 0.2, 0.6, 0.6]
    detected = torch.tensor([[*box, 0.9, 1], [*box, 0.8, 0], [0.7, 0.7, 0.9, 0.9, 0.4, 0]])
    svg = drawn(torch.rand(3, 64, 64), torch.zeros(0, 5), detected, labels)
    assert "found: 1 disc, 1 square" in svg and "disc 0.80" not in svg
    assert svg.index("disc 0.40") < svg.index("square 0.90")                    # the surest is drawn last


def test_resumed_it_ends_as_if_it_had_never_stopped(run, place, tmp_path):
    if run.facts["arguments"]["model"] == "yolo":
        pytest.skip("the loop is the same")

    class Stop(Exception):
        pass

    def tell(what, facts):
        if what == "evaluate":
            raise Stop

    with pytest.raises(Stop):
        didact.train(RECIPES["detection"], data=str(place), size=64, model="ssd", runs=str(tmp_path), tell=tell, **WORDS)
    (folder,) = (tmp_path / "detection").iterdir()
    stopped = resume(Run(folder))
    for name, value in run.load("model").items():
        torch.testing.assert_close(stopped.load("model")[name], value, rtol=0, atol=0)
    assert stopped.facts["test"] == run.facts["test"]


def test_the_report_draws_boxes(run):
    html = page.write(run).read_text()
    true = int((run.load("test")["truth"][..., 4] >= 0).sum())
    assert "Most surprising" in html and "mAP@0.5" in html
    assert html.count('stroke-dasharray="6 4"') == 2 * 2 * true                 # all six among the worst and the best, two lines each


def test_anchors_count_each_class_alike(place):
    data = load(str(place), size=64)
    y, box = data.train.columns["y"], data.train.columns["box"]
    sizes, (note,) = typical(data, 2, 3)
    there = y >= 0
    weights = (1 / torch.bincount(y[there]))[y[there]]
    torch.testing.assert_close(sizes.view(6, 2), cluster((box[..., 2:] - box[..., :2])[there], 6, weights=weights))
    assert sizes.view(6, 2).prod(1).diff().min() >= 0 and f"{int(there.sum())} training boxes" in note


def test_training_images_without_a_box(place):
    data = load(str(place), size=64)
    columns = {**data.train.columns, "y": torch.full_like(data.train.columns["y"], -1)}
    with pytest.raises(ValueError, match="no training image of 'shapes' shows anything"):
        typical(replace(data, train=Resident(columns)), 1, 3)


def test_other_data_are_refused(place, capsys):
    assert main(["train", "detection", "--data", "digits"]) == 2
    assert "recipe 'detection' learns from boxes, but 'digits' is images" in capsys.readouterr().err
    assert main(["train", "detection", "--data", str(place), "--augment", "cutmix"]) == 2
    assert "no augmentation of images with boxes named 'cutmix'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ssd", "yolo"])
def test_the_made_set_is_learned(model, here):
    """Boxes anywhere give less than 0.01."""
    assert didact.train(RECIPES["detection"], model=model).facts["test"]["map50"] >= 0.80
