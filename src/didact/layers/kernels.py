"""What one new token needs of a decoder, as two Triton kernels: a line with all that stands around it, and a look at what was read.

One token reads every weight once and does almost nothing with it: time goes to memory and to starting kernels, so few of them, each with
enough programs to keep the memory busy, are what is fast. Matrices are (N, K) with the K numbers of an output side by side.
Needs CUDA; numbers are kept in the weights' precision wherever the plain model keeps them, and summed in single precision.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

ROWS = 16     # texts at most: a product of matrices on the tensor cores takes sixteen rows
# outputs up to which: rows, outputs and inputs that a program takes at once, warps, stages; the quickest of those tried on an H200
SHAPES = {
    True: ((8192, (1, 2, 1024, 4, 1)), (2**31, (1, 8, 1024, 2, 1))),
    False: ((1024, (ROWS, 16, 256, 4, 4)), (8192, (ROWS, 32, 256, 4, 3)), (2**31, (ROWS, 128, 64, 8, 4))),
}


@triton.jit  # type: ignore[untyped-decorator]
def _line(  # type: ignore[no-untyped-def]
    x, w, b, γ, β, plus, y, N, K, eps,
    B: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STEPS: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, GELU: tl.constexpr, PLUS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k, m = tl.arange(0, BK), tl.arange(0, M)
    rows = (m < B)[:, None]
    kind: tl.constexpr = w.dtype.element_ty
    if NORM:            # each program for itself: x is small, and near
        mean = tl.zeros([M], tl.float32)
        for i in tl.static_range(STEPS):
            here = rows & (i * BK + k < K)[None, :]
            mean += tl.sum(tl.load(x + m[:, None] * K + (i * BK + k)[None, :], mask=here, other=0.0).to(tl.float32), 1) / K
        variance = tl.zeros([M], tl.float32)
        for i in tl.static_range(STEPS):
            here = rows & (i * BK + k < K)[None, :]
            d = tl.load(x + m[:, None] * K + (i * BK + k)[None, :], mask=here, other=0.0).to(tl.float32) - mean[:, None]
            variance += tl.sum(tl.where(here, d * d, 0.0), 1) / K
        scale = tl.rsqrt(variance + eps)
    total = tl.zeros([M, BN], tl.float32)
    for i in tl.range(STEPS):
        at = i * BK + k
        u = tl.load(x + m[:, None] * K + at[None, :], mask=rows & (at < K)[None, :], other=0.0)
        if NORM:
            g = tl.load(γ + at, mask=at < K, other=0.0).to(tl.float32)[None, :]
            s = tl.load(β + at, mask=at < K, other=0.0).to(tl.float32)[None, :]
            u = ((u.to(tl.float32) - mean[:, None]) * scale[:, None] * g + s).to(kind)
        if M == 1:
            row = tl.load(w + n[:, None] * K + at[None, :], mask=(n < N)[:, None] & (at < K)[None, :], other=0.0)
            total += tl.sum(row.to(tl.float32) * u.to(tl.float32), 1)[None, :]
        else:
            column = tl.load(w + n[None, :] * K + at[:, None], mask=(n < N)[None, :] & (at < K)[:, None], other=0.0)
            total = tl.dot(u, column, total, input_precision="ieee")
    if BIAS:
        total += tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    z = total.to(kind).to(tl.float32)
    if GELU:            # the tanh form; tanh a = 1 − 2 / (e²ᵃ + 1)
        z = z * (1 - 1 / (tl.exp(1.5957691216057308 * (z + 0.044715 * z * z * z)) + 1))
    here = rows & (n < N)[None, :]
    if PLUS:
        z += tl.load(plus + m[:, None] * N + n[None, :], mask=here, other=0.0).to(tl.float32)
    tl.store(y + m[:, None] * N + n[None, :], z.to(kind), mask=here)


def line(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, norm: nn.LayerNorm | None = None, gelu: bool = False, plus: Tensor | None = None
) -> Tensor:
    """plus + gelu(W LN(x) + b), each part where it is given: (B, K), (N, K) -> (B, N)."""
    (B, K), N = x.shape, len(w)
    y = x.new_empty(B, N)
    γ, β, eps = (x, x, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    M, BN, BK, warps, stages = next(found for most, found in SHAPES[B == 1] if most >= N)
    _line[(triton.cdiv(N, BN),)](
        x, w, x if b is None else b, γ, β, x if plus is None else plus, y, N, K, eps, B=B, M=M, BN=BN, BK=BK, STEPS=triton.cdiv(K, BK),
        NORM=norm is not None, BIAS=b is not None, GELU=gelu, PLUS=plus is not None, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _look(qkv, keys, values, at, y, room, scale, H: tl.constexpr, D: tl.constexpr, BS: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0)                             # one head of one text
    d, s = tl.arange(0, D), tl.arange(0, BS)
    mine = qkv + (i // H * 3 * H + i % H) * D + d
    q, k_t, v_t = tl.load(mine).to(tl.float32) * scale, tl.load(mine + H * D), tl.load(mine + 2 * H * D)
    t = tl.load(at)
    keys, values = keys + i * room * D, values + i * room * D
    tl.store(keys + t * D + d, k_t)
    tl.store(values + t * D + d, v_t)
    top, total, out = tl.full([BS], -1e30, tl.float32), tl.zeros([BS], tl.float32), tl.zeros([BS, D], tl.float32)
    for first in tl.range(0, t, BS, num_stages=3):   # a softmax of its own in each of BS lanes: they meet once, at the end
        here = first + s < t
        k = tl.load(keys + (first + s)[:, None] * D + d[None, :], mask=here[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + (first + s)[:, None] * D + d[None, :], mask=here[:, None], other=0.0).to(tl.float32)
        z = tl.where(here, tl.sum(k * q[None, :], 1), -1e30)
        now = tl.maximum(top, z)
        a, fade = tl.exp(z - now), tl.exp(top - now)
        total, out, top = total * fade + a, out * fade[:, None] + a[:, None] * v, now
    z_t = tl.sum(q * k_t.to(tl.float32))
    now = tl.maximum(tl.max(top, 0), z_t)
    share, own = tl.exp(top - now), tl.exp(z_t - now)
    whole = tl.sum(total * share, 0) + own
    mean = (tl.sum(out * share[:, None], 0) + own * v_t.to(tl.float32)) / whole
    tl.store(y + i * D + d, mean.to(y.dtype.element_ty))


def look(qkv: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Keep the new key and value at place `at` and look at all up to it: (B, 3 H D), (B, H, room, D) twice, (1,) -> (B, H D).

    The softmax runs along with its largest score and sum, as Flash's does (Dao et al. 2022).
    """
    B, H, room, D = keys.shape
    y = qkv.new_empty(B, H * D)
    _look[(B * H,)](qkv, keys, values, at, y, room, D**-0.5, H=H, D=D, BS=128, num_warps=8)
    return y


def fits(rows: int, width: int, like: Tensor) -> bool:
    """Whether these kernels can serve so many texts with heads of such a width."""
    known = like.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return like.is_cuda and known and rows <= ROWS and width >= 16 and width & (width - 1) == 0
