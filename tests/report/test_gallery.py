"""Codes in a plane as scikit-learn finds it, the use of a codebook as it is counted, rows of the same noise in
order."""

import re

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from didact.report.gallery import (
    draw_codebook_usage,
    draw_density_plane,
    draw_latent_plane,
    draw_training_samples,
    project_pca,
)


def test_project_pca_equals_sklearn():
    z = torch.randn(200, 7, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 8)
    projection, share = project_pca(z)
    pca = PCA(2).fit(z.double().numpy())
    expected = pca.transform(z.double().numpy())
    # a direction has no sign
    np.testing.assert_allclose(np.abs(projection.numpy()), np.abs(expected), rtol=1e-6, atol=1e-6)
    assert share == pytest.approx(pca.explained_variance_ratio_.sum())
    figure = draw_latent_plane({"latent": z, "y": torch.arange(200) % 2}, ["odd", "even"])
    assert f"{100 * share:.0f} % of the variance" in figure and "component 1" in figure
    assert "dimension 2" in draw_latent_plane({"latent": z[:, :2]}, [])
    assert draw_latent_plane({"latent": z[:1]}, ["odd", "even"]) is None     # one example, one class: no plane
    assert draw_latent_plane({"latent": z[:, :1]}, []) is None and draw_latent_plane({}, []) is None


def test_latent_plane_draws_collapsed_codes():
    assert "0 % of the variance" in draw_latent_plane({"latent": torch.ones(5, 3)}, [])


def test_codebook_usage_counts_the_codes():
    rows = {"codes": torch.tensor([[3, 3, 3], [0, 3, 1]])}
    figure = draw_codebook_usage(rows, {"arguments": {"codebook_size": 5}})
    assert "3 of 5 codes are used" in figure and "Codebook usage" in figure
    assert (
        draw_codebook_usage({}, {"arguments": {"codebook_size": 5}}) is None
        and draw_codebook_usage(rows, {"arguments": {}}) is None
    )


def test_training_samples_are_drawn_in_the_order_of_steps():
    samples = {str(step): torch.zeros(8, 1, 4, 4, dtype=torch.uint8) for step in (100, 5, 20)}
    figure = draw_training_samples(samples, {"plan": {"rounds_per_epoch": 20}, "best_step": 100})
    assert figure.index("step 5") < figure.index("epoch 1") < figure.index("epoch 5") and "from step 100" in figure


def test_latent_plane_of_numeric_targets_has_dots():
    z = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    page = str(draw_latent_plane({"latent": z, "y": torch.linspace(100, 400, 30)}, []))
    assert "nothing was recorded" not in page and page.count("<circle") == 30


def test_density_plane_has_the_axes_of_the_features():
    density_map = torch.rand(1, 2, 1, 96, 96)
    ends = torch.tensor([[-1.0, 100.0], [2.0, 400.0]])
    grids = {"density": density_map, "density limits": ends}
    density, points = (str(figure) for figure in draw_density_plane(grids, ["dose", "effect"]))
    for chart in (density, points):
        assert ">dose<" in chart and ">effect<" in chart and "<image" in chart and "nothing was recorded" not in chart
        marks = re.findall(r'class="tick"[^>]*>([^<]*)<', chart)
        assert {"−1.0", "0", "2.0", "100", "400"} <= set(marks)
    assert draw_density_plane({"density": density_map}, []) == [], "a run made before the ends were kept"
