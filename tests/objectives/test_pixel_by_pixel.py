"""PixelCNN: who sees whom, by gradient; probabilities of all images sum to one; drawing keeps what is known."""

from itertools import product
from math import log

import pytest
import torch

import didact
from didact.data.load import load
from didact.errors import UsageError
from didact.layers.masked_conv import MaskedConv2d, mask
from didact.models.pixelcnn import PixelCNN
from didact.objectives.pixel_by_pixel import PixelByPixel
from didact.registry import RECIPES


def test_masks_by_hand():
    assert mask((3, 3), "A").tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert mask((3, 3), "B").tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert mask((3, 3), "rows").tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    layer, x = MaskedConv2d(2, 3, (3, 3), "B"), torch.randn(1, 2, 5, 6)
    plain = torch.nn.Conv2d(2, 3, 3, padding=1)
    plain.load_state_dict({"weight": layer.weight * layer.mask, "bias": layer.bias})
    torch.testing.assert_close(layer(x), plain(x))


@pytest.mark.parametrize("channels", [1, 2])
def test_a_pixel_sees_all_before_it_and_none_after(channels):
    torch.manual_seed(0)
    H, W = 5, 6
    model = PixelCNN(shape=(channels, H, W), width=8, depth=6, levels=3)
    for i, j in product(range(H), range(W)):
        x = torch.rand(1, channels, H, W, requires_grad=True)
        (g,) = torch.autograd.grad(model(x)[..., i, j].square().sum(), x)
        seen = (g[0] != 0).any(0).flatten()
        place = i * W + j
        assert not seen[place:].any()
        assert seen[:place].all()                              # with two stacks no corner is blind


def test_all_images_together_have_probability_one():
    torch.manual_seed(0)
    model = PixelCNN(shape=(1, 2, 3), width=6, depth=2, levels=2)
    objective = PixelByPixel(model, (1, 2, 3), levels=2)
    every = torch.tensor(list(product((0.0, 1.0), repeat=6))).view(64, 1, 2, 3)
    p = (-objective.bits(every, None) * 6 * log(2)).exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    drawn = objective.sample(4000, torch.Generator().manual_seed(0))
    place = (drawn.flatten(1) * 2 ** torch.arange(5, -1, -1)).sum(1).long()
    shares = torch.bincount(place, minlength=64) / 4000
    assert (shares - p).abs().max() < 5 * (p.max() / 4000).sqrt()


def test_completion_keeps_what_is_known():
    torch.manual_seed(0)
    objective = PixelByPixel(PixelCNN(shape=(1, 6, 4), width=6, depth=2, levels=4), (1, 6, 4), levels=4)
    x = torch.rand(3, 1, 6, 4)
    whole = objective.complete(x, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(whole[:, :, :3], (3 * x[:, :, :3]).round() / 3)
    other = torch.cat([x[:, :, :3], torch.rand(3, 1, 3, 4)], dim=2)
    assert torch.equal(objective.complete(other, 3, torch.Generator().manual_seed(0)), whole)   # the lost half is not looked at


def test_digits_cost_less_than_pixels_alone(here):
    run = didact.train(RECIPES["pixelcnn"], epochs=8, width=16, depth=3, lr=5e-3)
    data = load("digits")
    level = [(data.split(part).columns["x"].float() / 255 * 15).round().long().flatten(1) for part in ("train", "test")]
    counts = torch.nn.functional.one_hot(level[0], 16).sum(0) + 0.1
    alone = -(counts / counts.sum(1, keepdim=True)).log2().gather(1, level[1].T).mean().item()
    assert run.facts["test"]["bits_per_dim"] < alone - 0.1
    assert run.load("gallery")["completions"].shape == (5, 8, 1, 8, 8)


def test_an_even_kernel_has_no_centre():
    with pytest.raises(UsageError, match="must be odd, got 4"):
        RECIPES["pixelcnn"](load("digits"), kernel=4)
