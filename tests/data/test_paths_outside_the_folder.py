"""A dataset's folder reads nothing from outside of itself, whatever its annotations or links name."""

import json
from pathlib import Path

import pytest
from PIL import Image

from didact.data.load import load
from didact.errors import UsageError


def write_image(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 16), value).save(path)
    return path


def coco(root, last_name="5.png"):
    names = [*(f"{i}.png" for i in range(5)), last_name]
    for name in {*names[:5], "5.png"}:
        write_image(root / "images" / name)
    content = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names)],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [{"image_id": i, "category_id": 1, "bbox": [1, 2, 5, 6]} for i in range(6)],
    }
    (root / "a.json").write_text(json.dumps(content))
    return root / "images" / "5.png"


def voc(root, last_name="5.png"):
    for i in range(6):
        name = last_name if i == 5 else f"{i}.png"
        box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>8</xmax><ymax>9</ymax></bndbox>"
        folder = write_image(root / "JPEGImages" / f"{i}.png").parent.parent
        (folder / f"{i}_.xml").write_text(
            f"<annotation><filename>{name}</filename><object><name>a</name>{box}</object></annotation>"
        )
    return root / "JPEGImages" / "5.png"


def masks(root):
    for i in range(6):
        write_image(root / "images" / f"{i}.png")
        Image.frombytes("L", (16, 16), bytes(k % 2 for k in range(256))).save(write_image(root / "masks" / f"{i}.png"))
    (root / "classes.txt").write_text("no\nyes\n")
    return root / "images" / "5.png"


def classes(root):
    return [write_image(root / label / f"{i}.png", 9 * i) for label in "ab" for i in range(6)][-1]


def loose(root):
    return [write_image(root / f"{i}.png") for i in range(12)][-1]


def texts(root):
    root.mkdir(parents=True, exist_ok=True)
    for i in range(3):
        (root / f"{i}.txt").write_text("the cat sat on the mat and saw a dog\n" * 50)
    return root / "2.txt"


FOLDER_WRITERS = {make.__name__: make for make in (coco, voc, masks, classes, loose, texts)}


def get_load_error(root):
    with pytest.raises(UsageError) as error:
        load(str(root))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", FOLDER_WRITERS)
def test_symlink_out_of_the_folder_is_refused_and_one_inside_is_read(tmp_path, kind):
    root = tmp_path / "set"
    file = FOLDER_WRITERS[kind](root)
    old_fingerprint = load(str(root)).fingerprint
    (root / ".kept").mkdir()
    file.symlink_to(link_target := file.rename(root / ".kept" / "5"))
    assert load(str(root)).fingerprint == old_fingerprint
    file.unlink()
    file.symlink_to(link_target.rename(tmp_path / f"secret{file.suffix}"))
    message = get_load_error(root)
    assert "lies outside of" in message and "secret" in message and "copy it into the folder" in message


@pytest.mark.parametrize("kind", FOLDER_WRITERS)
def test_dataset_folder_may_be_a_symlink(tmp_path, kind):
    FOLDER_WRITERS[kind](tmp_path / "elsewhere" / "set")
    (tmp_path / "set").symlink_to(tmp_path / "elsewhere" / "set")
    load(str(tmp_path / "set"))


@pytest.mark.parametrize("kind", ["masks", "classes"])
def test_subfolder_symlinked_to_the_outside_is_refused(tmp_path, kind):
    folder = FOLDER_WRITERS[kind](tmp_path / "set").parent
    folder.symlink_to(folder.rename(tmp_path / "secret"))
    assert "lies outside of" in get_load_error(tmp_path / "set")


@pytest.mark.parametrize("kind", [coco, voc])
@pytest.mark.parametrize("name", ["../secret.png", "../../secret.png", "{absolute}"])
def test_annotated_image_outside_the_folder_is_refused(tmp_path, kind, name):
    write_image(tmp_path / "secret.png")
    kind(tmp_path / "set", name.format(absolute=tmp_path / "secret.png"))
    message = get_load_error(tmp_path / "set")
    assert "lies outside of" in message and "secret.png" in message


def test_annotations_and_class_names_are_not_read_through_symlinks(tmp_path):
    for kind, name in ((coco, "a.json"), (masks, "classes.txt")):
        root = tmp_path / kind.__name__
        kind(root)
        (root / name).symlink_to((root / name).rename(tmp_path / Path(name).name))
        assert "lies outside of" in get_load_error(root)


def test_coco_file_names_may_use_dotdot_inside_the_folder(tmp_path):
    coco(tmp_path, "../images/5.png")
    assert load(str(tmp_path)).kind == "boxes"
