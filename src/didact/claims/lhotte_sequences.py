"""Lhotte: recurrence, attention, positions and adapting, as the listings print them."""

import math
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor, nn
from torch.linalg import matrix_rank

from didact import scratch
from didact.adaptation.int8 import Int8Linear, quantize_module
from didact.adaptation.lora import LoRA, add_lora
from didact.claims import groudiev_4
from didact.claims.compare import (
    Conditional,
    CorrectedClaim,
    Equal,
    Exactly,
    LessOrEqual,
    Printed,
    ShownAs,
    WithinStandardErrors,
)
from didact.claims.core import claim
from didact.claims.tools import Pair
from didact.layers.attention.multihead import dot_product_attention
from didact.layers.positional import sinusoidal_table
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.metrics.similarity import cosine
from didact.models.text.seq2seq import Seq2Seq
from didact.scratch import modules
from didact.scratch.recurrent import rnn


@claim("CL31", Exactly(((4, 5, 20), (1, 4, 20))))
def shapes_of_an_rnn() -> tuple[tuple[int, ...], ...]:
    """didact's RNN of 10 inputs and 20 units on 4 × 5 × 10"""
    y, (h,) = Recurrent("rnn", 10, 20)(torch.zeros(4, 5, 10))
    return tuple(y.shape), tuple(h.shape)


@claim("CL32", Equal(), remark="it is h^(0) that is set to zero; the first state of the text, h^(1), is computed")
def recurrence() -> Pair:
    """h^(t) = tanh(U x^(t) + W h^(t−1) + b) from h^(0) = 0, against didact's layer, fused and by its own engine"""
    layer, x, h, states = Recurrent("rnn", 3, 4, init="random"), torch.randn(6, 3), torch.zeros(4), []
    U, W, b_x, b_h = cell_weights(layer.rnn, 0)
    for t in range(6):
        h = torch.tanh(U @ x[t] + W @ h + b_x + b_h)
        states.append(h)
    scratch_weights = [scratch.tensor(p.detach().numpy()) for p in (U, W, b_x, b_h)]
    ours = rnn(scratch.tensor(x[:, None].numpy()), scratch.tensor(np.zeros((1, 4))), *scratch_weights).data
    return [torch.stack(states)] * 2, [layer(x[None])[0], torch.from_numpy(ours)]


@claim("CL33", Exactly((0.0, 1.0)))
def similarity_of_one_hot_vectors() -> tuple[float, float]:
    """didact's cosine of any two different ones of 20, and of vectors of one direction"""
    (different,) = set(cosine(torch.eye(20), torch.eye(20))[~torch.eye(20).bool()].tolist())
    return different, float(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]])))


@claim("CL34", Exactly((("batch", "seq", "emb"), ("batch", "seq", "vocab"))))
def shapes_of_seq2seq() -> tuple[tuple[str, ...], ...]:
    """the embeddings and the logits of the decoder of didact's Seq2Seq"""
    axis_names, ids = {3: "batch", 5: "seq", 7: "emb", 23: "vocab"}, torch.ones(3, 5).long()
    net = Seq2Seq(19, 23, attention="none", embed_dim=7, hidden_size=11)
    return tuple(tuple(axis_names[n] for n in t.shape) for t in (net.target(ids), net(ids, ids)))


@claim("CL35", WithinStandardErrors())
def initial_embedding() -> tuple[list[Tensor], list[float], list[float]]:
    """mean, variance and mean fourth power of the 500,000 weights of a new nn.Embedding, and of didact's own,
    against 0, 1 and 3"""
    tables = (
        nn.Embedding(5000, 100).weight.detach(),
        torch.from_numpy(modules.Embedding(5000, 100, rng=0, dtype=np.float64).weight.data),
    )
    n = tables[0].numel()
    moments = [m for w in tables for m in (w.mean(), w.var(), w.pow(4).mean())]
    return moments, [math.sqrt(v / n) for v in (1, 2, 96)] * 2, [0.0, 1.0, 3.0] * 2


@claim("CL37", Equal())
def summary_of_any_length() -> Pair:
    """weights sum to 1 and the context has the shape of a state, for 1, 5 and 40 states"""
    outputs = [dot_product_attention(torch.randn(1, 4), h, h) for h in (torch.randn(n, 4) for n in (1, 5, 40))]
    return [[a.sum() for _, a in outputs], [y.shape[1] for y, _ in outputs]], [[1.0] * 3, [4] * 3]


@claim("CL38", Exactly(((7, 5), (4, 7), (4, 5))))
def shapes_of_attention() -> tuple[tuple[int, ...], ...]:
    """didact's self-attention n × d_v; cross-attention's weights n_out × n_in and output n_out × d_v: n_in = 7,
    n_out = 4, d_v = 5"""
    k, v, q = torch.randn(7, 3), torch.randn(7, 5), torch.randn(4, 3)
    y, a = dot_product_attention(q, k, v)
    return tuple(dot_product_attention(k, k, v)[0].shape), tuple(a.shape), tuple(y.shape)


claim("CL39", Equal(), correction="what the sentence describes is equivariance")(
    groudiev_4.invariance_of_self_attention
)

PRINTED_POSITIONS = (files("didact.claims") / "positions.tsv").read_text(encoding="utf-8").split()


@claim("CL40", Printed(*PRINTED_POSITIONS))
def positional_matrix() -> Tensor:
    """P[pos, 2i] = sin(pos/10000^{2i/8}), P[pos, 2i+1] = cos(pos/10000^{2i/8}), 40 positions: didact's"""
    return sinusoidal_table(40, 8)


@claim("CL41", Equal(), correction="i runs to d_model/2 − 1: the columns are 2i and 2i + 1")
def range_of_the_index() -> CorrectedClaim:
    """the last column 2i + 1 for i up to d − 1, against the last column of didact's matrix, d = 8; mended: i up to
    d/2 − 1"""
    d = 8
    last = sinusoidal_table(3, d).shape[1] - 1
    return CorrectedClaim((2 * (d - 1) + 1, last), (2 * (d // 2 - 1) + 1, last))


@claim(
    "CL42",
    LessOrEqual(),
    condition="wide encodings: from 64 numbers on the next position is the nearest; with 8, as in 8.3.2, the sixth is "
              "nearer",
)
def distance_of_positions() -> Conditional:
    """‖P[1] − P[0]‖ ≤ ‖P[k] − P[0]‖ for all k up to 2,000, so that no position is nearer than the next, and |P| ≤
    1: for
    d_model = 64 and 512, and for 8"""
    def compare_distances(*widths: int) -> ShownAs:
        tables = [sinusoidal_table(2001, d) for d in widths]
        distances = [(P[1:] - P[0]).norm(dim=1) for P in tables]
        compared = (
            [[d[0].expand(2000) for d in distances], [P.abs().max() for P in tables]],
            [distances, [1.0] * len(tables)],
        )
        numbers = {"distance one place away": [d[0] for d in distances], "six away": [d[5] for d in distances]}
        return ShownAs(compared, numbers | {"largest |P|": max(P.abs().max() for P in tables)})

    return Conditional(compare_distances(64, 512), compare_distances(8))


@claim("CL44", LessOrEqual())
def rank_of_lora() -> Pair:
    """rank of what didact's LoRA adds to a 20 × 30 matrix, and of the sum of its r products, against r = 1, 2, 5,
    and 4 with B = 0"""
    ranks = []
    for r in (1, 2, 5):
        layer = LoRA(nn.Linear(30, 20), rank=r)
        nn.init.normal_(layer.b)
        sum_of_products = sum((torch.outer(layer.b[:, i], layer.a[i]) for i in range(r)), torch.zeros(20, 30))
        ranks += [matrix_rank(_lora_update(layer)), matrix_rank(sum_of_products)]
    return [*ranks, matrix_rank(_lora_update(LoRA(nn.Linear(30, 20), rank=4)))], [1, 1, 2, 2, 5, 5, 4]


def _lora_update(layer: LoRA) -> Tensor:
    """W − W_0, once it is merged."""
    weight_before = layer.layer.get_parameter("weight").detach().clone()
    return layer.merge_weights().get_parameter("weight").detach() - weight_before


@claim("CL45", LessOrEqual(), remark="for r below d_in d_out/(d_in + d_out): 16 × 16 with r = 8 saves nothing")
def parameters_of_lora() -> ShownAs:
    """numbers that didact's LoRA learns beside a layer, r = 8, against r(d_in + d_out) and d_in d_out − 1: 17 × 17
    to 1024 × 256"""
    sizes, r = ((17, 17), (64, 256), (1024, 256)), 8
    counts = [add_lora(nn.Sequential(nn.Linear(i, o)), rank=r) for i, o in sizes]
    full = [i * o for i, o in sizes]
    return ShownAs(
        (counts * 2, [r * (i + o) for i, o in sizes] + [n - 1 for n in full]), {"LoRA": counts, "full matrix": full}
    )


@claim("CL46", Equal(1e-3))
def memory_of_eight_bits() -> ShownAs:
    """bytes of a layer of 300 × 400 in didact's 8 bits, over a quarter of its 32-bit weights, a scale a row and the
    biases; and the largest
    |w − s q| over s/2"""
    net = nn.Sequential(nn.Linear(400, 300, dtype=torch.float32))
    w = net[0].get_parameter("weight").detach().clone()
    sizes, layer = quantize_module(net), net[0]
    assert isinstance(layer, Int8Linear)
    expected, s = w.nbytes / 4 + 4 * 300 + 4 * 300, layer.s[:, None]
    error = ((w - s * layer.q).abs() / (s / 2)).max()
    return ShownAs(
        ([sizes.bytes_after / expected, error], [1.0, 1.0]),
        {"bytes before": sizes.bytes_before, "after": sizes.bytes_after},
    )
