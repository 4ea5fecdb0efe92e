"""Embedding: a row of a table for every token (Gaba 5.8). Reading rows and adding to rows are each other's gradient."""

from typing import Any

import numpy as np

from didact.scratch.autograd.ops import multiply_mask
from didact.scratch.autograd.tensor import Array, ScratchError, Tensor, record_op


def embedding(ids: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """y[…] = W[ids[…]], the product with a one-hot matrix that is never written down;  dW = add_rows(dy).

    The row of `padding_idx` is read but gets no gradient.
    """
    index = np.asarray(ids)
    rows = len(weight.data)
    if index.dtype.kind not in "iu":
        raise ScratchError(f"embedding: tokens are whole numbers, got {index.dtype}")
    if index.size and (index.min() < 0 or index.max() >= rows):
        raise ScratchError(
            f"embedding: a token outside 0…{rows - 1}: {index.min() if index.min() < 0 else index.max()}"
        )
    return _read_rows(index, weight, padding_idx)


def _read_rows(index: Array, weight: Tensor, skip: int | None) -> Tensor:
    y, shape = weight.data.take(index, axis=0), weight.shape
    return record_op("embedding", y, (weight,), lambda dy: (_add_rows(index, dy, shape, skip),))


def _add_rows(index: Array, dy: Tensor, shape: tuple[int, ...], skip: int | None) -> Tensor:
    """dW[v] = Σ dy over the positions of token v: sorted by token, so that each sum is one contiguous run."""
    dw, flat = np.zeros(shape, dy.dtype), index.reshape(-1)
    if flat.size:
        order = flat.argsort(kind="stable")
        tokens, starts = np.unique(flat[order], return_index=True)
        dw[tokens] = np.add.reduceat(dy.data.reshape(flat.size, -1)[order], starts, axis=0)
    if skip is not None:
        dw[skip] = 0

    def vjp(ddw: Tensor) -> tuple[Tensor]:
        y = _read_rows(index, ddw, None)
        return (y if skip is None else multiply_mask(y, (index != skip)[..., None]),)

    return record_op("add_rows", dw, (dy,), vjp)
