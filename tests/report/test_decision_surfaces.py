"""What the model says everywhere, and how signals run through it before the first step."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from didact import report
from didact.analysis.signal_propagation import measure_signal_propagation
from didact.charts.svg import Series
from didact.models.generative.vqvae import VQVAE
from didact.report.decision_surfaces import (
    MAX_OPACITY,
    MIDTONES,
    MIN_OPACITY,
    VALUE_RAMP,
    hex_to_rgb,
    make_surface_figure,
    ramp_color,
)
from didact.report.figures import make_signal_figures, padded_log_range
from didact.report.page import read_css
from helpers.run_folders import make_run, read_page


def make_grid(n=6):
    """A grid over 0 … n-1 and 10 … 10+n-1, the first feature slowest, as training writes it."""
    return torch.cartesian_prod(torch.arange(n).float(), 10 + torch.arange(n).float())


def decode_image(picture):
    uri = re.search(r'href="data:image/png;base64,([^"]+)"', picture)[1]
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri)))) / 255


def find_elements(picture, name, kind):
    return [e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith(name) and e.get("class") == kind]


def parse_points(path):
    return np.array([[float(v) for v in point.split()] for point in path.strip("MZ").split("L")])


PLANE_METADATA = {"task": "binary", "class_names": ["no", "yes"], "feature_names": ["a", "b"], "target": "y"}
LINE_METADATA = {"task": "regression", "class_names": [], "feature_names": ["dose"], "target": "effect"}


def test_surface_figure_colors_regions_by_class_and_confidence():
    x = make_grid()
    second = ((x[:, 0] >= 4) & (x[:, 1] >= 14)).float()  # high in both: the upper right corner, 2 by 2 pixels
    p = torch.stack([1 - second, second], dim=1)
    # the lower left corner: half way from an even chance to certainty
    p[0] = torch.tensor([0.75, 0.25])
    surface = {"x": x, "mean": p, "seen_x": torch.tensor([[0.0, 10.0], [5.0, 15.0]]), "seen_y": torch.tensor([0, 1])}
    picture = make_surface_figure(PLANE_METADATA, surface, includes_noise=False).svg
    pixels = decode_image(picture)
    assert pixels.shape == (6, 6, 4)
    expected = np.array([hex_to_rgb(MIDTONES[0])] * 36).reshape(6, 6, 3)
    expected[:2, 4:] = hex_to_rgb(MIDTONES[1])
    np.testing.assert_allclose(pixels[..., :3], expected, atol=1 / 255)
    assert pixels[0, 0, 3] == pytest.approx(MAX_OPACITY, abs=1 / 255)
    assert pixels[5, 0, 3] == pytest.approx((MIN_OPACITY + MAX_OPACITY) / 2, abs=1 / 255)


def test_surface_figure_centers_dots_on_their_pixels():
    x = make_grid()
    surface = {
        "x": x,
        "mean": torch.full((36, 2), 0.5),
        "seen_x": torch.tensor([[0.0, 10.0], [5.0, 15.0]]),
        "seen_y": torch.tensor([0, 1]),
    }
    picture = make_surface_figure(PLANE_METADATA, surface, includes_noise=False).svg
    (frame,) = (e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("image"))
    left, top, width, height = (float(frame.get(key)) for key in ("x", "y", "width", "height"))
    first, last = ((float(e.get("cx")), float(e.get("cy"))) for e in find_elements(picture, "circle", "spot"))
    assert first == pytest.approx((left + width / 12, top + height * 11 / 12), abs=0.1)
    assert last == pytest.approx((left + width * 11 / 12, top + height / 12), abs=0.1)


def test_surface_figure_of_numbers_has_one_scale_for_map_and_dots():
    x = make_grid()
    surface = {
        "x": x,
        "mean": x[:, 0],
        "seen_x": torch.tensor([[0.0, 10.0], [2.0, 11.0]]),
        "seen_y": torch.tensor([0.0, 10.0]),
    }
    picture = make_surface_figure(
        {**PLANE_METADATA, "task": "regression", "class_names": []}, surface, includes_noise=False
    ).svg
    pixels = decode_image(picture)
    # 0 … 5 of targets up to 10
    np.testing.assert_allclose(pixels[0, :, :3], [ramp_color(k / 10) for k in range(6)], atol=2 / 255)
    np.testing.assert_array_equal(pixels, pixels[:1].repeat(6, 0))
    low, high = (
        re.search(r"rgb\(([^)]*)", e.get("style"))[1].split() for e in find_elements(picture, "circle", "spot")
    )
    assert [int(v) for v in low] == pytest.approx([255 * c for c in hex_to_rgb(VALUE_RAMP[0])])
    assert [int(v) for v in high] == pytest.approx([255 * c for c in hex_to_rgb(VALUE_RAMP[-1])])


def test_ramp_color_gets_lighter():
    lightness = [np.dot(ramp_color(k / 50), [0.2126, 0.7152, 0.0722]) for k in range(51)]
    assert (np.diff(lightness) > 0).all()


def test_midtones_lie_between_the_light_and_the_dark_theme():
    light, dark = read_css("chart.css").split("@media", 1)
    for k, color in enumerate(MIDTONES):
        ends = [hex_to_rgb(re.search(rf"--s{k}: (#\w+)", theme)[1]) for theme in (light, dark)]
        np.testing.assert_allclose(hex_to_rgb(color), np.mean(ends, axis=0), atol=1 / 255)


def make_curve(**extra):
    x = torch.linspace(-1, 1, 21)
    return {
        "x": x[:, None],
        "mean": x**2,
        "seen_x": torch.tensor([[-1.0], [1.0]]),
        "seen_y": torch.tensor([2.0, -1.0]),
        **extra,
    }


def test_uncertainty_band_is_the_normal_95_percent():
    std = torch.linspace(0.1, 0.3, 21)
    figure = make_surface_figure(LINE_METADATA, make_curve(std=std), includes_noise=True)
    (band,), (model,) = find_elements(figure.svg, "path", "band"), find_elements(figure.svg, "path", "line")
    edge, line = parse_points(band.get("d")), parse_points(model.get("d"))
    upper, lower = edge[:21], edge[:20:-1]
    np.testing.assert_allclose(upper[:, 0], line[:, 0])
    np.testing.assert_allclose((upper + lower)[:, 1] / 2, line[:, 1], atol=0.11)
    unit = line[0, 1] - line[10, 1]  # pixels of one, negative: y grows upwards, and the curve falls from 1 to 0
    np.testing.assert_allclose((upper - line)[:, 1] / unit, 1.959964 * std.numpy(), atol=4e-3)
    assert len(find_elements(figure.svg, "circle", "cloud")) == 2


def test_uncertainty_band_caption_says_what_it_holds():
    std = torch.full((21,), 0.1)
    assert "about 95" in make_surface_figure(LINE_METADATA, make_curve(std=std), includes_noise=True).caption
    assert (
        "scatter more widely" in make_surface_figure(LINE_METADATA, make_curve(std=std), includes_noise=False).caption
    )
    for surface in (make_curve(), make_curve(std=torch.full((21,), torch.nan))):  # one member has no spread
        assert "band" not in make_surface_figure(LINE_METADATA, surface, includes_noise=False).caption


def test_surface_figure_of_one_feature_shows_probability_curves():
    x = torch.linspace(0, 1, 5)
    p = torch.stack([1 - x, 0.75 * x, 0.25 * x], dim=1)
    surface = {"x": x[:, None], "mean": p, "seen_x": torch.rand(4, 1), "seen_y": torch.tensor([0, 1, 2, 2])}
    picture = make_surface_figure(
        {**LINE_METADATA, "task": "multiclass", "class_names": ["a", "b", "c"]}, surface, includes_noise=False
    ).svg
    falling, steep, flat = (parse_points(e.get("d"))[:, 1] for e in find_elements(picture, "path", "line"))
    assert falling[0] - falling[-1] == pytest.approx(4 * (flat[-1] - flat[0]), abs=0.5)
    assert (steep[0] - steep[-1]) == pytest.approx(3 * (flat[0] - flat[-1]), abs=0.4)
    heights = [float(e.get("cy")) for e in find_elements(picture, "circle", "cloud")]
    assert len(heights) == 4 and len(set(heights)) == 3 and min(heights) > steep[0], (
        "below probability 0, a row for each class"
    )


def test_surface_figure_of_unsupported_data_is_none():
    assert make_surface_figure(PLANE_METADATA, {}, includes_noise=False) is None
    multilabel_surface = {
        "x": make_grid(),
        "mean": torch.rand(36, 2),
        "seen_x": torch.rand(3, 2),
        "seen_y": torch.rand(3, 2).round(),
    }
    assert (
        make_surface_figure({**PLANE_METADATA, "task": "multilabel"}, multilabel_surface, includes_noise=False) is None
    )


def test_surface_figure_follows_the_learning_curves(tmp_path):
    run = make_run(
        tmp_path, kind="table", shape=(2,), class_names=("no", "yes"), task="binary", feature_names=("a", "b")
    )
    run.save(
        "surface",
        {
            "x": make_grid(),
            "mean": torch.full((36, 2), 0.5),
            "seen_x": torch.rand(3, 2),
            "seen_y": torch.tensor([0, 1, 1]),
        },
    )
    page, _ = read_page(report.write_report(run))
    titles = re.findall(r"<h2>([^<]*)", page)
    assert titles[titles.index("Training") + 1] == "Learned function"
    ElementTree.parse(run.folder / "figures" / "learned.svg")


def make_signal_row(layer, kind, variance, gradient):
    return {
        "layer": layer,
        "kind": kind,
        "mean": 0.0,
        "variance": variance,
        "gradient_mean": 0.0,
        "gradient_variance": gradient,
    }


SIGNAL_ROWS = [
    make_signal_row("net.0", "Linear", 1.0, 1e-8),
    make_signal_row("net.1", "ReLU", 0.1, 1e-7),
    make_signal_row("net.2", "Linear", 1e-2, 1e-4),
]


def test_signal_figures_are_logarithmic_over_the_layers():
    forward, backward = make_signal_figures({"propagation": SIGNAL_ROWS})
    (line,) = (parse_points(e.get("d")) for e in find_elements(forward.svg, "path", "line"))
    # the activation stands over its layer, half way between 1 and 0.01
    (dot,) = find_elements(forward.svg, "circle", "dot")
    assert float(dot.get("cx")) == pytest.approx(line[0, 0], abs=0.1)
    assert float(dot.get("cy")) == pytest.approx(line[:, 1].mean(), abs=0.1)
    (line,) = (parse_points(e.get("d")) for e in find_elements(backward.svg, "path", "line"))
    assert line[0, 1] > line[1, 1], "gradients vanish towards the input"


def test_signal_figure_reaches_the_end_of_a_decoder():
    """Its activations stand over transposed convolutions of their own: the line never runs straight up."""
    model = VQVAE(shape=(1, 8, 8), widths=(4, 6), codebook_size=5, code_dim=3)
    rows = measure_signal_propagation(model, torch.rand(16, 1, 8, 8))
    forward, _ = make_signal_figures({"propagation": rows})
    encoder_line, decoder_line = (parse_points(e.get("d")) for e in find_elements(forward.svg, "path", "line"))
    assert len(encoder_line) == 6 and len(decoder_line) == 4
    assert all((np.diff(line[:, 0]) > 1).all() for line in (encoder_line, decoder_line))


def test_signal_figures_tell_the_networks_of_a_gan_apart():
    rows = [
        make_signal_row(f"{side}.layers.{k}", "Linear", 1.0, 1.0)
        for side, n in (("generator", 3), ("critic", 1))
        for k in range(n)
    ]
    forward, _ = make_signal_figures({"propagation": rows})
    assert forward.caption == "Layers 1 to 3: the generator, 4: the critic."
    assert "layers.0" not in forward.svg, "which of the two?"
    mixed = make_signal_figures({"propagation": [*rows, *rows]})[0]
    assert mixed.caption == "" and "layers.0" in make_signal_figures({"propagation": rows[:3]})[0].svg


def test_signal_figures_need_more_than_one_layer():
    assert make_signal_figures({"propagation": SIGNAL_ROWS[:2]}) == []
    assert make_signal_figures({}) == []


def test_signal_figures_show_the_first_ensemble_member():
    rows = [
        make_signal_row(f"nets.{m}.{r['layer']}", r["kind"], r["variance"], 1.0) for m in range(3) for r in SIGNAL_ROWS
    ]
    forward, _ = make_signal_figures({"propagation": rows, "arguments": {"members": 3}})
    (line,) = (parse_points(e.get("d")) for e in find_elements(forward.svg, "path", "line"))
    assert len(line) == 2 and "first member" in forward.caption


@pytest.mark.parametrize("layers", [2, 9, 40])
def test_signal_figures_accept_any_depth_and_vanished_signals(tmp_path, layers):
    rows = [make_signal_row(f"net.{k}", "Linear", 0.0 if k else 1.0, 0.0) for k in range(layers)]
    _, text = read_page(report.write_report(make_run(tmp_path, propagation=rows)))
    assert "Signal propagation" in text


def test_padded_log_range_spans_at_least_two_decades():
    assert padded_log_range([Series("", [0, 1], [1.0, 4.0])]) == pytest.approx((0.2, 20.0)), (
        "two decades at least, evenly around"
    )
    assert padded_log_range([Series("", [0, 1], [1e-6, 4.0])]) == (1e-6, 4.0)
    assert padded_log_range([Series("", [0], [0.0])]) is None
