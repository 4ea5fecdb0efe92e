"""Colours that keep the order, tiles in their places, bars on the right side."""

import re

import pytest
import torch

from didact.explain.colour import HEAT, SIGNED, coloured, enlarged, overlay, scaled, tiled
from didact.explain.figures import bars, grid_of
from didact.explain.occlude import partition


def lightness(rgb):
    """L* of CIELAB, 0 … 100: (3, n) -> (n,)."""
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = torch.tensor([0.2126, 0.7152, 0.0722]) @ linear
    return torch.where(y > 0.008856, 116 * y ** (1 / 3) - 16, 903.3 * y)


def test_heat_grows_lighter_in_even_steps():
    light = lightness(coloured(torch.linspace(0, 1, 64)))
    steps = light.diff()
    assert steps.min() > 0 and steps.max() < 2.5 * steps.min() and light[0] < 5 and light[-1] > 94


def test_signed_colours_are_as_strong_on_both_sides():
    light = lightness(coloured(torch.linspace(0, 1, 65), SIGNED))
    assert light.argmax() == 32 and (light - light.flip(0)).abs().max() < 6
    middle = coloured(torch.tensor([0.5]), SIGNED)[:, 0]
    assert middle.max() - middle.min() < 0.02
    blue, red = coloured(torch.tensor([0.0, 1.0]), SIGNED).T
    assert blue.argmax() == 2 and red.argmax() == 0


def test_what_is_out_of_bounds_or_no_number_has_a_colour():
    found = coloured(torch.tensor([-1.0, 2.0, float("nan")]))
    torch.testing.assert_close(found[:, :2], coloured(torch.tensor([0.0, 1.0])))
    assert found.isfinite().all() and found.shape == (3, 3)
    assert coloured(torch.rand(4, 5, 6)).shape == (3, 4, 5, 6) and len(HEAT) == 8


def test_scaling_keeps_zero_in_its_place():
    values = torch.tensor([-2.0, 0.0, 1.0])
    assert scaled(values, signed=True, share=1.0).tolist() == [0.0, 0.5, 0.75]
    assert scaled(torch.zeros(3), signed=True).tolist() == [0.5] * 3 and not scaled(torch.zeros(3), signed=False).any()


def test_where_a_map_is_zero_the_image_stays():
    image, heat = torch.rand(3, 4, 6), torch.zeros(4, 6)
    heat[1, 2] = -3.0
    found = overlay(image, heat, signed=True)
    assert found.shape == (3, 4, 6)
    assert found[2, 1, 2] > found[0, 1, 2] and torch.equal(found[0, 0], found[2, 0])   # blue there, grey elsewhere


def test_tiles_lie_row_by_row():
    pictures = torch.arange(5.0)[:, None, None, None].expand(5, 1, 2, 3) / 10
    whole = tiled(pictures, gap=1.0)
    assert whole.shape == (1, 8, 7)                        # three rows of two: wider than high, so fewer across
    corners = [float(whole[0, r, c]) for r in (0, 3, 6) for c in (0, 4)]
    assert corners == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 1.0])
    assert tiled(torch.zeros(1, 3, 4, 4)).shape == (3, 4, 4)


def test_small_pictures_grow_by_whole_steps():
    assert enlarged(torch.zeros(3, 8, 10)).shape == (3, 144, 180) and enlarged(torch.zeros(3, 200, 100)).shape == (3, 200, 100)


@pytest.mark.parametrize(("size", "patches"), [((8, 8), 7), ((9, 12), 3), ((5, 5), 5)])
def test_a_grid_is_read_back_from_its_map(size, patches):
    values = torch.rand(patches**2)
    torch.testing.assert_close(torch.tensor(grid_of(values[partition(size, patches)], patches)).flatten(), values)


def test_bars_for_and_against():
    values = {"saliency": torch.tensor([1.0, 2.0, 3.0]), "shapley": torch.tensor([2.0, -1.0, 0.5])}
    drawn = bars("t", ["a", "b", "<c>"], values, ["1", "2", "3"])
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)".*?<title>(.*?)</title>', drawn)
    by = {title: (float(x), float(w)) for x, _, w, title in boxes}
    assert by["a: Shapley values 2"][1] == pytest.approx(2 * by["b: Shapley values −1"][1], abs=0.1)
    assert by["b: Shapley values −1"][0] < by["a: Shapley values 2"][0] and "&lt;c&gt;" in drawn
    assert bars("t", [], {"shapley": torch.zeros(0)}).startswith("<svg")
