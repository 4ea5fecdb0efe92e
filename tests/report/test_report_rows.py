"""Charts of drawn rows: a category's values are named where they stand. Clouds: every class of ten is named, in a colour of its own."""

import re

import torch

from didact.data.table import Category, Number
from didact.report import svg
from didact.report.gallery import latent_plane
from didact.report.rows import marginals


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
