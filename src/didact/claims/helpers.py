"""Helpers that many checks share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Pair = tuple[Any, Any]


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(p.numel() for p in module.parameters())


def elementwise_derivative(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """f′ at every entry of z by PyTorch's engine, for an element-wise f."""
    z = z.detach().requires_grad_()
    (g,) = torch.autograd.grad(f(z).sum(), z)
    return g


def compute_gradients(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Gradients of a scalar by PyTorch's engine."""
    return list(torch.autograd.grad(loss, inputs))


class _MultiplicationCounter(TorchDispatchMode):
    """Counts the multiplications of matrix products and convolutions that run inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm"):
            *_, a, _b = args
            self.total += y.numel() * a.shape[-1]
        elif name == "convolution":
            self.total += y.numel() * args[1][0].numel()
        return y


def count_multiplications(run: Callable[[], Any]) -> int:
    """Multiplications of matrix products and convolutions in one call."""
    counter = _MultiplicationCounter()
    with counter:
        run()
    return counter.total


def total_variance(x: Tensor) -> Tensor:
    """Total variance of vectors in rows: the mean squared distance from their mean."""
    return (x - x.mean(0)).square().sum(1).mean()
