import pytest
import torch
from torch.nn import functional as F

from didact.data.letters import ALPHABET, GLYPHS, bent, hurried, letters, stencils
from didact.data.load import load, reload
from didact.errors import UsageError


def test_letters_are_drawn_alike_each_time():
    one, two = letters(), load("letters", seed=1)
    assert one.shape == (1, 28, 28) and one.labels == tuple(ALPHABET)
    assert sum(map(len, (one.train, one.validation, one.test))) == 26 * 200
    assert one.fingerprint == two.fingerprint and not torch.equal(one.indices["train"], two.indices["train"])
    assert set(one.counts["test"]) == {30}


def test_every_letter_is_there_and_no_two_are_the_same():
    x = stencils()
    assert x.shape == (26, 1, 56, 56) and (x.flatten(1).sum(1) > 50).all()
    assert torch.pdist(x.flatten(1)).min() > 3
    top, bottom = x[ALPHABET.index("A")][0].nonzero()[[0, -1], 0]
    assert 5 < top < 28 < bottom < 51                                        # in the middle, as high as half the image


def test_no_letter_leaves_its_image():
    whole = stencils().flatten(1).sum(1) / 4
    x = hurried(stencils(), torch.Generator().manual_seed(3))
    assert x.shape == (26, 1, 28, 28) and x.min() >= 0 and x.max() <= 1
    assert (x.flatten(1).sum(1) > 0.4 * whole).all()                         # smaller by up to 0.8², slanted, but not cut away
    assert not torch.equal(x, hurried(stencils(), torch.Generator().manual_seed(4)))


def test_glyphs_are_numerals_and_letters_that_fill_their_images():
    data = load("glyphs")
    assert data.shape == (1, 28, 28) and data.labels == tuple(GLYPHS) and len(GLYPHS) == 62 and len(set(GLYPHS)) == 62
    digits, x = load("digits").train.columns["x"] / 255, data.train.columns["x"] / 255
    ink, other = ((F.adaptive_avg_pool2d(v, 8) > 0.25).any(2).float().mean() for v in (x, digits))
    assert abs(ink - other) < 0.15                                            # as many columns with ink as handwritten digits have


def test_bending_by_nothing_bends_nothing_and_by_more_more():
    x = stencils("ag")
    torch.testing.assert_close(bent(x, torch.Generator(), by=0.0), x)
    near, far = ((bent(x, torch.Generator().manual_seed(0), by=by) - x).abs().mean() for by in (0.02, 0.1))
    assert 0 < near < far


def test_known_images_in_another_size_are_found_again_in_it():
    whole, small = load("digits"), load("digits", size=5)
    assert small.shape == small.encoder.shape == (1, 5, 5) and small.source["size"] == 5 and "resized from 8×8" in small.notes[-1]
    x = whole.train.columns["x"][:9].float()
    by_torch = F.adaptive_avg_pool2d(x, 5).round()
    assert torch.equal(small.train.columns["x"][:9].float(), by_torch)
    mean = small.train.columns["x"].double().mean() / 255
    assert small.mean.item() == pytest.approx(mean.item(), rel=1e-5)
    again = reload(small, small.indices)
    assert torch.equal(again.test.columns["x"], small.test.columns["x"]) and torch.equal(again.mean, small.mean)
    with pytest.raises(UsageError, match="--size does not apply: 'iris' is a known set"):
        load("iris", size=5)
