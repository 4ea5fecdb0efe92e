"""Grad-CAM: where in the image a layer found evidence for a class."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.errors import UsageError
from didact.explain.feature_maps import find_last_map_layer, find_layer, get_image_size, get_layer_maps, record_outputs
from didact.explain.gradients import ScoreFn, select_class_score


def grad_cam(
    model_fn: ScoreFn | nn.Module, x: Tensor, target: int | Tensor, *, layer: nn.Module | str | None = None
) -> Tensor:
    """α_k = mean_ij ∂s_c/∂A^k_ij,  M = relu(Σ_k α_k A^k), upsampled to (B, H, W).

    Selvaraju et al. 2017, eqs. 1-2; Gaba 12.5.2. A is the output of `layer`: a module, or its name in a model; None:
    the last feature maps. Patch tokens count as maps.
    """
    size = get_image_size(x)
    target_layer = _resolve_layer(model_fn, x, layer)
    with torch.enable_grad(), record_outputs(target_layer) as outputs:
        s = select_class_score(model_fn(x.detach().requires_grad_()), target)
        a = get_layer_maps(outputs, target_layer, size)                             # (B, C, h, w)
        out = outputs[0][1]
        g, = torch.autograd.grad(s.sum(), out)
    gradient_maps = get_layer_maps([(target_layer, g)], target_layer, size)
    alpha = gradient_maps.mean(dim=(2, 3), keepdim=True)                    # (B, C, 1, 1)
    m = torch.relu((alpha * a.detach()).sum(dim=1, keepdim=True))
    return F.interpolate(m, size=size, mode="bilinear")[:, 0]


def _resolve_layer(model_fn: ScoreFn | nn.Module, x: Tensor, layer: nn.Module | str | None) -> nn.Module:
    if isinstance(layer, nn.Module):
        return layer
    if not isinstance(model_fn, nn.Module):
        raise UsageError("Grad-CAM of a function needs the layer itself: grad_cam(f, x, target, layer=model.conv)")
    return find_layer(model_fn, layer) if layer else find_last_map_layer(model_fn, model_fn, x)
