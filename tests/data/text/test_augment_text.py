"""Augmentation of token batches: fixed tokens stay, probabilities are as given, padding stays behind."""

from collections import Counter

import pytest
import torch

from didact.data.text.augment_text import RandomDeletion, RandomInsertion, RandomSwap, make_text_augmentations
from didact.errors import UsageError


def make_batch(n=400, length=20):
    x = torch.arange(1, length + 1).repeat(n, 1)
    sizes = torch.arange(n) % length + 1
    return {"x": x * (torch.arange(length) < sizes[:, None]), "y": torch.zeros(n)}, sizes


def augment_checked(augment, seed=0):
    inputs, sizes = make_batch()
    old_tokens = inputs["x"].clone()
    out = augment(inputs, torch.Generator().manual_seed(seed))["x"]
    assert out.shape == old_tokens.shape and out.dtype == old_tokens.dtype and torch.equal(inputs["x"], old_tokens)
    same_seed_output = augment(inputs, torch.Generator().manual_seed(seed))["x"]
    assert torch.equal(out, same_seed_output)
    lengths = (out != 0).sum(1)
    assert torch.equal(out != 0, torch.arange(20) < lengths[:, None])              # zeros behind alone
    return old_tokens, out, sizes, lengths


def test_random_deletion_keeps_order_and_the_expected_share():
    _, out, sizes, lengths = augment_checked(RandomDeletion(0.3))
    assert (lengths >= 1).all() and (out[:, 0] == 1).all()
    steps = out[:, 1:] - out[:, :-1]
    assert (steps[out[:, 1:] != 0] > 0).all()
    assert float(lengths.sum() - 400) / float(sizes.sum() - 400) == pytest.approx(0.7, abs=0.03)


def test_random_swap_moves_neighbors_and_loses_nothing():
    old_tokens, out, sizes, lengths = augment_checked(RandomSwap(0.4))
    assert torch.equal(lengths, sizes) and torch.equal(out.sort(1).values, old_tokens.sort(1).values)
    assert (out - old_tokens).abs().max() == 1
    is_longest = sizes == 20
    moved_share = (out != old_tokens)[is_longest][:, 1:-1].float().mean()
    assert float(moved_share) == pytest.approx(0.4, abs=0.08)


def test_random_insertion_repeats_words_of_the_text():
    old_tokens, out, sizes, lengths = augment_checked(RandomInsertion(0.3))
    assert (lengths >= sizes).all() and float((lengths - sizes).float()[sizes == 10].mean()) == pytest.approx(3, abs=1)
    for old, new in zip(old_tokens.tolist(), out.tolist(), strict=True):
        assert set(new) <= set(old) | {0}
        word_counts = Counter(w for w in new if w)
        assert all(word_counts[w] >= 1 for w in old if w) or 20 in [len([w for w in new if w])]


def test_text_augmentations_of_zero_probability_change_nothing():
    inputs, _ = make_batch()
    for augment in (RandomDeletion(0.0), RandomSwap(0.0), RandomInsertion(0.0)):
        assert torch.equal(augment(inputs, torch.Generator())["x"], inputs["x"])
    assert make_text_augmentations(()) is None
    augment_all = make_text_augmentations(("deletion", "swap"))
    assert not torch.equal(augment_all(inputs, torch.Generator().manual_seed(1))["x"], inputs["x"])
    with pytest.raises(UsageError, match="no augmentation named 'swpa'; did you mean 'swap'"):
        make_text_augmentations(("swpa",))
