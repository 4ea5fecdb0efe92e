"""The same explanations on a GPU as on the CPU."""

import pytest
import torch
from torch import nn

from didact.explain import (
    feature_maps,
    grad_cam,
    gradient_times_input,
    occlusion,
    patch_grid,
    saliency,
    shapley,
    smooth_grad,
)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

METHODS = {
    "saliency": saliency,
    "smooth_grad": lambda f, x, c: smooth_grad(f, x, c, noise=0.0, num_samples=2),
    "gradient_times_input": lambda f, x, c: gradient_times_input(f, x, c, baseline=0.5),
    "grad_cam": grad_cam,
    "feature_maps": lambda f, x, c: feature_maps(f, x, f[0]),
    "occlusion": lambda f, x, c: occlusion(f, x, c, patch=3, baseline=0.5),
    "shapley": lambda f, x, c: shapley(f, x, c, players=patch_grid((8, 12), 3), baseline=0.5),
    "sampled": lambda f, x, c: shapley(
        f, x, c, players=patch_grid((8, 12), 4), num_samples=2, generator=torch.Generator().manual_seed(0)
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_method_agrees_on_cpu_and_gpu(name):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(6 * 96, 3)
    ).double()
    x, y = torch.rand(3, 2, 8, 12, dtype=torch.float64), torch.tensor([0, 2, 1])
    on_cpu = METHODS[name](model, x, y)
    on_gpu = METHODS[name](model.cuda(), x.cuda(), y)
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), on_cpu)
