"""Lhotte, chapter 8: attention and Transformers."""

from importlib.resources import files

import torch
from torch import Tensor

from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly, LessOrEqual, Printed
from didact.claims.groudiev import chapter_06 as groudiev_6
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.attention.multihead import dot_product_attention
from didact.layers.positional import sinusoidal_table


@claim("CL37", Equal())
def summary_of_any_length() -> Pair:
    """weights sum to 1 and the context has the shape of one state, for 1, 5 and 40 states"""
    outputs = [dot_product_attention(torch.randn(1, 4), h, h) for h in (torch.randn(n, 4) for n in (1, 5, 40))]
    return [[a.sum() for _, a in outputs], [y.shape[1] for y, _ in outputs]], [[1.0] * 3, [4] * 3]


@claim("CL38", Exactly(((7, 5), (4, 7), (4, 5))))
def shapes_of_attention() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention n × d_v; cross-attention's weights n_out × n_in and output n_out × d_v: n_in = 7, n_out =
    4, d_v = 5"""
    k, v, q = torch.randn(7, 3), torch.randn(7, 5), torch.randn(4, 3)
    y, a = dot_product_attention(q, k, v)
    return tuple(dot_product_attention(k, k, v)[0].shape), tuple(a.shape), tuple(y.shape)


claim("CL39", Equal(), correction="the sentence describes equivariance")(
    groudiev_6.invariance_of_self_attention
)

_PRINTED_POSITIONS = (files("didact.claims") / "positions.tsv").read_text(encoding="utf-8").split()


@claim("CL40", Printed(*_PRINTED_POSITIONS))
def positional_matrix() -> Tensor:
    """P[pos, 2i] = sin(pos/10000^{2i/8}), P[pos, 2i+1] = cos(pos/10000^{2i/8}), 40 positions: didact's"""
    return sinusoidal_table(40, 8)


@claim("CL41", Equal(), correction="i runs to d_model/2 − 1: the columns are 2i and 2i + 1")
def range_of_the_index() -> CorrectedClaim:
    """the last column 2i + 1 for i up to d − 1, against the last column of didact's matrix, d = 8; corrected: i up to
    d/2 − 1"""
    d = 8
    last = sinusoidal_table(3, d).shape[1] - 1
    return CorrectedClaim((2 * (d - 1) + 1, last), (2 * (d // 2 - 1) + 1, last))


@claim(
    "CL42",
    LessOrEqual(),
    condition="high dimensions: from 64 on the next position is the nearest; with 8, as in 8.3.2, the sixth is nearer",
)
def distance_of_positions() -> Conditional:
    """‖P[1] − P[0]‖ ≤ ‖P[k] − P[0]‖ for all k up to 2,000 (no position is nearer than the next), and |P| ≤ 1: for
    d_model = 64 and 512, and for 8"""
    def compare_distances(*widths: int) -> Display:
        tables = [sinusoidal_table(2001, d) for d in widths]
        distances = [(P[1:] - P[0]).norm(dim=1) for P in tables]
        compared = (
            [[d[0].expand(2000) for d in distances], [P.abs().max() for P in tables]],
            [distances, [1.0] * len(tables)],
        )
        numbers = {"distance one position away": [d[0] for d in distances], "six away": [d[5] for d in distances]}
        return Display(compared, numbers | {"largest |P|": max(P.abs().max() for P in tables)})

    return Conditional(compare_distances(64, 512), compare_distances(8))
