"""Feature maps of layers, and the filters of the first layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from didact.errors import UsageError, look_up
from didact.explain.gradients import ScoreFn


@contextmanager
def record_outputs(*layers: nn.Module) -> Iterator[list[tuple[nn.Module, Tensor]]]:
    """Inside, every output of these layers is recorded, in order.

    The network continues with a copy: an in-place ReLU would overwrite the recorded output, or forbid its gradient
    (M56).
    """
    outputs: list[tuple[nn.Module, Tensor]] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> Any:
        if not isinstance(output, Tensor):
            return output
        outputs.append((module, output))
        return output.clone()

    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def to_maps(a: Tensor, size: tuple[int, int]) -> Tensor | None:
    """(B, C, h, w) as it is; tokens (B, S, C) or (B, 1 + S, C) of an image of this size as maps; or None.

    Patches are in row order, after a class token if there is one.
    """
    if a.ndim == 4:
        return a if a.shape[2] * a.shape[3] > 1 else None
    if a.ndim != 3:
        return None
    H, W = size
    for n in (a.shape[1] - 1, a.shape[1]):
        h = round((n * H / W) ** 0.5)
        if n > 1 and h and n % h == 0 and h * W == n // h * H:            # the grid has the image's proportions
            maps: Tensor = a[:, -n:].mT.unflatten(2, (h, n // h))
            return maps
    return None


def get_image_size(x: Tensor) -> tuple[int, int]:
    """The height and width of images (B, C, H, W)."""
    if x.ndim != 4:
        raise UsageError(f"feature maps are of images, (B, C, H, W); got inputs of {tuple(x.shape)}")
    return x.shape[2], x.shape[3]


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """A layer by the name that `didact show` prints."""
    layers: dict[str, nn.Module] = {layer_name: layer for layer_name, layer in model.named_modules() if layer_name}
    return look_up("layer", name, layers)


def _has_convolution(layer: nn.Module) -> bool:
    """Whether it is a convolution or a block that contains one."""
    return not isinstance(layer, nn.Sequential) and any(isinstance(m, _ConvNd) for m in layer.modules())


def find_last_map_layer(model: nn.Module, model_fn: ScoreFn, x: Tensor) -> nn.Module:
    """The default layer of Grad-CAM: the last convolution with spatial extent, or what follows it at the same size.

    What follows are norm and activation, or the end of its block: the maps as the rest of the network reads them. A
    network of tokens has none; there it is the last layer on whose patches the scores depend: after the last attention
    often only the class token is read, and the gradient of the patches is zero.
    """
    size = get_image_size(x)
    with torch.enable_grad(), record_outputs(*(m for m in model.modules() if m is not model)) as outputs:
        scores = model_fn(x[:1].detach().requires_grad_())
    conv_indices = [
        k
        for k, (layer, a) in enumerate(outputs)
        if a.ndim == 4 and to_maps(a, size) is not None and _has_convolution(layer)
    ]
    if conv_indices:
        last_size = outputs[conv_indices[-1]][1].shape[2:]
        same_size = takewhile(lambda seen: seen[1].shape[2:] == last_size, outputs[conv_indices[-1] :])
        return [layer for layer, _ in same_size if not isinstance(layer, nn.Sequential)][-1]
    tokens = [(layer, a) for layer, a in outputs if a.ndim == 3 and to_maps(a, size) is not None]
    gradients = torch.autograd.grad(scores.square().sum(), [a for _, a in tokens], allow_unused=True) if tokens else ()
    for (layer, _), g in zip(reversed(tokens), reversed(gradients), strict=True):
        maps = to_maps(g, size) if g is not None else None
        if maps is not None and maps.count_nonzero():
            return layer
    raise UsageError(
        "this network has no convolutional layer and no patches: Grad-CAM needs maps; use saliency or occlusion"
    )


@torch.no_grad()
def feature_maps(model_fn: ScoreFn, x: Tensor, layer: nn.Module) -> Tensor:
    """The outputs of a layer for these images, (B, C, h, w).  Gaba Ex 4.3."""
    with record_outputs(layer) as outputs:
        model_fn(x)
    return get_layer_maps(outputs, layer, get_image_size(x))


def get_layer_maps(outputs: list[tuple[nn.Module, Tensor]], layer: nn.Module, size: tuple[int, int]) -> Tensor:
    """The first output of the layer as maps. (Flip test-time augmentation calls a layer twice.)"""
    if not outputs:
        raise UsageError(
            f"the layer {type(layer).__name__} is not used when the class scores are computed; choose another"
        )
    a = outputs[0][1]
    maps = to_maps(a, size)
    if maps is None:
        shape = " × ".join(map(str, a.shape[1:]))
        raise UsageError(
            f"the layer {type(layer).__name__} outputs {shape} numbers, which are not maps of the image; choose a "
            "convolutional one"
        )
    return maps


def filters(model: nn.Module, shape: tuple[int, ...] = ()) -> Tensor:
    """The kernels of the first layer, (n, C, kh, kw), in input units.  Gaba Ex 4.3.

    For an MLP on images of this `shape`, the weights of each unit are such an image too.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            return layer.weight.detach()
        if isinstance(layer, nn.Linear):
            if len(shape) == 3 and layer.in_features == shape[0] * shape[1] * shape[2]:
                units: Tensor = layer.weight.detach().unflatten(1, shape)
                return units
            break
    raise UsageError(
        "this network's first layer has no filters: it is neither a convolution nor a linear layer on pixels"
    )
