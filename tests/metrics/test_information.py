"""Entropy and mutual information by counting, against scikit-learn's and closed forms."""

from math import log

import pytest
import torch
from sklearn.metrics import mutual_info_score

from didact.metrics.information import binned, entropy, mutual_information


def test_as_scikit_learn_counts_it():
    g = torch.Generator().manual_seed(0)
    s = torch.randint(7, (500,), generator=g)
    t = (s + torch.randint(3, (500,), generator=g)) % 5
    assert float(mutual_information(s, t)) == pytest.approx(mutual_info_score(s, t) / log(2))


def test_entropy_of_equally_likely_symbols_is_their_number():
    assert float(entropy(torch.arange(64) % 8)) == pytest.approx(3)


def test_a_layer_that_keeps_all_inputs_apart_knows_all_of_them():
    t = torch.linspace(-0.99, 0.99, 16)[:, None].expand(16, 3)
    y = torch.arange(16) >= 8
    assert float(entropy(binned(t, -1, 1, bins=16))) == pytest.approx(4)
    assert float(mutual_information(binned(t, -1, 1, bins=2), y.long())) == pytest.approx(1)


def test_a_row_is_one_symbol_and_the_ends_belong_to_the_outer_bins():
    t = torch.tensor([[-1.0, 1.0], [-0.9, 0.9], [1.0, -1.0], [-1.0, -1.0]])
    a, b, c, d = binned(t, -1, 1, bins=4).tolist()
    assert a == b and len({a, c, d}) == 3
