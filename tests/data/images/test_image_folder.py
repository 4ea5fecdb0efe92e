import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.images.image_folder import ImageEncoder, load_image_folder
from didact.errors import UsageError


def write_image(path, size=(20, 20), mode="RGB", seed=0, **save):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
    Image.fromarray(pixels, mode=None).save(path, **save)
    return pixels


def write_image_folder(root, classes=("cat", "dog"), n=10, **kwargs):
    for k, name in enumerate(classes):
        for i in range(n):
            write_image(root / name / f"{i:02}.png", seed=100 * k + i, **kwargs)
    return root


def test_load_image_folder_reads_pixels_channels_and_classes(tmp_path):
    data = load_image_folder(write_image_folder(tmp_path / "pets"), seed=1)
    assert (data.name, data.kind, data.task, data.class_names) == ("pets", "images", "binary", ("cat", "dog"))
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


def test_gray_images_have_one_channel_and_sizes_are_noted(tmp_path):
    write_image_folder(tmp_path, mode="L", size=(30, 24))
    write_image(tmp_path / "cat" / "large.png", (300, 200), "L")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    data = load_image_folder(tmp_path)
    assert data.shape == (1, 30, 30)
    notes = " | ".join(data.notes)
    assert (
        "2 sizes, mostly 30×24, are resized to 30×30, gray" in notes
        and "ignored: 1 file beside the images" in notes
    )
    assert load_image_folder(tmp_path, size=12).shape == (1, 12, 12)
    write_image(tmp_path / "cat" / "color.png")
    assert load_image_folder(tmp_path).shape == (3, 30, 30)


def test_large_images_are_resized_to_64(tmp_path):
    assert load_image_folder(write_image_folder(tmp_path, n=3, size=(100, 80))).shape == (3, 64, 64)


def test_resizing_is_antialiased_bilinear(tmp_path):
    pixels = write_image(tmp_path / "a.png", (90, 60))
    x = ImageEncoder((3, 20, 30)).open(tmp_path / "a.png")
    inputs = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    reference = torch.nn.functional.interpolate(inputs, (20, 30), mode="bilinear", antialias=True)[0]
    assert (x.float() - reference).abs().max() <= 1.01


def test_image_encoder_reads_rotated_transparent_and_16_bit_images(tmp_path):
    bright_top = np.zeros((8, 4, 3), np.uint8)
    bright_top[0] = 255                                            # white first row
    exif = Image.Exif()
    exif[0x0112] = 6                                        # turn by 90 degrees clockwise to see it upright
    Image.fromarray(bright_top).save(tmp_path / "turned.png", exif=exif)
    x = ImageEncoder((1, 4, 8)).open(tmp_path / "turned.png")
    assert (x[0, :, -1] == 255).all() and (x[0, :, :-1] == 0).all()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (ImageEncoder((3, 4, 4)).open(tmp_path / "clear.png") == 255).all()
    pixels_16_bit = np.array([[0, 255, 256, 65535]], np.uint16)
    Image.fromarray(pixels_16_bit).save(tmp_path / "deep.png")
    assert ImageEncoder((1, 1, 4)).open(tmp_path / "deep.png").tolist() == [[[0, 0, 1, 255]]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 200, 255], [0, 200, 255]),
        ([0, 256, 65535], [0, 1, 255]),
        ([-5, 200, 300], [0, 0, 1]),
        ([0, 2**30, 2**31 - 1], [0, 128, 255]),
        ([-7, -3, -1], [0, 0, 0]),
        ([0, 2**16, 2**20 - 1], [0, 16, 255]),
    ],
)
def test_32_bit_images_are_scaled_by_the_bits_they_use(tmp_path, values, expected):
    Image.fromarray(np.array([values], np.int32)).save(tmp_path / "deep.tif")
    with Image.open(tmp_path / "deep.tif") as image:
        assert image.mode == "I"
    assert ImageEncoder((1, 1, 3)).open(tmp_path / "deep.tif").tolist() == [[expected]]


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "bmp", "gif", "webp", "tif", "PNG"])
def test_image_encoder_reads_every_format(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (9, 9), (200, 30, 60)).save(path)
    x = ImageEncoder((3, 5, 5)).open(path).float().mean((1, 2))
    torch.testing.assert_close(x, torch.tensor([200.0, 30.0, 60.0]), atol=4, rtol=0)


def test_folders_that_name_the_split(tmp_path):
    write_image_folder(tmp_path / "train", n=10)
    write_image_folder(tmp_path / "test", n=4)
    data = load_image_folder(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 2, 8]
    assert any("split by the folders test, train" in note for note in data.notes)
    write_image_folder(tmp_path / "val", n=3)
    data = load_image_folder(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [20, 6, 8]
    assert data.class_counts["validation"] == (3, 3)
    shutil.rmtree(tmp_path / "test")
    data = load_image_folder(tmp_path)
    assert [len(data.train), len(data.validation), len(data.test)] == [18, 6, 2]
    for part in ("train", "validation", "test"):
        assert len(data.indices[part]) == len(data.split(part))


def test_bad_image_folders_are_refused(tmp_path):
    with pytest.raises(UsageError, match="holds 0 images: expected"):
        load_image_folder(tmp_path)
    write_image(tmp_path / "loose.png")
    with pytest.raises(UsageError, match="holds 1 examples, but three splits need at least 3"):
        load_image_folder(tmp_path)
    write_image_folder(tmp_path, classes=("cat",))
    (tmp_path / "dog").mkdir()
    with pytest.raises(UsageError, match=r"class folder .*dog holds no image"):
        load_image_folder(tmp_path)
    write_image(tmp_path / "dog" / "0.png")
    with pytest.raises(UsageError, match=r"too few of: 'dog' \(1\)"):
        load_image_folder(tmp_path)
    write_image_folder(tmp_path)
    with pytest.raises(UsageError, match="--size expects"):
        load_image_folder(tmp_path, size=0)
    write_image_folder(tmp_path / "parts" / "train")
    write_image_folder(tmp_path / "parts" / "test", classes=("cat", "dog", "emu"))
    with pytest.raises(UsageError, match="no training example of: emu"):
        load_image_folder(tmp_path / "parts")


def test_ignored_images_are_noted(tmp_path):
    pets = write_image_folder(tmp_path / "pets", n=6)
    assert not any("left out" in note for note in load_image_folder(pets).notes)
    write_image(pets / "0.png")
    write_image(pets / ".hidden.png")
    assert "left out: 1 image outside the class folders" in load_image_folder(pets).notes
    for i in range(3):
        write_image(pets / f"{i + 1}.jpg")
    data = load_image_folder(pets)
    assert "left out: 4 images outside the class folders" in data.notes
    assert sum(map(len, data.indices.values())) == 12
    write_image_folder(tmp_path / "parts" / "train")
    write_image_folder(tmp_path / "parts" / "spare")
    write_image(tmp_path / "parts" / "train" / "0.png")
    assert "left out: 21 images outside the class folders" in load_image_folder(tmp_path / "parts").notes
    for i in range(10):
        write_image(tmp_path / "plain" / "train" / f"{i}.png", seed=i)
    write_image(tmp_path / "plain" / "0.png")
    assert "left out: 1 image outside the folders train" in load_image_folder(tmp_path / "plain").notes


def test_allow_unlabeled_reads_images_beside_class_folders(tmp_path):
    pets = write_image_folder(tmp_path / "pets", n=6)
    labeled_data = load_image_folder(pets, allow_unlabeled=True)
    # nothing beside: the classes stay
    assert labeled_data.task == "binary" and labeled_data.fingerprint == load_image_folder(pets).fingerprint
    pixels = [write_image(pets / f"{i}.png", seed=1000 + i) for i in range(4)]
    write_image(pets / ".hidden.png")
    data = load_image_folder(pets, allow_unlabeled=True)
    assert (data.task, data.class_names, sum(map(len, data.indices.values()))) == ("none", (), 16)
    assert data.notes[0].startswith("16 images, 12 in cat, dog and 4 beside: all are read") and not any(
        "left out" in n for n in data.notes
    )
    assert "to keep the classes, move the images beside them elsewhere, or give --conditional" in data.notes[0]
    stored_pixels = torch.cat([data.split(part).columns["x"] for part in ("train", "validation", "test")])
    for image in pixels:
        assert (stored_pixels == torch.from_numpy(image).permute(2, 0, 1)).flatten(1).all(1).sum() == 1
    assert (
        load_image_folder(pets).task == "binary"
        and "left out: 4 images outside the class folders" in load_image_folder(pets).notes
    )


def test_images_beside_class_folders_stay_in_their_split(tmp_path):
    write_image_folder(tmp_path / "train", n=10)
    write_image_folder(tmp_path / "spare", n=1)
    for i in range(3):
        write_image(tmp_path / "train" / f"{i}.png", seed=i)
        # no class folders at all
        write_image(tmp_path / "test" / f"{i}.png", seed=50 + i)
    with pytest.raises(UsageError, match=r"test holds no class folders, but those beside it do"):
        load_image_folder(tmp_path)
    data = load_image_folder(tmp_path, allow_unlabeled=True)
    assert len(data.test) == 3 and len(data.train) + len(data.validation) == 23
    assert "left out: 2 images outside the folders test, train" in data.notes
    linked_folder = write_image_folder(tmp_path / "linked", classes=("cat",))
    (linked_folder / ".kept").mkdir()
    (linked_folder / "dog").symlink_to((tmp_path / "train" / "dog").rename(linked_folder / ".kept" / "dog"))
    write_image(linked_folder / "0.png")
    assert sum(map(len, load_image_folder(linked_folder, allow_unlabeled=True).indices.values())) == 21


def test_class_folder_may_be_a_symlink_inside_the_set(tmp_path):
    pets = write_image_folder(tmp_path / "pets", classes=("cat",))
    (pets / "dog").symlink_to(write_image_folder(pets / ".kept", classes=("dog",)) / "dog")
    assert not any("left out" in note for note in load_image_folder(pets).notes)


def test_images_without_class_folders_have_no_labels(tmp_path):
    pixels = [write_image(tmp_path / "loose" / f"{i:02}.png", seed=i) for i in range(10)]
    data = load_image_folder(tmp_path / "loose")
    assert (data.kind, data.task, data.class_names, data.num_classes) == ("images", "none", (), 0)
    assert [len(data.split(part)) for part in ("train", "validation", "test")] == [7, 2, 1]
    for row, i in enumerate(data.indices["test"].tolist()):
        batch = data.test.batch(torch.tensor([row]))
        assert set(batch) == {"x", "row"}
        np.testing.assert_allclose(batch["x"][0].permute(1, 2, 0) * 255, pixels[i], atol=1e-4)
    assert data.notes[0].endswith("loose/<class>/<image>.png or .jpg to learn classes")
    write_image_folder(tmp_path / "one", classes=("cat",))
    assert (
        load_image_folder(tmp_path / "one").task == "none"
        and "only one class folder, 'cat'" in load_image_folder(tmp_path / "one").notes[0]
    )


def test_unlabeled_images_may_be_split_by_folders(tmp_path):
    for part, n in (("train", 20), ("test", 5)):
        for i in range(n):
            write_image(tmp_path / part / f"{i}.png", seed=i)
    data = load_image_folder(tmp_path)
    assert data.task == "none" and [len(data.train), len(data.validation), len(data.test)] == [18, 2, 5]
    write_image(tmp_path / "test" / "cat" / "0.png")
    with pytest.raises(UsageError, match=r"train holds no class folders, but those beside it do"):
        load_image_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", r"3.png is empty \(0 bytes\)"), (b"not an image", "3.png cannot be read")]
)
def test_damaged_images_are_named(tmp_path, content, message):
    write_image_folder(tmp_path)
    (tmp_path / "dog" / "3.png").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_image_folder(tmp_path)


def test_a_truncated_image_is_named(tmp_path):
    write_image_folder(tmp_path)
    path = tmp_path / "dog" / "03.png"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(UsageError, match=r"03\.png cannot be read") as error:
        load_image_folder(tmp_path)
    assert "\n" not in str(error.value)


def test_image_encoder_reads_new_images(tmp_path):
    write_image_folder(tmp_path, n=3)
    encoder = ImageEncoder.from_spec(ImageEncoder((3, 20, 20)).spec())
    image_path = str(tmp_path / "cat" / "01.png")
    names, batch = encoder.read([image_path, str(tmp_path / "dog")])
    assert names == [image_path, *(str(tmp_path / "dog" / f"{i:02}.png") for i in range(3))]
    assert batch["x"].shape == (4, 3, 20, 20) and torch.equal(batch["x"][0], encoder.open(image_path))
    with pytest.raises(UsageError, match=r"no image at nowhere\.png"):
        encoder.read(["nowhere.png"])
    (tmp_path / "void").mkdir()
    with pytest.raises(UsageError, match="holds no image"):
        encoder.read([str(tmp_path / "void")])


def test_fingerprint_covers_every_part_of_an_image(tmp_path):
    from PIL import Image

    for label in ("a", "b"):
        for i in range(12):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.fromarray(np.full((32, 32, 3), 10 * i, dtype=np.uint8)).save(tmp_path / label / f"{i}.bmp")
    old_fingerprint = load_image_folder(tmp_path).fingerprint
    assert load_image_folder(tmp_path).fingerprint == old_fingerprint
    pixels = np.full((32, 32, 3), 50, dtype=np.uint8)
    pixels[:4] = 0   # BMP is written from the bottom: the last bytes of the file
    Image.fromarray(pixels).save(tmp_path / "a" / "5.bmp")
    assert load_image_folder(tmp_path).fingerprint != old_fingerprint
