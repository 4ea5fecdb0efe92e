"""Mixture of experts (MoE): many feed-forward networks; a router sends each token to the top k of them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

from didact.errors import UsageError
from didact.layers.auxiliary_loss import HasAuxiliaryLoss
from didact.layers.matmul_dtype import matmul_dtype

# blocks per expert if tokens were spread evenly: fewer blocks mean more padding, more mean more copies of its matrices
_BLOCKS_PER_EVEN_SHARE = 2


def top_k_routing(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """softmax over the `top_k` largest logits: gate weights (N, top_k), which sum to one, and indices of the experts.

    Shazeer et al. 2017; Gaba 7.10.
    """
    top_logits = logits.topk(top_k, dim=-1)
    return top_logits.values.softmax(dim=-1), top_logits.indices


def load_balancing_loss(logits: Tensor, expert_indices: Tensor) -> Tensor:
    """E Σ_e f_e P_e, f_e the share of choices and P_e the mean probability of expert e; 1 where both are even.

    Fedus et al. 2022, eq. 4, for top-k choices of each token. f is a count, so the gradient comes through P.
    """
    num_experts = logits.shape[-1]
    f = one_hot(expert_indices, num_experts).float().mean(dim=(0, 1))        # (N, top, E) -> (E,)
    p = logits.softmax(dim=-1).mean(dim=0)
    return num_experts * (f * p).sum()


class Router(nn.Linear):
    """z = W x, never in half precision, where near ties would be decided by rounding. LoRA and int8 leave it out: it is
    small and decisive.
    """

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype)).float()


class MixtureOfExperts(HasAuxiliaryLoss):
    """y = Σ_{e ∈ top(x)} g_e(x) W2_e (silu(W1_e x) ⊙ W3_e x).  Gaba 7.10 (two of eight), Jiang et al. 2024.

    No expert has a capacity limit: the output of a token does not depend on other tokens. W1 and W3 are initialized
    with standard deviation `std`, W2, which adds to the residual path, with `out_std`; default 1 / √inputs. The
    auxiliary loss is the load-balancing loss.
    """

    stacked = ("w1", "w2", "w3")  # (E, inputs, outputs)

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        *,
        num_experts: int = 8,
        top_k: int = 2,
        std: float | None = None,
        out_std: float | None = None,
    ):
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise UsageError(f"top_k must be from 1 to num_experts={num_experts}, got top_k={top_k}")
        self.num_experts, self.top_k = num_experts, top_k
        self.router = Router(dim, num_experts, bias=False)
        std, out_std = std or dim**-0.5, out_std or ffn_dim**-0.5
        self.w1, self.w3 = (nn.Parameter(std * torch.randn(num_experts, dim, ffn_dim)) for _ in range(2))
        self.w2 = nn.Parameter(out_std * torch.randn(num_experts, ffn_dim, dim))

    def forward(self, x: Tensor) -> Tensor:                      # (…, D)
        tokens = x.reshape(-1, x.shape[-1])                      # (N, D)
        logits = self.router(tokens)
        gates, expert_indices = top_k_routing(logits, self.top_k)
        self.auxiliary_loss = load_balancing_loss(logits, expert_indices) if self.training else None
        on_host = x.device.type == "cpu" and not torch.compiler.is_compiling()
        run_experts = self._loop_over_experts if on_host else self._grouped_matmul
        y = run_experts(tokens.repeat_interleave(self.top_k, dim=0), expert_indices.flatten())
        y = y.unflatten(0, expert_indices.shape)                 # (N, top_k, D)
        out: Tensor = (gates[..., None].to(y.dtype) * y).sum(1)
        return out.view(x.shape)

    def _loop_over_experts(self, x: Tensor, expert_index: Tensor) -> Tensor:
        """Each token by its expert, expert after expert. The host must know how many tokens each has: good on a CPU
        alone.
        """
        order = expert_index.argsort(stable=True)
        tokens_by_expert = x[order].split(one_hot(expert_index, self.num_experts).sum(0).tolist())
        matrices = zip(self.w1.unbind(), self.w3.unbind(), self.w2.unbind(), strict=True)
        y = torch.cat([_swiglu(x_e, *w) for x_e, w in zip(tokens_by_expert, matrices, strict=True)])
        return torch.empty_like(y).index_copy(0, order, y)

    def _grouped_matmul(self, x: Tensor, expert_index: Tensor) -> Tensor:
        """The same in shapes that do not depend on the routing, for compilation and CUDA graphs.

        Tokens are sorted by expert and laid into blocks of `block_size`, the last block of each expert padded with
        zeros; each block is multiplied by the matrices of its expert in one batched product.
        """
        n, num_experts = len(x), self.num_experts
        block_size = -(-n // (_BLOCKS_PER_EVEN_SHARE * num_experts))
        num_blocks = (n + min(num_experts, n) * (block_size - 1)) // block_size     # Σ_e ceil(n_e / size) is never more
        counts = one_hot(expert_index, num_experts).sum(0)                          # (E,)
        blocks_per_expert = -(-counts // block_size)
        ends = blocks_per_expert.cumsum(0)                                          # of each expert's blocks
        order = expert_index.argsort(stable=True)
        sorted_position = torch.empty_like(order).scatter(0, order, torch.arange(n, device=x.device))
        rank_in_expert = sorted_position - (counts.cumsum(0) - counts)[expert_index]
        slots = (ends - blocks_per_expert)[expert_index] * block_size + rank_in_expert      # (N · top_k,)
        # blocks behind the last end are empty: any expert will do
        block_expert = (torch.arange(num_blocks, device=x.device)[:, None] >= ends).sum(1).clamp(max=num_experts - 1)
        blocks = x.new_zeros(num_blocks * block_size, x.shape[1]).index_copy(0, slots, x)
        blocks = blocks.view(num_blocks, block_size, -1)
        dtype = matmul_dtype(self.w1)
        # with many blocks all experts are rounded first, since half-precision copies are half as large; with few blocks
        # (decoding) only their experts are copied, and rounded in the product
        w1, w3, w2 = (
            w.to(dtype)[block_expert] if num_blocks > num_experts else w[block_expert]
            for w in (self.w1, self.w3, self.w2)
        )
        return _swiglu(blocks, w1, w3, w2).flatten(0, 1)[slots]


def _swiglu(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor) -> Tensor:
    return (silu(x @ w1) * (x @ w3)) @ w2
