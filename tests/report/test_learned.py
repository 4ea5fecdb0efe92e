"""What the model says everywhere, and how signals run through it before the first step."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from run_folders import make, read

from didact import report
from didact.layers.propagation import propagation
from didact.models.vqvae import VQVAE
from didact.report.figures import roomy, signal_figures
from didact.report.page import style
from didact.report.surface import FAINT, MIDTONES, RAMP, STRONG, learned_figure, rgb, tone
from didact.report.svg import Series


def square(n=6):
    """A grid over 0 … n-1 and 10 … 10+n-1, the first feature slowest, as training writes it."""
    return torch.cartesian_prod(torch.arange(n).float(), 10 + torch.arange(n).float())


def image(picture):
    uri = re.search(r'href="data:image/png;base64,([^"]+)"', picture)[1]
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri)))) / 255


def drawn(picture, name, kind):
    return [e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith(name) and e.get("class") == kind]


def points(path):
    return np.array([[float(v) for v in point.split()] for point in path.strip("MZ").split("L")])


PLANE = {"task": "binary", "labels": ["no", "yes"], "names": ["a", "b"], "target": "y"}
LINE = {"task": "regression", "labels": [], "names": ["dose"], "target": "effect"}


def test_a_region_has_its_class_colour_and_its_strength():
    x = square()
    second = ((x[:, 0] >= 4) & (x[:, 1] >= 14)).float()  # high in both: the upper right corner, 2 by 2 pixels
    p = torch.stack([1 - second, second], dim=1)
    p[0] = torch.tensor([0.75, 0.25])                    # the lower left corner: half way from an even chance to certainty
    seen = {"x": x, "mean": p, "seen_x": torch.tensor([[0.0, 10.0], [5.0, 15.0]]), "seen_y": torch.tensor([0, 1])}
    picture = learned_figure(PLANE, seen, noise=False).svg
    pixels = image(picture)
    assert pixels.shape == (6, 6, 4)
    expected = np.array([rgb(MIDTONES[0])] * 36).reshape(6, 6, 3)
    expected[:2, 4:] = rgb(MIDTONES[1])
    np.testing.assert_allclose(pixels[..., :3], expected, atol=1 / 255)
    assert pixels[0, 0, 3] == pytest.approx(STRONG, abs=1 / 255)
    assert pixels[5, 0, 3] == pytest.approx((FAINT + STRONG) / 2, abs=1 / 255)


def test_dots_lie_in_the_middle_of_their_pixels():
    x = square()
    seen = {"x": x, "mean": torch.full((36, 2), 0.5), "seen_x": torch.tensor([[0.0, 10.0], [5.0, 15.0]]), "seen_y": torch.tensor([0, 1])}
    picture = learned_figure(PLANE, seen, noise=False).svg
    (frame,) = (e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("image"))
    left, top, width, height = (float(frame.get(key)) for key in ("x", "y", "width", "height"))
    first, last = ((float(e.get("cx")), float(e.get("cy"))) for e in drawn(picture, "circle", "spot"))
    assert first == pytest.approx((left + width / 12, top + height * 11 / 12), abs=0.1)
    assert last == pytest.approx((left + width * 11 / 12, top + height / 12), abs=0.1)


def test_a_map_of_numbers_gives_ground_and_dots_one_scale():
    x = square()
    seen = {"x": x, "mean": x[:, 0], "seen_x": torch.tensor([[0.0, 10.0], [2.0, 11.0]]), "seen_y": torch.tensor([0.0, 10.0])}
    picture = learned_figure({**PLANE, "task": "regression", "labels": []}, seen, noise=False).svg
    pixels = image(picture)
    np.testing.assert_allclose(pixels[0, :, :3], [tone(k / 10) for k in range(6)], atol=2 / 255)  # 0 … 5 of targets up to 10
    np.testing.assert_array_equal(pixels, pixels[:1].repeat(6, 0))
    low, high = (re.search(r"rgb\(([^)]*)", e.get("style"))[1].split() for e in drawn(picture, "circle", "spot"))
    assert [int(v) for v in low] == pytest.approx([255 * c for c in rgb(RAMP[0])])
    assert [int(v) for v in high] == pytest.approx([255 * c for c in rgb(RAMP[-1])])


def test_the_ramp_grows_lighter():
    grey = [np.dot(tone(k / 50), [0.2126, 0.7152, 0.0722]) for k in range(51)]
    assert (np.diff(grey) > 0).all()


def test_an_images_tones_are_halfway_between_the_themes():
    light, dark = style("chart.css").split("@media", 1)
    for k, colour in enumerate(MIDTONES):
        ends = [rgb(re.search(rf"--s{k}: (#\w+)", theme)[1]) for theme in (light, dark)]
        np.testing.assert_allclose(rgb(colour), np.mean(ends, axis=0), atol=1 / 255)


def curve(**more):
    x = torch.linspace(-1, 1, 21)
    return {"x": x[:, None], "mean": x**2, "seen_x": torch.tensor([[-1.0], [1.0]]), "seen_y": torch.tensor([2.0, -1.0]), **more}


def test_the_band_is_the_normal_95_percent():
    std = torch.linspace(0.1, 0.3, 21)
    figure = learned_figure(LINE, curve(std=std), noise=True)
    (band,), (model,) = drawn(figure.svg, "path", "band"), drawn(figure.svg, "path", "line")
    edge, line = points(band.get("d")), points(model.get("d"))
    upper, lower = edge[:21], edge[:20:-1]
    np.testing.assert_allclose(upper[:, 0], line[:, 0])
    np.testing.assert_allclose((upper + lower)[:, 1] / 2, line[:, 1], atol=0.11)
    unit = line[0, 1] - line[10, 1]  # pixels of one, negative: y grows upwards, and the curve falls from 1 to 0
    np.testing.assert_allclose((upper - line)[:, 1] / unit, 1.959964 * std.numpy(), atol=4e-3)
    assert len(drawn(figure.svg, "circle", "cloud")) == 2


def test_the_band_says_what_it_holds():
    std = torch.full((21,), 0.1)
    assert "about 95" in learned_figure(LINE, curve(std=std), noise=True).caption
    assert "scatter more widely" in learned_figure(LINE, curve(std=std), noise=False).caption
    for bare in (curve(), curve(std=torch.full((21,), torch.nan))):  # one member has no spread
        assert "band" not in learned_figure(LINE, bare, noise=False).caption


def test_one_feature_and_classes_are_curves_of_probability():
    x = torch.linspace(0, 1, 5)
    p = torch.stack([1 - x, 0.75 * x, 0.25 * x], dim=1)
    seen = {"x": x[:, None], "mean": p, "seen_x": torch.rand(4, 1), "seen_y": torch.tensor([0, 1, 2, 2])}
    picture = learned_figure({**LINE, "task": "multiclass", "labels": ["a", "b", "c"]}, seen, noise=False).svg
    falling, steep, flat = (points(e.get("d"))[:, 1] for e in drawn(picture, "path", "line"))
    assert falling[0] - falling[-1] == pytest.approx(4 * (flat[-1] - flat[0]), abs=0.5)
    assert (steep[0] - steep[-1]) == pytest.approx(3 * (flat[0] - flat[-1]), abs=0.4)
    heights = [float(e.get("cy")) for e in drawn(picture, "circle", "cloud")]
    assert len(heights) == 4 and len(set(heights)) == 3 and min(heights) > steep[0], "below probability 0, a row for each class"


def test_what_cannot_be_drawn_is_left_out():
    assert learned_figure(PLANE, {}, noise=False) is None
    many = {"x": square(), "mean": torch.rand(36, 2), "seen_x": torch.rand(3, 2), "seen_y": torch.rand(3, 2).round()}
    assert learned_figure({**PLANE, "task": "multilabel"}, many, noise=False) is None


def test_it_stands_right_after_the_curves(tmp_path):
    run = make(tmp_path, kind="table", shape=(2,), labels=("no", "yes"), task="binary", names=("a", "b"))
    run.save("surface", {"x": square(), "mean": torch.full((36, 2), 0.5), "seen_x": torch.rand(3, 2), "seen_y": torch.tensor([0, 1, 1])})
    page, _ = read(report.write(run))
    titles = re.findall(r"<h2>([^<]*)", page)
    assert titles[titles.index("Learning") + 1] == "What it learned"
    ElementTree.parse(run.folder / "figures" / "learned.svg")


def row(layer, kind, variance, gradient):
    return {"layer": layer, "kind": kind, "mean": 0.0, "variance": variance, "gradient_mean": 0.0, "gradient_variance": gradient}


DEEP = [row("net.0", "Linear", 1.0, 1e-8), row("net.1", "ReLU", 0.1, 1e-7), row("net.2", "Linear", 1e-2, 1e-4)]


def test_signals_stand_logarithmically_over_the_layers():
    forward, backward = signal_figures({"propagation": DEEP})
    (line,) = (points(e.get("d")) for e in drawn(forward.svg, "path", "line"))
    (dot,) = drawn(forward.svg, "circle", "dot")  # the activation stands over its layer, half way between 1 and 0.01
    assert float(dot.get("cx")) == pytest.approx(line[0, 0], abs=0.1)
    assert float(dot.get("cy")) == pytest.approx(line[:, 1].mean(), abs=0.1)
    (line,) = (points(e.get("d")) for e in drawn(backward.svg, "path", "line"))
    assert line[0, 1] > line[1, 1], "gradients vanish towards the input"


def test_the_axis_goes_to_the_end_of_a_decoder():
    """Its activations stand over transposed convolutions of their own: the line never runs straight up."""
    model = VQVAE(shape=(1, 8, 8), widths=(4, 6), codes=5, dim=3)
    rows = propagation(model, torch.rand(16, 1, 8, 8))
    forward, _ = signal_figures({"propagation": rows})
    before, after = (points(e.get("d")) for e in drawn(forward.svg, "path", "line"))
    assert len(before) == 6 and len(after) == 4
    assert all((np.diff(line[:, 0]) > 1).all() for line in (before, after))


def test_both_sides_of_a_game_have_their_layers_told_apart():
    rows = [row(f"{side}.layers.{k}", "Linear", 1.0, 1.0) for side, n in (("generator", 3), ("critic", 1)) for k in range(n)]
    forward, _ = signal_figures({"propagation": rows})
    assert forward.caption == "Layers 1 to 3: the generator, 4: the critic."
    assert "layers.0" not in forward.svg, "which of the two?"
    mixed = signal_figures({"propagation": [*rows, *rows]})[0]
    assert mixed.caption == "" and "layers.0" in signal_figures({"propagation": rows[:3]})[0].svg


def test_a_network_of_one_layer_has_no_depth():
    assert signal_figures({"propagation": DEEP[:2]}) == []
    assert signal_figures({}) == []


def test_of_members_side_by_side_the_first_is_shown():
    rows = [row(f"nets.{m}.{r['layer']}", r["kind"], r["variance"], 1.0) for m in range(3) for r in DEEP]
    forward, _ = signal_figures({"propagation": rows, "arguments": {"members": 3}})
    (line,) = (points(e.get("d")) for e in drawn(forward.svg, "path", "line"))
    assert len(line) == 2 and "first member" in forward.caption


@pytest.mark.parametrize("layers", [2, 9, 40])
def test_any_depth_and_signals_that_died(tmp_path, layers):
    rows = [row(f"net.{k}", "Linear", 0.0 if k else 1.0, 0.0) for k in range(layers)]
    _, said = read(report.write(make(tmp_path, propagation=rows)))
    assert "Signal at the start" in said


def test_small_differences_stay_small():
    assert roomy([Series("", [0, 1], [1.0, 4.0])]) == pytest.approx((0.2, 20.0)), "two decades at least, evenly around"
    assert roomy([Series("", [0, 1], [1e-6, 4.0])]) == (1e-6, 4.0)
    assert roomy([Series("", [0], [0.0])]) is None
