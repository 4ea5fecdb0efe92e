"""Entropy and mutual information by counting, against scikit-learn's and closed forms."""

from math import log

import pytest
import torch
from sklearn.metrics import mutual_info_score

from didact.metrics.information import bin_activations, entropy, mutual_information


def test_mutual_information_equals_scikit_learn():
    g = torch.Generator().manual_seed(0)
    s = torch.randint(7, (500,), generator=g)
    t = (s + torch.randint(3, (500,), generator=g)) % 5
    assert float(mutual_information(s, t)) == pytest.approx(mutual_info_score(s, t) / log(2))


def test_entropy_of_uniform_symbols_is_log2_of_their_number():
    assert float(entropy(torch.arange(64) % 8)) == pytest.approx(3)


def test_mutual_information_of_distinct_activations_is_complete():
    t = torch.linspace(-0.99, 0.99, 16)[:, None].expand(16, 3)
    y = torch.arange(16) >= 8
    assert float(entropy(bin_activations(t, -1, 1, bins=16))) == pytest.approx(4)
    assert float(mutual_information(bin_activations(t, -1, 1, bins=2), y.long())) == pytest.approx(1)


def test_bin_activations_makes_each_row_one_symbol():
    t = torch.tensor([[-1.0, 1.0], [-0.9, 0.9], [1.0, -1.0], [-1.0, -1.0]])
    a, b, c, d = bin_activations(t, -1, 1, bins=4).tolist()
    assert a == b and len({a, c, d}) == 3
