"""Signal propagation: mean and variance of activations and gradients, layer by layer; shows why initialization matters.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from didact.layers.activation import ACTIVATIONS

AFFINE_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_RECORDED_LAYERS: tuple[type[nn.Module], ...] = (*AFFINE_LAYERS, *(type(make()) for make in ACTIVATIONS.values()))


def measure_signal_propagation(
    module: nn.Module, x: Any, loss_fn: Callable[[Tensor], Tensor] | None = None
) -> list[dict[str, Any]]:
    """Mean and variance of each layer's output h and of dL/dh, in order of execution.  Gaba 1.5, 2.6 (G1.19, G2.21).

    `x` is the module's input. Without `loss_fn` the gradient at the output is N(0, 1) noise, so that its variance
    starts at 1. The module keeps its parameters' gradients, its buffers and torch's random state.
    """
    names: list[tuple[str, str]] = []
    outputs: list[Tensor] = []

    def record(name: str) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def hook(layer: nn.Module, _: Any, output: Tensor) -> Tensor:
            if not output.requires_grad:  # after frozen weights alone
                output = output.detach().requires_grad_()
            names.append((name, type(layer).__name__))
            outputs.append(output)
            return output.clone()  # an in-place ReLU after this layer would overwrite the recorded output

        return hook

    hooks = [
        m.register_forward_hook(record(name)) for name, m in module.named_modules() if isinstance(m, _RECORDED_LAYERS)
    ]
    try:
        cuda = {p.device for p in module.parameters() if p.is_cuda}
        with torch.random.fork_rng(devices=list(cuda)), torch.enable_grad():
            if isinstance(x, Tensor):
                x = x.detach().requires_grad_(x.is_floating_point())
            buffers = {name: b.clone() for name, b in module.named_buffers()}  # running statistics move in these
            y = functional_call(module, buffers, (x,))
            if not outputs:
                return []
            loss = (y * _fixed_noise(y)).sum() if loss_fn is None else loss_fn(y)
            gradients = torch.autograd.grad(loss, outputs, allow_unused=True, materialize_grads=True)
    finally:
        for h in hooks:
            h.remove()
    return [
        {
            "layer": name,
            "kind": kind,
            **_mean_and_variance(h),
            **{f"gradient_{k}": v for k, v in _mean_and_variance(g).items()},
        }
        for (name, kind), h, g in zip(names, outputs, gradients, strict=True)
    ]


def _fixed_noise(y: Tensor) -> Tensor:
    """N(0, 1) numbers of y's shape, the same in each call."""
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(y)


def _mean_and_variance(h: Tensor) -> dict[str, float]:
    """Mean and variance over batch and units; double, because exploding signals overflow float32 when squared."""
    h = h.detach().double()
    return {"mean": float(h.mean()), "variance": float(h.var(correction=0))}
