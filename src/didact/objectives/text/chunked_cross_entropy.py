"""Cross-entropy behind a large output matrix, piece by piece: the logits of all tokens are never there at once.

Of 65,536 tokens and 50,257 words they would fill 13 GB in single precision. Each piece gives its loss and at once
its gradients.
"""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.layers.matmul_dtype import matmul_dtype
from didact.objectives.text.language_model import IGNORE_INDEX

CHUNK_TOKENS = 8192    # tokens in a piece
VOCABULARY_MULTIPLE = 64      # the output matrix is widened to a multiple of this while computing: tensor cores like it
HAS_TRITON = find_spec("triton") is not None  # asked once: torch.compile cannot trace the question
# `surprise` in place of several operations: on an H200 0.62 in place of 1.03 ms a piece, and a step of GPT-2 fills 5
# GB less
USE_FUSED_KERNEL = True


def chunked_cross_entropy(h: Tensor, w: Tensor, y: Tensor, *, chunk_size: int = CHUNK_TOKENS) -> Tensor:
    """−mean log softmax(W h)_y over the targets that are not ignored: (N, D), (V, D), (N,) -> ().  As
    cross_entropy(h @ W.T, y)."""
    loss: Tensor = _ChunkedCrossEntropy.apply(h, w, y, chunk_size)  # type: ignore[no-untyped-call]
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    """dL/dz = (softmax(z) − onehot(y)) / n,  dh = dz W,  dW = dzᵀ h, each computed with the loss and kept; z is not."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor, y: Tensor, chunk_size: int) -> Tensor:
        vocab_size, dtype = len(w), matmul_dtype(h)
        padded_w = F.pad(w, (0, 0, 0, -vocab_size % VOCABULARY_MULTIPLE)).to(dtype)
        n = (y != IGNORE_INDEX).sum().clamp(min=1)
        loss = torch.zeros((), device=h.device)
        dh, dw = [], torch.zeros(padded_w.shape, device=h.device)
        for h_, y_ in zip(h.to(dtype).split(chunk_size), y.split(chunk_size), strict=True):
            chunk_loss, dz = _cross_entropy_and_grad(h_ @ padded_w.mT, y_, vocab_size)
            loss += chunk_loss
            dh.append(dz @ padded_w)
            dw += dz.mT @ h_
        ctx.save_for_backward(torch.cat(dh), dw[:vocab_size], n)
        ctx.kinds = h.dtype, w.dtype
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        dh, dw, n = ctx.saved_tensors
        scale = grads[0] / n
        return (dh * scale).to(ctx.kinds[0]), (dw * scale).to(ctx.kinds[1]), None, None


def _cross_entropy_and_grad(z: Tensor, y: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(z)_y, and softmax(z) − onehot(y), not / n: half precision would lose it. Columns from `words`
    on are none.

    z itself is used up.
    """
    if USE_FUSED_KERNEL and z.is_cuda and HAS_TRITON and z.dtype in (torch.bfloat16, torch.float16):
        from didact.kernels.cross_entropy import fused_cross_entropy

        return fused_cross_entropy(z, y, vocab_size, IGNORE_INDEX).sum(), z
    columns, dtype = torch.arange(z.shape[1], device=z.device), z.dtype
    z = z.float().masked_fill(columns >= vocab_size, -torch.inf)
    log_sum, target = z.logsumexp(-1, keepdim=True), y.clamp(min=0)[:, None]
    is_target = (y != IGNORE_INDEX)[:, None]
    loss = ((log_sum - z.gather(1, target)) * is_target).sum()
    return loss, (((z - log_sum).exp() - (columns == target).float()) * is_target).to(dtype)
