"""Cosine similarity of vectors, and nearest neighbors by it."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb / (‖a‖ ‖b‖) of every pair, (N, D), (M, D) -> (N, M); 0 where a vector is 0."""
    return normalize(a, dim=-1) @ normalize(b, dim=-1).mT


def nearest(queries: Tensor, table: Tensor, n: int, *, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The n rows of the table with the largest cosine similarity to each query: similarities and indices, (N, n) each.

    Rows `exclude` (N, k) are left out.
    """
    similarities = cosine(queries, table)
    if exclude is not None:
        similarities = similarities.scatter(1, exclude, -torch.inf)
    top = similarities.topk(min(n, len(table)), dim=1)
    return top.values, top.indices
