"""Boxes of one's own, of BCCD and of the made set; what is wrong with them is told in one line."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from beside import has_public
from didact.data import boxes
from didact.data.core import SPLITS
from didact.data.load import load, reload
from didact.data.painting import distance
from didact.data.scatter import around, hides
from didact.data.spec import from_spec, spec
from didact.errors import UsageError

WIDTH, HEIGHT = 60, 40


def picture(path, box=None, size=(WIDTH, HEIGHT)):
    """Black, but white where the box is."""
    image = Image.new("RGB", size)
    if box:
        image.paste((255, 255, 255), box)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def place(i):
    """Whole pixels, so that white is where the box says."""
    return (3 * i, 2 * i, 3 * i + 20, 2 * i + 15)


def coco(root, n=10, images="images", name="annotations.json"):
    listed, marked = [], []
    for i in range(n):
        x1, y1, x2, y2 = place(i)
        picture(root / images / f"{i:02}.png", place(i))
        listed.append({"id": 100 + i, "file_name": f"{i:02}.png", "width": WIDTH, "height": HEIGHT})
        marked.append({"id": i, "image_id": 100 + i, "category_id": 7 if i % 2 else 3, "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": 0})
    content = {"images": listed, "annotations": marked, "categories": [{"id": 7, "name": "cat"}, {"id": 3, "name": "owl"}]}
    (root / name).write_text(json.dumps(content))
    return root


def change(root, **what):
    """The COCO file again with some lists changed by functions of the old ones."""
    content = json.loads((root / "annotations.json").read_text())
    for name, how in what.items():
        content[name] = how(content[name])
    (root / "annotations.json").write_text(json.dumps(content))


def voc(root, n=10):
    for i in range(n):
        picture(root / f"{i:02}.png", place(i))
        sides = "".join(f"<{side}>{v}</{side}>" for side, v in zip(("xmin", "ymin", "xmax", "ymax"), place(i), strict=True))
        thing = f"<object><name>{'cat' if i % 2 else 'owl'}</name><difficult>0</difficult><bndbox>{sides}</bndbox></object>"
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        (root / f"{i:02}.xml").write_text(f"<annotation><filename>other_{i}.jpg</filename>{size}{thing}</annotation>")
    return root


@pytest.mark.parametrize("make", [coco, voc])
def test_a_folder_of_ones_own(tmp_path, make):
    data = load(str(make(tmp_path / "birds")))
    assert (data.name, data.kind, data.task, data.labels) == ("birds", "boxes", "detection", ("cat", "owl"))
    assert data.shape == (3, 64, 64) and sum(len(data.split(s)) for s in SPLITS) == 10
    assert [sum(c) for c in zip(*data.counts.values(), strict=True)] == [5, 5]
    for part in SPLITS:
        split = data.split(part)
        batch = split.batch(torch.arange(len(split)))
        assert batch["box"].shape == (len(split), 1, 4) and batch["y"].dtype == torch.int64
        for i, x, box, y in zip(data.indices[part].tolist(), batch["x"], batch["box"][:, 0], batch["y"][:, 0], strict=True):
            assert_close(box, torch.tensor(place(i)) / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT]))
            assert data.labels[y] == ("cat" if i % 2 else "owl")
            rows, columns = (x[0] > 0.5).nonzero().float().unbind(1)            # the white pixels of the resized image
            edges = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 64
            assert_close(edges, box, atol=1.5 / 64, rtol=0)
    again = reload(data, data.indices)
    assert torch.equal(again.test.columns["box"], data.test.columns["box"]) and again.fingerprint == data.fingerprint
    assert load(str(tmp_path / "birds"), size=32).shape == (3, 32, 32)


def test_coco_and_voc_say_the_same(tmp_path):
    one, two = load(str(coco(tmp_path / "a"))), load(str(voc(tmp_path / "b")))
    assert torch.equal(one.train.columns["box"], two.train.columns["box"]) and torch.equal(one.train.columns["x"], two.train.columns["x"])


def test_the_split_of_the_folders(tmp_path):
    for part, n in (("train", 6), ("valid", 3), ("test", 4)):
        coco(tmp_path / part, n, images=".", name="_annotations.coco.json")
    data = load(str(tmp_path))
    assert [len(data.split(s)) for s in SPLITS] == [6, 3, 4]


@pytest.mark.parametrize("name", ["instances_val2017.json", "val.json", "test.json", "instances_train2017.json", "train.json"])
def test_one_split_alone_is_divided_like_a_set_without_splits(tmp_path, name):
    coco(tmp_path / "whole", 12)
    coco(tmp_path / "part", 12, name=name)
    whole, part = load(str(tmp_path / "whole")), load(str(tmp_path / "part"))
    assert sum(len(part.split(s)) for s in SPLITS) == 12 and all(len(part.split(s)) for s in SPLITS)
    if "train" not in name:
        assert all(torch.equal(part.indices[s], whole.indices[s]) for s in SPLITS) and part.fingerprint == whole.fingerprint


def test_files_named_after_their_split(tmp_path):
    coco(tmp_path, 8, name="instances_train2017.json")
    content = json.loads((tmp_path / "instances_train2017.json").read_text())
    for name, keep in (("instances_train2017.json", range(5)), ("instances_val2017.json", range(5, 8))):
        chosen = {100 + i for i in keep}
        kept = {
            **content, "images": [i for i in content["images"] if i["id"] in chosen],
            "annotations": [a for a in content["annotations"] if a["image_id"] in chosen],
        }
        (tmp_path / name).write_text(json.dumps(kept))
    data = load(str(tmp_path))
    assert len(data.validation) == 3 and len(data.train) + len(data.test) == 5


def test_other_json_is_none_of_ours(tmp_path):
    for label in ("cat", "owl"):
        for i in range(4):
            picture(tmp_path / label / f"{label}{i}.png", place(i + (label == "owl")))
    (tmp_path / "notes.json").write_text('{"author": "me"}')
    assert load(str(tmp_path)).kind == "images"


def test_what_is_clipped_or_left_out_is_said(tmp_path):
    coco(tmp_path)

    def spoil(marked):
        marked[0]["bbox"] = [-5, -5, 20, 15]
        marked[1]["bbox"] = [50, 30, 100, 100]
        marked[2]["bbox"] = [200, 200, 10, 10]
        marked[3]["bbox"] = [5, 5, 0, 10]
        return [*marked, {**marked[4], "iscrowd": 1}]

    change(tmp_path, annotations=spoil)
    data = load(str(tmp_path))
    notes = " | ".join(data.notes)
    assert "clipped where they reach beyond their image: 2 boxes of 00.png, 01.png" in notes
    assert "left out for lack of area inside their image: 2 boxes of 02.png, 03.png" in notes
    assert "nothing is shown on 2 images" in notes and "passed over: 1 crowd of 'owl'" in notes
    box = torch.cat([data.split(s).columns["box"] for s in SPLITS])[torch.cat([data.indices[s] for s in SPLITS]).argsort()]
    assert_close(box[0, 0], torch.tensor([0, 0, 15 / WIDTH, 10 / HEIGHT]))
    assert_close(box[1, 0], torch.tensor([50 / WIDTH, 30 / HEIGHT, 1, 1]))


def test_a_moved_box_is_another_set(tmp_path):
    first = load(str(coco(tmp_path)))
    change(tmp_path, annotations=replaced("bbox", [1, 2, 20, 15]))
    with pytest.raises(UsageError, match="has changed since the run split it"):
        reload(first, first.indices)


def replaced(key, value):
    return lambda rows: [{**rows[0], key: value}, *rows[1:]]


def cut_short(root):
    text = (root / "annotations.json").read_text()
    (root / "annotations.json").write_text(text[: len(text) // 2])


@pytest.mark.parametrize(("spoil", "words"), [
    (cut_short, r"annotations.json is not JSON \(.*\); export the annotations again"),
    (lambda r: (r / "annotations.json").write_text('{"images": 3}'), "is not in COCO's format"),
    (lambda r: (r / "annotations.json").write_text('["images"]'), "is not in COCO's format"),
    (lambda r: change(r, annotations=replaced("category_id", 99)), r"has a box of category 99 on 00.png, but its categories are 7 \(cat\)"),
    (lambda r: change(r, annotations=replaced("image_id", 1)), "has a box on image 1, which its images do not list"),
    (lambda r: change(r, annotations=replaced("bbox", [1, 2, 3])), r"a box is four numbers, got \[1, 2, 3\] of 00.png"),
    (lambda r: change(r, annotations=replaced("bbox", [1, 2, 3, float("nan")])), "a box is four numbers"),
    (lambda r: change(r, annotations=replaced("bbox", None)), "a box is four numbers, got None"),
    (lambda r: change(r, annotations=replaced("bbox", [1, 2, 3, 10**400])), r"a box is four numbers, got \[1, 2, 3, 10*… of 00.png"),
    (lambda r: (r / "annotations.json").write_text('{"images": 1' + 5000 * "0" + "}"), r"annotations.json is not JSON"),
    (lambda r: change(r, annotations=lambda rows: []), "hold no box on 10 images: there is nothing to learn"),
    (lambda r: change(r, images=lambda rows: [], annotations=lambda rows: []), "list no image"),
    (lambda r: change(r, images=replaced("file_name", "lost.png")), "lists the image lost.png, which is not there"),
    (lambda r: change(r, images=replaced("width", 640)), "00.png is 60×40 pixels, but its annotations are for 640×40"),
    (lambda r: change(r, images=lambda rows: [*rows, {**rows[0], "id": 5}]), "annotated twice: .*00.png"),
    (lambda r: (r / "images" / "00.png").write_bytes(b"no image"), "00.png cannot be read"),
    (lambda r: (r / "x.xml").write_text("<annotation></annotation>"), "keep one kind of annotations"),
])
def test_what_is_wrong_with_coco(tmp_path, spoil, words):
    spoil(coco(tmp_path))
    with pytest.raises(UsageError, match=words) as told:
        load(str(tmp_path))
    assert "\n" not in str(told.value)


def edited(old, new):
    def spoil(root):
        path = root / "00.xml"
        path.write_text(path.read_text().replace(old, new))
    return spoil


@pytest.mark.parametrize(("spoil", "words"), [
    (edited("</annotation>", ""), r"00.xml is not XML \(.*\); export"),
    (edited("<name>owl</name>", ""), "has an <object> without <name> or <bndbox>"),
    (edited("<xmin>0</xmin>", ""), r"a box is four numbers, got \[None, '0', '20', '15'\] of owl"),
    (edited("<ymax>15<", "<ymax>low<"), "a box is four numbers"),
    (edited("<width>60<", "<width>600<"), "00.png is 60×40 pixels, but its annotations are for 600×40"),
    (lambda r: (r / "00.png").unlink(), "00.xml lists the image other_0.jpg, which is not there"),
    (lambda r: [(r / f"{i:02}.xml").unlink() for i in range(8)], "holds 2 examples, but three splits need at least 3"),
])
def test_what_is_wrong_with_voc(tmp_path, spoil, words):
    spoil(voc(tmp_path))
    with pytest.raises(UsageError, match=words) as told:
        load(str(tmp_path))
    assert "\n" not in str(told.value)


def test_too_large_for_memory(tmp_path, monkeypatch):
    coco(tmp_path)
    whole = load(str(tmp_path))
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "100")
    monkeypatch.setattr(boxes.os, "cpu_count", lambda: 0)
    data = load(str(tmp_path))
    assert any("read while learning" in note for note in data.notes) and data.fingerprint == whole.fingerprint
    index = torch.arange(len(data.train))
    for name in ("x", "y", "box"):
        assert torch.equal(data.train.batch(index)[name], whole.train.batch(index)[name])


def test_new_images_keep_their_size_in_mind(tmp_path):
    picture(tmp_path / "wide.png", size=(123, 45))
    turned = Image.new("RGB", (50, 20))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    encoder = from_spec(spec(load(str(coco(tmp_path / "a"))))).encoder
    names, columns = encoder.read([str(tmp_path / "wide.png"), str(tmp_path / "turned.jpg")])
    assert columns["x"].shape == (2, 3, 64, 64) and columns["size"].tolist() == [[123, 45], [20, 50]]
    assert [os.path.basename(name) for name in names] == ["wide.png", "turned.jpg"]


def test_scatter_is_exact():
    data = load("scatter")
    assert (data.kind, data.task, data.shape) == ("boxes", "detection", (3, 64, 64))
    assert [len(data.split(s)) for s in SPLITS] == [1440, 160, 400]
    assert data.fingerprint == load("scatter", seed=1).fingerprint                 # the seed splits, it does not draw
    for part in SPLITS:
        y, box = data.split(part).columns["y"], data.split(part).columns["box"]
        assert ((y >= 0).sum(1) >= 1).all() and (box[y < 0] == 0).all() and box.min() >= 0 and box.max() <= 1
        sides = (box[..., 2:] - box[..., :2])[y >= 0]
        assert sides.min() > 0.15 and sides.max() < 0.6
    assert all(count > 70 for part in SPLITS for count in data.counts[part])


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_box_touches_its_shape_on_all_sides(kind):
    """The pixels whose centres lie inside, from `distance`, against corners in closed form: less than a pixel apart."""
    rng = np.random.default_rng(0)
    n = 50
    across, down, radius, angle = (rng.uniform(a, b, n) for a, b in ((20, 44), (20, 44), (7, 15), (0, 2 * np.pi)))
    kinds = np.full(n, kind)
    box, inside = around(kinds, across, down, radius, angle), distance(kinds, across, down, radius, angle, 64) < 0
    for b, shape in zip(box, inside, strict=True):
        rows, columns = np.nonzero(shape)
        seen = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        assert (abs(b - seen) < (1.0 if kind == 0 else 2.0)).all()                 # a sharp corner holds no pixel's centre
        assert (b[:2] <= seen[:2] + 0.5).all() and (b[2:] >= seen[2:] - 0.5).all()  # and no pixel's centre lies outside


def test_hiding():
    box = np.array([[0.0, 0, 10, 10]])
    assert hides(box, np.array([[[9.0, 0, 19, 10]]])).tolist() == [False] and hides(box, np.array([[[8.0, 0, 18, 10]]])).tolist() == [True]
    assert hides(box, np.zeros((1, 3, 4))).tolist() == [False] and hides(box, np.zeros((1, 0, 4))).tolist() == [False]


@pytest.mark.skipif(not has_public("bccd"), reason="DIDACT_DATA holds no bccd")
def test_blood_cells(tmp_path, monkeypatch):
    data, (photographs, found) = load("bccd"), boxes.blood()
    assert data.shape == (3, 240, 320) and data.labels == ("RBC", "WBC", "Platelets")
    assert [len(data.split(s)) for s in SPLITS] == [205, 87, 72]
    assert [sum(c) for c in zip(*data.counts.values(), strict=True)] == [4153, 372, 361]   # 4,155 red cells, of which two have no area
    # the same boxes from the XML files that its home page has
    photos, annotations = (os.path.join(os.environ["DIDACT_DATA"], "bccd", f"bccd_{name}.zip") for name in ("images", "voc_xml"))
    if not os.path.isfile(annotations):
        return
    with zipfile.ZipFile(photos) as images, zipfile.ZipFile(annotations) as xml, zipfile.ZipFile(tmp_path / "master.zip", "w") as home:
        for archive, folder in ((images, "JPEGImages"), (xml, "Annotations")):
            for name in archive.namelist():
                home.writestr(f"BCCD_Dataset-master/BCCD/{folder}/{name}", archive.read(name))
        names = sorted(name[:-4] for name in images.namelist())
        for part, word in zip(SPLITS, ("train", "val", "test"), strict=True):
            lines = "\n".join(names[i] for i in data.indices[part].tolist())
            home.writestr(f"BCCD_Dataset-master/BCCD/ImageSets/Main/{word}.txt", lines)
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "cache"))
    theirs, marked = boxes.blood()
    assert all(theirs[image.file] == photographs[image.file] for image in found)
    plain = lambda images: [(i.file, i.part, sorted((t.label, t.box) for t in i.things)) for i in images]  # noqa: E731
    assert plain(marked) == plain(found)


def test_damaged_blood(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    (tmp_path / "master.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="is damaged or cut short"):
        load("bccd")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("a/train.txt", "BloodImage_00000")
    (tmp_path / "master.zip").write_bytes(raw.getvalue())
    with pytest.raises(UsageError, match="364 photographs with boxes, got 0"):
        load("bccd")
