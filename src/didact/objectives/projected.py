"""Cross-entropy behind a large output matrix, piece by piece: the logits of all tokens are never there at once.

Of 65,536 tokens and 50,257 words they would fill 13 GB in single precision. Each piece gives its loss and at once its gradients.
"""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.layers.arithmetic import arithmetic
from didact.objectives.language import IGNORED

ROWS = 8192    # tokens in a piece
EVEN = 64      # the output matrix is widened to a multiple of this while computing: tensor cores like it
TRITON = find_spec("triton") is not None  # asked once: torch.compile cannot trace the question
KERNEL = True  # `surprise` in place of several operations: on an H200 0.62 in place of 1.03 ms a piece, and a step of GPT-2 fills 5 GB less


def projected_cross_entropy(h: Tensor, w: Tensor, y: Tensor, *, rows: int = ROWS) -> Tensor:
    """−mean log softmax(W h)_y over the targets that are not ignored: (N, D), (V, D), (N,) -> ().  As cross_entropy(h @ W.T, y)."""
    loss: Tensor = Projected.apply(h, w, y, rows)  # type: ignore[no-untyped-call]
    return loss


class Projected(torch.autograd.Function):
    """dL/dz = (softmax(z) − onehot(y)) / n,  dh = dz W,  dW = dzᵀ h, each computed with the loss and kept; z is not."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor, y: Tensor, rows: int) -> Tensor:
        words, kind = len(w), arithmetic(h)
        wide = F.pad(w, (0, 0, 0, -words % EVEN)).to(kind)
        n = (y != IGNORED).sum().clamp(min=1)
        loss = torch.zeros((), device=h.device)
        dh, dw = [], torch.zeros(wide.shape, device=h.device)
        for h_, y_ in zip(h.to(kind).split(rows), y.split(rows), strict=True):
            lost, dz = surprised(h_ @ wide.mT, y_, words)
            loss += lost
            dh.append(dz @ wide)
            dw += dz.mT @ h_
        ctx.save_for_backward(torch.cat(dh), dw[:words], n)
        ctx.kinds = h.dtype, w.dtype
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        dh, dw, n = ctx.saved_tensors
        scale = grads[0] / n
        return (dh * scale).to(ctx.kinds[0]), (dw * scale).to(ctx.kinds[1]), None, None


def surprised(z: Tensor, y: Tensor, words: int) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(z)_y, and softmax(z) − onehot(y), not / n: half precision would lose it. Columns from `words` on are none.

    z itself is used up.
    """
    if KERNEL and z.is_cuda and TRITON and z.dtype in (torch.bfloat16, torch.float16):
        from didact.objectives.surprise import surprise

        return surprise(z, y, words, IGNORED).sum(), z
    columns, kind = torch.arange(z.shape[1], device=z.device), z.dtype
    z = z.float().masked_fill(columns >= words, -torch.inf)
    log_sum, target = z.logsumexp(-1, keepdim=True), y.clamp(min=0)[:, None]
    asked = (y != IGNORED)[:, None]
    loss = ((log_sum - z.gather(1, target)) * asked).sum()
    return loss, (((z - log_sum).exp() - (columns == target).float()) * asked).to(kind)
