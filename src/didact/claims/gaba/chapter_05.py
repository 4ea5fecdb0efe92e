"""Gaba, chapter 5: recurrent networks."""


import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact import scratch
from didact.claims.forms import (
    Approximately,
    Conditional,
    CorrectedClaim,
    Display,
    Equal,
    Exactly,
    Increasing,
    InInterval,
    LessOrEqual,
    Printed,
)
from didact.claims.helpers import Pair, compute_gradients, count_parameters
from didact.claims.registry import claim
from didact.layers.recurrent import cells
from didact.layers.recurrent.cells import Cell, rnn_step
from didact.layers.recurrent.mamba import scan, sequential_scan
from didact.layers.recurrent.recurrent import Bidirectional, Init, Recurrent, cell_weights
from didact.metrics.classification import accuracy
from didact.models.text.rnn import RecurrentClassifier
from didact.scratch.recurrent import rnn


class _Recurrence:
    """h_t = tanh(W h_{t−1} + U x_t + b), didact's step unrolled over T random inputs."""

    def __init__(self, d: int = 4, T: int = 6, *, W: Tensor | None = None, spread: float = 1.0):
        self.W = (torch.randn(d, d) if W is None else W.clone()).requires_grad_()
        self.U, self.b = torch.randn(d, 3), spread * torch.randn(d)
        self.x, self.h = spread * torch.randn(T, 3), [torch.zeros(d, requires_grad=True)]
        for x in self.x:
            ((h,), _) = rnn_step(x, (self.h[-1],), (self.U, self.W, self.b, torch.zeros(d)))
            self.h.append(h)

    def tanh_derivative(self, t: int) -> Tensor:
        """tanh′(z_t) = 1 − h_t²."""
        return 1 - self.h[t] ** 2

    def jacobian(self, t: int, k: int) -> Tensor:
        """∂h_t/∂h_k, row the output, by PyTorch's engine."""
        return torch.stack(
            [torch.autograd.grad(self.h[t][i], self.h[k], retain_graph=True)[0] for i in range(len(self.b))]
        )


@claim("C5.1", Printed("2.66e-5"))
def decay_over_a_hundred_steps() -> float:
    """0.9¹⁰⁰: ∂h_100/∂h_0 of didact's RNN of one unit with W_hh = 0.9, at h = 0, by its own engine"""
    x, h0 = scratch.tensor(np.zeros((100, 1, 1))), scratch.tensor(np.zeros((1, 1)), requires_grad=True)
    h = rnn(x, h0, scratch.tensor([[1.0]]), scratch.tensor([[0.9]]))
    return float(scratch.grad(h[99, 0, 0], (h0,))[0].data.item())


@claim("C5.2", LessOrEqual())
def bound_on_the_gradient() -> Pair:
    """‖∂h_t/∂h_k‖ ≤ (σ_max γ)^{t−k}, γ the largest tanh′(z): W random, and W = 0.9 Q with nearly no input, which
    reaches the bound"""
    Q, _ = torch.linalg.qr(torch.randn(4, 4))
    shares = []
    for r in (_Recurrence(T=8), _Recurrence(T=8, W=0.9 * Q, spread=1e-3)):
        σγ = torch.linalg.matrix_norm(r.W, 2) * max(r.tanh_derivative(j).max().item() for j in range(1, 9))
        for t, k in [(8, k) for k in range(8)] + [(k + 1, k) for k in range(8)]:
            shares.append(torch.linalg.matrix_norm(r.jacobian(t, k), 2) / σγ ** (t - k))
    return shares, torch.ones(len(shares))


@claim(
    "C5.3",
    Increasing(),
    condition="W_hh without shear, and no unit that saturates (tanh′ near γ at every step): the bound is only an upper "
    "one, so the gradient may grow but need not",
)
def exploding_gradient() -> Conditional:
    """‖∂h_n/∂h_0‖ of didact's RNN, n = 1 … 20, σ_max = 1.5: W = 1.5 I at z = 0, where γ = 1; then the larger of two, W
    = [[0.1, 1.49], [0, 0.1]] at z = 0, and 1.5 Q, Q orthogonal, with random inputs"""
    def norms(r: _Recurrence) -> Tensor:
        return torch.stack([torch.linalg.matrix_norm(r.jacobian(n, 0), 2) for n in range(1, 21)])

    Q, _ = torch.linalg.qr(torch.randn(4, 4))
    driven = _Recurrence(4, 20, W=1.5 * Q)
    growing_norms = norms(_Recurrence(2, 20, W=1.5 * torch.eye(2), spread=0.0))
    sheared, saturated = norms(_Recurrence(2, 20, W=torch.tensor([[0.1, 1.49], [0.0, 0.1]]), spread=0.0)), norms(driven)
    σγ, step_indices = 1.5 * max(driven.tanh_derivative(t).max().item() for t in range(1, 21)), [0, 9, 19]
    shown_otherwise = {"sheared": sheared[step_indices], "saturated": saturated[step_indices], "with σγ": σγ}
    return Conditional(
        Display(growing_norms, {"norm after 1, 10 and 20 steps:": growing_norms[step_indices]}),
        Display(torch.maximum(sheared, saturated), shown_otherwise),
    )


@claim("C5.4", Equal())
def backpropagation_through_time() -> Pair:
    """∂L/∂W = Σ_t ∂L_t/∂h_t Σ_{k≤t} (∏_{j=k+1}^t ∂h_j/∂h_{j−1}) ∂h_k/∂W, the last factor at fixed h_{k−1}, against
    didact's engine"""
    r, v, T = _Recurrence(), torch.randn(6, 4), 6
    total = torch.zeros(4, 4)
    for t in range(1, T + 1):
        for k in range(1, t + 1):
            g = v[t - 1]
            for j in range(t, k, -1):
                g = g @ (r.tanh_derivative(j)[:, None] * r.W)
            total = total + torch.outer(g * r.tanh_derivative(k), r.h[k - 1])
    U, W, b, zero = (scratch.tensor(p.detach().numpy(), requires_grad=True) for p in (r.U, r.W, r.b, torch.zeros(4)))
    h = rnn(scratch.tensor(r.x[:, None].numpy()), scratch.tensor(np.zeros((1, 4))), U, W, b, zero)
    return total, scratch.grad((h[:, 0] * v.numpy()).sum(), (W,))[0].data


@claim(
    "C5.5",
    Equal(),
    correction="the last factor is ∂h_{t−1}/∂W, not ∂L_{t−1}/∂W, and the first term is taken at fixed h_{t−1}",
)
def recursion_of_the_gradient() -> CorrectedClaim:
    """∂L_t/∂W = ∂L_t/∂h_t (∂h_t/∂W + ∂h_t/∂h_{t−1} ∂L_{t−1}/∂W) for one unit and L = (h − 1)²; corrected:
    ∂h_{t−1}/∂W"""
    r = _Recurrence(d=1)
    t, L = 5, [(h - 1).square().sum() for h in r.h]
    dL_before, dL, dh_before = (
        torch.autograd.grad(v, r.W, retain_graph=True)[0] for v in (L[t - 1], L[t], r.h[t - 1].sum())
    )
    outer, inner, fixed = 2 * (r.h[t] - 1), r.tanh_derivative(t) * r.W, r.tanh_derivative(t) * r.h[t - 1]
    return CorrectedClaim((outer * (fixed + inner * dL_before), dL), (outer * (fixed + inner * dh_before), dL))


@claim(
    "C5.6",
    Equal(),
    condition="read as the transposed Jacobian, that of gradients; in the layout of equation 5.4 it is diag(tanh′) "
    "W_hh",
)
def jacobian_of_a_step() -> Conditional:
    """∂h_t/∂h_k = ∏_{j=k+1}^t W_hhᵀ diag(tanh′(z_j)): the transposed Jacobian, and the Jacobian"""
    r = _Recurrence()
    stated = torch.eye(4)
    for j in (3, 4, 5):
        stated = stated @ (r.W.T * r.tanh_derivative(j))
    J = r.jacobian(5, 2)
    return Conditional((stated, J.T), (stated, J))


@claim(
    "C5.8",
    Equal(),
    condition="along the cell alone, with the gates held fixed; they depend on h_{j−1}, and so on c_{j−1}",
)
def gradient_along_the_cell() -> Conditional:
    """∂c_t/∂c_k = diag(∏ f_j) over five of didact's steps: with h detached in the gates, and with the full gradient"""
    w, x, c_k = cell_weights(Recurrent("lstm", 3, 4).rnn, 0), torch.randn(5, 3), torch.randn(4)

    def both(detach_hidden: bool) -> Pair:
        forget: list[Tensor] = []

        def run(c: Tensor) -> Tensor:
            h = torch.zeros(4)
            forget.clear()
            for t in range(5):
                (h, c), gates = cells.lstm_step(x[t], (h.detach() if detach_hidden else h, c), w)
                forget.append(gates["forget"])
            return c

        return jacobian(run, c_k), torch.diag(torch.stack(forget).prod(0))

    return Conditional(both(detach_hidden=True), both(detach_hidden=False))


@claim("C5.9", Exactly(4), correction="three gates and a candidate, as Rem 5.6 says: the candidate lies in (−1, 1)")
def gates_of_an_lstm() -> int:
    """of the four maps of didact's LSTM step, how many are near 0 when all biases are −50: those are gates"""
    w = torch.zeros(4, 1), torch.zeros(4, 1), torch.full((4,), -50.0), torch.zeros(4)
    _, maps = cells.lstm_step(torch.zeros(1), (torch.zeros(1), torch.ones(1)), w)
    return sum(abs(float(maps[name])) < 1e-6 for name in ("input", "forget", "candidate", "output"))


def _count_recurrent_parameters(cell: Cell, d_x: int, d_h: int, biases: int) -> int:
    """Parameters of didact's layer, PyTorch's, with both of its biases or one."""
    layer = Recurrent(cell, d_x, d_h).rnn
    return count_parameters(layer) - (0 if biases == 2 else int(layer.get_parameter("bias_hh_l0").numel()))


_SIZES = ((128, 64), (128, 128), (10, 20))


@claim("C5.10", Equal(), condition="one bias for each gate, as in the equations; PyTorch's layer has two, 4 d_h more")
def parameters_of_an_lstm() -> Conditional:
    """4 d_h(d_h + d_x + 1), against didact's layer, which is PyTorch's, with one and with both of its biases"""
    stated = [4 * h * (h + x + 1) for x, h in _SIZES]
    return Conditional(
        *((stated, [_count_recurrent_parameters("lstm", x, h, biases) for x, h in _SIZES]) for biases in (1, 2))
    )


@claim("C5.11", Equal(), condition="one bias for each gate, as in the equations; PyTorch's layer has two, 3 d_h more")
def parameters_of_a_gru() -> Conditional:
    """3 d_h(d_h + d_x + 1), against didact's layer, which is PyTorch's, with one and with both of its biases"""
    stated = [3 * h * (h + x + 1) for x, h in _SIZES]
    return Conditional(
        *((stated, [_count_recurrent_parameters("gru", x, h, biases) for x, h in _SIZES]) for biases in (1, 2))
    )


def _count_flexible_rnn_parameters(cell: Cell, d_h: int, layers: int) -> int:
    """Parameters of FlexibleRNN (5.9), didact's: 1000 tokens of embedding dimension 128, a bidirectional net, a linear
    head of two classes."""
    return count_parameters(
        RecurrentClassifier(1000, 2, cell=cell, embed_dim=128, hidden_size=d_h, num_layers=layers, init="random")
    )


@claim("C5.12", Approximately((25, 25), 0.1, "~25 % on the page"),
       correction="25 % fewer in the recurrent layers alone; the table's models also have an embedding and a head")
def saving_of_a_gru() -> CorrectedClaim:
    """percent of parameters that the GRUs in the table of 5.9 (128 units, one and two layers) have less than the LSTMs:
    whole models; corrected: their recurrent layers"""
    def percent_saved(lstm: int, gru: int) -> float:
        return 100 * (1 - gru / lstm)

    model_savings = [
        percent_saved(_count_flexible_rnn_parameters("lstm", 128, n), _count_flexible_rnn_parameters("gru", 128, n))
        for n in (1, 2)
    ]
    layer_savings = [
        percent_saved(*(count_parameters(Bidirectional(cell, 128, 128, num_layers=n)) for cell in ("lstm", "gru")))
        for n in (1, 2)
    ]
    return CorrectedClaim(model_savings, layer_savings)


@claim("C5.14", Equal())
def state_of_a_bidirectional_net() -> Pair:
    """the width of [→h; ←h], didact's, is 2 d_h"""
    widths, x, lengths = (5, 16, 33), torch.zeros(1, 2, 3), torch.tensor([2])
    return [Bidirectional("rnn", 3, d)(x, lengths).shape[-1] for d in widths], [2 * d for d in widths]


_CODE_GIVES_COUNT = "the code on the page gives the computed count"
_CODE_GIVES_STACKED_COUNT = f"{_CODE_GIVES_COUNT}; layers above the first of a bidirectional net take 2 d_h inputs"


@claim("C5.15", Exactly(1_447_170), correction=_CODE_GIVES_STACKED_COUNT)
def sentiment_lstm() -> int:
    """embedding 1000 × 128, two bidirectional layers of 256, head 512 – 128 – 2: didact's network of 5.8"""
    return count_parameters(
        RecurrentClassifier(
            1000, 2, cell="lstm", embed_dim=128, hidden_size=256, num_layers=2, head=(128,), init="random"
        )
    )


@claim("C5.17", Exactly(226_434), correction=_CODE_GIVES_COUNT)
def lstm_64() -> int:
    """FlexibleRNN, LSTM, 64 units, 1 layer"""
    return _count_flexible_rnn_parameters("lstm", 64, 1)


@claim("C5.18", Exactly(560_642), correction=_CODE_GIVES_COUNT)
def lstm_128() -> int:
    """FlexibleRNN, LSTM, 128 units, 1 layer"""
    return _count_flexible_rnn_parameters("lstm", 128, 1)


@claim("C5.19", Exactly(1_568_258), correction=_CODE_GIVES_COUNT)
def lstm_256() -> int:
    """FlexibleRNN, LSTM, 256 units, 1 layer"""
    return _count_flexible_rnn_parameters("lstm", 256, 1)


@claim("C5.20", Exactly(823_810), correction=_CODE_GIVES_STACKED_COUNT)
def lstm_128_of_two_layers() -> int:
    """FlexibleRNN, LSTM, 128 units, 2 layers"""
    return _count_flexible_rnn_parameters("lstm", 128, 2)


@claim("C5.21", Exactly(1_086_978), correction=_CODE_GIVES_STACKED_COUNT)
def lstm_128_of_three_layers() -> int:
    """FlexibleRNN, LSTM, 128 units, 3 layers"""
    return _count_flexible_rnn_parameters("lstm", 128, 3)


@claim("C5.22", Exactly(432_386), correction=_CODE_GIVES_COUNT)
def gru_128() -> int:
    """FlexibleRNN, GRU, 128 units, 1 layer"""
    return _count_flexible_rnn_parameters("gru", 128, 1)


@claim("C5.23", Exactly(630_530), correction=_CODE_GIVES_STACKED_COUNT)
def gru_128_of_two_layers() -> int:
    """FlexibleRNN, GRU, 128 units, 2 layers"""
    return _count_flexible_rnn_parameters("gru", 128, 2)


def _fft_with_count(x: Tensor) -> tuple[Tensor, int]:
    """Σ_t x_t e^{−2πi kt/N}, from the transforms of the even and of the odd entries, and the number of multiplications;
    N a power of two."""
    N = len(x)
    if N == 1:
        return x, 0
    (even, m), (odd, n) = _fft_with_count(x[::2]), _fft_with_count(x[1::2])
    rotated = torch.exp(-2j * math.pi * torch.arange(N // 2) / N) * odd
    return torch.cat([even + rotated, even - rotated]), m + n + N // 2


def _fft_convolve(x: Tensor, kernel: Tensor) -> tuple[Tensor, int]:
    """Σ_k kernel_k x_{t−k} by three transforms of twice the length (no wrap-around), and the number of
    multiplications."""
    T = len(x)
    (X, a), (K, b) = (_fft_with_count(torch.cat([v, torch.zeros(T)])) for v in (x, kernel))
    y, c = _fft_with_count((X * K).conj())                             # inverse transform: conjugate, over 2T
    return y.real[:T] / (2 * T), a + b + 2 * T + c


@claim("C5.26", Equal())
def state_space_as_a_convolution() -> Display:
    """h_t = A h_{t−1} + B x_t, y_t = C h_t + D x_t, didact's scan and its steps with diagonal A, against the
    convolution of x with (C Aᵏ B) by fast Fourier transforms; and its multiplications for T = 64, 128, 256 against 3T
    log₂ T + 5T"""
    T, a, B, C, D, x = 64, 1.8 * torch.rand(4) - 0.9, torch.randn(4), torch.randn(4), torch.randn(()), torch.randn(64)
    kernel = torch.stack([C @ torch.linalg.matrix_power(torch.diag(a), k) @ B for k in range(T)])
    y = _fft_convolve(x, kernel)[0] + D * x
    states = [scan_function(a.expand(1, T, 4), (B * x[:, None])[None])[0] for scan_function in (scan, sequential_scan)]
    scan_outputs = [h @ C + D * x for h in states]
    lengths = (64, 128, 256)
    counts = [_fft_convolve(torch.randn(n), torch.randn(n))[1] for n in lengths]
    return Display(
        ([y, y, counts], [*scan_outputs, [3 * n * math.log2(n) + 5 * n for n in lengths]]),
        {
            "largest difference in y": max((y - s).abs().max() for s in scan_outputs),
            "multiplications for T = 64, 128 and 256:": counts,
        },
    )


@claim("C5.27", Equal(), correction="PyTorch has h = (1 − z) ⊙ n + z ⊙ h, and applies r after the recurrent matrix")
def two_kinds_of_gru() -> CorrectedClaim:
    """equations 5.16 to 5.19 against one step of didact's GRU, PyTorch's, with its weights; corrected: r ⊙ U h, h′ = (1
    − z) ⊙ n + z ⊙ h"""
    layer, x, h = Recurrent("gru", 3, 5), torch.randn(3), torch.randn(5)
    w_ih, w_hh, *_zero = cell_weights(layer.rnn, 0)                  # didact initializes biases at 0
    (W_r, W_z, W_n), (U_r, U_z, U_n) = w_ih.chunk(3), w_hh.chunk(3)
    r, z = (W_r @ x + U_r @ h).sigmoid(), (W_z @ x + U_z @ h).sigmoid()
    reset_before_matrix, reset_after_matrix = torch.tanh(W_n @ x + U_n @ (r * h)), torch.tanh(W_n @ x + r * (U_n @ h))
    theirs = layer(x[None, None], (h[None, None],))[0]
    ours = cells.gru_step(x, (h,), cell_weights(layer.rnn, 0))[0][0]
    return CorrectedClaim(
        ((1 - z) * h + z * reset_before_matrix, theirs), ([(1 - z) * reset_after_matrix + z * h] * 2, [theirs, ours])
    )


@claim(
    "C5.28",
    InInterval(0.95, 1),
    condition="1 − f well below 1 over the number of steps: 0.99 is near 1, but loses most of the gradient in a "
    "hundred",
)
def open_forget_gates() -> Conditional:
    """∂c_100/∂c_0 = ∏ f_j of didact's LSTM with weights 0 and the forget gate's bias log f/(1 − f): f = 0.9999, and f =
    0.99"""
    def cell_gradient(f: float) -> Display:
        bias = torch.tensor([0.0, math.log(f / (1 - f)), 0.0, 0.0])
        h, c_0 = torch.zeros(1), torch.ones(1, requires_grad=True)
        c = c_0
        for _ in range(100):
            (h, c), _ = cells.lstm_step(
                torch.zeros(1), (h, c), (torch.zeros(4, 1), torch.zeros(4, 1), bias, torch.zeros(4))
            )
        remaining = float(compute_gradients(c.sum(), c_0)[0])
        return Display(remaining, {f"after a hundred steps at f = {f}:": remaining})

    return Conditional(cell_gradient(0.9999), cell_gradient(0.99))


def _learns_to_remember(T: int, init: Init, *, steps: int) -> bool:
    """Whether didact's RNN can recall, after T steps of noise, the bit of its first input: trained until twenty batches
    in a row are right, or for `steps` steps."""
    rnn, head, num_correct_batches = Recurrent("rnn", 2, 32, init=init).float(), nn.Linear(32, 2).float(), 0
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=4e-3)

    def predict_bit(n: int) -> tuple[Tensor, Tensor]:
        x, y = 0.3 * torch.randn(n, T, 2, dtype=torch.float32), torch.randint(2, (n,))
        x[:, 0, 0] = 2.0 * y - 1
        return head(rnn(x)[0][:, -1]), y

    for _ in range(steps):
        z, y = predict_bit(32)
        optimizer.zero_grad()
        F.cross_entropy(z, y).backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()
        num_correct_batches = num_correct_batches + 1 if bool(accuracy(z, y) == 1) else 0
        if num_correct_batches == 20:
            break
    return bool(accuracy(*predict_bit(500)) > 0.9)


@claim(
    "C5.7",
    InInterval(10, 20),
    correction="with enough training it learns 30 steps; from orthogonal weights 50, with little training",
)
def memory_of_an_rnn() -> list[int]:
    """the longest time over which didact's RNN learns to remember a bit: of 10, 20 and 30 steps from PyTorch's
    initialization with at most 2,000 training steps, of 20 and 50 from orthogonal weights with at most 300"""
    def longest(lengths: tuple[int, ...], init: Init, steps: int) -> int:
        return max((T for T in lengths if _learns_to_remember(T, init, steps=steps)), default=0)

    return [longest((10, 20, 30), "random", 2000), longest((20, 50), "orthogonal", 300)]
