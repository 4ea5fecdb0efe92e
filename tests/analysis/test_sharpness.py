"""The power method, against the eigenvalues of an explicit Hessian."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from didact.analysis.sharpness import hessian_top_eigenvalue
from didact.models.tabular.mlp import MLP


def test_hessian_top_eigenvalue_of_a_quadratic():
    w = nn.Parameter(torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64))
    curvatures = torch.tensor([1.0, 7.0, 3.0], dtype=torch.float64)
    torch.manual_seed(0)
    assert float(hessian_top_eigenvalue((curvatures * w**2).sum() / 2, [w])) == pytest.approx(7)


def test_hessian_top_eigenvalue_matches_the_hessian_of_a_network():
    torch.manual_seed(1)
    net, x, y = (
        MLP(3, 2, hidden=(4,), activation="tanh").double(),
        torch.randn(20, 3, dtype=torch.float64),
        torch.randint(2, (20,)),
    )
    names, sizes = zip(*((n, p.shape) for n, p in net.named_parameters()), strict=True)
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])

    def loss(w: torch.Tensor) -> torch.Tensor:
        parts = dict(
            zip(
                names, (p.view(s) for p, s in zip(w.split([s.numel() for s in sizes]), sizes, strict=True)), strict=True
            )
        )
        return nn.functional.cross_entropy(functional_call(net, parts, (x,)), y)

    eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    largest = eigenvalues[eigenvalues.abs().argmax()]
    estimated = hessian_top_eigenvalue(nn.functional.cross_entropy(net(x), y), list(net.parameters()), steps=300)
    assert float(estimated) == pytest.approx(float(largest), rel=1e-4)


def test_hessian_top_eigenvalue_of_a_plane_is_zero():
    w, unused = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.ones(3))
    assert float(hessian_top_eigenvalue((w**2).sum() * 0, [w])) == 0
    assert float(hessian_top_eigenvalue(w.sum(), [w])) == 0
    assert float(hessian_top_eigenvalue((w**2).sum(), [w, unused])) == pytest.approx(2)
