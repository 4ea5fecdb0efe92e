import io
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.core import IGNORE_LABEL, SPLITS
from didact.data.datasets.synthetic.draw_shapes import signed_distance
from didact.data.images import masks
from didact.data.load import load, reload_data
from didact.errors import UsageError
from helpers.public_data import has_public_data


def write_pair(root, name, values, *, image="jpg", mask="png", size=None):
    """An image whose red is the class, and its mask."""
    for subfolder in ("images", "masks"):
        (root / subfolder).mkdir(parents=True, exist_ok=True)
    values = np.asarray(values, np.uint8)
    color = np.stack([values * 50, np.full_like(values, 90), np.full_like(values, 10)], -1)
    Image.fromarray(color).save(root / "images" / f"{name}.{image}")
    Image.fromarray(values if size is None else np.zeros(size, np.uint8)).save(root / "masks" / f"{name}.{mask}")


def write_pairs(root, n=10, side=16, classes=(0, 1, 2)):
    for i in range(n):
        rng = np.random.default_rng(i)
        write_pair(root, f"{i:02}", np.kron(rng.choice(classes, (side // 8, side // 8)), np.ones((8, 8))), image="png")
    return root


def test_load_segmentation_folder_reads_images_and_masks(tmp_path):
    data = load(str(write_pairs(tmp_path / "streets")))
    assert (data.name, data.kind, data.task, data.class_names) == ("streets", "masks", "segmentation", ("0", "1", "2"))
    assert data.shape == (3, 16, 16) and sum(len(data.split(s)) for s in SPLITS) == 10
    for part in SPLITS:
        batch = data.split(part).batch(torch.arange(len(data.split(part))))
        torch.testing.assert_close(batch["x"][:, 0] * 255, 50.0 * batch["y"])       # every pixel has its own class
        assert sum(data.class_counts[part]) == batch["y"].numel()
    reloaded_data = reload_data(data, data.indices)
    assert torch.equal(reloaded_data.test.columns["y"],
        data.test.columns["y"]) and reloaded_data.fingerprint == data.fingerprint


def test_masks_are_resized_by_the_nearest_pixel(tmp_path):
    write_pairs(tmp_path, side=40, classes=(0, 2))
    data = load(str(tmp_path))
    assert data.shape == (3, 48, 48)                                                # the next multiple of 16
    assert data.class_names == ("0", "2") and set(data.train.columns["y"].unique().tolist()) == {0, 1}
    small_data = load(str(tmp_path), size=20)
    assert small_data.shape == (3, 20, 20)
    values = torch.arange(12).reshape(3, 4)
    assert masks.resize_mask_to_side(values, 2).tolist() == [[1, 3], [9, 11]]
    assert torch.equal(masks.resize_mask_to_side(torch.arange(36).reshape(6, 6), 6), torch.arange(36).reshape(6, 6))


def test_mask_class_names_default_and_from_classes_txt(tmp_path):
    write_pairs(tmp_path / "two", classes=(0, 255))
    assert load(str(tmp_path / "two")).class_names == ("background", "foreground")
    write_pairs(tmp_path / "named")
    (tmp_path / "named" / "classes.txt").write_text("sky\nroad\ncar\nnever\n")
    data = load(str(tmp_path / "named"))
    assert data.class_names == ("sky", "road", "car", "never") and data.class_counts["train"][3] == 0


@pytest.mark.parametrize(("values", "has_names", "class_names", "has_ignored"), [
    ((0, 1, 2, 255), False, ("0", "1", "2"), True), ((0, 1, 255), False, ("background", "foreground"), True),
    ((0, 1, 255), True, ("sky", "road"), True), ((0, 255), False, ("background", "foreground"), False),
    ((0, 128, 255), False, ("0", "128", "255"), False), ((1, 2, 255), False, ("1", "2", "255"), False),
])
def test_mask_value_255_beside_classes_is_ignored(tmp_path, values, has_names, class_names, has_ignored):
    """VOC's void; with 0 alone, or with shades, it is a class."""
    write_pairs(tmp_path, n=12, classes=values)
    if has_names:
        (tmp_path / "classes.txt").write_text("sky\nroad\n")
    data = load(str(tmp_path))
    y = torch.cat([data.split(part).columns["y"] for part in SPLITS])
    assert data.class_names == class_names and bool((y == IGNORE_LABEL).any()) == has_ignored
    assert set(y.unique().tolist()) - {IGNORE_LABEL} == set(range(len(class_names)))
    assert all(len(data.class_counts[part]) == len(class_names) for part in SPLITS)
    assert sum(map(sum, data.class_counts.values())) == int((y != IGNORE_LABEL).sum())
    assert any("255, of no class" in note for note in data.notes) == has_ignored


def test_lossless_jpeg_is_read_as_a_mask(tmp_path):
    """Squares of 8 × 8, JPEG's blocks: their values are exact."""
    write_pairs(tmp_path, classes=(0, 255))
    for file in (tmp_path / "masks").iterdir():
        Image.open(file).save(file.with_suffix(".jpg"), quality=100)
        file.unlink()
    assert load(str(tmp_path)).class_names == ("background", "foreground")


def move_into_splits(root, layout, split_names):
    """The pairs of a flat folder into folders of splits; those of part "" stay where they are."""
    for i, split_name in enumerate(split_names):
        for subfolder in ("images", "masks") if split_name else ():
            to = root / (f"{subfolder}/{split_name}" if layout == "inside" else f"{split_name}/{subfolder}")
            to.mkdir(parents=True, exist_ok=True)
            # names may repeat in another split
            (root / subfolder / f"{i:02}.png").rename(to / f"{i % 3}.png")
    if layout == "around":
        for subfolder in ("images", "masks"):
            (root / subfolder).rmdir()
    return root


@pytest.mark.parametrize("layout", ["inside", "around"])
def test_split_folders_of_segmentation_set_are_kept(tmp_path, layout):
    flat_data = load(str(write_pairs(tmp_path / "flat", n=9)))
    assert not any("split by" in note for note in flat_data.notes)
    data = load(
        str(move_into_splits(write_pairs(tmp_path / "own", n=9), layout, ["train"] * 3 + ["val"] * 3 + ["Test"] * 3))
    )
    assert "split by the folders test, train, validation; what has no folder is taken from train" in data.notes
    all_masks = torch.cat([flat_data.split(part).columns["y"] for part in SPLITS])[
        torch.cat([flat_data.indices[part] for part in SPLITS]).argsort()
    ]
    for k, part in enumerate(SPLITS):
        batch = data.split(part).batch(torch.arange(3))
        assert torch.equal(batch["y"], all_masks[3 * k : 3 * k + 3].long())
        torch.testing.assert_close(batch["x"][:, 0] * 255, 50.0 * batch["y"])
    reloaded_data = reload_data(data, data.indices)
    assert (
        torch.equal(reloaded_data.test.columns["y"], data.test.columns["y"])
        and reloaded_data.fingerprint == data.fingerprint
    )


def test_partial_split_folders_are_completed(tmp_path):
    root = move_into_splits(write_pairs(tmp_path / "own", n=30), "inside", ["train"] * 3 + ["val"] * 3)
    for i in range(6, 26):
        for subfolder in ("images", "masks"):
            (root / subfolder / f"{i:02}.png").rename(root / subfolder / "train" / f"{i:02}.png")
    data = load(str(root))
    assert len(data.validation) == 3 and len(data.train) + len(data.test) == 23 and len(data.test) >= 2
    assert "left out: 4 images outside the folders train, validation" in data.notes
    for subfolder in ("images", "masks"):
        # without train, val is but a folder
        (root / subfolder / "train").rename(root / subfolder / "rainy")
    assert sum(len(load(str(root)).split(part)) for part in SPLITS) == 30
    (root / "masks" / "val" / "0.png").unlink()
    with pytest.raises(UsageError, match=r"1 images of .* have no file of that name in masks/: val/0; add or delete"):
        load(str(root))


def test_notes_count_images_of_each_class(tmp_path):
    write_pairs(tmp_path, classes=(1, 2))
    mask = np.full((16, 16), 2)
    mask[3, 5] = 7
    write_pair(tmp_path, "99", mask, image="png")
    image_counts = {
        k: sum(bool((np.asarray(Image.open(f)) == k).any()) for f in (tmp_path / "masks").iterdir()) for k in (1, 2)
    }
    order = ", ".join(f"{k} on {n}" for k, n in sorted(image_counts.items(), key=lambda each: each[1]))
    assert any(
        note.endswith(f"images that show each, the rarest first: 7 on 1, {order}") for note in load(str(tmp_path)).notes
    )
    (tmp_path / "classes.txt").write_text("\n".join("abcdefgh"))
    assert not any("no classes.txt" in note for note in load(str(tmp_path)).notes)


def test_images_of_a_fitting_size_are_not_resized(tmp_path):
    notes = load(str(write_pairs(tmp_path / "fit"))).notes
    assert "images of 16×16, in color" in notes
    assert (
        "images of 24×24 are resized to 32×32, in color" in load(str(write_pairs(tmp_path / "unfit", side=24))).notes
    )


def test_palette_masks_are_read_as_indices(tmp_path):
    write_pairs(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        palette_mask = Image.fromarray(np.asarray(Image.open(file)))
        palette_mask.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200] + [0] * 759)
        assert palette_mask.mode == "P"
        palette_mask.save(file)
    assert load(str(tmp_path)).class_names == ("0", "1", "2")


def test_segmentation_set_too_large_for_memory_is_read_from_files(tmp_path, monkeypatch):
    write_pairs(tmp_path)
    resident_data = load(str(tmp_path))
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "100")
    monkeypatch.setattr(masks.os, "cpu_count", lambda: 0)
    data = load(str(tmp_path))
    assert any("read during training" in note for note in data.notes)
    index = torch.arange(len(data.train))
    assert torch.equal(data.train.batch(index)["x"], resident_data.train.batch(index)["x"])
    assert torch.equal(data.train.batch(index)["y"], resident_data.train.batch(index)["y"])


def delete_mask(root):
    (root / "masks" / "03.png").unlink()


def delete_image(root):
    (root / "images" / "03.png").unlink()


def resize_mask(root):
    write_pair(root, "03", np.zeros((16, 16)), image="png", size=(16, 20))


def write_color_mask(root):
    Image.new("RGB", (16, 16)).save(root / "masks" / "03.png")


def write_transparent_mask(root):
    Image.new("LA", (16, 16)).save(root / "masks" / "03.png")


def write_jpeg_mask(root):
    (root / "masks" / "03.png").unlink()
    disc = np.hypot(*np.mgrid[-8:8, -8:8]) < 6
    Image.fromarray(np.where(disc, 255, 0).astype(np.uint8)).save(root / "masks" / "03.jpg", quality=95)


def write_too_few_names(root):
    (root / "classes.txt").write_text("a\nb\n")


def write_gradient_masks(root):
    for i in range(10):
        write_pair(root, f"{i:02}", np.arange(256).reshape(16, 16), image="png")


def write_constant_masks(root):
    for i in range(10):
        write_pair(root, f"{i:02}", np.zeros((16, 16)), image="png")


def truncate_mask(root):
    content = (root / "masks" / "03.png").read_bytes()
    (root / "masks" / "03.png").write_bytes(content[: len(content) // 2])


def write_names_with_a_gap(root):
    (root / "classes.txt").write_text("sky\n\nroad\ncar\n\n")


def delete_all_files(root):
    for subfolder in ("images", "masks"):
        for file in (root / subfolder).iterdir():
            file.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (delete_mask, "1 images of .* have no file of that name in masks/: 03; add or delete"),
        (delete_image, "1 masks of .* have no file of that name in images/: 03"),
        (resize_mask, r"the mask .*03.png is 20×16 pixels, but its image .*03.png is 16×16; make them equal"),
        (
            write_color_mask,
            r"the mask .*03.png is in color \(RGB\): expected gray or a palette, whose values are the classes; save "
            r"it so",
        ),
        (write_transparent_mask, r"the mask .*03.png has no whole numbers in one channel \(LA\)"),
        (
            write_jpeg_mask,
            r"the mask .*03.jpg is a JPEG and holds \d+ values: JPEG blurs class numbers; save masks as PNG",
        ),
        (write_too_few_names, r"holds class 2, but .*classes.txt names 2: 0 to 1"),
        (
            write_names_with_a_gap,
            r"line 2 of .*classes.txt is empty, but names the value 1 of the masks; write its name, or delete the line",
        ),
        (write_gradient_masks, "hold 256 values: shades"),
        (write_constant_masks, "hold only the value 0: segmentation needs at least two classes"),
        (truncate_mask, "03.png cannot be read"),
        (delete_all_files, "images holds no image"),
    ],
)
def test_bad_masks_are_refused_in_one_line(tmp_path, spoil, message):
    spoil(write_pairs(tmp_path))
    with pytest.raises(UsageError, match=message) as error:
        load(str(tmp_path))
    assert "\n" not in str(error.value)


def test_image_rotated_by_exif_matches_its_mask(tmp_path):
    write_pairs(tmp_path)
    mask = np.zeros((24, 16), np.uint8)
    mask[:12] = 1
    image = Image.fromarray(np.stack([np.rot90(mask) * 50] * 3, -1))                # stored on its side, 24 × 16 …
    exif = image.getexif()
    # … with the EXIF orientation of a clockwise quarter turn
    exif[0x0112] = 6
    image.save(tmp_path / "images" / "99.jpg", exif=exif, quality=100)
    Image.fromarray(mask).save(tmp_path / "masks" / "99.png")
    data = load(str(tmp_path))
    (part, row), = [(p, int((data.indices[p] == 10).nonzero()[0, 0])) for p in SPLITS if (data.indices[p] == 10).any()]
    batch = data.split(part).batch(torch.tensor([row]))
    assert ((batch["x"][0, 0] * 255 > 25).long() == batch["y"][0]).float().mean() > 0.9


@pytest.mark.parametrize(
    ("name", "mode", "size"),
    [
        ("cmyk.jpg", "CMYK", (16, 16)),
        ("deep.png", "I;16", (16, 16)),
        ("moving.gif", "P", (16, 16)),
        ("clear.png", "RGBA", (16, 16)),
        ("one.png", "RGB", (1, 1)),
        ("wide.png", "L", (10_000, 10)),
        ("tall.png", "RGB", (10, 10_000)),
    ],
)
def test_images_of_every_mode_and_size_have_masks(tmp_path, name, mode, size):
    write_pairs(tmp_path)
    image = Image.new("RGB", size, (0, 200, 0)).convert("L" if mode in ("I;16", "P") else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) << 8)
    save_options = {"save_all": True, "append_images": [Image.new("L", size)]} if mode == "P" else {}
    image.save(tmp_path / "images" / name, **save_options)
    Image.new("L", size, 2).save(tmp_path / "masks" / f"{name[:-4]}.png")
    data = load(str(tmp_path))
    row = {p: (data.indices[p] == 10).nonzero() for p in SPLITS}                     # letters come after digits
    part = next(p for p in SPLITS if len(row[p]))
    batch = data.split(part).batch(row[part][0])
    assert data.shape == (3, 16, 16) and (batch["y"] == 2).all()
    assert batch["x"][0, 1].min() > 0.4


def test_truncated_image_is_named(tmp_path):
    write_pairs(tmp_path)
    file = tmp_path / "images" / "03.png"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(UsageError, match=r"the image .*03.png cannot be read \(.*\): replace it or leave it out"):
        load(str(tmp_path))


def test_16_bit_masks_are_read(tmp_path):
    write_pairs(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        Image.fromarray(np.asarray(Image.open(file)).astype(np.uint16) * 1000).save(file)
    assert load(str(tmp_path)).class_names == ("0", "1000", "2000")


def test_segmentation_shapes_have_known_splits_and_counts():
    data = load("shapes")
    assert (data.kind, data.task, data.shape) == ("masks", "segmentation", (3, 48, 48))
    assert [len(data.split(s)) for s in SPLITS] == [900, 100, 200]
    assert data.indices["test"].tolist() == list(range(1000, 1200))
    assert all(count > 10_000 for part in SPLITS for count in data.class_counts[part])
    assert data.fingerprint == load("shapes", seed=1).fingerprint                  # the seed is that of the split
    assert data.duplicates == {"validation": 0, "test": 0}


@pytest.mark.parametrize(("kind", "area"), [(0, np.pi), (1, 1.7**2), (2, 0.6**2 * 3 * 3**0.5)])
@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0])
def test_signed_distance_gives_the_area_of_shapes(kind, area, angle):
    """pi r², (1.7 r)², and 3 sqrt(3) times the inner radius squared, at any rotation."""
    make_array = lambda value: np.array([value])  # noqa: E731
    distances = signed_distance(
        make_array(kind), make_array(24.0), make_array(24.0), make_array(14.0), make_array(angle), 48
    )
    assert (distances < 0).sum() == pytest.approx(area * 14**2, rel=0.04)
    assert distances[0, 23:25, 23:25].max() < 0


@pytest.mark.skipif(not has_public_data("pennfudan"), reason="DIDACT_DATA holds no pennfudan")
def test_pennfudan_has_its_published_splits():
    data = load("pennfudan")
    assert data.shape == (3, 192, 192) and data.class_names == ("street", "pedestrian")
    assert [len(data.split(s)) for s in SPLITS] == [120, 16, 34]
    assert data.indices["test"].tolist() == [*range(59, 74), *range(74 + 77, 170)]
    # bounding boxes of standing people, a fifth of the area
    assert 0.1 < data.class_counts["test"][1] / sum(data.class_counts["test"]) < 0.3


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_pennfudan_zip_of_the_home_page_is_read(tmp_path, monkeypatch):
    """PennFudanPed.zip of the home page: photographs are PNG in folders of their own."""
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    (tmp_path / "pennfudan").mkdir()
    photo, mask = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (30, 20), (9, 9, 9)).save(photo, "png")
    stripe = Image.new("L", (30, 20))
    stripe.paste(3, (0, 0, 15, 20))
    stripe.save(mask, "png")
    names = [f"FudanPed{i:05}" for i in range(1, 75)] + [f"PennPed{i:05}" for i in range(1, 97)]
    files = {f"PennFudanPed/PNGImages/{n}.png": photo.getvalue() for n in names}
    files |= {f"PennFudanPed/PedMasks/{n}_mask.png": mask.getvalue() for n in names}
    monkeypatch.setattr(masks, "PENNFUDAN_SIDE", 16)
    write_zip(tmp_path / "pennfudan" / "PennFudanPed.zip", files)
    data = load("pennfudan")
    assert data.train.columns["y"][0].float().mean() == 0.5 and len(data.test) == 34
    files.popitem()
    write_zip(tmp_path / "pennfudan" / "PennFudanPed.zip", files)
    with pytest.raises(UsageError, match="170 photographs with masks, got 169"):
        load("pennfudan")
    (tmp_path / "pennfudan" / "PennFudanPed.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="is damaged or cut short"):
        load("pennfudan")
