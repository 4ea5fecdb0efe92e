"""Detection: train on a folder of images with boxes, evaluate, resume, predict, report from the run alone."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

import didact
from didact import metrics
from didact.api import resume
from didact.cli.main import main
from didact.data.core import TensorSplit
from didact.data.load import load
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.layers.conv.anchors import anchor_grid, kmeans_iou
from didact.recipes.detection import cluster_anchor_sizes
from didact.registry import RECIPES
from didact.report import page
from didact.report.box_strips import draw_boxes_svg
from didact.run import Run
from didact.training.restore import load_model, rebuild

TRAIN_OPTIONS = {"epochs": 2, "batch_size": 8, "augment": ("flips", "zoom", "jitter"), "lr": 1e-2}


def write_coco_dataset(root, n=40):
    """Some images of the synthetic dataset as files, twice as large, with COCO annotations."""
    data = load("scatter")
    columns = {name: column[:n] for name, column in data.test.columns.items()}
    (root / "images").mkdir(parents=True)
    annotations = []
    for i, (x, y, box) in enumerate(zip(columns["x"], columns["y"], columns["box"], strict=True)):
        Image.fromarray(x.permute(1, 2, 0).numpy()).resize((128, 128)).save(root / "images" / f"{i}.png")
        for k, (x1, y1, x2, y2) in zip(y.tolist(), (128 * box).tolist(), strict=True):
            if k >= 0:
                annotations.append({"image_id": i, "category_id": k, "bbox": [x1, y1, x2 - x1, y2 - y1]})
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(n)]
    categories = [{"id": k, "name": label} for k, label in enumerate(data.class_names)]
    (root / "boxes.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    return root


@pytest.fixture(scope="module")
def dataset_folder(tmp_path_factory):
    return write_coco_dataset(tmp_path_factory.mktemp("detection") / "shapes")


@pytest.fixture(scope="module", params=["ssd", "yolo"])
def trained_run(request, dataset_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return didact.train(
        RECIPES["detection"], data=str(dataset_folder), size=64, model=request.param, runs=str(folder), **TRAIN_OPTIONS
    )


def test_run_metadata_of_a_detector(trained_run):
    assert trained_run.metadata["abilities"] == ["detect"] and trained_run.metadata["monitor"] == ["map50", "max"]
    assert set(trained_run.metadata["test"]) == {"loss", "map50", "map", "ap50_disc", "ap50_square", "ap50_triangle"}
    assert any(note.startswith("anchors by k-means of") for note in trained_run.metadata["notes"])
    rows = trained_run.load("test")
    assert rows["detected"].shape == (6, 100, 6) and rows["truth"].shape[::2] == (6, 5)


def test_evaluate_repeats_the_scores_of_training(trained_run):
    scores = evaluate(trained_run, device="cpu")
    for part in ("validation", "test"):
        assert scores[part]["loss"] == pytest.approx(trained_run.metadata[part]["loss"], rel=1e-4)
        assert scores[part]["map50"] == pytest.approx(trained_run.metadata[part]["map50"], abs=1e-3)


def test_detection_run_is_used_without_its_data(trained_run, dataset_folder, tmp_path):
    copied_run = Run(shutil.copytree(trained_run.folder, tmp_path / "alone"))
    data = rebuild(trained_run, with_data=True).data
    metadata = json.loads((copied_run.folder / "run.json").read_text())
    metadata["data"]["source"]["path"] = "/nowhere"
    (copied_run.folder / "run.json").write_text(json.dumps(metadata))
    objective, _ = load_model(copied_run)
    levels = 2 if type(objective).__name__ == "SSDObjective" else 1
    sizes, _ = cluster_anchor_sizes(data, levels, 3)
    maps = [(8, 8), (4, 4)][:levels]
    # those of the data, though the data are not there
    torch.testing.assert_close(objective.anchors, anchor_grid(maps, sizes))

    Image.open(dataset_folder / "images" / "0.png").resize((300, 200)).save(tmp_path / "wide.png")
    with torch.no_grad():                                                       # make it confident
        head = objective.network.heads[0] if levels == 2 else objective.network.head
        head.conv.bias.view(head.k, head.n)[:, 4] += 20
    weights = {name: v.contiguous() for name, v in objective.state_dict().items()}
    copied_run.save("model", weights)
    (prediction,) = predict(copied_run, [str(tmp_path / "wide.png")], out_dir=tmp_path / "drawn")
    with Image.open(prediction["frames"]) as picture:
        assert picture.size == (300, 200)
    assert prediction["boxes"] and all(
        b["label"] in data.class_names and 0.3 <= b["score"] <= 1 for b in prediction["boxes"]
    )
    sides = torch.tensor([b["box"] for b in prediction["boxes"]])
    assert sides[:, 0::2].max() <= 300 and sides[:, 1::2].max() <= 200 and sides[:, 2].max() > 200
    assert [b["score"] for b in prediction["boxes"]] == sorted((b["score"] for b in prediction["boxes"]), reverse=True)


def test_predict_lists_and_draws_boxes(trained_run, dataset_folder, tmp_path, capsys):
    image = str(dataset_folder / "images" / "0.png")
    assert main(["predict", str(trained_run.folder), image, "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{image}:") and (tmp_path / "0-frames.png").is_file()


def test_predict_suppresses_duplicate_boxes(trained_run, dataset_folder, tmp_path, capsys):
    if trained_run.metadata["arguments"]["model"] == "yolo":
        pytest.skip("after two epochs it is not confident of anything")
    image = str(dataset_folder / "images" / "0.png")
    box_counts = [len(predict(trained_run, [image], min_score=score)[0]["boxes"]) for score in (0.02, 0.99)]
    assert box_counts[0] > 2 and box_counts[1] == 0
    assert main(["predict", str(trained_run.folder), image, "--output", str(tmp_path), "--min-score", "0.02"]) == 0
    assert capsys.readouterr().out.count("\n  ") == box_counts[0] + 1               # and the file of the picture
    boxes = torch.tensor([b["box"] for b in predict(trained_run, [image], min_score=0.02)[0]["boxes"]])
    # boxes are rounded to a tenth of a pixel
    is_duplicate = metrics.box_iou(boxes, boxes).fill_diagonal_(0) > 0.52
    assert not is_duplicate.any(), "one thing is told twice"


def test_boxes_svg_names_an_object_once():
    labels, box = ("disc", "square"), [0.2, 0.2, 0.6, 0.6]
    detections = torch.tensor([[*box, 0.9, 1], [*box, 0.8, 0], [0.7, 0.7, 0.9, 0.9, 0.4, 0]])
    svg = draw_boxes_svg(torch.rand(3, 64, 64), torch.zeros(0, 5), detections, labels)
    assert "detected: 1 disc, 1 square" in svg and "disc 0.80" not in svg
    assert svg.index("disc 0.40") < svg.index("square 0.90")                    # the most confident is drawn last


def test_resumed_detection_ends_with_the_same_weights(trained_run, dataset_folder, tmp_path):
    if trained_run.metadata["arguments"]["model"] == "yolo":
        pytest.skip("the loop is the same")

    class StopTraining(Exception):
        pass

    def stop_at_evaluation(event, payload):
        if event == "evaluate":
            raise StopTraining

    with pytest.raises(StopTraining):
        didact.train(
            RECIPES["detection"],
            data=str(dataset_folder),
            size=64,
            model="ssd",
            runs=str(tmp_path),
            on_event=stop_at_evaluation,
            **TRAIN_OPTIONS,
        )
    (folder,) = (tmp_path / "detection").iterdir()
    resumed_run = resume(Run(folder))
    for name, value in trained_run.load("model").items():
        torch.testing.assert_close(resumed_run.load("model")[name], value, rtol=0, atol=0)
    assert resumed_run.metadata["test"] == trained_run.metadata["test"]


def test_report_draws_boxes(trained_run):
    html = page.write_report(trained_run).read_text()
    true = int((trained_run.load("test")["truth"][..., 4] >= 0).sum())
    assert "Highest loss" in html and "mAP@0.5" in html
    # all six among the worst and the best, two lines each
    assert html.count('stroke-dasharray="6 4"') == 2 * 2 * true


def test_cluster_anchor_sizes_weighs_classes_equally(dataset_folder):
    data = load(str(dataset_folder), size=64)
    y, box = data.train.columns["y"], data.train.columns["box"]
    sizes, (note,) = cluster_anchor_sizes(data, 2, 3)
    is_object = y >= 0
    weights = (1 / torch.bincount(y[is_object]))[y[is_object]]
    torch.testing.assert_close(
        sizes.view(6, 2), kmeans_iou((box[..., 2:] - box[..., :2])[is_object], 6, weights=weights)
    )
    assert sizes.view(6, 2).prod(1).diff().min() >= 0 and f"{int(is_object.sum())} training boxes" in note


def test_cluster_anchor_sizes_refuses_images_without_boxes(dataset_folder):
    data = load(str(dataset_folder), size=64)
    columns = {**data.train.columns, "y": torch.full_like(data.train.columns["y"], -1)}
    with pytest.raises(ValueError, match="no training image of 'shapes' has a box"):
        cluster_anchor_sizes(replace(data, train=TensorSplit(columns)), 1, 3)


def test_detection_refuses_other_data(dataset_folder, capsys):
    assert main(["train", "detection", "--data", "digits"]) == 2
    assert "recipe 'detection' learns from boxes, but 'digits' is images" in capsys.readouterr().err
    assert main(["train", "detection", "--data", str(dataset_folder), "--augment", "cutmix"]) == 2
    assert "no augmentation of images with boxes named 'cutmix'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ssd", "yolo"])
def test_detection_learns_the_synthetic_shapes(model, workdir):
    """Boxes anywhere give less than 0.01."""
    assert didact.train(RECIPES["detection"], model=model).metadata["test"]["map50"] >= 0.80
