import pytest
import torch
from torch.nn import functional as F

from didact.data.datasets.synthetic.glyphs import (
    ALPHABET,
    GLYPHS,
    distort_elastically,
    letters,
    randomize_handwriting,
    render_glyphs,
)
from didact.data.load import load, reload_data
from didact.errors import UsageError


def test_letters_are_deterministic():
    letter_data, other_split = letters(), load("letters", seed=1)
    assert letter_data.shape == (1, 28, 28) and letter_data.class_names == tuple(ALPHABET)
    assert sum(map(len, (letter_data.train, letter_data.validation, letter_data.test))) == 26 * 200
    assert letter_data.fingerprint == other_split.fingerprint and not torch.equal(
        letter_data.indices["train"], other_split.indices["train"]
    )
    assert set(letter_data.class_counts["test"]) == {30}


def test_render_glyphs_gives_distinct_letters():
    x = render_glyphs()
    assert x.shape == (26, 1, 56, 56) and (x.flatten(1).sum(1) > 50).all()
    assert torch.pdist(x.flatten(1)).min() > 3
    top, bottom = x[ALPHABET.index("A")][0].nonzero()[[0, -1], 0]
    assert 5 < top < 28 < bottom < 51                                        # in the middle, as high as half the image


def test_randomize_handwriting_keeps_letters_inside_their_images():
    full_ink = render_glyphs().flatten(1).sum(1) / 4
    x = randomize_handwriting(render_glyphs(), torch.Generator().manual_seed(3))
    assert x.shape == (26, 1, 28, 28) and x.min() >= 0 and x.max() <= 1
    # smaller by up to 0.8², slanted, but not cut away
    assert (x.flatten(1).sum(1) > 0.4 * full_ink).all()
    assert not torch.equal(x, randomize_handwriting(render_glyphs(), torch.Generator().manual_seed(4)))


def test_glyphs_are_digits_and_letters_that_fill_their_images():
    data = load("glyphs")
    assert (
        data.shape == (1, 28, 28) and data.class_names == tuple(GLYPHS) and len(GLYPHS) == 62 and len(set(GLYPHS)) == 62
    )
    digits, x = load("digits").train.columns["x"] / 255, data.train.columns["x"] / 255
    glyph_ink, digit_ink = ((F.adaptive_avg_pool2d(v, 8) > 0.25).any(2).float().mean() for v in (x, digits))
    # as many columns with ink as handwritten digits have
    assert abs(glyph_ink - digit_ink) < 0.15


def test_distort_elastically_grows_with_its_strength():
    x = render_glyphs("ag")
    torch.testing.assert_close(distort_elastically(x, torch.Generator(), strength=0.0), x)
    weak_change, strong_change = (
        (distort_elastically(x, torch.Generator().manual_seed(0), strength=strength) - x).abs().mean()
        for strength in (0.02, 0.1)
    )
    assert 0 < weak_change < strong_change


def test_resized_dataset_is_reloaded_in_its_size():
    full_data, small_data = load("digits"), load("digits", size=5)
    assert (
        small_data.shape == small_data.encoder.shape == (1, 5, 5)
        and small_data.source["size"] == 5
        and "resized from 8×8" in small_data.notes[-1]
    )
    x = full_data.train.columns["x"][:9].float()
    by_torch = F.adaptive_avg_pool2d(x, 5).round()
    assert torch.equal(small_data.train.columns["x"][:9].float(), by_torch)
    mean = small_data.train.columns["x"].double().mean() / 255
    assert small_data.mean.item() == pytest.approx(mean.item(), rel=1e-5)
    reloaded_data = reload_data(small_data, small_data.indices)
    assert torch.equal(reloaded_data.test.columns["x"], small_data.test.columns["x"]) and torch.equal(
        reloaded_data.mean, small_data.mean
    )
    with pytest.raises(UsageError, match="--size does not apply: 'iris' is a known dataset"):
        load("iris", size=5)
