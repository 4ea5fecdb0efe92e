"""Colormaps keep the order, tiles their positions, bars the right side."""

import re

import pytest
import torch

from didact.explain.colormap import (
    HEAT_COLORMAP,
    SIGNED_COLORMAP,
    apply_colormap,
    overlay_heatmap,
    scale_to_unit,
    tile_images,
    upscale_nearest,
)
from didact.explain.figures import draw_attribution_bars, read_patch_grid
from didact.explain.occlusion import patch_grid


def compute_lightness(rgb):
    """L* of CIELAB, 0 … 100: (3, n) -> (n,)."""
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = torch.tensor([0.2126, 0.7152, 0.0722]) @ linear
    return torch.where(y > 0.008856, 116 * y ** (1 / 3) - 16, 903.3 * y)


def test_heat_colormap_gets_lighter_in_even_steps():
    lightness = compute_lightness(apply_colormap(torch.linspace(0, 1, 64)))
    steps = lightness.diff()
    assert steps.min() > 0 and steps.max() < 2.5 * steps.min() and lightness[0] < 5 and lightness[-1] > 94


def test_signed_colormap_is_symmetric_in_lightness():
    lightness = compute_lightness(apply_colormap(torch.linspace(0, 1, 65), SIGNED_COLORMAP))
    assert lightness.argmax() == 32 and (lightness - lightness.flip(0)).abs().max() < 6
    middle = apply_colormap(torch.tensor([0.5]), SIGNED_COLORMAP)[:, 0]
    assert middle.max() - middle.min() < 0.02
    blue, red = apply_colormap(torch.tensor([0.0, 1.0]), SIGNED_COLORMAP).T
    assert blue.argmax() == 2 and red.argmax() == 0


def test_apply_colormap_accepts_out_of_range_and_nan():
    colors = apply_colormap(torch.tensor([-1.0, 2.0, float("nan")]))
    torch.testing.assert_close(colors[:, :2], apply_colormap(torch.tensor([0.0, 1.0])))
    assert colors.isfinite().all() and colors.shape == (3, 3)
    assert apply_colormap(torch.rand(4, 5, 6)).shape == (3, 4, 5, 6) and len(HEAT_COLORMAP) == 8


def test_scale_to_unit_keeps_zero_in_its_place():
    values = torch.tensor([-2.0, 0.0, 1.0])
    assert scale_to_unit(values, signed=True, quantile=1.0).tolist() == [0.0, 0.5, 0.75]
    assert (
        scale_to_unit(torch.zeros(3), signed=True).tolist() == [0.5] * 3
        and not scale_to_unit(torch.zeros(3), signed=False).any()
    )


def test_overlay_heatmap_keeps_the_image_where_the_map_is_zero():
    image, heat = torch.rand(3, 4, 6), torch.zeros(4, 6)
    heat[1, 2] = -3.0
    overlay_image = overlay_heatmap(image, heat, signed=True)
    assert overlay_image.shape == (3, 4, 6)
    # blue there, gray elsewhere
    assert overlay_image[2, 1, 2] > overlay_image[0, 1, 2] and torch.equal(overlay_image[0, 0], overlay_image[2, 0])


def test_tile_images_places_tiles_row_by_row():
    pictures = torch.arange(5.0)[:, None, None, None].expand(5, 1, 2, 3) / 10
    tile_sheet = tile_images(pictures, gap=1.0)
    assert tile_sheet.shape == (1, 8, 7)                        # three rows of two: wider than high, so fewer across
    corners = [float(tile_sheet[0, r, c]) for r in (0, 3, 6) for c in (0, 4)]
    assert corners == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 1.0])
    assert tile_images(torch.zeros(1, 3, 4, 4)).shape == (3, 4, 4)


def test_upscale_nearest_grows_small_images_by_whole_factors():
    assert upscale_nearest(torch.zeros(3, 8, 10)).shape == (3, 144, 180) and upscale_nearest(
        torch.zeros(3, 200, 100)
    ).shape == (3, 200, 100)


@pytest.mark.parametrize(("size", "patches"), [((8, 8), 7), ((9, 12), 3), ((5, 5), 5)])
def test_patch_grid_is_read_back_from_its_map(size, patches):
    values = torch.rand(patches**2)
    torch.testing.assert_close(
        torch.tensor(read_patch_grid(values[patch_grid(size, patches)], patches)).flatten(), values
    )


def test_bars_of_positive_and_negative_values():
    values = {"saliency": torch.tensor([1.0, 2.0, 3.0]), "shapley": torch.tensor([2.0, -1.0, 0.5])}
    svg_text = draw_attribution_bars("t", ["a", "b", "<c>"], values, ["1", "2", "3"])
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)".*?<title>(.*?)</title>', svg_text)
    bar_by_title = {title: (float(x), float(w)) for x, _, w, title in boxes}
    assert bar_by_title["a: Shapley values 2"][1] == pytest.approx(2 * bar_by_title["b: Shapley values −1"][1], abs=0.1)
    assert bar_by_title["b: Shapley values −1"][0] < bar_by_title["a: Shapley values 2"][0] and "&lt;c&gt;" in svg_text
    assert draw_attribution_bars("t", [], {"shapley": torch.zeros(0)}).startswith("<svg")
