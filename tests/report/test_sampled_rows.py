"""Charts of drawn rows: a category's values are named where they stand. Clouds: every class of ten is named, in a
colour of its own."""

import re

import torch

from didact.charts import svg
from didact.data.tables.columns import CategoricalColumn, NumericColumn
from didact.report.gallery import draw_latent_plane
from didact.report.sampled_rows import draw_marginals, draw_scatter


def find_ticks(chart: str) -> list[str]:
    return re.findall(r'class="tick" text-anchor="middle"[^>]*>([^<]*)<', chart)


def test_marginals_name_categories_below_their_bars():
    columns = (NumericColumn("age"), CategoricalColumn("town", ("north", "south", "west"), has_other=True))
    rows = torch.cat([torch.arange(8.0)[:, None], torch.eye(4).repeat(2, 1)], dim=1)
    age, town = draw_marginals(columns, rows, rows)
    assert find_ticks(str(town)) == ["north", "south", "west", "(other)"]
    assert all(re.fullmatch(r"[\d.]+", word) for word in find_ticks(str(age)))
    (code_chart,) = draw_marginals(
        (CategoricalColumn("code", tuple(f"v{k}" for k in range(50))),), torch.eye(50), torch.eye(50)
    )
    tick_names = [word for word in find_ticks(str(code_chart)) if word]
    # fifty names would lie upon one another
    assert 5 <= len(tick_names) <= 8 and tick_names[0] == "v0"


def test_latent_plane_names_ten_classes_in_distinct_colors():
    labels = [f"class {k}" for k in range(10)]
    z = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    figure = str(draw_latent_plane({"latent": z, "y": torch.arange(100) % 10}, labels))
    assert all(f">{name}<" in figure for name in labels) and "more<" not in figure
    hues = [
        (float(h), float(v))
        for h, v in (re.findall(r"hsl\((\d+) \d+% (\d+)%\)", svg.class_color(k, 10))[0] for k in range(10))
    ]
    gaps = [abs((a[0] - b[0] + 180) % 360 - 180) + 2 * abs(a[1] - b[1]) for k, a in enumerate(hues) for b in hues[:k]]
    assert min(gaps) >= 36 and [svg.class_color(k, 8) for k in range(8)] == list(range(8))


def find_dots(chart: str) -> list[tuple[float, float, str]]:
    return [
        (float(x), float(y), c)
        for x, y, c in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"[^>]*class="cloud" style="--c:([^"]+)"', chart)
    ]


def test_scatter_of_real_and_sampled_rows_shares_axes_and_class_colors():
    columns = (NumericColumn("right"), NumericColumn("up"), CategoricalColumn("kind", ("a", "b")))
    real = torch.tensor([[0.0, 0.0, 1, 0], [4.0, 2.0, 0, 1], [2.0, 1.0, 0, 1]])
    samples = torch.tensor([[4.0, 2.0, 1, 0]])
    left, right = (find_dots(str(chart)) for chart in draw_scatter(columns, real, samples, "kind"))
    assert [c for _, _, c in left] == ["var(--s0)", "var(--s1)", "var(--s1)"] and [c for _, _, c in right] == [
        "var(--s0)"
    ]
    assert left[1][:2] == right[0][:2], "the same numbers, the same place"
    assert left[2][0] == round((left[0][0] + left[1][0]) / 2, 1) and left[0][1] > left[2][1] > left[1][1], "up is up"
    assert all(
        ">up<" in str(chart) and ">right<" in str(chart) for chart in draw_scatter(columns, real, samples, "kind")
    )
    plain = [find_dots(str(chart)) for chart in draw_scatter(columns[:2], real[:, :2], samples[:, :2], "kind")]
    assert [len(points) for points in plain] == [3, 1] and plain[0][0][2] != plain[1][0][2]
    other = [find_dots(str(chart)) for chart in draw_scatter(columns, real, samples, "up")]
    assert len({c for _, _, c in other[0]}) == 1, "a category that is not the target is no class"


def test_scatter_takes_the_two_most_correlated_numbers():
    g = torch.Generator().manual_seed(0)
    a, b, noise = torch.randn(3, 200, generator=g)
    gap = (torch.arange(200) % 4 == 0).float()
    columns = (NumericColumn("a"), NumericColumn("b"), NumericColumn("same"), NumericColumn("like a", has_missing=True))
    rows = torch.stack([a, b, torch.ones(200), -a + 0.1 * noise, gap], dim=1)
    left, right = (str(chart) for chart in draw_scatter(columns, rows, rows[:100], ""))
    assert ">a<" in left and ">like a<" in left and ">b<" not in left
    assert len(find_dots(left)) == 150 and len(find_dots(right)) == 75, "a row without one of them is no point"
    assert (
        draw_scatter(columns[:1], rows[:, :1], rows[:, :1], "")
        == draw_scatter(columns[1:3], rows[:, 1:3], rows[:, 1:3], "")
        == []
    )
