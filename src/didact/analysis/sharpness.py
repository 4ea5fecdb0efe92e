"""Sharpness of a minimum: the largest eigenvalue of the Hessian."""

from collections.abc import Sequence

import torch
from torch import Tensor


def hessian_top_eigenvalue(loss: Tensor, parameters: Sequence[Tensor], *, steps: int = 50) -> Tensor:
    """Power iteration: the eigenvalue of the Hessian of largest magnitude, λ = vᵀHv, by v ← Hv/‖Hv‖.  Gaba Ex 11.6.

    Hv = ∇(gᵀv) costs one more backward pass: H itself is never computed. At a minimum λ is the largest curvature.
    """
    g = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    if not any(part.requires_grad for part in g):      # linear: H is 0
        return loss.new_zeros(())
    v = [torch.randn_like(p) for p in parameters]
    eigenvalue = loss.new_zeros(())
    for _ in range(steps):
        norm = torch.stack(torch._foreach_norm(v)).norm().clamp(min=1e-30)    # H may be 0
        v = [part / norm for part in v]
        Hv = torch.autograd.grad(g, parameters, grad_outputs=v, retain_graph=True, materialize_grads=True)
        eigenvalue = torch.stack([(a * b).sum() for a, b in zip(v, Hv, strict=True)]).sum()
        v = list(Hv)
    return eigenvalue.detach()
