"""Grad-CAM: where in the image a layer found what speaks for the class."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.errors import UsageError
from didact.explain.gradients import Score, chosen
from didact.explain.inside import kept, last_maps, maps_of, named, size_of


def grad_cam(model_fn: Score | nn.Module, x: Tensor, target: int | Tensor, *, layer: nn.Module | str | None = None) -> Tensor:
    """α_k = mean_ij ∂s_c/∂A^k_ij,  M = relu(Σ_k α_k A^k), upsampled to (B, H, W).  Selvaraju et al. 2017, eqs. 1-2; Gaba 12.5.2.

    A is what `layer` gives. Of a module it may be a name, or left out for the last maps; tokens of patches count as maps.
    """
    size = size_of(x)
    place = chosen_layer(model_fn, x, layer)
    with torch.enable_grad(), kept(place) as found:
        s = chosen(model_fn(x.detach().requires_grad_()), target)
        a = maps_of(found, place, size)                             # (B, C, h, w)
        out = found[0][1]
        g, = torch.autograd.grad(s.sum(), out)
    slope = maps_of([(place, g)], place, size)
    alpha = slope.mean(dim=(2, 3), keepdim=True)                    # (B, C, 1, 1)
    m = torch.relu((alpha * a.detach()).sum(dim=1, keepdim=True))
    return F.interpolate(m, size=size, mode="bilinear")[:, 0]


def chosen_layer(model_fn: Score | nn.Module, x: Tensor, layer: nn.Module | str | None) -> nn.Module:
    if isinstance(layer, nn.Module):
        return layer
    if not isinstance(model_fn, nn.Module):
        raise UsageError("Grad-CAM of a function needs the layer itself: grad_cam(f, x, target, layer=model.conv)")
    return named(model_fn, layer) if layer else last_maps(model_fn, model_fn, x)
