"""Mutual information of layers with the input and the target, in bits, by binning: the information plane.

Activations are put into bins; examples whose activations share all bins are one symbol. Other bins give other numbers
of bits, log₂ N at most.
"""

import torch
from torch import Tensor


def bin_activations(t: Tensor, low: float, high: float, bins: int = 30) -> Tensor:
    """(N, D) numbers in [low, high] -> (N,) symbols: the D-dimensional bin of each row.  Shwartz-Ziv and Tishby 2017.
    """
    bin_indices = ((t - low) / (high - low) * bins).floor().clamp(0, bins - 1).long()
    return _unique_row_ids(bin_indices)


def _unique_row_ids(rows: Tensor) -> Tensor:
    """(N, D) -> (N,): equal rows get equal numbers."""
    row_ids: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return row_ids


def entropy(symbols: Tensor) -> Tensor:
    """H = −Σ p log₂ p over the symbols' frequencies, in bits."""
    p: Tensor = symbols.unique(return_counts=True)[1].double() / len(symbols)
    return -(p * p.log2()).sum()


def mutual_information(s: Tensor, t: Tensor) -> Tensor:
    """I(S; T) = H(S) + H(T) − H(S, T), in bits.  Gaba 11.9.

    For a layer without noise and distinct inputs it is H(T) of the layer's symbols.
    """
    return entropy(s) + entropy(t) - entropy(_unique_row_ids(torch.stack([s, t], 1)))
