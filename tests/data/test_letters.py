import torch

from didact.data.letters import ALPHABET, hurried, letters, stencils
from didact.data.load import load


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
