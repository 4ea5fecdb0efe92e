"""Explanations of a network that learned a known cause point at it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from didact.explain import grad_cam, occlusion, patch_grid, saliency, shapley, smooth_grad


def make_marked_images(n, seed):
    """Noise of 16 × 16; class 1 has a dark cross of 4 × 4 in one of 16 cells, class 0 a dark ring. -> x, y, cell."""
    g = torch.Generator().manual_seed(seed)
    x = 0.5 + 0.1 * torch.randn(n, 1, 16, 16, generator=g)
    y, position = (torch.randint(bound, (n,), generator=g) for bound in (2, 16))
    cross = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]).bool()
    for k in range(n):
        r, c = 4 * (int(position[k]) // 4), 4 * (int(position[k]) % 4)
        x[k, 0, r : r + 4, c : c + 4][cross if y[k] else ~cross] -= 0.5
    return x, y, position


@pytest.fixture(scope="module")
def trained_model():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y, _ = make_marked_images(1024, 0)
    for k in range(160):
        rows = torch.arange(64) + 64 * (k % 16)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model.eval()


def compute_hit_rate(heat, position):
    """How often the strongest of 16 cells is the one with the mark: 1/16 by chance."""
    predicted_position = F.adaptive_avg_pool2d(heat[:, None], 4).flatten(1).argmax(1)
    return float((predicted_position == position).float().mean())


@pytest.mark.parametrize(
    ("method", "minimum"),
    [
        (saliency, 0.9),
        (smooth_grad, 0.8),
        (grad_cam, 0.8),
        (lambda f, x, y: occlusion(f, x, y, patch=4, baseline=0.5), 0.9),
        (
            lambda f, x, y: shapley(f, x, y, players=patch_grid((16, 16), 4), baseline=0.5, num_samples=8)[
                :, patch_grid((16, 16), 4)
            ],
            0.9,
        ),
    ],
    ids=["saliency", "smooth_grad", "grad_cam", "occlusion", "shapley"],
)
def test_method_finds_the_mark(trained_model, method, minimum):
    x, y, position = make_marked_images(40, 1)
    is_correct = trained_model(x).argmax(1) == y
    assert is_correct.float().mean() > 0.95
    assert compute_hit_rate(method(trained_model, x[is_correct], y[is_correct]), position[is_correct]) >= minimum
