"""RNN, LSTM and GRU with backpropagation through time (Gaba 5.2-5.6, Groudiev 5).

A whole sequence is one operation, its backward derived by hand. Forward saves what each step computed; backward walks
from the last step to the first and carries dh, the gradient that later steps send to the state. With z_t the
preactivation of a gate and δ_t = dL/dz_t, every cell ends in the same four sums over time:

    dx_t = δ_t W_ih,   dW_ih = Σ_t δ_tᵀ x_t,   dW_hh = Σ_t δ_tᵀ h_{t−1},   db = Σ_t δ_t

so the loops below only fill δ, and the sums are single matrix products. Sequences are (T, N, D), weights and order of
gates PyTorch's (with two biases; the courses have one or none, which is the same model). Gradients that flow along h_t
shrink or grow like products of diag(tanh′) W_hh (Gaba eq. 5.6); they are exact here, however small.
"""

import numpy as np

from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, first_order, record_op

Weights = tuple[Tensor, ...]  # w_ih (gates·H, D), w_hh (gates·H, H), and b_ih, b_hh (gates·H,) or neither


def _logistic(z: Array) -> Array:
    """σ(z) = ½ (1 + tanh ½z), which cannot overflow."""
    y: Array = np.tanh(0.5 * z)
    y += 1
    y *= 0.5
    return y


def _project_inputs(name: str, x: Tensor, weights: Weights, *states: Tensor) -> Array:
    """x_t W_ihᵀ + b_ih for all steps at once; only the recurrent half must go step by step."""
    w_ih = weights[0].data
    if x.ndim != 3 or not len(x.data) or x.shape[2] != w_ih.shape[1]:
        raise ScratchError(f"{name}: an input of shape {x.shape} does not fit (T, N, {w_ih.shape[1]}) with T ≥ 1")
    for s in states:
        if s.shape != (x.shape[1], weights[1].shape[1]):
            raise ScratchError(
                f"{name}: a state of shape {s.shape} does not fit (N, H) = {(x.shape[1], weights[1].shape[1])}"
            )
    z: Array = x.data.reshape(-1, x.shape[2]) @ w_ih.T
    if len(weights) == 4:
        z += weights[2].data
    return z.reshape(*x.shape[:2], len(w_ih))


def _backward_through_time(
    x: Tensor, h: Array, weights: Weights, delta: Array, delta_h: Array | None = None
) -> tuple[Array | None, ...]:
    """The four sums. `delta_h` differs from `delta` where the recurrent half is gated before it is added (GRU)."""
    d = delta.reshape(-1, delta.shape[2])
    dh = d if delta_h is None else delta_h.reshape(-1, delta.shape[2])
    dx = (d @ weights[0].data).reshape(x.shape) if x.requires_grad else None
    dw = d.T @ x.data.reshape(-1, x.shape[2]), dh.T @ h.reshape(-1, h.shape[2])
    return (dx, *dw) if len(weights) == 2 else (dx, *dw, d.sum(0), dh.sum(0))


def rnn(x: Tensor, h0: Tensor, *weights: Tensor, relu: bool = False) -> Tensor:
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh);  δ_t = (dh_t + δ_{t+1} W_hh) ⊙ (1 − h_t²).  Returns all h_t.

    With `relu`, tanh′ becomes [h_t > 0].
    """
    z, w_hh = _project_inputs("rnn", x, weights, h0), weights[1].data
    h = np.concatenate([h0.data[None], z])                                       # h[t] is the state before step t
    recurrent = 0.0 if len(weights) == 2 else weights[3].data
    for t in range(len(z)):
        z[t] += h[t] @ w_hh.T + recurrent
        h[t + 1] = np.maximum(z[t], 0) if relu else np.tanh(z[t])

    def vjp(dy: Array) -> tuple[Array | None, ...]:
        delta = (h[1:] > 0).astype(h.dtype) if relu else 1 - h[1:] * h[1:]
        dh = np.zeros_like(h[0])
        for t in reversed(range(len(dy))):
            delta[t] *= dy[t] + dh
            dh = delta[t] @ w_hh
        dx, *dw = _backward_through_time(x, h[:-1], weights, delta)
        return dx, dh, *dw

    return record_op("rnn", h[1:], (x, h0, *weights), first_order(vjp), saved=(x, *weights[:2]))


def lstm(x: Tensor, h0: Tensor, c0: Tensor, *weights: Tensor) -> Tensor:
    """i, f, o = σ(·), g = tanh(·), each of W x_t + W h_{t−1} + b;  c_t = f c_{t−1} + i g,  h_t = o tanh c_t.

    Gaba eq. 5.9-5.14. Returns h_1 … h_T and, as one more row, c_T. Backward, with dc carried like dh:

        δo = dh tanh(c) · o(1 − o)        dc += dh o (1 − tanh² c)
        δi = dc g · i(1 − i)     δf = dc c_{t−1} · f(1 − f)     δg = dc i · (1 − g²)     dc ← dc f,   dh ← δ W_hh

    The line dc ← dc f is the direct path of Gaba eq. 5.15; the gates read h_{t−1} too, so it is not the whole of
    dc_t/dc_{t−1}. Order of gates: PyTorch's i, f, g, o (Van Schependom has f, i, g, o; Groudiev i, f, o, g).
    """
    z, w_hh = _project_inputs("lstm", x, weights, h0, c0), weights[1].data
    steps, n, width = len(z), x.shape[1], w_hh.shape[1]
    h, c = np.empty((steps + 1, n, width), z.dtype), np.empty((steps + 1, n, width), z.dtype)
    squashed = np.empty((steps, n, width), z.dtype)                              # tanh c_t
    h[0], c[0] = h0.data, c0.data
    if len(weights) == 4:
        z += weights[3].data
    gates = (slice(0, width), slice(width, 2 * width), slice(2 * width, 3 * width), slice(3 * width, 4 * width))
    for t in range(steps):
        z[t] += h[t] @ w_hh.T
        for gate in gates:
            z[t][:, gate] = np.tanh(z[t][:, gate]) if gate is gates[2] else _logistic(z[t][:, gate])
        i, f, g, o = (z[t][:, gate] for gate in gates)
        c[t + 1] = f * c[t] + i * g
        squashed[t] = np.tanh(c[t + 1])
        h[t + 1] = o * squashed[t]

    def vjp(dy: Array) -> tuple[Array | None, ...]:
        delta, dh, dc = np.empty_like(z), np.zeros_like(h[0]), dy[steps]
        for t in reversed(range(steps)):
            i, f, g, o = (z[t][:, gate] for gate in gates)
            di, df, dg, do = (delta[t][:, gate] for gate in gates)
            dh = dh + dy[t]
            dc = dc + dh * o * (1 - squashed[t] * squashed[t])
            do[...] = dh * squashed[t] * o * (1 - o)
            di[...] = dc * g * i * (1 - i)
            df[...] = dc * c[t] * f * (1 - f)
            dg[...] = dc * i * (1 - g * g)
            dc = dc * f
            dh = delta[t] @ w_hh
        dx, *dw = _backward_through_time(x, h[:-1], weights, delta)
        return dx, dh, dc, *dw

    value = np.concatenate([h[1:], c[-1:]])
    return record_op("lstm", value, (x, h0, c0, *weights), first_order(vjp), saved=(x, *weights[:2]))


def gru(x: Tensor, h0: Tensor, *weights: Tensor) -> Tensor:
    """r, z = σ(·),  n = tanh(W_in x_t + b_in + r ⊙ (W_hn h_{t−1} + b_hn)),  h_t = (1 − z) n + z h_{t−1}, for all t.

    This is PyTorch's cell, gates in the order r, z, n. Gaba eq. 5.16-5.19 is the original one: r multiplies h before
    the matrix, and z and 1 − z are swapped, so weights do not carry over. Backward, with s = W_hn h + b_hn:

        δn = dh (1 − z) · (1 − n²)    δz = dh (h_{t−1} − n) · z(1 − z)    δr = δn s · r(1 − r)
        dh ← dh z + [δr, δz, δn r] W_hh
    """
    a, w_hh = _project_inputs("gru", x, weights, h0), weights[1].data
    steps, width = len(a), w_hh.shape[1]
    recurrent = 0.0 if len(weights) == 2 else weights[3].data
    h = np.empty((steps + 1, x.shape[1], width), a.dtype)
    s = np.empty((steps, x.shape[1], width), a.dtype)
    h[0] = h0.data
    for t in range(steps):
        b = h[t] @ w_hh.T + recurrent
        a[t][:, : 2 * width] = _logistic(a[t][:, : 2 * width] + b[:, : 2 * width])
        r, z, n = np.split(a[t], 3, axis=1)                                      # views: the gates are written into a
        s[t] = b[:, 2 * width:]
        n[...] = np.tanh(n + r * s[t])
        h[t + 1] = n + z * (h[t] - n)

    def vjp(dy: Array) -> tuple[Array | None, ...]:
        delta, dh = np.empty_like(a), np.zeros_like(h[0])
        delta_h = np.empty_like(a)
        for t in reversed(range(steps)):
            r, z, n = np.split(a[t], 3, axis=1)
            dr, dz, dn = np.split(delta[t], 3, axis=1)
            dh = dh + dy[t]
            dn[...] = dh * (1 - z) * (1 - n * n)
            dz[...] = dh * (h[t] - n) * z * (1 - z)
            dr[...] = dn * s[t] * r * (1 - r)
            delta_h[t] = delta[t]
            delta_h[t][:, 2 * width:] *= r
            dh = dh * z + delta_h[t] @ w_hh
        dx, *dw = _backward_through_time(x, h[:-1], weights, delta, delta_h)
        return dx, dh, *dw

    return record_op("gru", h[1:], (x, h0, *weights), first_order(vjp), saved=(x, *weights[:2]))
