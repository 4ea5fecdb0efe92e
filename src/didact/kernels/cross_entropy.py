"""Cross-entropy over a large vocabulary as one Triton kernel: what each row of logits loses, and its gradient in
the logits' own place.

A row is read from memory once and written once: when it is read again, its sum known, it still lies in the cache.
It is not kept in
registers between: 50,304 numbers are nearly all that a multiprocessor has, and no other row could be read while one
is computed.
Needs CUDA; numbers are summed in single precision.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# groups of eight logits that a program takes at once, and its warps: the fastest of eleven on an H200
_KERNEL_CONFIG = 256, 8


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy_kernel(z, y, loss, V: tl.constexpr, W: tl.constexpr, IGNORED: tl.constexpr, L: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64)
    z += i * W
    # eight neighbours in a thread: it sums them up without the others
    v = tl.arange(0, L)[:, None] * 8 + tl.arange(0, 8)[None, :]
    t = tl.load(y + i).to(tl.int32)
    is_target = (t != IGNORED).to(tl.float32)
    z_t = tl.load(z + tl.maximum(t, 0)).to(tl.float32)
    top, total = tl.full([L], -1e30, tl.float32), tl.zeros([L], tl.float32)
    for first in tl.range(0, W, 8 * L):
        at = first + v
        x = tl.load(z + at, mask=at < W, other=0.0, eviction_policy="evict_last").to(tl.float32)
        # apart from the load: W is even, V would split its eight
        x = tl.where(at < V, x, float("-inf"))
        now = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(x - now[:, None]), 1)
        top = now
    largest = tl.max(top, 0)
    log_sum = largest + tl.log(tl.sum(total * tl.exp(top - largest), 0))
    tl.store(loss + i, (log_sum - z_t) * is_target)
    last: tl.constexpr = (W - 1) // (8 * L) * (8 * L)
    for back in tl.range(0, W, 8 * L):                               # from the end: what was read last is nearest
        at = last - back + v
        x = tl.load(z + at, mask=at < W, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dz = tl.where(at < V, tl.exp(x - log_sum), 0.0) - (at == t).to(tl.float32)
        tl.store(z + at, (dz * is_target).to(z.dtype.element_ty), mask=at < W)


@torch.library.custom_op("didact::surprise", mutates_args=("z",))
def fused_cross_entropy(z: Tensor, y: Tensor, vocab_size: int, ignore_index: int) -> Tensor:
    """−log softmax(z)_y of each row, (N, W), (N,) -> (N,), and z becomes softmax(z) − onehot(y): 0 for both where y
    is ignored.

    Columns from `words` on are no words. W is a multiple of eight, as its threads take them.
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
