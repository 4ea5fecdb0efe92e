"""Forms of self-attention by name: all ask, few answer, or answers are summed up first. Each reads (x, mask) as `SelfAttention` does.

Projections are `SelfAttention`'s, so that a form says only who is weighed and how; `look` is the same by an explicit matrix. Dropout of
the weights is for `full` alone: the others do not hold them, or few.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

from torch import Tensor, nn

from didact.errors import pick
from didact.layers import masks
from didact.layers.attention import SelfAttention, attention, joined
from didact.layers.differential import DifferentialAttention
from didact.layers.linear_attention import causal_linear_attention, feature, linear_attention
from didact.layers.sparse import best, local_attention, strided_attention, topk_attention
from didact.layers.tiled import tiled_attention

Form = Literal["full", "local", "strided", "topk", "linear", "differential", "tiled"]
SPANNED = ("local", "strided", "topk")   # those that are told how many to look at


class Formed(SelfAttention):
    """Y = [head_i] W_O with heads that weigh in a way of their own; `span` is how many they look at, where it matters.

    `mask` (B, 1, 1, S) is True where there are tokens.
    """

    def __init__(self, dim: int, heads: int, *, span: int = 8):
        super().__init__(dim, heads)
        self.span = span

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        return self.join(self.attend(*self.project(x), None if mask is None else mask[..., 0, :], causal))

    def look(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(x)
        y, a = self.explicit(q, k, v, joined(mask, q, k) if causal else mask)
        return self.join(y), a

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        """(B, heads, S, d), with `there` (B, 1, S)."""
        raise NotImplementedError

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same with the weights, (B, heads, S, S)."""
        return attention(q, k, v, mask)


class PatternedAttention(Formed):
    """Who is looked at depends on the places alone."""

    pattern: Callable[..., Tensor]                # of the length and the span: (S, S), True where it looks

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        seen = self.pattern(q.shape[-2], self.span, device=q.device)
        return attention(q, k, v, seen if mask is None else seen & mask)


class LocalAttention(PatternedAttention):
    """|i − j| ≤ span."""

    pattern = staticmethod(masks.window)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        return local_attention(q, k, v, reach=self.span, causal=causal, there=there)


class StridedAttention(PatternedAttention):
    """j ≡ i mod span."""

    pattern = staticmethod(masks.strided)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        return strided_attention(q, k, v, stride=self.span, causal=causal, there=there)


class TopKAttention(Formed):
    """The span largest scores of each query."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        mask = None if there is None else there[..., None, :]
        return topk_attention(q, k, v, top=self.span, mask=joined(mask, q, k) if causal else mask)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return attention(q, k, v, best(q, k, self.span, mask))


class LinearAttention(Formed):
    """φ(q)ᵀφ(k) instead of e^(qᵀk)."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        return (causal_linear_attention if causal else linear_attention)(q, k, v, there=there)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        a = feature(q) @ feature(k).mT
        a = a if mask is None else a * mask
        a = a / a.sum(-1, keepdim=True)
        return a @ v, a


class TiledAttention(Formed):
    """The full form, a tile of keys at a time."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor | None, causal: bool) -> Tensor:
        return tiled_attention(q, k, v, causal=causal, there=there)


# of width, heads, dropout of the weights, span and the number of the layer, from 0
FORMS: dict[str, Callable[[int, int, float, int, int], nn.Module]] = {
    "full": lambda dim, heads, dropout, span, depth: SelfAttention(dim, heads, dropout=dropout),
    "local": lambda dim, heads, dropout, span, depth: LocalAttention(dim, heads, span=span),
    # a window first, then every span-th: two layers reach everything.  Child et al. 2019, section 4.2
    "strided": lambda dim, heads, dropout, span, depth: (StridedAttention if depth % 2 else LocalAttention)(dim, heads, span=span),
    "topk": lambda dim, heads, dropout, span, depth: TopKAttention(dim, heads, span=span),
    "linear": lambda dim, heads, dropout, span, depth: LinearAttention(dim, heads),
    "differential": lambda dim, heads, dropout, span, depth: DifferentialAttention(dim, heads, depth=depth),
    "tiled": lambda dim, heads, dropout, span, depth: TiledAttention(dim, heads),
}
assert set(FORMS) == set(get_args(Form))


def self_attention(form: str, dim: int, heads: int, *, dropout: float = 0.0, span: int = 8, depth: int = 0) -> Any:
    """The attention of that form."""
    return pick("form of attention", form, FORMS)(dim, heads, dropout, span, depth)
