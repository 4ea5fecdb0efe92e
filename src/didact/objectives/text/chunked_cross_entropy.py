"""Chunked cross-entropy of large vocabularies: chunk by chunk, so that the logits of all tokens never exist at once.

For 65,536 tokens and 50,257 words they would fill 13 GB in single precision. The gradients are computed with the loss
of each chunk, and its logits are then discarded. The result is exact, not an approximation: the loss is a sum over
tokens, each of which needs only its own row of logits; so is dW, and dh has a row for each token.
"""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.layers.matmul_dtype import matmul_dtype
from didact.objectives.text.language_model import IGNORE_INDEX

CHUNK_TOKENS = 8192         # tokens per chunk
_VOCABULARY_MULTIPLE = 64    # the output matrix is padded to a multiple of this: tensor cores are faster on such sizes
_HAS_TRITON = find_spec("triton") is not None  # once, at import: torch.compile cannot trace it
# `kernels.cross_entropy` instead of several operations: on an H200 0.62 instead of 1.03 ms a chunk, and a step of GPT-2
# needs 5 GB less
USE_FUSED_KERNEL = True


def chunked_cross_entropy(h: Tensor, w: Tensor, y: Tensor, *, chunk_size: int = CHUNK_TOKENS) -> Tensor:
    """−mean log softmax(W h)_y over the targets that are not ignored: (N, D), (V, D), (N,) -> ().

    The same as cross_entropy(h @ W.T, y).
    """
    loss: Tensor = _ChunkedCrossEntropy.apply(h, w, y, chunk_size)  # type: ignore[no-untyped-call]
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    """dL/dz = (softmax(z) − onehot(y)) / n,  dh = dz W,  dW = dzᵀ h, computed in the forward pass; z is discarded."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, w: Tensor, y: Tensor, chunk_size: int) -> Tensor:
        vocab_size, dtype = len(w), matmul_dtype(h)
        padded_w = F.pad(w, (0, 0, 0, -vocab_size % _VOCABULARY_MULTIPLE)).to(dtype)
        n = (y != IGNORE_INDEX).sum().clamp(min=1)
        loss = torch.zeros((), device=h.device)
        dh, dw = [], torch.zeros(padded_w.shape, device=h.device)    # dW accumulates in float32 whatever the dtype
        for h_, y_ in zip(h.to(dtype).split(chunk_size), y.split(chunk_size), strict=True):
            chunk_loss, dz = _cross_entropy_and_grad(h_ @ padded_w.mT, y_, vocab_size)
            loss += chunk_loss
            dh.append(dz @ padded_w)
            dw += dz.mT @ h_    # summed over chunks: all tokens share W
        ctx.save_for_backward(torch.cat(dh), dw[:vocab_size], n)
        ctx.kinds = h.dtype, w.dtype
        return loss / n

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        dh, dw, n = ctx.saved_tensors
        scale = grads[0] / n    # 1 / n only here: in half precision small entries of dz / n would become 0
        return (dh * scale).to(ctx.kinds[0]), (dw * scale).to(ctx.kinds[1]), None, None


def _cross_entropy_and_grad(z: Tensor, y: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(z)_y, and softmax(z) − onehot(y). Columns from `vocab_size` on are padding. z is overwritten.

    The gradient is not yet divided by n: half precision would lose its small entries.
    """
    if USE_FUSED_KERNEL and z.is_cuda and _HAS_TRITON and z.dtype in (torch.bfloat16, torch.float16):
        from didact.kernels.cross_entropy import fused_cross_entropy

        return fused_cross_entropy(z, y, vocab_size, IGNORE_INDEX).sum(), z
    columns, dtype = torch.arange(z.shape[1], device=z.device), z.dtype
    z = z.float().masked_fill(columns >= vocab_size, -torch.inf)
    log_sum, target = z.logsumexp(-1, keepdim=True), y.clamp(min=0)[:, None]
    is_target = (y != IGNORE_INDEX)[:, None]
    loss = ((log_sum - z.gather(1, target)) * is_target).sum()
    return loss, (((z - log_sum).exp() - (columns == target).float()) * is_target).to(dtype)
