import io

import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.images.image_folder import ImageEncoder
from didact.data.images.render import IGNORE_COLOR, colorize_mask, draw_boxes, encode_png, make_palette, overlay_mask


def test_encode_png_is_read_by_pillow():
    x = torch.rand(3, 7, 11)
    decoded_image = np.array(Image.open(io.BytesIO(encode_png(x))))
    assert np.array_equal(decoded_image, (x * 255).round().byte().permute(1, 2, 0).numpy())


@pytest.mark.parametrize("classes", [1, 2, 21, 64])
def test_make_palette_colors_differ(classes):
    palette = make_palette(classes)
    assert palette.shape == (classes, 3) and palette.min() >= 0 and palette.max() <= 1
    color_distances = (palette[:, None] - palette[None]).abs().amax(-1) + torch.eye(classes)
    assert color_distances.min() > 0.02


def test_overlay_mask_blends_the_palette():
    mask = torch.tensor([[0, 1], [2, 0]])
    assert torch.equal(colorize_mask(mask, 3)[:, 1, 0], make_palette(3)[2])
    x = torch.rand(3, 4, 6)
    overlay = overlay_mask(x, mask, 3, opacity=0.25)                               # the mask is enlarged to the image
    assert torch.equal(overlay[:, :2, :3], x[:, :2, :3]) and torch.equal(overlay[:, 2:, 3:], x[:, 2:, 3:])
    torch.testing.assert_close(overlay[:, 0, 3], 0.75 * x[:, 0, 3] + 0.25 * make_palette(3)[1])
    torch.testing.assert_close(overlay[:, 3, 2], 0.75 * x[:, 3, 2] + 0.25 * make_palette(3)[2])
    assert overlay_mask(torch.rand(1, 4, 6), mask, 3).shape == (3, 4, 6)        # gray images become RGB


def test_colorize_mask_paints_ignored_pixels_pale():
    assert torch.equal(colorize_mask(torch.tensor([[255, 1]]), 2)[:, 0, 0], torch.tensor(IGNORE_COLOR))
    assert torch.equal(colorize_mask(torch.tensor([[255, 1]]), 2)[:, 0, 1], make_palette(2)[1])


def find_class_color(image, k, classes):
    """Where an image has the color of a class of boxes."""
    return ((image - make_palette(classes + 1)[k + 1][:, None, None]).abs() < 1 / 255).all(0)


def test_draw_boxes_frames_each_box():
    x = torch.zeros(1, 200, 400)
    detections = torch.tensor([[0.1, 0.2, 0.5, 0.8, 0.9, 1], [-0.2, 0.5, 1.3, 2.0, 0.4, 0]])
    image = draw_boxes(x, detections, ("cell", "dot"))
    assert image.shape == (3, 200, 400) and x.max() == 0
    frame = find_class_color(image, 1, 2)
    assert frame[40:42, 40:200].all() and frame[40:160, 40:42].all() and frame[40:160, 198:200].all()
    assert not frame[43:157, 43:197].any() and not frame[162:].any() and not frame[:, 201:].any()
    # clipped to the image
    assert find_class_color(image, 0, 2)[100, 210:390].all()


def test_draw_boxes_puts_the_most_confident_on_top():
    box = [0.25, 0.25, 0.75, 0.75]
    confident_box, doubtful_box = [*box, 0.9, 0], [*box, 0.4, 1]
    image = draw_boxes(torch.zeros(3, 300, 300), torch.tensor([confident_box, doubtful_box]), ("a", "b"))
    assert find_class_color(image, 0, 2)[75, 75:225].all() and not find_class_color(image, 1, 2)[75:225].any()


def test_draw_boxes_writes_names_and_scores_in_the_class_color():
    def draw_caption(score, label):
        image = draw_boxes(torch.ones(3, 300, 300), torch.tensor([[0.2, 0.3, 0.8, 0.8, score, 0]]), (label, "other"))
        above = image[:, :89]                                               # the frame begins at 90
        assert find_class_color(above, 0, 2).any() and (above.amax(0) < 0.4).any(), "no plate or no letters"
        return above
    assert not torch.equal(draw_caption(0.91, "cell"), draw_caption(0.35, "cell"))
    assert not torch.equal(draw_caption(0.91, "cell"), draw_caption(0.91, "dots"))


def test_draw_boxes_enlarges_small_images():
    image = draw_boxes(torch.rand(3, 24, 64), torch.zeros(0, 6), ("a",))
    assert image.shape == (3, 96, 256) and torch.equal(image[:, ::4, ::4], image[:, 3::4, 3::4])


IMAGE_SIDE = 12


def write_quarter_image(path, mode, **options):
    """A quarter of the image dark, the rest bright; saved as this mode."""
    values = np.full((IMAGE_SIDE, IMAGE_SIDE), 200, np.uint8)
    values[: IMAGE_SIDE // 2, : IMAGE_SIDE // 2] = 20
    if mode == "I;16":
        image = Image.fromarray(values.astype(np.uint16) << 8)
    elif mode == "F":
        image = Image.fromarray(values.astype(np.float32) / 255)
    else:
        image = Image.fromarray(values).convert(mode)
    image.save(path, **options)
    return path


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("cmyk.jpg", "CMYK"),
        ("deep.png", "I;16"),
        ("deep.tif", "I;16"),
        ("float.tif", "F"),
        ("palette.gif", "P"),
        ("grey.png", "L"),
        ("bits.png", "1"),
        ("opaque.png", "RGBA"),
        ("luma.jpg", "YCbCr"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_image_encoder_reads_every_mode(tmp_path, name, mode, channels):
    x = ImageEncoder((channels, IMAGE_SIDE, IMAGE_SIDE)).open(write_quarter_image(tmp_path / name, mode)).float()
    assert x.shape == (channels, IMAGE_SIDE, IMAGE_SIDE)
    if mode != "1":                                                         # dithered
        assert (x[:, 1:5, 1:5] - 20).abs().max() < 12 and (x[:, 7:, 7:] - 200).abs().max() < 12


def test_image_encoder_reads_the_first_gif_frame(tmp_path):
    frames = [Image.new("L", (IMAGE_SIDE, IMAGE_SIDE), gray) for gray in (40, 90, 160)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert (ImageEncoder((1, 4, 4)).open(tmp_path / "moving.gif") == 40).all()


@pytest.mark.parametrize("size", [(1, 1), (10_000, 10), (10, 10_000)])
def test_image_encoder_reads_extreme_sizes(tmp_path, size):
    Image.new("RGB", size, (9, 80, 200)).save(tmp_path / "odd.jpg", quality=95)
    encoder = ImageEncoder((3, 16, 16))
    x = encoder.open(tmp_path / "odd.jpg")
    assert (x.float().mean((1, 2)) - torch.tensor([9.0, 80, 200])).abs().max() < 4
    full_image = encoder.open_full_size(tmp_path / "odd.jpg")
    assert full_image.shape == (3, size[1], size[0])
