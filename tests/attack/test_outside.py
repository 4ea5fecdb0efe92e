"""A data set's folder reads nothing from outside of itself, however its annotations or links name it."""

import json
from pathlib import Path

import pytest
from PIL import Image

from didact.data.load import load
from didact.errors import UsageError


def paint(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 16), value).save(path)
    return path


def coco(root, last="5.png"):
    names = [*(f"{i}.png" for i in range(5)), last]
    for name in {*names[:5], "5.png"}:
        paint(root / "images" / name)
    content = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names)], "categories": [{"id": 1, "name": "a"}],
        "annotations": [{"image_id": i, "category_id": 1, "bbox": [1, 2, 5, 6]} for i in range(6)],
    }
    (root / "a.json").write_text(json.dumps(content))
    return root / "images" / "5.png"


def voc(root, last="5.png"):
    for i in range(6):
        name = last if i == 5 else f"{i}.png"
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>8</xmax><ymax>9</ymax></bndbox>"
        where = paint(root / "JPEGImages" / f"{i}.png").parent.parent
        (where / f"{i}_.xml").write_text(f"<annotation><filename>{name}</filename><object><name>a</name>{box}</object></annotation>")
    return root / "JPEGImages" / "5.png"


def masks(root):
    for i in range(6):
        paint(root / "images" / f"{i}.png")
        Image.frombytes("L", (16, 16), bytes(k % 2 for k in range(256))).save(paint(root / "masks" / f"{i}.png"))
    (root / "classes.txt").write_text("no\nyes\n")
    return root / "images" / "5.png"


def classes(root):
    return [paint(root / label / f"{i}.png", 9 * i) for label in "ab" for i in range(6)][-1]


def loose(root):
    return [paint(root / f"{i}.png") for i in range(12)][-1]


def texts(root):
    root.mkdir(parents=True, exist_ok=True)
    for i in range(3):
        (root / f"{i}.txt").write_text("the cat sat on the mat and saw a dog\n" * 50)
    return root / "2.txt"


KINDS = {make.__name__: make for make in (coco, voc, masks, classes, loose, texts)}


def refusal(root):
    with pytest.raises(UsageError) as error:
        load(str(root))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_that_leads_outside_is_refused_and_one_inside_is_read(tmp_path, kind):
    root = tmp_path / "set"
    file = KINDS[kind](root)
    before = load(str(root)).fingerprint
    (root / ".kept").mkdir()
    file.symlink_to(kept := file.rename(root / ".kept" / "5"))
    assert load(str(root)).fingerprint == before
    file.unlink()
    file.symlink_to(kept.rename(tmp_path / f"secret{file.suffix}"))
    said = refusal(root)
    assert "lies outside of" in said and "secret" in said and "copy it into the folder" in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_itself_may_be_a_link(tmp_path, kind):
    KINDS[kind](tmp_path / "elsewhere" / "set")
    (tmp_path / "set").symlink_to(tmp_path / "elsewhere" / "set")
    load(str(tmp_path / "set"))


@pytest.mark.parametrize("kind", ["masks", "classes"])
def test_a_folder_inside_that_is_a_link_to_the_outside_is_refused(tmp_path, kind):
    folder = KINDS[kind](tmp_path / "set").parent
    folder.symlink_to(folder.rename(tmp_path / "secret"))
    assert "lies outside of" in refusal(tmp_path / "set")


@pytest.mark.parametrize("kind", [coco, voc])
@pytest.mark.parametrize("name", ["../secret.png", "../../secret.png", "{absolute}"])
def test_an_image_that_annotations_name_outside_of_the_folder_is_refused(tmp_path, kind, name):
    paint(tmp_path / "secret.png")
    kind(tmp_path / "set", name.format(absolute=tmp_path / "secret.png"))
    said = refusal(tmp_path / "set")
    assert "lies outside of" in said and "secret.png" in said


def test_annotations_and_names_of_classes_are_not_read_through_links_either(tmp_path):
    for kind, name in ((coco, "a.json"), (masks, "classes.txt")):
        root = tmp_path / kind.__name__
        kind(root)
        (root / name).symlink_to((root / name).rename(tmp_path / Path(name).name))
        assert "lies outside of" in refusal(root)


def test_coco_names_may_climb_as_long_as_they_stay_inside(tmp_path):
    coco(tmp_path, "../images/5.png")
    assert load(str(tmp_path)).kind == "boxes"
