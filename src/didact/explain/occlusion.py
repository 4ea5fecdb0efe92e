"""Occlusion: what the score loses when a part of the input is covered."""

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.explain.gradients import ScoreFn, select_class_score

_MAX_BATCH_NUMBERS = 2**22  # elements of the masked copies that go through the network at once


@torch.no_grad()
def score_masked_inputs(
    model_fn: ScoreFn, x: Tensor, target: int | Tensor, keep_masks: Tensor, baseline: Tensor | float = 0.0
) -> Tensor:
    """s_c of one input with parts of it at the baseline: (…) input, (M, …) True where it is kept -> (M,)."""
    chunk_size = max(1, _MAX_BATCH_NUMBERS // max(1, x.numel()))
    b = torch.as_tensor(baseline, dtype=x.dtype, device=x.device)
    return torch.cat(
        [
            select_class_score(model_fn(torch.where(keep_mask, x, b)), target)
            for keep_mask in keep_masks.split(chunk_size)
        ]
    )


def occlusion(
    model_fn: ScoreFn,
    x: Tensor,
    target: int | Tensor,
    *,
    patch: int = 1,
    stride: int | None = None,
    baseline: Tensor | float = 0.0,
) -> Tensor:
    """s_c(x) − s_c(x covered): what the score loses.  Zeiler & Fergus 2014, sec. 4.2.

    In images a square of `patch` pixels slides over the image, and a pixel gets the mean loss of the squares that cover
    it: (B, H, W). In other inputs each number is covered by itself: (B, …).
    """
    targets = torch.as_tensor(target).expand(len(x)).tolist()
    occlude = _occlude_windows if x.ndim == 4 else _occlude_each
    return torch.stack(
        [
            occlude(model_fn, row, c, baseline, patch, stride or max(1, patch // 2))
            for row, c in zip(x, targets, strict=True)
        ]
    )


def _occlude_windows(
    model_fn: ScoreFn, x: Tensor, target: int, baseline: Tensor | float, patch: int, stride: int
) -> Tensor:
    _, H, W = x.shape
    if not 1 <= patch <= min(H, W):
        raise UsageError(
            f"patch must be from 1 to {min(H, W)} pixels for images of {H} × {W}, got {patch}"
        )
    tops, lefts = (_window_starts(side, patch, stride) for side in (H, W))
    is_covered = torch.zeros(len(tops) * len(lefts), H, W, dtype=torch.bool, device=x.device)
    for k, (top, left) in enumerate((t, l) for t in tops for l in lefts):
        is_covered[k, top : top + patch, left : left + patch] = True
    keep_masks = torch.cat([torch.ones_like(is_covered[:1]), ~is_covered])[:, None]                  # (1 + M, 1, H, W)
    s = score_masked_inputs(model_fn, x, target, keep_masks, baseline)
    loss = s[0] - s[1:]
    return torch.einsum("m,mhw->hw", loss, is_covered.to(loss.dtype)) / is_covered.sum(0).clamp(min=1)


def _window_starts(size: int, patch: int, stride: int) -> list[int]:
    """The first pixels of the squares; the last square ends at the edge, so that every pixel is covered."""
    return sorted({*range(0, size - patch, stride), size - patch})


def _occlude_each(
    model_fn: ScoreFn, x: Tensor, target: int, baseline: Tensor | float, patch: int, stride: int
) -> Tensor:
    """Numbers that are at the baseline lose nothing: in a bag of words, only the words that occur are covered."""
    b = torch.as_tensor(baseline, dtype=x.dtype, device=x.device)
    indices = (x != b).flatten().nonzero()[:, 0]
    keep_masks = torch.ones(1 + len(indices), x.numel(), dtype=torch.bool, device=x.device)
    keep_masks[torch.arange(len(indices), device=x.device) + 1, indices] = False
    s = score_masked_inputs(model_fn, x, target, keep_masks.unflatten(1, x.shape), baseline)
    loss = torch.zeros(x.numel(), dtype=s.dtype, device=x.device)
    loss[indices] = s[0] - s[1:]
    return loss.view(x.shape)


def patch_grid(size: tuple[int, int], patches: int) -> Tensor:
    """(H, W) of patch indices in row order: `patches` per side, as even as the pixels allow."""
    H, W = size
    rows, columns = (torch.arange(side) * min(patches, side) // side for side in (H, W))
    return rows[:, None] * min(patches, W) + columns
