"""Vectors compared by the angle between them: who lies near whom."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb / (‖a‖ ‖b‖) of every pair, (N, D), (M, D) -> (N, M); 0 where a vector is."""
    return normalize(a, dim=-1) @ normalize(b, dim=-1).mT


def nearest(queries: Tensor, table: Tensor, n: int, *, but: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The n rows of the table at the smallest angle to each query: cosines and row numbers, (N, n) each. `but` (N, k) are not answers."""
    like = cosine(queries, table)
    if but is not None:
        like = like.scatter(1, but, -torch.inf)
    found = like.topk(min(n, len(table)), dim=1)
    return found.values, found.indices
