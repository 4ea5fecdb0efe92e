"""Gaba, chapter 5: recurrent networks."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims.compare import Cases, Corrected, Exactly, Inside, NeverMore, Printed, Rising, Same
from didact.claims.core import claim, unable
from didact.claims.tools import Pair, gradients, parameters


class Recurrence:
    """h_t = tanh(W h_{t−1} + U x_t + b), unrolled over T steps of random inputs."""

    def __init__(self, d: int = 4, T: int = 6, scale: float = 1.0):
        self.W, self.U, self.b = (scale * torch.randn(d, d)).requires_grad_(), torch.randn(d, 3), torch.randn(d)
        self.x, self.h = torch.randn(T, 3), [torch.zeros(d, requires_grad=True)]
        for x in self.x:
            self.h.append(self.step(self.h[-1], x))

    def step(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.W @ h + self.U @ x + self.b)

    def slope(self, t: int) -> Tensor:
        """tanh′(z_t) = 1 − h_t²."""
        return 1 - self.h[t] ** 2

    def jacobian(self, t: int, k: int) -> Tensor:
        """∂h_t/∂h_k, row the output, by PyTorch's engine."""
        return torch.stack([torch.autograd.grad(self.h[t][i], self.h[k], retain_graph=True)[0] for i in range(len(self.b))])


@claim("C5.1", Printed("2.66e-5"))
def decay_over_a_hundred_steps() -> float:
    """0.9¹⁰⁰"""
    return 0.9**100


@claim("C5.2", NeverMore())
def bound_on_the_gradient() -> Pair:
    """‖∂h_t/∂h_k‖ ≤ (σ_max γ)^{t−k}, γ the largest tanh′(z) of the sequence, for all k < t"""
    r = Recurrence(T=8)
    σγ = torch.linalg.matrix_norm(r.W, 2) * max(r.slope(t).max().item() for t in range(1, 9))
    pairs = [(t, k) for t in range(1, 9) for k in range(t)]
    return [torch.linalg.matrix_norm(r.jacobian(t, k), 2) for t, k in pairs], [σγ ** (t - k) for t, k in pairs]


@claim("C5.3", Rising(), condition="W_hh without strong shear: the bound is from above, so the gradient may grow, and need not")
def exploding_gradient() -> Cases:
    """‖W^n‖ for n = 1 … 20 at z = 0, where γ = 1: σ_max = 1.5 for both W = 1.5 I and W = [[0.1, 1.49], [0, 0.1]]"""
    def norms(W: Tensor) -> list[Tensor]:
        return [torch.linalg.matrix_norm(torch.linalg.matrix_power(W, n), 2) for n in range(1, 21)]

    return Cases(norms(1.5 * torch.eye(2)), norms(torch.tensor([[0.1, 1.49], [0.0, 0.1]])))


@claim("C5.4", Same())
def backpropagation_through_time() -> Pair:
    """∂L/∂W = Σ_t ∂L_t/∂h_t Σ_{k≤t} (∏_{j=k+1}^t ∂h_j/∂h_{j−1}) ∂h_k/∂W, the last factor at fixed h_{k−1}"""
    r, v, T = Recurrence(), torch.randn(6, 4), 6
    loss = torch.stack([v[t - 1] @ r.h[t] for t in range(1, T + 1)]).sum()
    total = torch.zeros(4, 4)
    for t in range(1, T + 1):
        for k in range(1, t + 1):
            g = v[t - 1]
            for j in range(t, k, -1):
                g = g @ (r.slope(j)[:, None] * r.W)
            total = total + torch.outer(g * r.slope(k), r.h[k - 1])
    return total, gradients(loss, r.W)[0]


@claim("C5.5", Same(), right="the last factor is ∂h_{t−1}/∂W, not ∂L_{t−1}/∂W, and the first term is taken at fixed h_{t−1}")
def recursion_of_the_gradient() -> Corrected:
    """∂L_t/∂W = ∂L_t/∂h_t (∂h_t/∂W + ∂h_t/∂h_{t−1} ∂L_{t−1}/∂W) for one unit and L = (h − 1)²; mended: ∂h_{t−1}/∂W"""
    r = Recurrence(d=1)
    t, L = 5, [(h - 1).square().sum() for h in r.h]
    dL_before, dL, dh_before = (torch.autograd.grad(v, r.W, retain_graph=True)[0] for v in (L[t - 1], L[t], r.h[t - 1].sum()))
    outer, inner, fixed = 2 * (r.h[t] - 1), r.slope(t) * r.W, r.slope(t) * r.h[t - 1]
    return Corrected((outer * (fixed + inner * dL_before), dL), (outer * (fixed + inner * dh_before), dL))


@claim("C5.6", Same(), condition="read as the transposed Jacobian, that of gradients; in the layout of equation 5.4 it is diag(tanh′) W_hh")
def jacobian_of_a_step() -> Cases:
    """∂h_t/∂h_k = ∏_{j=k+1}^t W_hhᵀ diag(tanh′(z_j)): the transposed Jacobian, and the Jacobian"""
    r = Recurrence()
    stated = torch.eye(4)
    for j in (3, 4, 5):
        stated = stated @ (r.W.T * r.slope(j))
    J = r.jacobian(5, 2)
    return Cases((stated, J.T), (stated, J))


def lstm_step(x: Tensor, h: Tensor, c: Tensor, cell: nn.LSTMCell) -> tuple[Tensor, Tensor, Tensor]:
    """h_t, c_t and the forget gate of equations 5.9 to 5.14."""
    i, f, g, o = (cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c, f.sigmoid()


@claim("C5.8", Same(), condition="along the cell alone, its gates held fixed; they depend on h_{j−1}, hence on c_{j−1}")
def gradient_along_the_cell() -> Cases:
    """∂c_t/∂c_k = diag(∏ f_j) over five steps: with h cut out of the gates' gradient, and with all of it"""
    cell, x = nn.LSTMCell(3, 4), torch.randn(5, 3)

    def both(cut: bool) -> Pair:
        gates: list[Tensor] = []

        def run(c: Tensor) -> Tensor:
            h = torch.zeros(4)
            gates.clear()
            for t in range(5):
                h, c, f = lstm_step(x[t], h.detach() if cut else h, c, cell)
                gates.append(f)
            return c

        J = jacobian(run, torch.randn(4, generator=torch.Generator().manual_seed(1)))
        return J, torch.diag(torch.stack(gates).prod(0))

    return Cases(both(cut=True), both(cut=False))


@claim("C5.9", Exactly(4), right="three gates and a candidate, as Rem 5.6 says: the candidate lies in (−1, 1)")
def gates_of_an_lstm() -> int:
    """of the four maps of an LSTM cell, how many close to exactly 0 when their bias goes to −50: those are gates"""
    cell, closed = nn.LSTMCell(1, 1), 0
    for block in range(4):
        with torch.no_grad():
            for p in cell.parameters():
                p.zero_()
            cell.bias_ih.fill_(50.0)
            cell.bias_ih[block] = -50.0
            h, c = cell(torch.zeros(1, 1), (torch.zeros(1, 1), torch.ones(1, 1)))
        part = float(h) if block == 3 else float(c) - 1     # blocks i, f, g, o; of c = f · 1 + i · g the other term is 1
        closed += abs(part) < 1e-6
    return closed


def recurrent(kind: Literal["LSTM", "GRU"], d_x: int, d_h: int, biases: int) -> int:
    layer = getattr(nn, kind)(d_x, d_h)
    return parameters(layer) - (0 if biases == 2 else int(layer.bias_hh_l0.numel()))


SIZES = ((128, 64), (128, 128), (10, 20))


@claim("C5.10", Same(), condition="one bias for each gate, as in the equations; nn.LSTM has two, 4 d_h more")
def parameters_of_an_lstm() -> Cases:
    """4 d_h(d_h + d_x + 1), against nn.LSTM with one and with both of its biases"""
    stated = [4 * h * (h + x + 1) for x, h in SIZES]
    return Cases(*((stated, [recurrent("LSTM", x, h, biases) for x, h in SIZES]) for biases in (1, 2)))


@claim("C5.11", Same(), condition="one bias for each gate, as in the equations; nn.GRU has two, 3 d_h more")
def parameters_of_a_gru() -> Cases:
    """3 d_h(d_h + d_x + 1), against nn.GRU with one and with both of its biases"""
    stated = [3 * h * (h + x + 1) for x, h in SIZES]
    return Cases(*((stated, [recurrent("GRU", x, h, biases) for x, h in SIZES]) for biases in (1, 2)))


def flexible(kind: Literal["LSTM", "GRU"], d_h: int, layers: int, vocabulary: int = 1000) -> int:
    """Parameters of FlexibleRNN (5.9): embedding 128, a bidirectional net, a linear head of two classes."""
    net = getattr(nn, kind)(128, d_h, layers, batch_first=True, bidirectional=True)
    return parameters(nn.Embedding(vocabulary, 128)) + parameters(net) + parameters(nn.Linear(2 * d_h, 2))


@claim("C5.12", Printed("25"), condition="the recurrent layer alone; embedding and head are common to both, so the model saves less")
def saving_of_a_gru() -> Cases:
    """per cent that the GRU of 5.9 (128 units, one layer) has less than the LSTM: the recurrent layer, and the whole model"""
    lstm, gru = (parameters(getattr(nn, kind)(128, 128, bidirectional=True)) for kind in ("LSTM", "GRU"))
    return Cases(100 * (1 - gru / lstm), 100 * (1 - flexible("GRU", 128, 1) / flexible("LSTM", 128, 1)))


@claim("C5.14", Same())
def state_of_a_bidirectional_net() -> Pair:
    """the width of [→h; ←h] is 2 d_h"""
    widths = (5, 16, 33)
    return [nn.RNN(3, d, bidirectional=True)(torch.zeros(2, 1, 3))[0].shape[-1] for d in widths], [2 * d for d in widths]


COUNTED = "the page's own code gives the computed count; layers above the first of a bidirectional net take 2 d_h inputs"


@claim("C5.15", Exactly(1_447_170), right=COUNTED)
def sentiment_lstm() -> int:
    """embedding 1000 × 128, two bidirectional layers of 256, head 512 – 128 – 2"""
    lstm = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
    return sum(map(parameters, (nn.Embedding(1000, 128), lstm, nn.Linear(512, 128), nn.Linear(128, 2))))


@claim("C5.17", Exactly(226_434), right=COUNTED)
def lstm_64() -> int:
    """FlexibleRNN, LSTM, 64 units, 1 layer"""
    return flexible("LSTM", 64, 1)


@claim("C5.18", Exactly(560_642), right=COUNTED)
def lstm_128() -> int:
    """FlexibleRNN, LSTM, 128 units, 1 layer"""
    return flexible("LSTM", 128, 1)


@claim("C5.19", Exactly(1_568_258), right=COUNTED)
def lstm_256() -> int:
    """FlexibleRNN, LSTM, 256 units, 1 layer"""
    return flexible("LSTM", 256, 1)


@claim("C5.20", Exactly(823_810), right=COUNTED)
def lstm_128_of_two_layers() -> int:
    """FlexibleRNN, LSTM, 128 units, 2 layers"""
    return flexible("LSTM", 128, 2)


@claim("C5.21", Exactly(1_086_978), right=COUNTED)
def lstm_128_of_three_layers() -> int:
    """FlexibleRNN, LSTM, 128 units, 3 layers"""
    return flexible("LSTM", 128, 3)


@claim("C5.22", Exactly(432_386), right=COUNTED)
def gru_128() -> int:
    """FlexibleRNN, GRU, 128 units, 1 layer"""
    return flexible("GRU", 128, 1)


@claim("C5.23", Exactly(630_530), right=COUNTED)
def gru_128_of_two_layers() -> int:
    """FlexibleRNN, GRU, 128 units, 2 layers"""
    return flexible("GRU", 128, 2)


@claim("C5.26", Same())
def state_space_as_a_convolution() -> Pair:
    """h_t = A h_{t−1} + B x_t, y_t = C h_t + D x_t, against the convolution of x with (C Aᵏ B) by fast Fourier transforms"""
    T, A, B, C, D, x = 50, 0.3 * torch.randn(4, 4), torch.randn(4), torch.randn(4), torch.randn(()), torch.randn(50)
    h, y = torch.zeros(4), []
    for t in range(T):
        h = A @ h + B * x[t]
        y.append(C @ h + D * x[t])
    kernel = torch.stack([C @ torch.linalg.matrix_power(A, k) @ B for k in range(T)])
    convolved = torch.fft.irfft(torch.fft.rfft(x, 2 * T) * torch.fft.rfft(kernel, 2 * T), 2 * T)[:T]
    return convolved + D * x, torch.stack(y)


@claim("C5.27", Same(), right="PyTorch has h = (1 − z) ⊙ n + z ⊙ h, and applies r behind the recurrent matrix")
def two_kinds_of_gru() -> Corrected:
    """equations 5.16 to 5.19 with the weights of nn.GRUCell, against it; mended: n = tanh(W x + r ⊙ U h), h′ = (1 − z) ⊙ n + z ⊙ h"""
    cell, x, h = nn.GRUCell(3, 5, bias=False), torch.randn(3), torch.randn(5)
    (W_r, W_z, W_n), (U_r, U_z, U_n) = cell.weight_ih.chunk(3), cell.weight_hh.chunk(3)
    r, z = (W_r @ x + U_r @ h).sigmoid(), (W_z @ x + U_z @ h).sigmoid()
    before, behind = torch.tanh(W_n @ x + U_n @ (r * h)), torch.tanh(W_n @ x + r * (U_n @ h))
    theirs = cell(x[None], h[None])[0]
    return Corrected(((1 - z) * h + z * before, theirs), ((1 - z) * behind + z * h, theirs))


@claim("C5.28", Inside(0.95, 1), condition="1 − f far below one over the number of steps: 0.99 is near 1 and loses most of it in a hundred")
def open_forget_gates() -> Cases:
    """∏ f_j over 100 steps: f = 0.9999, and f = 0.99"""
    return Cases(0.9999**100, 0.99**100)


unable("C5.13", "a time, which depends on the machine and its kernels; that there is a quarter less to compute is C5.12")


def remembered(T: int, *, orthogonal: bool) -> float:
    """Accuracy of nn.RNN that is trained for 200 steps to say, after T steps of noise, the bit that it saw first."""
    rnn, head = nn.RNN(2, 32, batch_first=True).float(), nn.Linear(32, 2).float()
    if orthogonal:
        nn.init.orthogonal_(rnn.get_parameter("weight_hh_l0"))
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=2e-3)

    def examples(n: int) -> tuple[Tensor, Tensor]:
        x, y = 0.3 * torch.randn(n, T, 2, dtype=torch.float32), torch.randint(2, (n,))
        x[:, 0, 0] = 2.0 * y - 1
        return x, y

    for _ in range(200):
        x, y = examples(32)
        optimizer.zero_grad()
        F.cross_entropy(head(rnn(x)[0][:, -1]), y).backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()
    x, y = examples(500)
    return float((head(rnn(x)[0][:, -1]).argmax(1) == y).double().mean())


@claim("C5.7", Inside(0.4, 0.6), condition="recurrent weights as PyTorch draws them; orthogonal ones learn 50 steps in the same time")
def memory_of_an_rnn() -> Cases:
    """accuracy of telling the first of 50 inputs, one half by chance: recurrent weights U(±1/√d), and orthogonal"""
    return Cases(remembered(50, orthogonal=False), remembered(50, orthogonal=True))
