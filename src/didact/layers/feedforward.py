"""Position-wise feed-forward networks of Transformer blocks: each token by itself, widened, activated, narrowed."""

from torch import Tensor, nn
from torch.nn.functional import silu

from didact.layers.activation import make_activation


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, f ReLU or GELU.

    Vaswani et al. 2017, eq. 2; Gaba eq. 7.8; GELU: Gaba's code 7.8 (mistake M37).
    """

    def __init__(self, dim: int, ffn_dim: int | None = None, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, ffn_dim or 4 * dim), nn.Linear(ffn_dim or 4 * dim, dim)
        self.activation, self.dropout = make_activation(activation), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w2(self.dropout(self.activation(self.w1(x))))
        return y


class SwiGLU(nn.Module):
    """W_down (silu(W_gate x) ⊙ W_up x), without biases.  Shazeer 2020; Gaba 7.10. Parameter names are those of LLaMA's
    weights.
    """

    def __init__(self, dim: int, ffn_dim: int | None = None):
        super().__init__()
        # three matrices of this width have as many parameters as two of width 4 dim
        inner_dim = ffn_dim or -(-8 * dim // 3)
        self.gate_proj, self.up_proj = nn.Linear(dim, inner_dim, bias=False), nn.Linear(dim, inner_dim, bias=False)
        self.down_proj = nn.Linear(inner_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return y
