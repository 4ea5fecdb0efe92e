"""Codes in a plane as scikit-learn finds it, the use of a codebook as it is counted, rows of the same noise in order."""

import re

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from didact.report.gallery import codebook, latent_plane, plane_of_density, principal, strip


def test_the_plane_of_many_numbers_is_sklearns():
    z = torch.randn(200, 7, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 8)
    ours, share = principal(z)
    pca = PCA(2).fit(z.double().numpy())
    theirs = pca.transform(z.double().numpy())
    np.testing.assert_allclose(np.abs(ours.numpy()), np.abs(theirs), rtol=1e-6, atol=1e-6)   # a direction has no sign
    assert share == pytest.approx(pca.explained_variance_ratio_.sum())
    shown = latent_plane({"latent": z, "y": torch.arange(200) % 2}, ["odd", "even"])
    assert f"{100 * share:.0f} % of their variance" in shown and "first direction" in shown
    assert "second number" in latent_plane({"latent": z[:, :2]}, [])
    assert latent_plane({"latent": z[:1]}, ["odd", "even"]) is None     # one example, one class: no plane
    assert latent_plane({"latent": z[:, :1]}, []) is None and latent_plane({}, []) is None


def test_collapsed_codes_are_still_drawn():
    assert "0 % of their variance" in latent_plane({"latent": torch.ones(5, 3)}, [])


def test_the_use_of_a_codebook():
    rows = {"codes": torch.tensor([[3, 3, 3], [0, 3, 1]])}
    shown = codebook(rows, {"arguments": {"codes": 5}})
    assert "3 of 5 codes are used" in shown and "Use of the codebook" in shown
    assert codebook({}, {"arguments": {"codes": 5}}) is None and codebook(rows, {"arguments": {}}) is None


def test_rows_of_one_noise_are_in_the_order_of_steps():
    kept = {str(step): torch.zeros(8, 1, 4, 4, dtype=torch.uint8) for step in (100, 5, 20)}
    shown = strip(kept, {"plan": {"epoch": 20}, "best_step": 100})
    assert shown.index("step 5") < shown.index("epoch 1") < shown.index("epoch 5") and "that of step 100" in shown


def test_codes_of_rows_with_a_number_as_target_are_dots_too():
    z = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    page = str(latent_plane({"latent": z, "y": torch.linspace(100, 400, 30)}, []))
    assert "nothing was recorded" not in page and page.count("<circle") == 30


def test_a_density_stands_on_the_features_axes():
    shades = torch.rand(1, 2, 1, 96, 96)
    ends = torch.tensor([[-1.0, 100.0], [2.0, 400.0]])
    density, points = (str(shown) for shown in plane_of_density({"density": shades, "density ends": ends}, ["dose", "effect"]))
    for chart in (density, points):
        assert ">dose<" in chart and ">effect<" in chart and "<image" in chart and "nothing was recorded" not in chart
        marks = re.findall(r'class="tick"[^>]*>([^<]*)<', chart)
        assert {"−1.0", "0", "2.0", "100", "400"} <= set(marks)
    assert plane_of_density({"density": shades}, []) == [], "a run made before the ends were kept"
