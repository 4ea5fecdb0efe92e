"""Gradient methods: how the class score changes with each input number."""

from collections.abc import Callable

import torch
from torch import Tensor

from didact.errors import UsageError

ScoreFn = Callable[[Tensor], Tensor]  # (B, …) inputs -> (B, K) scores


def select_class_score(scores: Tensor, target: int | Tensor) -> Tensor:
    """The score of a class: (B, K) -> (B,); `target` is one class for all examples, or one for each."""
    if scores.ndim != 2:
        raise UsageError(f"explanations need one score per class, (B, K); this model gives {tuple(scores.shape)}")
    if isinstance(target, int) and not 0 <= target < scores.shape[1]:
        raise UsageError(f"the class must be from 0 to {scores.shape[1] - 1}, got {target}")
    targets = torch.as_tensor(target, device=scores.device).expand(len(scores))
    return scores.gather(1, targets[:, None])[:, 0]


def compute_input_gradient(model_fn: ScoreFn, x: Tensor, target: int | Tensor) -> Tensor:
    """∂s_c/∂x of every example, from the gradient of the summed scores: examples do not depend on each other."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        g, = torch.autograd.grad(select_class_score(model_fn(x), target).sum(), x)
    return g


def _max_abs_over_channels(g: Tensor) -> Tensor:
    """g|, for images the largest over channels: (B, C, H, W) -> (B, H, W)."""
    return g.abs().amax(dim=1) if g.ndim == 4 else g.abs()


def saliency(model_fn: ScoreFn, x: Tensor, target: int | Tensor) -> Tensor:
    """Saliency |∂s_c/∂x|, for images the largest over channels.  Simonyan et al. 2014, sec. 3.1; Gaba 12.5.1."""
    return _max_abs_over_channels(compute_input_gradient(model_fn, x, target))


def smooth_grad(
    model_fn: ScoreFn,
    x: Tensor,
    target: int | Tensor,
    *,
    noise: float = 0.15,
    num_samples: int = 32,
    generator: torch.Generator | None = None,
) -> Tensor:
    """SmoothGrad mean_n |∂s_c/∂x (x + ε_n)|, ε ~ N(0, σ²), σ = noise (max x − min x).  Smilkov et al. 2017.

    With noise = 0 it is saliency.
    """
    flat = x.detach().flatten(1)
    sigma = noise * (flat.amax(1) - flat.amin(1)).view(-1, *[1] * (x.ndim - 1))
    total = torch.zeros_like(_max_abs_over_channels(x))
    for _ in range(num_samples):  # one at a time: memory stays that of a single pass
        epsilon = torch.empty_like(x).normal_(generator=generator)
        total += saliency(model_fn, x + sigma * epsilon, target)
    return total / num_samples


def gradient_times_input(
    model_fn: ScoreFn, x: Tensor, target: int | Tensor, *, baseline: Tensor | float = 0.0
) -> Tensor:
    """(x − b) ∂s_c/∂x: what each number adds beyond the baseline, exact for a linear score.  Shrikumar et al. 2017."""
    return (x.detach() - baseline) * compute_input_gradient(model_fn, x, target)
