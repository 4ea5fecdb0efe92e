"""Changes to token batches: what must stay stays, shares are as told, padding stays behind."""

from collections import Counter

import pytest
import torch

from didact.data.text_augment import Deletion, Insertion, Swap, augmenting
from didact.errors import UsageError


def batch(n=400, length=20):
    x = torch.arange(1, length + 1).repeat(n, 1)
    sizes = torch.arange(n) % length + 1
    return {"x": x * (torch.arange(length) < sizes[:, None]), "y": torch.zeros(n)}, sizes


def made(change, seed=0):
    given, sizes = batch()
    before = given["x"].clone()
    out = change(given, torch.Generator().manual_seed(seed))["x"]
    assert out.shape == before.shape and out.dtype == before.dtype and torch.equal(given["x"], before)
    again = change(given, torch.Generator().manual_seed(seed))["x"]
    assert torch.equal(out, again)
    ends = (out != 0).sum(1)
    assert torch.equal(out != 0, torch.arange(20) < ends[:, None])              # zeros behind alone
    return before, out, sizes, ends


def test_deletion_keeps_order_and_a_share():
    _, out, sizes, ends = made(Deletion(0.3))
    assert (ends >= 1).all() and (out[:, 0] == 1).all()
    steps = out[:, 1:] - out[:, :-1]
    assert (steps[out[:, 1:] != 0] > 0).all()
    assert float(ends.sum() - 400) / float(sizes.sum() - 400) == pytest.approx(0.7, abs=0.03)


def test_swap_moves_neighbours_and_loses_nothing():
    before, out, sizes, ends = made(Swap(0.4))
    assert torch.equal(ends, sizes) and torch.equal(out.sort(1).values, before.sort(1).values)
    assert (out - before).abs().max() == 1
    long = sizes == 20
    moved = (out != before)[long][:, 1:-1].float().mean()
    assert float(moved) == pytest.approx(0.4, abs=0.08)


def test_insertion_says_words_of_the_text_again():
    before, out, sizes, ends = made(Insertion(0.3))
    assert (ends >= sizes).all() and float((ends - sizes).float()[sizes == 10].mean()) == pytest.approx(3, abs=1)
    for old, new in zip(before.tolist(), out.tolist(), strict=True):
        assert set(new) <= set(old) | {0}
        kept = Counter(w for w in new if w)
        assert all(kept[w] >= 1 for w in old if w) or 20 in [len([w for w in new if w])]


def test_no_chance_changes_nothing_and_names_are_known():
    given, _ = batch()
    for change in (Deletion(0.0), Swap(0.0), Insertion(0.0)):
        assert torch.equal(change(given, torch.Generator())["x"], given["x"])
    assert augmenting(()) is None
    both = augmenting(("deletion", "swap"))
    assert not torch.equal(both(given, torch.Generator().manual_seed(1))["x"], given["x"])
    with pytest.raises(UsageError, match="no augmentation named 'swpa'; did you mean 'swap'"):
        augmenting(("swpa",))
