"""What is lost when a part of the input is covered."""

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.explain.gradients import Score, chosen

NUMBERS = 2**22  # of covered copies that go through the network at once


@torch.no_grad()
def covered_scores(model_fn: Score, x: Tensor, target: int | Tensor, there: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """s_c of one input with parts of it at the baseline: (…) input, (M, …) True where it stays -> (M,)."""
    rows = max(1, NUMBERS // max(1, x.numel()))
    b = torch.as_tensor(baseline, dtype=x.dtype, device=x.device)
    return torch.cat([chosen(model_fn(torch.where(part, x, b)), target) for part in there.split(rows)])


def occlusion(
    model_fn: Score, x: Tensor, target: int | Tensor, *, patch: int = 1, stride: int | None = None, baseline: Tensor | float = 0.0
) -> Tensor:
    """s_c(x) − s_c(x covered): what the score loses.  Zeiler & Fergus 2014, sec. 4.2.

    Over an image slides a square of `patch` pixels, and a pixel gets the mean loss of the squares over it: (B, H, W).
    Of other inputs each number is covered by itself: (B, …).
    """
    each = torch.as_tensor(target).expand(len(x)).tolist()
    one = slid if x.ndim == 4 else singly
    return torch.stack([one(model_fn, row, c, baseline, patch, stride or max(1, patch // 2)) for row, c in zip(x, each, strict=True)])


def slid(model_fn: Score, x: Tensor, target: int, baseline: Tensor | float, patch: int, stride: int) -> Tensor:
    _, H, W = x.shape
    if not 1 <= patch <= min(H, W):
        raise UsageError(f"a covering square has from 1 to {min(H, W)} pixels on a side in images of {H} × {W}, got {patch}")
    tops, lefts = (starts(side, patch, stride) for side in (H, W))
    cover = torch.zeros(len(tops) * len(lefts), H, W, dtype=torch.bool, device=x.device)
    for k, (top, left) in enumerate((t, l) for t in tops for l in lefts):
        cover[k, top : top + patch, left : left + patch] = True
    there = torch.cat([torch.ones_like(cover[:1]), ~cover])[:, None]                  # (1 + M, 1, H, W)
    s = covered_scores(model_fn, x, target, there, baseline)
    loss = s[0] - s[1:]
    return torch.einsum("m,mhw->hw", loss, cover.to(loss.dtype)) / cover.sum(0).clamp(min=1)


def starts(side: int, patch: int, stride: int) -> list[int]:
    """Where the square begins; the last one ends at the edge, so that every pixel is covered."""
    return sorted({*range(0, side - patch, stride), side - patch})


def singly(model_fn: Score, x: Tensor, target: int, baseline: Tensor | float, patch: int, stride: int) -> Tensor:
    """Numbers that are at the baseline already lose nothing: of a bag of words, only those that occur are covered."""
    b = torch.as_tensor(baseline, dtype=x.dtype, device=x.device)
    where = (x != b).flatten().nonzero()[:, 0]
    there = torch.ones(1 + len(where), x.numel(), dtype=torch.bool, device=x.device)
    there[torch.arange(len(where), device=x.device) + 1, where] = False
    s = covered_scores(model_fn, x, target, there.unflatten(1, x.shape), baseline)
    loss = torch.zeros(x.numel(), dtype=s.dtype, device=x.device)
    loss[where] = s[0] - s[1:]
    return loss.view(x.shape)


def partition(size: tuple[int, int], patches: int) -> Tensor:
    """(H, W) of patch numbers, row by row: `patches` on a side, as even as the pixels allow."""
    H, W = size
    rows, columns = (torch.arange(side) * min(patches, side) // side for side in (H, W))
    return rows[:, None] * min(patches, W) + columns
