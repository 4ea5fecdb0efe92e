import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.folder import ImageEncoder, load
from didact.errors import UsageError


def paint(path, size=(20, 20), mode="RGB", seed=0, **save):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
    Image.fromarray(pixels, mode=None).save(path, **save)
    return pixels


def make(root, classes=("cat", "dog"), n=10, **kwargs):
    for k, name in enumerate(classes):
        for i in range(n):
            paint(root / name / f"{i:02}.png", seed=100 * k + i, **kwargs)
    return root


def test_pixels_channels_and_classes(tmp_path):
    data = load(make(tmp_path / "pets"), seed=1)
    assert (data.name, data.kind, data.task, data.labels) == ("pets", "images", "binary", ("cat", "dog"))
    assert data.shape == (3, 20, 20) and data.encoder == ImageEncoder((3, 20, 20))
    assert data.train.columns["x"].dtype == torch.uint8
    for row, i in enumerate(data.indices["test"].tolist()):
        k, number = divmod(i, 10)
        expected = np.random.default_rng(100 * k + number).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        batch = data.test.batch(torch.tensor([row]))
        np.testing.assert_allclose(batch["x"][0].permute(1, 2, 0) * 255, expected, atol=1e-4)
        assert batch["y"].item() == k
    torch.testing.assert_close(data.mean, (data.train.columns["x"] / 255.0).mean((0, 2, 3))[:, None, None])
    torch.testing.assert_close(data.std, (data.train.columns["x"] / 255.0).std((0, 2, 3), correction=0)[:, None, None])


def test_a_grey_set_has_one_channel_and_sizes_are_said(tmp_path):
    make(tmp_path, mode="L", size=(30, 24))
    paint(tmp_path / "cat" / "large.png", (300, 200), "L")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    data = load(tmp_path)
    assert data.shape == (1, 30, 30)
    told = " | ".join(data.notes)
    assert "2 sizes, mostly 30×24, are resized to 30×30, grey" in told and "passed over: 1 file beside the images" in told
    assert load(tmp_path, size=12).shape == (1, 12, 12)
    paint(tmp_path / "cat" / "colour.png")
    assert load(tmp_path).shape == (3, 30, 30)


def test_large_images_are_brought_to_64(tmp_path):
    assert load(make(tmp_path, n=3, size=(100, 80))).shape == (3, 64, 64)


def test_resizing_is_pillows_antialiased_bilinear_and_close_to_torch(tmp_path):
    pixels = paint(tmp_path / "a.png", (90, 60))
    x = ImageEncoder((3, 20, 30)).open(tmp_path / "a.png")
    inputs = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    reference = torch.nn.functional.interpolate(inputs, (20, 30), mode="bilinear", antialias=True)[0]
    assert (x.float() - reference).abs().max() <= 1.01


def test_turned_transparent_and_sixteen_bit_images(tmp_path):
    top = np.zeros((8, 4, 3), np.uint8)
    top[0] = 255                                            # white first row
    exif = Image.Exif()
    exif[0x0112] = 6                                        # turn by 90 degrees clockwise to see it upright
    Image.fromarray(top).save(tmp_path / "turned.png", exif=exif)
    x = ImageEncoder((1, 4, 8)).open(tmp_path / "turned.png")
    assert (x[0, :, -1] == 255).all() and (x[0, :, :-1] == 0).all()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (ImageEncoder((3, 4, 4)).open(tmp_path / "clear.png") == 255).all()
    deep = np.array([[0, 255, 256, 65535]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert ImageEncoder((1, 1, 4)).open(tmp_path / "deep.png").tolist() == [[[0, 0, 1, 255]]]


@pytest.mark.parametrize(("values", "bytes_"), [
    ([0, 200, 255], [0, 200, 255]), ([0, 256, 65535], [0, 1, 255]), ([-5, 200, 300], [0, 0, 1]), ([0, 2**30, 2**31 - 1], [0, 128, 255]),
    ([-7, -3, -1], [0, 0, 0]), ([0, 2**16, 2**20 - 1], [0, 16, 255]),
])
def test_32_bits_are_scaled_by_what_the_values_need(tmp_path, values, bytes_):
    Image.fromarray(np.array([values], np.int32)).save(tmp_path / "deep.tif")
    with Image.open(tmp_path / "deep.tif") as image:
        assert image.mode == "I"
    assert ImageEncoder((1, 1, 3)).open(tmp_path / "deep.tif").tolist() == [[bytes_]]


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "PNG"])
def test_formats(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (9, 9), (200, 30, 60)).save(path)
    x = ImageEncoder((3, 5, 5)).open(path).float().mean((1, 2))
    torch.testing.assert_close(x, torch.tensor([200.0, 30.0, 60.0]), atol=4, rtol=0)


def test_folders_that_name_the_split(tmp_path):
    make(tmp_path / "train", n=10)
    make(tmp_path / "test", n=4)
    data = load(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 2, 8]
    assert any("split by the folders test, train" in note for note in data.notes)
    make(tmp_path / "val", n=3)
    data = load(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [20, 6, 8]
    assert data.counts["validation"] == (3, 3)
    shutil.rmtree(tmp_path / "test")
    data = load(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 6, 2]
    for part in ("train", "validation", "test"):
        assert len(data.indices[part]) == len(data.split(part))


def test_what_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds 0 images: expected"):
        load(tmp_path)
    paint(tmp_path / "loose.png")
    with pytest.raises(UsageError, match="holds 1 examples, but three splits need at least 3"):
        load(tmp_path)
    make(tmp_path, classes=("cat",))
    (tmp_path / "dog").mkdir()
    with pytest.raises(UsageError, match=r"class folder .*dog holds no image"):
        load(tmp_path)
    paint(tmp_path / "dog" / "0.png")
    with pytest.raises(UsageError, match=r"too few of: 'dog' \(1\)"):
        load(tmp_path)
    make(tmp_path)
    with pytest.raises(UsageError, match="--size expects"):
        load(tmp_path, size=0)
    make(tmp_path / "parts" / "train")
    make(tmp_path / "parts" / "test", classes=("cat", "dog", "emu"))
    with pytest.raises(UsageError, match="no training example of: emu"):
        load(tmp_path / "parts")


def test_images_that_are_left_out_are_told(tmp_path):
    pets = make(tmp_path / "pets", n=6)
    assert not any("left out" in note for note in load(pets).notes)
    paint(pets / "0.png")
    paint(pets / ".hidden.png")
    assert "left out: 1 image outside the class folders" in load(pets).notes
    for i in range(3):
        paint(pets / f"{i + 1}.jpg")
    data = load(pets)
    assert "left out: 4 images outside the class folders" in data.notes
    assert sum(map(len, data.indices.values())) == 12
    make(tmp_path / "parts" / "train")
    make(tmp_path / "parts" / "spare")
    paint(tmp_path / "parts" / "train" / "0.png")
    assert "left out: 21 images outside the class folders" in load(tmp_path / "parts").notes
    for i in range(10):
        paint(tmp_path / "plain" / "train" / f"{i}.png", seed=i)
    paint(tmp_path / "plain" / "0.png")
    assert "left out: 1 image outside the folders train" in load(tmp_path / "plain").notes


def test_who_asks_for_no_classes_gets_the_images_beside_their_folders(tmp_path):
    pets = make(tmp_path / "pets", n=6)
    labelled = load(pets, unlabelled=True)
    assert labelled.task == "binary" and labelled.fingerprint == load(pets).fingerprint          # nothing beside: classes colour pictures
    pixels = [paint(pets / f"{i}.png", seed=1000 + i) for i in range(4)]
    paint(pets / ".hidden.png")
    data = load(pets, unlabelled=True)
    assert (data.task, data.labels, sum(map(len, data.indices.values()))) == ("none", (), 16)
    assert data.notes[0].startswith("16 images, 12 in cat, dog and 4 beside: all are read") and not any("left out" in n for n in data.notes)
    assert "to keep the classes, move the images beside them elsewhere, or give --conditional" in data.notes[0]
    held = torch.cat([data.split(part).columns["x"] for part in ("train", "validation", "test")])
    for image in pixels:
        assert (held == torch.from_numpy(image).permute(2, 0, 1)).flatten(1).all(1).sum() == 1
    assert load(pets).task == "binary" and "left out: 4 images outside the class folders" in load(pets).notes


def test_images_beside_class_folders_stay_in_their_split(tmp_path):
    make(tmp_path / "train", n=10)
    make(tmp_path / "spare", n=1)
    for i in range(3):
        paint(tmp_path / "train" / f"{i}.png", seed=i)
        paint(tmp_path / "test" / f"{i}.png", seed=50 + i)                                      # no class folders at all
    with pytest.raises(UsageError, match=r"test holds no class folders, but those beside it do"):
        load(tmp_path)
    data = load(tmp_path, unlabelled=True)
    assert len(data.test) == 3 and len(data.train) + len(data.validation) == 23
    assert "left out: 2 images outside the folders test, train" in data.notes
    linked = make(tmp_path / "linked", classes=("cat",))
    (linked / ".kept").mkdir()
    (linked / "dog").symlink_to((tmp_path / "train" / "dog").rename(linked / ".kept" / "dog"))
    paint(linked / "0.png")
    assert sum(map(len, load(linked, unlabelled=True).indices.values())) == 21


def test_a_class_folder_may_be_a_link_to_another_place_in_the_set(tmp_path):
    pets = make(tmp_path / "pets", classes=("cat",))
    (pets / "dog").symlink_to(make(pets / ".kept", classes=("dog",)) / "dog")
    assert not any("left out" in note for note in load(pets).notes)


def test_images_in_no_class_folders_have_no_labels(tmp_path):
    pixels = [paint(tmp_path / "loose" / f"{i:02}.png", seed=i) for i in range(10)]
    data = load(tmp_path / "loose")
    assert (data.kind, data.task, data.labels, data.classes) == ("images", "none", (), 0)
    assert [len(data.split(part)) for part in ("train", "validation", "test")] == [7, 2, 1]
    for row, i in enumerate(data.indices["test"].tolist()):
        batch = data.test.batch(torch.tensor([row]))
        assert set(batch) == {"x", "row"}
        np.testing.assert_allclose(batch["x"][0].permute(1, 2, 0) * 255, pixels[i], atol=1e-4)
    assert data.notes[0].endswith("loose/<class>/<image>.png or .jpg to learn classes")
    make(tmp_path / "one", classes=("cat",))
    assert load(tmp_path / "one").task == "none" and "only one class folder, 'cat'" in load(tmp_path / "one").notes[0]


def test_loose_images_may_be_split_by_folders(tmp_path):
    for part, n in (("train", 20), ("test", 5)):
        for i in range(n):
            paint(tmp_path / part / f"{i}.png", seed=i)
    data = load(tmp_path)
    assert data.task == "none" and [len(data.train), len(data.validation), len(data.test)] == [18, 2, 5]
    paint(tmp_path / "test" / "cat" / "0.png")
    with pytest.raises(UsageError, match=r"train holds no class folders, but those beside it do"):
        load(tmp_path)


@pytest.mark.parametrize(("content", "words"), [(b"", r"3.png is empty \(0 bytes\)"), (b"not an image", "3.png cannot be read")])
def test_damaged_images_are_named(tmp_path, content, words):
    make(tmp_path)
    (tmp_path / "dog" / "3.png").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        load(tmp_path)


def test_a_truncated_image_is_named(tmp_path):
    make(tmp_path)
    path = tmp_path / "dog" / "03.png"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(UsageError, match=r"03\.png cannot be read") as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_reading_new_images(tmp_path):
    make(tmp_path, n=3)
    encoder = ImageEncoder.from_spec(ImageEncoder((3, 20, 20)).spec())
    one = str(tmp_path / "cat" / "01.png")
    names, batch = encoder.read([one, str(tmp_path / "dog")])
    assert names == [one, *(str(tmp_path / "dog" / f"{i:02}.png") for i in range(3))]
    assert batch["x"].shape == (4, 3, 20, 20) and torch.equal(batch["x"][0], encoder.open(one))
    with pytest.raises(UsageError, match=r"no image at nowhere\.png"):
        encoder.read(["nowhere.png"])
    (tmp_path / "void").mkdir()
    with pytest.raises(UsageError, match="holds no image"):
        encoder.read([str(tmp_path / "void")])


def test_the_fingerprint_sees_every_part_of_an_image(tmp_path):
    from PIL import Image

    for label in ("a", "b"):
        for i in range(12):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.fromarray(np.full((32, 32, 3), 10 * i, dtype=np.uint8)).save(tmp_path / label / f"{i}.bmp")
    before = load(tmp_path).fingerprint
    assert load(tmp_path).fingerprint == before
    pixels = np.full((32, 32, 3), 50, dtype=np.uint8)
    pixels[:4] = 0   # BMP is written from the bottom: the last bytes of the file
    Image.fromarray(pixels).save(tmp_path / "a" / "5.bmp")
    assert load(tmp_path).fingerprint != before
