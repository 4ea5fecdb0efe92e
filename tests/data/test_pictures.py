import io

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.folder import ImageEncoder
from didact.data.pictures import PALE, coloured, colours, framed, overlaid, png


def test_png_is_what_pillow_reads():
    x = torch.rand(3, 7, 11)
    seen = np.array(Image.open(io.BytesIO(png(x))))
    assert np.array_equal(seen, (x * 255).round().byte().permute(1, 2, 0).numpy())


@pytest.mark.parametrize("classes", [1, 2, 21, 64])
def test_colours_differ(classes):
    palette = colours(classes)
    assert palette.shape == (classes, 3) and palette.min() >= 0 and palette.max() <= 1
    apart = (palette[:, None] - palette[None]).abs().amax(-1) + torch.eye(classes)
    assert apart.min() > 0.02


def test_a_mask_over_an_image():
    mask = torch.tensor([[0, 1], [2, 0]])
    assert torch.equal(coloured(mask, 3)[:, 1, 0], colours(3)[2])
    x = torch.rand(3, 4, 6)
    over = overlaid(x, mask, 3, opacity=0.25)                               # the mask is enlarged to the image
    assert torch.equal(over[:, :2, :3], x[:, :2, :3]) and torch.equal(over[:, 2:, 3:], x[:, 2:, 3:])
    torch.testing.assert_close(over[:, 0, 3], 0.75 * x[:, 0, 3] + 0.25 * colours(3)[1])
    torch.testing.assert_close(over[:, 3, 2], 0.75 * x[:, 3, 2] + 0.25 * colours(3)[2])
    assert overlaid(torch.rand(1, 4, 6), mask, 3).shape == (3, 4, 6)        # grey images are coloured too


def test_pixels_of_no_class_are_pale():
    assert torch.equal(coloured(torch.tensor([[255, 1]]), 2)[:, 0, 0], torch.tensor(PALE))
    assert torch.equal(coloured(torch.tensor([[255, 1]]), 2)[:, 0, 1], colours(2)[1])


def of_colour(drawn, k, classes):
    """Where a picture has the colour of a class of boxes."""
    return ((drawn - colours(classes + 1)[k + 1][:, None, None]).abs() < 1 / 255).all(0)


def test_frames_around_boxes():
    x = torch.zeros(1, 200, 400)
    found = torch.tensor([[0.1, 0.2, 0.5, 0.8, 0.9, 1], [-0.2, 0.5, 1.3, 2.0, 0.4, 0]])
    drawn = framed(x, found, ("cell", "dot"))
    assert drawn.shape == (3, 200, 400) and x.max() == 0
    frame = of_colour(drawn, 1, 2)
    assert frame[40:42, 40:200].all() and frame[40:160, 40:42].all() and frame[40:160, 198:200].all()
    assert not frame[43:157, 43:197].any() and not frame[162:].any() and not frame[:, 201:].any()
    assert of_colour(drawn, 0, 2)[100, 210:390].all()                       # what lies outside the image is cut off


def test_the_surest_lies_on_top():
    box = [0.25, 0.25, 0.75, 0.75]
    sure, unsure = [*box, 0.9, 0], [*box, 0.4, 1]
    drawn = framed(torch.zeros(3, 300, 300), torch.tensor([sure, unsure]), ("a", "b"))
    assert of_colour(drawn, 0, 2)[75, 75:225].all() and not of_colour(drawn, 1, 2)[75:225].any()


def test_names_and_scores_are_written_in_the_colour_of_the_class():
    def written(score, label):
        drawn = framed(torch.ones(3, 300, 300), torch.tensor([[0.2, 0.3, 0.8, 0.8, score, 0]]), (label, "other"))
        above = drawn[:, :89]                                               # the frame begins at 90
        assert of_colour(above, 0, 2).any() and (above.amax(0) < 0.4).any(), "no plate or no letters"
        return above
    assert not torch.equal(written(0.91, "cell"), written(0.35, "cell"))
    assert not torch.equal(written(0.91, "cell"), written(0.91, "dots"))


def test_a_small_image_is_enlarged_before_it_is_written_on():
    drawn = framed(torch.rand(3, 24, 64), torch.zeros(0, 6), ("a",))
    assert drawn.shape == (3, 96, 256) and torch.equal(drawn[:, ::4, ::4], drawn[:, 3::4, 3::4])


SIDE = 12


def checked(path, mode, **options):
    """A quarter of the image dark, the rest bright; saved as this mode."""
    values = np.full((SIDE, SIDE), 200, np.uint8)
    values[: SIDE // 2, : SIDE // 2] = 20
    if mode == "I;16":
        image = Image.fromarray(values.astype(np.uint16) << 8)
    elif mode == "F":
        image = Image.fromarray(values.astype(np.float32) / 255)
    else:
        image = Image.fromarray(values).convert(mode)
    image.save(path, **options)
    return path


@pytest.mark.parametrize(("name", "mode"), [
    ("cmyk.jpg", "CMYK"), ("deep.png", "I;16"), ("deep.tif", "I;16"), ("float.tif", "F"), ("palette.gif", "P"), ("grey.png", "L"),
    ("bits.png", "1"), ("opaque.png", "RGBA"), ("luma.jpg", "YCbCr"),
])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_every_mode(tmp_path, name, mode, channels):
    x = ImageEncoder((channels, SIDE, SIDE)).open(checked(tmp_path / name, mode)).float()
    assert x.shape == (channels, SIDE, SIDE)
    if mode != "1":                                                         # dithered
        assert (x[:, 1:5, 1:5] - 20).abs().max() < 12 and (x[:, 7:, 7:] - 200).abs().max() < 12


def test_the_first_of_moving_pictures(tmp_path):
    frames = [Image.new("L", (SIDE, SIDE), grey) for grey in (40, 90, 160)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert (ImageEncoder((1, 4, 4)).open(tmp_path / "moving.gif") == 40).all()


@pytest.mark.parametrize("size", [(1, 1), (10_000, 10), (10, 10_000)])
def test_images_of_odd_sizes(tmp_path, size):
    Image.new("RGB", size, (9, 80, 200)).save(tmp_path / "odd.jpg", quality=95)
    encoder = ImageEncoder((3, 16, 16))
    x = encoder.open(tmp_path / "odd.jpg")
    assert (x.float().mean((1, 2)) - torch.tensor([9.0, 80, 200])).abs().max() < 4
    whole = encoder.whole(tmp_path / "odd.jpg")
    assert whole.shape == (3, size[1], size[0])
