"""Bounding boxes of folders, of BCCD and synthetic; mistakes are refused in one line."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from didact.data.core import SPLITS
from didact.data.datasets.synthetic.detection_shapes import compute_bounding_boxes, overlaps_too_much
from didact.data.datasets.synthetic.draw_shapes import signed_distance
from didact.data.images import boxes
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.errors import UsageError
from helpers.public_data import has_public_data

WIDTH, HEIGHT = 60, 40


def write_image(path, box=None, size=(WIDTH, HEIGHT)):
    """Black, but white where the box is."""
    image = Image.new("RGB", size)
    if box:
        image.paste((255, 255, 255), box)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def box_of_image(i):
    """Whole pixels, so that the white area is the box."""
    return (3 * i, 2 * i, 3 * i + 20, 2 * i + 15)


def write_coco(root, n=10, images="images", name="annotations.json"):
    image_entries, annotations = [], []
    for i in range(n):
        x1, y1, x2, y2 = box_of_image(i)
        write_image(root / images / f"{i:02}.png", box_of_image(i))
        image_entries.append({"id": 100 + i, "file_name": f"{i:02}.png", "width": WIDTH, "height": HEIGHT})
        annotations.append(
            {
                "id": i,
                "image_id": 100 + i,
                "category_id": 7 if i % 2 else 3,
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "iscrowd": 0,
            }
        )
    content = {
        "images": image_entries,
        "annotations": annotations,
        "categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "owl"}],
    }
    (root / name).write_text(json.dumps(content))
    return root


def edit_coco(root, **edits):
    """The COCO file with some lists changed by functions."""
    content = json.loads((root / "annotations.json").read_text())
    for name, edit in edits.items():
        content[name] = edit(content[name])
    (root / "annotations.json").write_text(json.dumps(content))


def write_voc(root, n=10):
    for i in range(n):
        write_image(root / f"{i:02}.png", box_of_image(i))
        sides_xml = "".join(
            f"<{side}>{v}</{side}>" for side, v in zip(("xmin", "ymin", "xmax", "ymax"), box_of_image(i), strict=True)
        )
        name = "cat" if i % 2 else "owl"
        object_xml = f"<object><name>{name}</name><difficult>0</difficult><bndbox>{sides_xml}</bndbox></object>"
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        (root / f"{i:02}.xml").write_text(
            f"<annotation><filename>other_{i}.jpg</filename>{size}{object_xml}</annotation>"
        )
    return root


@pytest.mark.parametrize("write_set", [write_coco, write_voc])
def test_load_detection_folder_reads_coco_and_voc(tmp_path, write_set):
    data = load(str(write_set(tmp_path / "birds")))
    assert (data.name, data.kind, data.task, data.class_names) == ("birds", "boxes", "detection", ("cat", "owl"))
    assert data.shape == (3, 64, 64) and sum(len(data.split(s)) for s in SPLITS) == 10
    assert [sum(c) for c in zip(*data.class_counts.values(), strict=True)] == [5, 5]
    for part in SPLITS:
        split = data.split(part)
        batch = split.batch(torch.arange(len(split)))
        assert batch["box"].shape == (len(split), 1, 4) and batch["y"].dtype == torch.int64
        for i, x, box, y in zip(
            data.indices[part].tolist(), batch["x"], batch["box"][:, 0], batch["y"][:, 0], strict=True
        ):
            assert_close(box, torch.tensor(box_of_image(i)) / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT]))
            assert data.class_names[y] == ("cat" if i % 2 else "owl")
            rows, columns = (x[0] > 0.5).nonzero().float().unbind(1)            # the white pixels of the resized image
            edges = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 64
            assert_close(edges, box, atol=1.5 / 64, rtol=0)
    reloaded_data = reload_data(data, data.indices)
    assert (
        torch.equal(reloaded_data.test.columns["box"], data.test.columns["box"])
        and reloaded_data.fingerprint == data.fingerprint
    )
    assert load(str(tmp_path / "birds"), size=32).shape == (3, 32, 32)


def test_coco_and_voc_give_the_same_data(tmp_path):
    coco_data, voc_data = load(str(write_coco(tmp_path / "a"))), load(str(write_voc(tmp_path / "b")))
    assert torch.equal(coco_data.train.columns["box"], voc_data.train.columns["box"]) and torch.equal(
        coco_data.train.columns["x"], voc_data.train.columns["x"]
    )


def test_split_folders_of_detection_set_are_kept(tmp_path):
    for part, n in (("train", 6), ("valid", 3), ("test", 4)):
        write_coco(tmp_path / part, n, images=".", name="_annotations.coco.json")
    data = load(str(tmp_path))
    assert [len(data.split(s)) for s in SPLITS] == [6, 3, 4]


@pytest.mark.parametrize(
    "name", ["instances_val2017.json", "val.json", "test.json", "instances_train2017.json", "train.json"]
)
def test_single_coco_split_is_divided_like_a_set_without_splits(tmp_path, name):
    write_coco(tmp_path / "whole", 12)
    write_coco(tmp_path / "part", 12, name=name)
    unsplit_data, split_data = load(str(tmp_path / "whole")), load(str(tmp_path / "part"))
    assert sum(len(split_data.split(s)) for s in SPLITS) == 12 and all(len(split_data.split(s)) for s in SPLITS)
    if "train" not in name:
        assert (
            all(torch.equal(split_data.indices[s], unsplit_data.indices[s]) for s in SPLITS)
            and split_data.fingerprint == unsplit_data.fingerprint
        )


def test_coco_files_named_after_their_split(tmp_path):
    write_coco(tmp_path, 8, name="instances_train2017.json")
    content = json.loads((tmp_path / "instances_train2017.json").read_text())
    for name, image_numbers in (("instances_train2017.json", range(5)), ("instances_val2017.json", range(5, 8))):
        image_ids = {100 + i for i in image_numbers}
        split_content = {
            **content, "images": [i for i in content["images"] if i["id"] in image_ids],
            "annotations": [a for a in content["annotations"] if a["image_id"] in image_ids],
        }
        (tmp_path / name).write_text(json.dumps(split_content))
    data = load(str(tmp_path))
    assert len(data.validation) == 3 and len(data.train) + len(data.test) == 5


def test_unrelated_json_is_ignored(tmp_path):
    for label in ("cat", "owl"):
        for i in range(4):
            write_image(tmp_path / label / f"{label}{i}.png", box_of_image(i + (label == "owl")))
    (tmp_path / "notes.json").write_text('{"author": "me"}')
    assert load(str(tmp_path)).kind == "images"


def test_clipped_and_dropped_boxes_are_noted(tmp_path):
    write_coco(tmp_path)

    def spoil(annotations):
        annotations[0]["bbox"] = [-5, -5, 20, 15]
        annotations[1]["bbox"] = [50, 30, 100, 100]
        annotations[2]["bbox"] = [200, 200, 10, 10]
        annotations[3]["bbox"] = [5, 5, 0, 10]
        return [*annotations, {**annotations[4], "iscrowd": 1}]

    edit_coco(tmp_path, annotations=spoil)
    data = load(str(tmp_path))
    notes = " | ".join(data.notes)
    assert "clipped where they reach beyond their image: 2 boxes of 00.png, 01.png" in notes
    assert "left out for lack of area inside their image: 2 boxes of 02.png, 03.png" in notes
    assert "no box on 2 images" in notes and "ignored: 1 crowd of 'owl'" in notes
    box = torch.cat([data.split(s).columns["box"] for s in SPLITS])[
        torch.cat([data.indices[s] for s in SPLITS]).argsort()
    ]
    assert_close(box[0, 0], torch.tensor([0, 0, 15 / WIDTH, 10 / HEIGHT]))
    assert_close(box[1, 0], torch.tensor([50 / WIDTH, 30 / HEIGHT, 1, 1]))


def test_reload_data_refuses_a_moved_box(tmp_path):
    data = load(str(write_coco(tmp_path)))
    edit_coco(tmp_path, annotations=replace_in_first("bbox", [1, 2, 20, 15]))
    with pytest.raises(UsageError, match="has changed since the run split it"):
        reload_data(data, data.indices)


def replace_in_first(key, value):
    return lambda rows: [{**rows[0], key: value}, *rows[1:]]


def truncate_json(root):
    text = (root / "annotations.json").read_text()
    (root / "annotations.json").write_text(text[: len(text) // 2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncate_json, r"annotations.json is not JSON \(.*\); export the annotations again"),
        (lambda r: (r / "annotations.json").write_text('{"images": 3}'), "is not in COCO's format"),
        (lambda r: (r / "annotations.json").write_text('["images"]'), "is not in COCO's format"),
        (
            lambda r: edit_coco(r, annotations=replace_in_first("category_id", 99)),
            r"has a box of category 99 on 00.png, but its categories are 7 \(cat\)",
        ),
        (
            lambda r: edit_coco(r, annotations=replace_in_first("image_id", 1)),
            "has a box on image 1, which its images do not list",
        ),
        (
            lambda r: edit_coco(r, annotations=replace_in_first("bbox", [1, 2, 3])),
            r"a box is four numbers, got \[1, 2, 3\] of 00.png",
        ),
        (
            lambda r: edit_coco(r, annotations=replace_in_first("bbox", [1, 2, 3, float("nan")])),
            "a box is four numbers",
        ),
        (lambda r: edit_coco(r, annotations=replace_in_first("bbox", None)), "a box is four numbers, got None"),
        (
            lambda r: edit_coco(r, annotations=replace_in_first("bbox", [1, 2, 3, 10**400])),
            r"a box is four numbers, got \[1, 2, 3, 10*… of 00.png",
        ),
        (
            lambda r: (r / "annotations.json").write_text('{"images": 1' + 5000 * "0" + "}"),
            r"annotations.json is not JSON",
        ),
        (lambda r: edit_coco(r, annotations=lambda rows: []), "hold no box on 10 images: there is nothing to learn"),
        (lambda r: edit_coco(r, images=lambda rows: [], annotations=lambda rows: []), "list no image"),
        (
            lambda r: edit_coco(r, images=replace_in_first("file_name", "lost.png")),
            "lists the image lost.png, which is not there",
        ),
        (
            lambda r: edit_coco(r, images=replace_in_first("width", 640)),
            "00.png is 60×40 pixels, but its annotations are for 640×40",
        ),
        (lambda r: edit_coco(r, images=lambda rows: [*rows, {**rows[0], "id": 5}]), "annotated twice: .*00.png"),
        (lambda r: (r / "images" / "00.png").write_bytes(b"no image"), "00.png cannot be read"),
        (lambda r: (r / "x.xml").write_text("<annotation></annotation>"), "keep one kind of annotations"),
    ],
)
def test_damaged_coco_is_refused_in_one_line(tmp_path, spoil, message):
    spoil(write_coco(tmp_path))
    with pytest.raises(UsageError, match=message) as error:
        load(str(tmp_path))
    assert "\n" not in str(error.value)


def edit_xml(old, new):
    def spoil(root):
        path = root / "00.xml"
        path.write_text(path.read_text().replace(old, new))
    return spoil


@pytest.mark.parametrize(("spoil", "message"), [
    (edit_xml("</annotation>", ""), r"00.xml is not XML \(.*\); export"),
    (edit_xml("<name>owl</name>", ""), "has an <object> without <name> or <bndbox>"),
    (edit_xml("<xmin>0</xmin>", ""), r"a box is four numbers, got \[None, '0', '20', '15'\] of owl"),
    (edit_xml("<ymax>15<", "<ymax>low<"), "a box is four numbers"),
    (edit_xml("<width>60<", "<width>600<"), "00.png is 60×40 pixels, but its annotations are for 600×40"),
    (lambda r: (r / "00.png").unlink(), "00.xml lists the image other_0.jpg, which is not there"),
    (lambda r: [(r / f"{i:02}.xml").unlink() for i in range(8)], "holds 2 examples, but three splits need at least 3"),
])
def test_damaged_voc_is_refused_in_one_line(tmp_path, spoil, message):
    spoil(write_voc(tmp_path))
    with pytest.raises(UsageError, match=message) as error:
        load(str(tmp_path))
    assert "\n" not in str(error.value)


def test_detection_set_too_large_for_memory_is_read_from_files(tmp_path, monkeypatch):
    write_coco(tmp_path)
    resident_data = load(str(tmp_path))
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "100")
    monkeypatch.setattr(boxes.os, "cpu_count", lambda: 0)
    data = load(str(tmp_path))
    assert any("read during training" in note for note in data.notes) and data.fingerprint == resident_data.fingerprint
    index = torch.arange(len(data.train))
    for name in ("x", "y", "box"):
        assert torch.equal(data.train.batch(index)[name], resident_data.train.batch(index)[name])


def test_box_encoder_keeps_the_size_of_new_images(tmp_path):
    write_image(tmp_path / "wide.png", size=(123, 45))
    rotated_image = Image.new("RGB", (50, 20))
    exif = rotated_image.getexif()
    exif[0x0112] = 6
    rotated_image.save(tmp_path / "turned.jpg", exif=exif)
    encoder = data_from_json(data_to_json(load(str(write_coco(tmp_path / "a"))))).encoder
    names, columns = encoder.read([str(tmp_path / "wide.png"), str(tmp_path / "turned.jpg")])
    assert columns["x"].shape == (2, 3, 64, 64) and columns["size"].tolist() == [[123, 45], [20, 50]]
    assert [os.path.basename(name) for name in names] == ["wide.png", "turned.jpg"]


def test_detection_shapes_have_exact_boxes():
    data = load("scatter")
    assert (data.kind, data.task, data.shape) == ("boxes", "detection", (3, 64, 64))
    assert [len(data.split(s)) for s in SPLITS] == [1440, 160, 400]
    assert data.fingerprint == load("scatter", seed=1).fingerprint                 # the seed is that of the split
    for part in SPLITS:
        y, box = data.split(part).columns["y"], data.split(part).columns["box"]
        assert ((y >= 0).sum(1) >= 1).all() and (box[y < 0] == 0).all() and box.min() >= 0 and box.max() <= 1
        sides = (box[..., 2:] - box[..., :2])[y >= 0]
        assert sides.min() > 0.15 and sides.max() < 0.6
    assert all(count > 70 for part in SPLITS for count in data.class_counts[part])


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_bounding_box_touches_its_shape_on_all_sides(kind):
    """Pixel centers inside, by `signed_distance`, against corners in closed form: less than a pixel apart."""
    rng = np.random.default_rng(0)
    n = 50
    across, down, radius, angle = (rng.uniform(a, b, n) for a, b in ((20, 44), (20, 44), (7, 15), (0, 2 * np.pi)))
    kinds = np.full(n, kind)
    box, inside_masks = (
        compute_bounding_boxes(kinds, across, down, radius, angle),
        signed_distance(kinds, across, down, radius, angle, 64) < 0,
    )
    for b, shape in zip(box, inside_masks, strict=True):
        rows, columns = np.nonzero(shape)
        pixel_bounds = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        # a sharp corner holds no pixel's center
        assert (abs(b - pixel_bounds) < (1.0 if kind == 0 else 2.0)).all()
        # and no pixel's center is outside
        assert (b[:2] <= pixel_bounds[:2] + 0.5).all() and (b[2:] >= pixel_bounds[2:] - 0.5).all()


def test_overlaps_too_much_by_hand():
    box = np.array([[0.0, 0, 10, 10]])
    assert overlaps_too_much(box, np.array([[[9.0, 0, 19, 10]]])).tolist() == [False] and overlaps_too_much(
        box, np.array([[[8.0, 0, 18, 10]]])
    ).tolist() == [True]
    assert overlaps_too_much(box, np.zeros((1, 3, 4))).tolist() == [False] and overlaps_too_much(
        box, np.zeros((1, 0, 4))
    ).tolist() == [False]


@pytest.mark.skipif(not has_public_data("bccd"), reason="DIDACT_DATA holds no bccd")
def test_bccd_boxes_equal_the_published_xml(tmp_path, monkeypatch):
    data, (photographs, published_images) = load("bccd"), boxes.read_bccd_files()
    assert data.shape == (3, 240, 320) and data.class_names == ("RBC", "WBC", "Platelets")
    assert [len(data.split(s)) for s in SPLITS] == [205, 87, 72]
    # 4,155 red cells, of which two have no area
    assert [sum(c) for c in zip(*data.class_counts.values(), strict=True)] == [4153, 372, 361]
    # the same boxes from the XML files that its home page has
    photos, annotations = (
        os.path.join(os.environ["DIDACT_DATA"], "bccd", f"bccd_{name}.zip") for name in ("images", "voc_xml")
    )
    if not os.path.isfile(annotations):
        return
    with (
        zipfile.ZipFile(photos) as images,
        zipfile.ZipFile(annotations) as xml,
        zipfile.ZipFile(tmp_path / "master.zip", "w") as master_zip,
    ):
        for archive, folder in ((images, "JPEGImages"), (xml, "Annotations")):
            for name in archive.namelist():
                master_zip.writestr(f"BCCD_Dataset-master/BCCD/{folder}/{name}", archive.read(name))
        names = sorted(name[:-4] for name in images.namelist())
        for part, word in zip(SPLITS, ("train", "val", "test"), strict=True):
            lines = "\n".join(names[i] for i in data.indices[part].tolist())
            master_zip.writestr(f"BCCD_Dataset-master/BCCD/ImageSets/Main/{word}.txt", lines)
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "cache"))
    master_photographs, master_images = boxes.read_bccd_files()
    assert all(master_photographs[image.file] == photographs[image.file] for image in published_images)

    def to_sorted_boxes(images):
        return [(i.file, i.split, sorted((t.label, t.box) for t in i.boxes)) for i in images]

    assert to_sorted_boxes(master_images) == to_sorted_boxes(published_images)


def test_damaged_bccd_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    (tmp_path / "master.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="is damaged or cut short"):
        load("bccd")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/train.txt", "BloodImage_00000")
    (tmp_path / "master.zip").write_bytes(buffer.getvalue())
    with pytest.raises(UsageError, match="364 photographs with boxes, got 0"):
        load("bccd")
