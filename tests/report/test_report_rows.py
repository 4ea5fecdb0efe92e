"""Charts of drawn rows: a category's values are named where they stand. Clouds: every class of ten is named, in a colour of its own."""

import re

import torch

from didact.data.columns import Category, Number
from didact.report import svg
from didact.report.gallery import latent_plane
from didact.report.rows import marginals, scatter


def ticks(chart: str) -> list[str]:
    return re.findall(r'class="tick" text-anchor="middle"[^>]*>([^<]*)<', chart)


def test_values_of_a_category_stand_below_their_bars():
    columns = (Number("age"), Category("town", ("north", "south", "west"), other=True))
    rows = torch.cat([torch.arange(8.0)[:, None], torch.eye(4).repeat(2, 1)], dim=1)
    age, town = marginals(columns, rows, rows)
    assert ticks(str(town)) == ["north", "south", "west", "(other)"]
    assert all(re.fullmatch(r"[\d.]+", word) for word in ticks(str(age)))
    (many,) = marginals((Category("code", tuple(f"v{k}" for k in range(50))),), torch.eye(50), torch.eye(50))
    named = [word for word in ticks(str(many)) if word]
    assert 5 <= len(named) <= 8 and named[0] == "v0"                                  # fifty names would lie upon one another


def test_ten_classes_are_all_named_and_apart():
    labels = [f"class {k}" for k in range(10)]
    z = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    shown = str(latent_plane({"latent": z, "y": torch.arange(100) % 10}, labels))
    assert all(f">{name}<" in shown for name in labels) and "more<" not in shown
    hues = [(float(h), float(v)) for h, v in (re.findall(r"hsl\((\d+) \d+% (\d+)%\)", svg.class_colour(k, 10))[0] for k in range(10))]
    gaps = [abs((a[0] - b[0] + 180) % 360 - 180) + 2 * abs(a[1] - b[1]) for k, a in enumerate(hues) for b in hues[:k]]
    assert min(gaps) >= 36 and [svg.class_colour(k, 8) for k in range(8)] == list(range(8))


def dots(chart: str) -> list[tuple[float, float, str]]:
    return [(float(x), float(y), c) for x, y, c in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"[^>]*class="cloud" style="--c:([^"]+)"', chart)]


def test_two_numbers_are_points_on_the_same_axes_by_class():
    columns = (Number("right"), Number("up"), Category("kind", ("a", "b")))
    real = torch.tensor([[0.0, 0.0, 1, 0], [4.0, 2.0, 0, 1], [2.0, 1.0, 0, 1]])
    drawn = torch.tensor([[4.0, 2.0, 1, 0]])
    left, right = (dots(str(chart)) for chart in scatter(columns, real, drawn, "kind"))
    assert [c for _, _, c in left] == ["var(--s0)", "var(--s1)", "var(--s1)"] and [c for _, _, c in right] == ["var(--s0)"]
    assert left[1][:2] == right[0][:2], "the same numbers, the same place"
    assert left[2][0] == round((left[0][0] + left[1][0]) / 2, 1) and left[0][1] > left[2][1] > left[1][1], "up is up"
    assert all(">up<" in str(chart) and ">right<" in str(chart) for chart in scatter(columns, real, drawn, "kind"))
    plain = [dots(str(chart)) for chart in scatter(columns[:2], real[:, :2], drawn[:, :2], "kind")]
    assert [len(shown) for shown in plain] == [3, 1] and plain[0][0][2] != plain[1][0][2]
    other = [dots(str(chart)) for chart in scatter(columns, real, drawn, "up")]
    assert len({c for _, _, c in other[0]}) == 1, "a category that is not the target is no class"


def test_of_many_numbers_the_two_that_hang_together_are_shown():
    g = torch.Generator().manual_seed(0)
    a, b, noise = torch.randn(3, 200, generator=g)
    gap = (torch.arange(200) % 4 == 0).float()
    columns = (Number("a"), Number("b"), Number("same"), Number("like a", missing=True))
    rows = torch.stack([a, b, torch.ones(200), -a + 0.1 * noise, gap], dim=1)
    left, right = (str(chart) for chart in scatter(columns, rows, rows[:100], ""))
    assert ">a<" in left and ">like a<" in left and ">b<" not in left
    assert len(dots(left)) == 150 and len(dots(right)) == 75, "a row without one of them is no point"
    assert scatter(columns[:1], rows[:, :1], rows[:, :1], "") == scatter(columns[1:3], rows[:, 1:3], rows[:, 1:3], "") == []
