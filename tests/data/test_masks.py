import io
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from beside import has_public
from didact.data import masks
from didact.data.core import SPLITS, VOID
from didact.data.load import load, reload
from didact.data.painting import distance
from didact.errors import UsageError


def paint(root, name, values, *, image="jpg", mask="png", size=None):
    """An image whose red says the class, and its mask."""
    for part in ("images", "masks"):
        (root / part).mkdir(parents=True, exist_ok=True)
    values = np.asarray(values, np.uint8)
    colour = np.stack([values * 50, np.full_like(values, 90), np.full_like(values, 10)], -1)
    Image.fromarray(colour).save(root / "images" / f"{name}.{image}")
    Image.fromarray(values if size is None else np.zeros(size, np.uint8)).save(root / "masks" / f"{name}.{mask}")


def make(root, n=10, side=16, classes=(0, 1, 2)):
    for i in range(n):
        rng = np.random.default_rng(i)
        paint(root, f"{i:02}", np.kron(rng.choice(classes, (side // 8, side // 8)), np.ones((8, 8))), image="png")
    return root


def test_a_folder_of_ones_own(tmp_path):
    data = load(str(make(tmp_path / "streets")))
    assert (data.name, data.kind, data.task, data.labels) == ("streets", "masks", "segmentation", ("0", "1", "2"))
    assert data.shape == (3, 16, 16) and sum(len(data.split(s)) for s in SPLITS) == 10
    for part in SPLITS:
        batch = data.split(part).batch(torch.arange(len(data.split(part))))
        torch.testing.assert_close(batch["x"][:, 0] * 255, 50.0 * batch["y"])       # every pixel has its own class
        assert sum(data.counts[part]) == batch["y"].numel()
    again = reload(data, data.indices)
    assert torch.equal(again.test.columns["y"], data.test.columns["y"]) and again.fingerprint == data.fingerprint


def test_resized_by_the_nearest_pixel(tmp_path):
    make(tmp_path, side=40, classes=(0, 2))
    data = load(str(tmp_path))
    assert data.shape == (3, 48, 48)                                                # the next multiple of 16
    assert data.labels == ("0", "2") and set(data.train.columns["y"].unique().tolist()) == {0, 1}
    small = load(str(tmp_path), size=20)
    assert small.shape == (3, 20, 20)
    values = torch.arange(12).reshape(3, 4)
    assert masks.small(values, 2).tolist() == [[1, 3], [9, 11]]
    assert torch.equal(masks.small(torch.arange(36).reshape(6, 6), 6), torch.arange(36).reshape(6, 6))


def test_foreground_and_names(tmp_path):
    make(tmp_path / "two", classes=(0, 255))
    assert load(str(tmp_path / "two")).labels == ("background", "foreground")
    make(tmp_path / "named")
    (tmp_path / "named" / "classes.txt").write_text("sky\nroad\ncar\nnever\n")
    data = load(str(tmp_path / "named"))
    assert data.labels == ("sky", "road", "car", "never") and data.counts["train"][3] == 0


@pytest.mark.parametrize(("values", "named", "labels", "void"), [
    ((0, 1, 2, 255), False, ("0", "1", "2"), True), ((0, 1, 255), False, ("background", "foreground"), True),
    ((0, 1, 255), True, ("sky", "road"), True), ((0, 255), False, ("background", "foreground"), False),
    ((0, 128, 255), False, ("0", "128", "255"), False), ((1, 2, 255), False, ("1", "2", "255"), False),
])
def test_255_beside_classes_is_none(tmp_path, values, named, labels, void):
    """As VOC marks what is uncertain; alone beside 0, or beside shades, it is a class."""
    make(tmp_path, n=12, classes=values)
    if named:
        (tmp_path / "classes.txt").write_text("sky\nroad\n")
    data = load(str(tmp_path))
    y = torch.cat([data.split(part).columns["y"] for part in SPLITS])
    assert data.labels == labels and bool((y == VOID).any()) == void
    assert set(y.unique().tolist()) - {VOID} == set(range(len(labels)))
    assert all(len(data.counts[part]) == len(labels) for part in SPLITS)
    assert sum(map(sum, data.counts.values())) == int((y != VOID).sum())
    assert any("255, of no class" in note for note in data.notes) == void


def test_a_jpeg_without_rounding_is_a_mask(tmp_path):
    """Squares of 8 × 8, as JPEG cuts an image: their value comes back as it was."""
    make(tmp_path, classes=(0, 255))
    for file in (tmp_path / "masks").iterdir():
        Image.open(file).save(file.with_suffix(".jpg"), quality=100)
        file.unlink()
    assert load(str(tmp_path)).labels == ("background", "foreground")


def moved(root, layout, parts):
    """The pairs of a flat folder into folders of splits; those of part "" stay where they are."""
    for i, part in enumerate(parts):
        for half in ("images", "masks") if part else ():
            to = root / (f"{half}/{part}" if layout == "inside" else f"{part}/{half}")
            to.mkdir(parents=True, exist_ok=True)
            (root / half / f"{i:02}.png").rename(to / f"{i % 3}.png")                # names may come again in another split
    if layout == "around":
        for half in ("images", "masks"):
            (root / half).rmdir()
    return root


@pytest.mark.parametrize("layout", ["inside", "around"])
def test_folders_that_name_the_split(tmp_path, layout):
    whole = load(str(make(tmp_path / "flat", n=9)))
    assert not any("split by" in note for note in whole.notes)
    data = load(str(moved(make(tmp_path / "own", n=9), layout, ["train"] * 3 + ["val"] * 3 + ["Test"] * 3)))
    assert "split by the folders test, train, validation; what is not there is cut from train" in data.notes
    every = torch.cat([whole.split(part).columns["y"] for part in SPLITS])[torch.cat([whole.indices[part] for part in SPLITS]).argsort()]
    for k, part in enumerate(SPLITS):
        batch = data.split(part).batch(torch.arange(3))
        assert torch.equal(batch["y"], every[3 * k : 3 * k + 3].long())
        torch.testing.assert_close(batch["x"][:, 0] * 255, 50.0 * batch["y"])
    again = reload(data, data.indices)
    assert torch.equal(again.test.columns["y"], data.test.columns["y"]) and again.fingerprint == data.fingerprint


def test_a_split_that_folders_name_in_part(tmp_path):
    root = moved(make(tmp_path / "own", n=30), "inside", ["train"] * 3 + ["val"] * 3)
    for i in range(6, 26):
        for half in ("images", "masks"):
            (root / half / f"{i:02}.png").rename(root / half / "train" / f"{i:02}.png")
    data = load(str(root))
    assert len(data.validation) == 3 and len(data.train) + len(data.test) == 23 and len(data.test) >= 2
    assert "left out: 4 images outside the folders train, validation" in data.notes
    for half in ("images", "masks"):
        (root / half / "train").rename(root / half / "rainy")                       # without train, val is but a folder
    assert sum(len(load(str(root)).split(part)) for part in SPLITS) == 30
    (root / "masks" / "val" / "0.png").unlink()
    with pytest.raises(UsageError, match=r"1 images of .* have no fellow of that name in masks/: val/0; add or delete"):
        load(str(root))


def test_on_how_many_images_a_class_occurs_is_said(tmp_path):
    make(tmp_path, classes=(1, 2))
    one = np.full((16, 16), 2)
    one[3, 5] = 7
    paint(tmp_path, "99", one, image="png")
    showing = {k: sum(bool((np.asarray(Image.open(f)) == k).any()) for f in (tmp_path / "masks").iterdir()) for k in (1, 2)}
    order = ", ".join(f"{k} on {n}" for k, n in sorted(showing.items(), key=lambda each: each[1]))
    assert any(note.endswith(f"images that show each, the rarest first: 7 on 1, {order}") for note in load(str(tmp_path)).notes)
    (tmp_path / "classes.txt").write_text("\n".join("abcdefgh"))
    assert not any("no classes.txt" in note for note in load(str(tmp_path)).notes)


def test_images_that_fit_are_not_resized(tmp_path):
    notes = load(str(make(tmp_path / "fit"))).notes
    assert "images of 16×16, in colour" in notes
    assert "images of 24×24 are resized to 32×32, in colour" in load(str(make(tmp_path / "unfit", side=24))).notes


def test_palettes_are_indices(tmp_path):
    make(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        coloured = Image.fromarray(np.asarray(Image.open(file)))
        coloured.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200] + [0] * 759)
        assert coloured.mode == "P"
        coloured.save(file)
    assert load(str(tmp_path)).labels == ("0", "1", "2")


def test_too_large_for_memory(tmp_path, monkeypatch):
    make(tmp_path)
    whole = load(str(tmp_path))
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "100")
    monkeypatch.setattr(masks.os, "cpu_count", lambda: 0)
    data = load(str(tmp_path))
    assert any("read while learning" in note for note in data.notes)
    index = torch.arange(len(data.train))
    assert torch.equal(data.train.batch(index)["x"], whole.train.batch(index)["x"])
    assert torch.equal(data.train.batch(index)["y"], whole.train.batch(index)["y"])


def without_fellow(root):
    (root / "masks" / "03.png").unlink()


def without_image(root):
    (root / "images" / "03.png").unlink()


def other_size(root):
    paint(root, "03", np.zeros((16, 16)), image="png", size=(16, 20))


def colours(root):
    Image.new("RGB", (16, 16)).save(root / "masks" / "03.png")


def transparent(root):
    Image.new("LA", (16, 16)).save(root / "masks" / "03.png")


def blurred(root):
    (root / "masks" / "03.png").unlink()
    round_ = np.hypot(*np.mgrid[-8:8, -8:8]) < 6
    Image.fromarray(np.where(round_, 255, 0).astype(np.uint8)).save(root / "masks" / "03.jpg", quality=95)


def unknown(root):
    (root / "classes.txt").write_text("a\nb\n")


def shades(root):
    for i in range(10):
        paint(root, f"{i:02}", np.arange(256).reshape(16, 16), image="png")


def flat(root):
    for i in range(10):
        paint(root, f"{i:02}", np.zeros((16, 16)), image="png")


def cut_short(root):
    raw = (root / "masks" / "03.png").read_bytes()
    (root / "masks" / "03.png").write_bytes(raw[: len(raw) // 2])


def gap(root):
    (root / "classes.txt").write_text("sky\n\nroad\ncar\n\n")


def empty(root):
    for part in ("images", "masks"):
        for file in (root / part).iterdir():
            file.unlink()


@pytest.mark.parametrize(("spoil", "words"), [
    (without_fellow, "1 images of .* have no fellow of that name in masks/: 03; add or delete"),
    (without_image, "1 masks of .* have no fellow of that name in images/: 03"),
    (other_size, r"the mask .*03.png is 20×16 pixels, but its image .*03.png is 16×16; make them equal"),
    (colours, r"the mask .*03.png is in colour \(RGB\): expected grey or a palette, whose values are the classes; save it so"),
    (transparent, r"the mask .*03.png has no whole numbers in one channel \(LA\)"),
    (blurred, r"the mask .*03.jpg is a JPEG and holds \d+ values: JPEG blurs class numbers; save masks as PNG"),
    (unknown, r"holds class 2, but .*classes.txt names 2: 0 to 1"),
    (gap, r"line 2 of .*classes.txt is empty, but names the value 1 of the masks; write its name, or delete the line"),
    (shades, "hold 256 values: shades"),
    (flat, "hold only the value 0: at least two classes"),
    (cut_short, "03.png cannot be read"),
    (empty, "images holds no image"),
])
def test_what_is_wrong_is_told_in_one_line(tmp_path, spoil, words):
    spoil(make(tmp_path))
    with pytest.raises(UsageError, match=words) as told:
        load(str(tmp_path))
    assert "\n" not in str(told.value)


def test_a_photograph_turned_by_its_metadata(tmp_path):
    make(tmp_path)
    tall = np.zeros((24, 16), np.uint8)
    tall[:12] = 1
    image = Image.fromarray(np.stack([np.rot90(tall) * 50] * 3, -1))                # lies on its side, 24 × 16 …
    exif = image.getexif()
    exif[0x0112] = 6                                                               # … and says so: turn by a quarter, clockwise
    image.save(tmp_path / "images" / "99.jpg", exif=exif, quality=100)
    Image.fromarray(tall).save(tmp_path / "masks" / "99.png")
    data = load(str(tmp_path))
    (part, row), = [(p, int((data.indices[p] == 10).nonzero()[0, 0])) for p in SPLITS if (data.indices[p] == 10).any()]
    batch = data.split(part).batch(torch.tensor([row]))
    assert ((batch["x"][0, 0] * 255 > 25).long() == batch["y"][0]).float().mean() > 0.9


@pytest.mark.parametrize(("name", "mode", "size"), [
    ("cmyk.jpg", "CMYK", (16, 16)), ("deep.png", "I;16", (16, 16)), ("moving.gif", "P", (16, 16)), ("clear.png", "RGBA", (16, 16)),
    ("one.png", "RGB", (1, 1)), ("wide.png", "L", (10_000, 10)), ("tall.png", "RGB", (10, 10_000)),
])
def test_images_of_all_sorts_have_masks(tmp_path, name, mode, size):
    make(tmp_path)
    image = Image.new("RGB", size, (0, 200, 0)).convert("L" if mode in ("I;16", "P") else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) << 8)
    more = {"save_all": True, "append_images": [Image.new("L", size)]} if mode == "P" else {}
    image.save(tmp_path / "images" / name, **more)
    Image.new("L", size, 2).save(tmp_path / "masks" / f"{name[:-4]}.png")
    data = load(str(tmp_path))
    row = {p: (data.indices[p] == 10).nonzero() for p in SPLITS}                     # letters come behind digits
    part = next(p for p in SPLITS if len(row[p]))
    batch = data.split(part).batch(row[part][0])
    assert data.shape == (3, 16, 16) and (batch["y"] == 2).all()
    assert batch["x"][0, 1].min() > 0.4


def test_a_truncated_photograph_is_named(tmp_path):
    make(tmp_path)
    file = tmp_path / "images" / "03.png"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(UsageError, match=r"the image .*03.png cannot be read \(.*\): replace it or leave it out"):
        load(str(tmp_path))


def test_masks_of_sixteen_bits(tmp_path):
    make(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        Image.fromarray(np.asarray(Image.open(file)).astype(np.uint16) * 1000).save(file)
    assert load(str(tmp_path)).labels == ("0", "1000", "2000")


def test_shapes_are_exact():
    data = load("shapes")
    assert (data.kind, data.task, data.shape) == ("masks", "segmentation", (3, 48, 48))
    assert [len(data.split(s)) for s in SPLITS] == [900, 100, 200]
    assert data.indices["test"].tolist() == list(range(1000, 1200))
    assert all(count > 10_000 for part in SPLITS for count in data.counts[part])
    assert data.fingerprint == load("shapes", seed=1).fingerprint                  # the seed splits, it does not draw
    assert data.duplicates == {"validation": 0, "test": 0}


@pytest.mark.parametrize(("kind", "area"), [(0, np.pi), (1, 1.7**2), (2, 0.6**2 * 3 * 3**0.5)])
@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0])
def test_the_areas_of_shapes(kind, area, angle):
    """pi r², (1.7 r)², and 3 sqrt(3) times the inner radius squared, however they are turned."""
    one = lambda value: np.array([value])  # noqa: E731
    d = distance(one(kind), one(24.0), one(24.0), one(14.0), one(angle), 48)
    assert (d < 0).sum() == pytest.approx(area * 14**2, rel=0.04)
    assert d[0, 23:25, 23:25].max() < 0


@pytest.mark.skipif(not has_public("pennfudan"), reason="DIDACT_DATA holds no pennfudan")
def test_pedestrians():
    data = load("pennfudan")
    assert data.shape == (3, 192, 192) and data.labels == ("street", "pedestrian")
    assert [len(data.split(s)) for s in SPLITS] == [120, 16, 34]
    assert data.indices["test"].tolist() == [*range(59, 74), *range(74 + 77, 170)]
    assert 0.1 < data.counts["test"][1] / sum(data.counts["test"]) < 0.3           # boxes of standing people, a fifth of the pictures


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)


def test_the_home_pages_own_file(tmp_path, monkeypatch):
    """PennFudanPed.zip, put there by hand: photographs are PNG in folders of their own."""
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path))
    (tmp_path / "pennfudan").mkdir()
    raw, mask = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (30, 20), (9, 9, 9)).save(raw, "png")
    stripe = Image.new("L", (30, 20))
    stripe.paste(3, (0, 0, 15, 20))
    stripe.save(mask, "png")
    names = [f"FudanPed{i:05}" for i in range(1, 75)] + [f"PennPed{i:05}" for i in range(1, 97)]
    files = {f"PennFudanPed/PNGImages/{n}.png": raw.getvalue() for n in names}
    files |= {f"PennFudanPed/PedMasks/{n}_mask.png": mask.getvalue() for n in names}
    monkeypatch.setattr(masks, "SIDE", 16)
    zipped(tmp_path / "pennfudan" / "PennFudanPed.zip", files)
    data = load("pennfudan")
    assert data.train.columns["y"][0].float().mean() == 0.5 and len(data.test) == 34
    files.popitem()
    zipped(tmp_path / "pennfudan" / "PennFudanPed.zip", files)
    with pytest.raises(UsageError, match="170 photographs with masks, got 169"):
        load("pennfudan")
    (tmp_path / "pennfudan" / "PennFudanPed.zip").write_bytes(b"no zip")
    with pytest.raises(UsageError, match="is damaged or cut short"):
        load("pennfudan")
