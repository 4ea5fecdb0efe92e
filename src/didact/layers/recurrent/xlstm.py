"""xLSTM (Beck et al. 2024): exponential gates; a scalar memory that mixes (sLSTM) and a matrix memory that runs in
parallel (mLSTM).

exp(i) can overflow, unlike σ(i): every state is stored divided by e^m, m_t = max(log f_t + m_{t−1}, i_t); m cancels in
h. Gaba 5.10.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.recurrent.cells import Gates, State


class SLSTM(nn.Module):
    """c_t = f c + e^i z,  n_t = f n + e^i,  h_t = o c_t / n_t,  f = σ(f̃), z = tanh(z̃), o = σ(õ).  Eqs. 8-17 of the
    paper.

    Gates read h_{t−1} through R, head by head: a memory that mixes, and so a loop over time.
    """

    def __init__(self, dim: int, *, num_heads: int = 4):
        super().__init__()
        if dim % num_heads:
            raise UsageError(f"dim must be a multiple of num_heads={num_heads}, got dim={dim}")
        self.num_heads = num_heads
        self.w = nn.Linear(dim, 4 * dim)
        self.r = nn.Parameter(
            torch.randn(num_heads, dim // num_heads, 4 * (dim // num_heads)) * (dim // num_heads) ** -0.5
        )

    def forward(self, x: Tensor) -> Tensor:                                   # (B, T, D)
        return self.forward_from_state(x, self.initial_state(len(x)))[0]

    def initial_state(self, batch_size: int) -> State:
        """The state before the first token: c, n, h = 0 and m = −∞."""
        zero = self.r.new_zeros(batch_size, self.num_heads, self.r.shape[1])
        return zero, zero, zero, torch.full_like(zero, -torch.inf)

    def forward_from_state(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The output from a given state, and the new state: c, n, h and m, each (B, heads, d)."""
        wx, out = self.project_gates(x), []
        for wx_t in wx.unbind(1):
            state, _ = self.step(wx_t, state)
            out.append(state[2].flatten(1))
        return torch.stack(out, dim=1), state

    def project_gates(self, x: Tensor) -> Tensor:
        """The input's part of the gates i, f, z and o: (B, T, heads, 4d)."""
        wx: Tensor = self.w(x).unflatten(-1, (self.num_heads, -1))
        return wx

    def step(self, wx: Tensor, state: State) -> tuple[State, Gates]:
        c, n, h, m = state
        i, f, z, o = (wx + torch.einsum("bhd,hde->bhe", h, self.r)).chunk(4, dim=-1)
        log_f = F.logsigmoid(f) + m
        # m cancels in h: no gradient has to pass through it
        m = torch.maximum(log_f, i).detach()
        keep, add = torch.exp(log_f - m), torch.exp(i - m)
        c, n = keep * c + add * z.tanh(), keep * n + add
        h = o.sigmoid() * c / n
        return (c, n, h, m), {"forget": f.sigmoid(), "new": add / n, "candidate": z.tanh(), "output": o.sigmoid()}

    def compute_gates(self, x: Tensor) -> Gates:
        """The gates over time, (B, T, D); `new` is e^i / n, the share of the current input in the memory."""
        state, gates_by_step = self.initial_state(len(x)), []
        for wx_t in self.project_gates(x).unbind(1):
            state, gates = self.step(wx_t, state)
            gates_by_step.append(gates)
        return {name: torch.stack([g[name].flatten(1) for g in gates_by_step], dim=1) for name in gates_by_step[0]}


class MLSTM(nn.Module):
    """C_t = f C + e^i v kᵀ,  n_t = f n + e^i k,  h_t = o ⊙ C_t q / max(|n_t·q|, 1).  Eqs. 19-27 of the paper."""

    def __init__(self, dim: int, *, num_heads: int = 4):
        super().__init__()
        if dim % num_heads:
            raise UsageError(f"dim must be a multiple of num_heads={num_heads}, got dim={dim}")
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.qkv, self.gates, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, 2 * num_heads), nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, parallel: bool = True) -> Tensor:         # (B, T, D)
        return self.forward_from_state(x, self.initial_state(len(x)), parallel=parallel)[0]

    def initial_state(self, batch_size: int) -> State:
        """The state before the first token: C, n = 0 and m = −∞."""
        parameter, d = next(self.parameters()), self.head_dim       # any: after int8 quantization matrices are buffers
        sizes = (batch_size, self.num_heads, d, d), (batch_size, self.num_heads, d)
        return *(parameter.new_zeros(size) for size in sizes), parameter.new_full(
            (batch_size, self.num_heads), -torch.inf
        )

    def forward_from_state(self, x: Tensor, state: State, *, parallel: bool = True) -> tuple[Tensor, State]:
        """The output from a given state, and the new state: C (B, heads, d, d), n (B, heads, d), m (B, heads)."""
        # (B, heads, T, d)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        i, f = self.gates(x).unflatten(-1, (2, self.num_heads)).permute(2, 0, 3, 1).unbind()           # (B, heads, T)
        run = _mlstm_parallel if parallel else _mlstm_recurrent
        h, new_state = run(q, k / sqrt(k.shape[-1]), v, i, F.logsigmoid(f), state)
        y: Tensor = self.o(x).sigmoid() * h.transpose(1, 2).flatten(2)
        return y, new_state

    def compute_decay(self, x: Tensor) -> Tensor:
        """f_t, the decay of C, (B, T, heads): ∂C_t/∂C_{t−1} = f_t."""
        f: Tensor = self.gates(x).chunk(2, dim=-1)[1]
        return f.sigmoid()

    def compute_gates(self, x: Tensor) -> Gates:
        """The gates over time: forget (B, T, heads) and output (B, T, D)."""
        return {"forget": self.compute_decay(x), "output": self.o(x).sigmoid()}


def _mlstm_parallel(q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor, state: State) -> tuple[Tensor, State]:
    """S = Q Kᵀ ⊙ e^(D − m), D_ts = Σ_{s<r≤t} log f_r + i_s for s ≤ t, m_t = max_s D_ts;  h = S V / max(|S 1|, e^−m).

    The initial state is one more term of each sum, decayed by all f until t.  Appendix A.3.
    """
    big_c, n, m_0 = state
    total = log_f.cumsum(-1)
    d = total[..., :, None] - total[..., None, :] + i[..., None, :]           # (…, T, T)
    t = d.shape[-1]
    d = d.masked_fill(~torch.ones(t, t, dtype=torch.bool, device=d.device).tril(), -torch.inf)
    decayed = (total + m_0[..., None])[..., None]                               # (…, T, 1)
    m = torch.maximum(d.amax(-1, keepdim=True), decayed).detach()
    w, state_weight = torch.exp(d - m), torch.exp(decayed - m)
    s = (q @ k.mT) * w
    normalizer = s.sum(-1, keepdim=True) + state_weight * (q @ n[..., None])
    h = (s @ v + state_weight * (q @ big_c.mT)) / torch.maximum(normalizer.abs(), torch.exp(-m))
    # (…, 1, T), (…, 1)
    last_weight, last_state_weight = w[..., -1:, :], state_weight[..., -1, :]
    big_c = last_state_weight[..., None] * big_c + (last_weight.mT * v).mT @ k
    return h, (big_c, last_state_weight * n + (last_weight @ k)[..., 0, :], m[..., -1, 0])


def _mlstm_recurrent(q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor, state: State) -> tuple[Tensor, State]:
    """The same, step by step, in memory that does not grow with time."""
    c, n, m = state
    out = []
    for q_t, k_t, v_t, i_t, f_t in zip(
        q.unbind(-2), k.unbind(-2), v.unbind(-2), i.unbind(-1), log_f.unbind(-1), strict=True
    ):
        m_old, m = m, torch.maximum(f_t + m, i_t)
        keep, add = torch.exp(f_t + m_old - m)[..., None], torch.exp(i_t - m)[..., None]
        c = keep[..., None] * c + (add * v_t)[..., :, None] * k_t[..., None, :]
        n = keep * n + add * k_t
        normalizer = torch.maximum((n * q_t).sum(-1).abs(), torch.exp(-m))
        out.append((c @ q_t[..., None])[..., 0] / normalizer[..., None])
    return torch.stack(out, dim=-2), (c, n, m)
