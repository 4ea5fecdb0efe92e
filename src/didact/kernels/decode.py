"""Decoding one token of GPT-2 with two Triton kernels: a linear layer fused with its neighbors, and attention to the KV
cache.

One token reads every weight once and computes almost nothing with it: time goes to memory and to kernel launches. Few
kernels, each with enough programs to keep the memory busy, are therefore fast. Matrices are (N, K): the K weights of an
output are contiguous. Needs CUDA. Numbers have the weights' data type wherever the plain model has them in it; sums are
in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

MAX_BATCH_SIZE = 16     # a matrix product on tensor cores has at least sixteen rows: one tile of them, padded
# batch size 1 or not -> (most outputs, (rows, outputs and inputs of a tile, warps, stages)); the fastest of those tried
# on an H200
_TILE_SHAPES = {
    True: ((8192, (1, 2, 1024, 4, 1)), (2**31, (1, 8, 1024, 2, 1))),
    False: (
        (1024, (MAX_BATCH_SIZE, 16, 256, 4, 4)),
        (8192, (MAX_BATCH_SIZE, 32, 256, 4, 3)),
        (2**31, (MAX_BATCH_SIZE, 128, 64, 8, 4)),
    ),
}


@triton.jit  # type: ignore[untyped-decorator]
def _fused_norm_linear_kernel(  # type: ignore[no-untyped-def]
    x, w, b, γ, β, residual, y, N, K, eps,
    B: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STEPS: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, GELU: tl.constexpr, PLUS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k, m = tl.arange(0, BK), tl.arange(0, M)
    rows = (m < B)[:, None]
    dtype: tl.constexpr = w.dtype.element_ty
    if NORM:            # every program computes mean and variance of all rows again: x is small and in the cache
        mean = tl.zeros([M], tl.float32)
        for i in tl.static_range(STEPS):
            in_bounds = rows & (i * BK + k < K)[None, :]
            mean += (
                tl.sum(tl.load(x + m[:, None] * K + (i * BK + k)[None, :], mask=in_bounds, other=0.0).to(tl.float32), 1)
                / K
            )
        variance = tl.zeros([M], tl.float32)
        for i in tl.static_range(STEPS):
            in_bounds = rows & (i * BK + k < K)[None, :]
            d = (
                tl.load(x + m[:, None] * K + (i * BK + k)[None, :], mask=in_bounds, other=0.0).to(tl.float32)
                - mean[:, None]
            )
            variance += tl.sum(tl.where(in_bounds, d * d, 0.0), 1) / K
        scale = tl.rsqrt(variance + eps)
    total = tl.zeros([M, BN], tl.float32)
    for i in tl.range(STEPS):
        k_offsets = i * BK + k
        u = tl.load(x + m[:, None] * K + k_offsets[None, :], mask=rows & (k_offsets < K)[None, :], other=0.0)
        if NORM:
            g = tl.load(γ + k_offsets, mask=k_offsets < K, other=0.0).to(tl.float32)[None, :]
            s = tl.load(β + k_offsets, mask=k_offsets < K, other=0.0).to(tl.float32)[None, :]
            u = ((u.to(tl.float32) - mean[:, None]) * scale[:, None] * g + s).to(dtype)
        if M == 1:      # one text: a matrix-vector product in float32; tensor cores would waste 15 of 16 rows
            row = tl.load(
                w + n[:, None] * K + k_offsets[None, :], mask=(n < N)[:, None] & (k_offsets < K)[None, :], other=0.0
            )
            total += tl.sum(row.to(tl.float32) * u.to(tl.float32), 1)[None, :]
        else:
            column = tl.load(
                w + n[None, :] * K + k_offsets[:, None], mask=(n < N)[None, :] & (k_offsets < K)[:, None], other=0.0
            )
            total = tl.dot(u, column, total, input_precision="ieee")
    if BIAS:
        total += tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    z = total.to(dtype).to(tl.float32)          # rounded as the plain model's linear layer rounds its output
    if GELU:            # tanh approximation; tanh a = 1 − 2 / (e²ᵃ + 1)
        z = z * (1 - 1 / (tl.exp(1.5957691216057308 * (z + 0.044715 * z * z * z)) + 1))
    in_bounds = rows & (n < N)[None, :]
    if PLUS:
        z += tl.load(residual + m[:, None] * N + n[None, :], mask=in_bounds, other=0.0).to(tl.float32)
    tl.store(y + m[:, None] * N + n[None, :], z.to(dtype), mask=in_bounds)


def fused_norm_linear(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    norm: nn.LayerNorm | None = None,
    gelu: bool = False,
    residual: Tensor | None = None,
) -> Tensor:
    """residual + gelu(W LN(x) + b), each part where it is given: (B, K), (N, K) -> (B, N)."""
    (B, K), N = x.shape, len(w)
    y = x.new_empty(B, N)
    γ, β, eps = (x, x, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    M, BN, BK, warps, stages = next(shape for max_outputs, shape in _TILE_SHAPES[B == 1] if max_outputs >= N)
    _fused_norm_linear_kernel[(triton.cdiv(N, BN),)](
        x, w, x if b is None else b, γ, β, x if residual is None else residual, y, N, K, eps, B=B, M=M, BN=BN, BK=BK,
        STEPS=triton.cdiv(K, BK),
        NORM=norm is not None, BIAS=b is not None, GELU=gelu, PLUS=residual is not None, num_warps=warps,
        num_stages=stages,
    )  # fmt: skip
    return y


@triton.jit  # type: ignore[untyped-decorator]
def _decode_attention_kernel(  # type: ignore[no-untyped-def]
    qkv, keys, values, length, y, capacity, scale, H: tl.constexpr, D: tl.constexpr, BS: tl.constexpr
):
    i = tl.program_id(0)                             # one head of one text
    d, s = tl.arange(0, D), tl.arange(0, BS)
    qkv_head = qkv + (i // H * 3 * H + i % H) * D + d       # a row of qkv is Q of all heads, then K, then V
    q, k_t, v_t = tl.load(qkv_head).to(tl.float32) * scale, tl.load(qkv_head + H * D), tl.load(qkv_head + 2 * H * D)
    t = tl.load(length)         # from the device: a captured CUDA graph reads the new length at each replay
    keys, values = keys + i * capacity * D, values + i * capacity * D
    tl.store(keys + t * D + d, k_t)
    tl.store(values + t * D + d, v_t)
    # an online softmax in each of BS lanes (largest score, sum, weighted values); lanes are reduced once, at the end
    top, total, out = tl.full([BS], -1e30, tl.float32), tl.zeros([BS], tl.float32), tl.zeros([BS, D], tl.float32)
    for first in tl.range(0, t, BS, num_stages=3):
        in_bounds = first + s < t
        k = tl.load(keys + (first + s)[:, None] * D + d[None, :], mask=in_bounds[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + (first + s)[:, None] * D + d[None, :], mask=in_bounds[:, None], other=0.0).to(tl.float32)
        z = tl.where(in_bounds, tl.sum(k * q[None, :], 1), -1e30)
        new_top = tl.maximum(top, z)
        a, decay = tl.exp(z - new_top), tl.exp(top - new_top)
        total, out, top = total * decay + a, out * decay[:, None] + a[:, None] * v, new_top
    # the new token itself, from registers: its stored key need not be visible to this program yet
    z_t = tl.sum(q * k_t.to(tl.float32))
    new_top = tl.maximum(tl.max(top, 0), z_t)
    lane_scale, own_weight = tl.exp(top - new_top), tl.exp(z_t - new_top)
    normalizer = tl.sum(total * lane_scale, 0) + own_weight
    mean = (tl.sum(out * lane_scale[:, None], 0) + own_weight * v_t.to(tl.float32)) / normalizer
    tl.store(y + i * D + d, mean.to(y.dtype.element_ty))


def decode_attention(qkv: Tensor, keys: Tensor, values: Tensor, length: Tensor) -> Tensor:
    """Write the new key and value to the cache at position `length`, and attend to all up to it: (B, 3 H D), (B, H,
    capacity, D) twice, (1,) -> (B, H D).

    An online softmax, with running maximum and sum, as in Flash attention (Dao et al. 2022).
    """
    B, H, capacity, D = keys.shape
    y = qkv.new_empty(B, H * D)
    _decode_attention_kernel[(B * H,)](qkv, keys, values, length, y, capacity, D**-0.5, H=H, D=D, BS=128, num_warps=8)
    return y


def is_supported(batch_size: int, head_dim: int, like: Tensor) -> bool:
    """Whether the kernels work for this batch size, head width and data type."""
    has_float_dtype = like.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return (
        like.is_cuda
        and has_float_dtype
        and batch_size <= MAX_BATCH_SIZE
        and head_dim >= 16
        and head_dim & (head_dim - 1) == 0
    )
