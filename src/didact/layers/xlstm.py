"""xLSTM (Beck et al. 2024): exponential gates; a scalar memory that mixes (sLSTM) and a matrix memory that runs in parallel (mLSTM).

exp(i) overflows where σ(i) could not, so that every state is kept divided by e^m, m_t = max(log f_t + m_{t−1}, i_t): m cancels in h.
Gaba 5.10.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError


class SLSTM(nn.Module):
    """c_t = f c + e^i z,  n_t = f n + e^i,  h_t = o c_t / n_t,  f = σ(f̃), z = tanh(z̃), o = σ(õ).  Eqs. 8-17 of the paper.

    Gates read h_{t−1} through R, head by head: a memory that mixes, and so a loop over time.
    """

    def __init__(self, dim: int, *, heads: int = 4):
        super().__init__()
        if dim % heads:
            raise UsageError(f"dim must be a multiple of heads={heads}, got dim={dim}")
        self.heads = heads
        self.w = nn.Linear(dim, 4 * dim)
        self.r = nn.Parameter(torch.randn(heads, dim // heads, 4 * (dim // heads)) * (dim // heads) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:                                   # (B, T, D)
        wx = self.w(x).unflatten(-1, (self.heads, -1))                        # (B, T, heads, 4d)
        c = x.new_zeros(len(x), self.heads, x.shape[-1] // self.heads)
        n, h, m = torch.zeros_like(c), torch.zeros_like(c), torch.full_like(c, -torch.inf)
        out = []
        for wx_t in wx.unbind(1):
            i, f, z, o = (wx_t + torch.einsum("bhd,hde->bhe", h, self.r)).chunk(4, dim=-1)
            log_f = F.logsigmoid(f) + m
            m = torch.maximum(log_f, i)
            keep, add = torch.exp(log_f - m), torch.exp(i - m)
            c, n = keep * c + add * z.tanh(), keep * n + add
            h = o.sigmoid() * c / n
            out.append(h.flatten(1))
        return torch.stack(out, dim=1)


class MLSTM(nn.Module):
    """C_t = f C + e^i v kᵀ,  n_t = f n + e^i k,  h_t = o ⊙ C_t q / max(|n_t·q|, 1).  Eqs. 19-27 of the paper."""

    def __init__(self, dim: int, *, heads: int = 4):
        super().__init__()
        if dim % heads:
            raise UsageError(f"dim must be a multiple of heads={heads}, got dim={dim}")
        self.heads = heads
        self.qkv, self.gates, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, 2 * heads), nn.Linear(dim, dim)

    def forward(self, x: Tensor, *, parallel: bool = True) -> Tensor:         # (B, T, D)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()   # (B, heads, T, d)
        i, f = self.gates(x).unflatten(-1, (2, self.heads)).permute(2, 0, 3, 1).unbind()           # (B, heads, T)
        h = (mlstm_parallel if parallel else mlstm_recurrent)(q, k / sqrt(k.shape[-1]), v, i, F.logsigmoid(f))
        y: Tensor = self.o(x).sigmoid() * h.transpose(1, 2).flatten(2)
        return y


def mlstm_parallel(q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor) -> Tensor:
    """S = Q Kᵀ ⊙ e^(D − m), D_ts = Σ_{s<r≤t} log f_r + i_s for s ≤ t, m_t = max_s D_ts;  h = S V / max(|S 1|, e^−m).  Appendix A.3."""
    total = log_f.cumsum(-1)
    d = total[..., :, None] - total[..., None, :] + i[..., None, :]           # (…, T, T)
    t = d.shape[-1]
    d = d.masked_fill(~torch.ones(t, t, dtype=torch.bool, device=d.device).tril(), -torch.inf)
    m = d.amax(-1, keepdim=True)
    s = (q @ k.mT) * torch.exp(d - m)
    return (s @ v) / torch.maximum(s.sum(-1, keepdim=True).abs(), torch.exp(-m))


def mlstm_recurrent(q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor) -> Tensor:
    """The same, step by step, in memory that does not grow with time."""
    c = q.new_zeros(*q.shape[:-2], v.shape[-1], k.shape[-1])
    n, m = torch.zeros_like(q[..., 0, :]), torch.full_like(i[..., 0], -torch.inf)
    out = []
    for q_t, k_t, v_t, i_t, f_t in zip(q.unbind(-2), k.unbind(-2), v.unbind(-2), i.unbind(-1), log_f.unbind(-1), strict=True):
        before, m = m, torch.maximum(f_t + m, i_t)
        keep, add = torch.exp(f_t + before - m)[..., None], torch.exp(i_t - m)[..., None]
        c = keep[..., None] * c + (add * v_t)[..., :, None] * k_t[..., None, :]
        n = keep * n + add * k_t
        size = torch.maximum((n * q_t).sum(-1).abs(), torch.exp(-m))
        out.append((c @ q_t[..., None])[..., 0] / size[..., None])
    return torch.stack(out, dim=-2)
