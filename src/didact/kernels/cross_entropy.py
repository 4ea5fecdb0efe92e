"""Fused cross-entropy over a large vocabulary, one Triton kernel: the loss of each row of logits, and its gradient in
place of the logits.

A row is read from memory once and written once: at the second reading, when its sum is known, it is still in the L2
cache. It is not kept in registers in between: 50,304 numbers fill nearly all registers of a multiprocessor, and no
other row could be loaded meanwhile. Needs CUDA; sums are in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# groups of eight logits that a program processes at once, and its warps: the fastest of eleven settings on an H200
_KERNEL_CONFIG = 256, 8


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy_kernel(z, y, loss, V: tl.constexpr, W: tl.constexpr, IGNORED: tl.constexpr, L: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64)
    z += i * W
    # lane l takes the eight neighbors 8 l … 8 l + 7: a vectorized load, and sums that need no other thread
    v = tl.arange(0, L)[:, None] * 8 + tl.arange(0, 8)[None, :]
    t = tl.load(y + i).to(tl.int32)
    is_target = (t != IGNORED).to(tl.float32)
    z_t = tl.load(z + tl.maximum(t, 0)).to(tl.float32)
    # first pass, an online softmax in each lane: `top` is its largest logit so far, `total` Σ exp(x − top)
    top, total = tl.full([L], -1e30, tl.float32), tl.zeros([L], tl.float32)
    for first in tl.range(0, W, 8 * L):
        at = first + v
        x = tl.load(z + at, mask=at < W, other=0.0, eviction_policy="evict_last").to(tl.float32)
        # the load is masked by W, a multiple of eight; masking it by V would split the groups of eight
        x = tl.where(at < V, x, float("-inf"))
        now = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(x - now[:, None]), 1)
        top = now
    largest = tl.max(top, 0)
    log_sum = largest + tl.log(tl.sum(total * tl.exp(top - largest), 0))
    tl.store(loss + i, (log_sum - z_t) * is_target)
    last: tl.constexpr = (W - 1) // (8 * L) * (8 * L)
    # second pass, from the end backward: what was read last is most likely still in the cache
    for back in tl.range(0, W, 8 * L):
        at = last - back + v
        x = tl.load(z + at, mask=at < W, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dz = tl.where(at < V, tl.exp(x - log_sum), 0.0) - (at == t).to(tl.float32)
        tl.store(z + at, (dz * is_target).to(z.dtype.element_ty), mask=at < W)


@torch.library.custom_op("didact::fused_cross_entropy", mutates_args=("z",))
def fused_cross_entropy(z: Tensor, y: Tensor, vocab_size: int, ignore_index: int) -> Tensor:
    """−log softmax(z)_y of each row, (N, W), (N,) -> (N,); z becomes softmax(z) − onehot(y). Both are 0 where y is
    ignored.

    Columns from `vocab_size` on are padding. W is a multiple of eight, since threads take eight logits at once.
    """
    assert z.is_contiguous() and y.is_contiguous() and z.shape[1] % 8 == 0
    loss = z.new_empty(len(z), dtype=torch.float32)
    L, warps = _KERNEL_CONFIG
    with torch.cuda.device_of(z):
        _cross_entropy_kernel[(len(z),)](
            z, y, loss, V=vocab_size, W=z.shape[1], IGNORED=ignore_index, L=L, num_warps=warps
        )
    return loss


@fused_cross_entropy.register_fake
def _(z: Tensor, y: Tensor, vocab_size: int, ignore_index: int) -> Tensor:
    return z.new_empty(len(z), dtype=torch.float32)
