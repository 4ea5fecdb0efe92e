"""Lhotte: recurrence, attention, positions and adapting, as the listings print them."""

import math
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.compare import Corrected, Exactly, NeverMore, Printed, Rising, Same, Sampled
from didact.claims.core import claim
from didact.claims.gaba_7 import positions
from didact.claims.tools import Pair, parameters
from didact.layers.attention import attention


@claim("CL31", Exactly(((4, 5, 20), (1, 4, 20))))
def shapes_of_an_rnn() -> tuple[tuple[int, ...], ...]:
    """nn.RNN(10, 20, batch_first=True) on 4 × 5 × 10"""
    return tuple(tuple(t.shape) for t in nn.RNN(10, 20, batch_first=True)(torch.zeros(4, 5, 10)))


@claim("CL32", Same())
def recurrence() -> Pair:
    """h^(t) = tanh(U x^(t) + W h^(t−1) + b) from h^(0) = 0, against nn.RNN"""
    rnn, x, h, found = nn.RNN(3, 4), torch.randn(6, 3), torch.zeros(4), []
    U, W, b_x, b_h = rnn.parameters()
    for t in range(6):
        h = torch.tanh(U @ x[t] + W @ h + b_x + b_h)
        found.append(h)
    return torch.stack(found), rnn(x)[0]


@claim("CL33", Exactly((0.0, 1.0)))
def similarity_of_one_hot_vectors() -> tuple[float, float]:
    """cosine of any two different ones of 20, and of vectors of one direction"""
    cosines = F.cosine_similarity(torch.eye(20)[:, None], torch.eye(20)[None], dim=2)
    (different,) = set(cosines[~torch.eye(20).bool()].tolist())
    return different, float(F.cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), dim=0))


@claim("CL34", Exactly((("batch", "seq", "emb"), ("batch", "seq", "vocab"))))
def shapes_of_seq2seq() -> tuple[tuple[str, ...], ...]:
    """the decoder's embeddings and logits"""
    names, ids = {3: "batch", 5: "seq", 7: "emb", 23: "vocab"}, torch.zeros(3, 5).long()
    embedded = nn.Embedding(23, 7)(ids)
    logits = nn.Linear(11, 23)(nn.RNN(7, 11, batch_first=True)(embedded)[0])
    return tuple(tuple(names[n] for n in t.shape) for t in (embedded, logits))


@claim("CL35", Sampled())
def initial_embedding() -> tuple[list[Tensor], list[float], list[float]]:
    """mean and variance of the 500,000 weights of a new nn.Embedding, against 0 and 1"""
    w = nn.Embedding(5000, 100).weight.detach().flatten()
    return [w.mean(), w.var()], [1 / math.sqrt(len(w)), math.sqrt(2 / len(w))], [0.0, 1.0]


@claim("CL37", Same())
def summary_of_any_length() -> Pair:
    """weights sum to 1 and the context has the shape of a state, for 1, 5 and 40 states"""
    answers = [attention(torch.randn(1, 4), h, h) for h in (torch.randn(n, 4) for n in (1, 5, 40))]
    return [[a.sum() for _, a in answers], [y.shape[1] for y, _ in answers]], [[1.0] * 3, [4] * 3]


@claim("CL38", Exactly(((7, 5), (4, 7), (4, 5))))
def shapes_of_attention() -> tuple[tuple[int, ...], ...]:
    """self-attention n × d_v; cross-attention's weights n_out × n_in and output n_out × d_v: n_in = 7, n_out = 4, d_v = 5"""
    k, v, q = torch.randn(7, 3), torch.randn(7, 5), torch.randn(4, 3)
    y, a = attention(q, k, v)
    return tuple(attention(k, k, v)[0].shape), tuple(a.shape), tuple(y.shape)


@claim("CL39", Same(), right="what the sentence describes is equivariance")
def order_of_rows() -> Corrected:
    """self-attention of shuffled rows = that of the rows; mended: = its shuffled rows"""
    x, order = torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    plain, mixed = attention(x, x, x)[0], attention(x[order], x[order], x[order])[0]
    return Corrected((mixed, plain), (mixed, plain[order]))


PRINTED = (files("didact.claims") / "positions.tsv").read_text(encoding="utf-8").split()


@claim("CL40", Printed(*PRINTED))
def positional_matrix() -> Tensor:
    """P[pos, 2i] = sin(pos/10000^{2i/8}), P[pos, 2i+1] = cos(pos/10000^{2i/8}), 40 positions"""
    return positions(40, 8)


@claim("CL41", Same(), right="i runs to d_model/2 − 1: the columns are 2i and 2i + 1")
def range_of_the_index() -> Corrected:
    """the last column 2i + 1 for i up to d − 1, against the last column of the matrix, d = 8; mended: i up to d/2 − 1"""
    d = 8
    last = positions(3, d).shape[1] - 1
    return Corrected((2 * (d - 1) + 1, last), (2 * (d // 2 - 1) + 1, last))


@claim("CL42", Rising(), right="bounded, but not ordered: for d_model = 8 an offset of 6 is nearer than an offset of 1")
def distance_of_positions() -> list[Tensor]:
    """‖P[pos + k] − P[pos]‖ for k = 1 … 6, the same at every position: rising if close positions were the more similar"""
    P = positions(40, 8)
    assert bool((P.abs() <= 1).all())
    return [(P[k] - P[0]).norm() for k in range(1, 7)]


@claim("CL44", NeverMore())
def rank_of_lora() -> Pair:
    """rank(BA) ≤ r, for r = 1, 2, 5 and 20 × 30 matrices, and one that is a sum of r products"""
    cases = [(torch.randn(20, r), torch.randn(r, 30)) for r in (1, 2, 5)]
    return [torch.linalg.matrix_rank(B @ A) for B, A in [*cases, (torch.zeros(20, 4), torch.randn(4, 30))]], [1, 2, 5, 4]


@claim("CL45", NeverMore())
def parameters_of_lora() -> Pair:
    """r(d_in + d_out) < d_in d_out for r = 8 and layers of 768, 1024 and 4096"""
    sizes = ((768, 768), (1024, 4096), (4096, 4096))
    return [parameters(nn.Linear(i, 8, bias=False)) + parameters(nn.Linear(8, o, bias=False)) for i, o in sizes], [i * o for i, o in sizes]


@claim("CL46", NeverMore())
def memory_of_eight_bits() -> Pair:
    """bytes of 100,000 weights as q = round(w/s) in 8 bits with their s, and max|w − s q|, against a quarter of 32 bits (and s), and s/2"""
    w = torch.randn(100_000, dtype=torch.float32)
    s = w.abs().max() / 127
    q = (w / s).round().to(torch.int8)
    return [q.nbytes + s.nbytes, float((w - s * q).abs().max())], [w.nbytes / 4 + 4, float(s / 2) * (1 + 1e-5)]
