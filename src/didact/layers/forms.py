"""Forms of self-attention by name: all ask, few answer, or answers are summed up first.

A `Weighing` says who is weighed and how, whoever projected queries, keys and values: `Formed` does with `SelfAttention`'s matrices,
`models.gpt` with GPT-2's. Dropout of the weights is for the full form alone: the others do not hold them, or few.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from didact.errors import UsageError, pick
from didact.layers import masks
from didact.layers.attention import SelfAttention, attention, joined
from didact.layers.differential import DifferentialAttention, Differing
from didact.layers.linear_attention import causal_linear_attention, feature, linear_attention, share
from didact.layers.sparse import best, local_attention, strided_attention
from didact.layers.tiled import tiled_attention

Form = Literal["full", "local", "strided", "topk", "linear", "differential", "tiled"]
SPANNED = ("local", "strided", "topk")   # those that are told how many to look at …
SPAN = 8                                 # … or are not


class Weighing(nn.Module):
    """y_i = Σ_j a_ij v_j for each head, with an a of its own: (B, heads, S, d) three times -> (B, heads, S, d).

    `there` (B, 1, S) is True where there are tokens.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None = None, *, causal: bool = False) -> Tensor:
        mask = None if there is None else there[..., None, :]
        return self.explicit(q, k, v, joined(mask, q, k) if causal else mask)[0]

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same by a matrix, and that matrix, (B, heads, T, S): also of a few queries, at these `places` among the keys, (T,)."""
        return attention(q, k, v, mask)


class Patterned(Weighing):
    """Who is looked at depends on the places alone; `span` says how far, or in what steps."""

    pattern: Callable[..., Tensor]                # of the length, the span and the places: (T, S), True where it looks

    def __init__(self, span: int):
        super().__init__()
        self.span = span

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        seen = self.pattern(k.shape[-2], self.span, places=places, device=q.device)
        return attention(q, k, v, seen if mask is None else seen & mask)


class Local(Patterned):
    """|i − j| ≤ span."""

    pattern = staticmethod(masks.window)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return local_attention(q, k, v, reach=self.span, causal=causal, there=there)


class Strided(Patterned):
    """j ≡ i mod span."""

    pattern = staticmethod(masks.strided)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return strided_attention(q, k, v, stride=self.span, causal=causal, there=there)


class TopK(Weighing):
    """The span largest scores of each query."""

    def __init__(self, span: int):
        super().__init__()
        self.span = span

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return attention(q, k, v, best(q, k, self.span, mask))


class Linear(Weighing):
    """φ(q)ᵀφ(k) instead of e^(qᵀk)."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return (causal_linear_attention if causal else linear_attention)(q, k, v, there=there)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
        a = feature(q) @ feature(k).mT
        a = a if mask is None else a * mask
        a = share(a, a.sum(-1, keepdim=True))
        return a @ v, a


class Differential(Differing, Weighing):
    """The difference of two softmaxes, of the first and the second half of queries and keys, d numbers wide together."""

    def __init__(self, d: int, *, depth: int):
        super().__init__()
        if d % 2:
            raise UsageError(f"differential attention halves each head: its width, --width / --heads, must be even, got {d}")
        self.initial = self.first(depth)
        self.lambdas, self.norm = nn.Parameter(0.1 * torch.randn(4, d // 2)), nn.RMSNorm(d, eps=1e-5)


class Tiled(Weighing):
    """The full form, a tile of keys at a time."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return tiled_attention(q, k, v, causal=causal, there=there)


# of the width of a head, the span and the number of the layer, from 0
WEIGHINGS: dict[str, Callable[[int, int, int], Weighing]] = {
    "local": lambda d, span, depth: Local(span),
    # a window first, then every span-th: two layers reach everything.  Child et al. 2019, section 4.2
    "strided": lambda d, span, depth: (Strided if depth % 2 else Local)(span),
    "topk": lambda d, span, depth: TopK(span),
    "linear": lambda d, span, depth: Linear(),
    "differential": lambda d, span, depth: Differential(d, depth=depth),
    "tiled": lambda d, span, depth: Tiled(),
}
FORMS = {"full": None, **WEIGHINGS}
assert set(FORMS) == set(get_args(Form))


def reach(form: str, span: int | None) -> int | None:
    """The span that counts; of a form that knows none, none."""
    return (span or SPAN) if form in SPANNED else None


class Formed(SelfAttention):
    """Y = [head_i] W_O with heads that weigh in a way of their own.  `mask` (B, 1, 1, S) is True where there are tokens."""

    def __init__(self, dim: int, heads: int, form: Weighing):
        super().__init__(dim, heads)
        self.form = form

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return self.join(self.form(*self.project(x), None if mask is None else mask[..., 0, :], causal=causal))

    def look(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(x)
        y, a = self.form.explicit(q, k, v, joined(mask, q, k) if causal else mask)
        return self.join(y), a


def self_attention(form: str, dim: int, heads: int, *, dropout: float = 0.0, span: int = SPAN, depth: int = 0) -> Any:
    """The attention of that form."""
    made = pick("form of attention", form, FORMS)
    if made is None:
        return SelfAttention(dim, heads, dropout=dropout)
    if form == "differential":
        return DifferentialAttention(dim, heads, depth=depth)      # with the paper's projections, which add nothing
    return Formed(dim, heads, made(dim // heads, span, depth))
