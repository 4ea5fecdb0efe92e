"""PixelCNN and PixelRNN: who sees whom, by gradient; probabilities of all images sum to one; drawing keeps what is known."""

from itertools import product
from math import log

import pytest
import torch

import didact
from didact.data.load import load
from didact.errors import UsageError
from didact.layers.masked_conv import MaskedConv2d, mask
from didact.layers.row_lstm import RowLSTM
from didact.models.pixelcnn import PixelCNN
from didact.models.pixelrnn import PixelRNN
from didact.objectives.pace import paced, share
from didact.objectives.pixel_by_pixel import PixelByPixel
from didact.recipes.pixelcnn import turns
from didact.registry import RECIPES


def test_masks_by_hand():
    assert mask((3, 3), "A").tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert mask((3, 3), "B").tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert mask((3, 3), "rows").tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    layer, x = MaskedConv2d(2, 3, (3, 3), "B"), torch.randn(1, 2, 5, 6)
    plain = torch.nn.Conv2d(2, 3, 3, padding=1)
    plain.load_state_dict({"weight": layer.weight * layer.mask, "bias": layer.bias})
    torch.testing.assert_close(layer(x), plain(x))


def seen_by(model, channels, H, W):
    """For each place in turn, which places its logits depend on: (H, W) of bools."""
    for i, j in product(range(H), range(W)):
        x = torch.rand(1, channels, H, W, requires_grad=True)
        (g,) = torch.autograd.grad(model(x)[..., i, j].square().sum(), x)
        yield i, j, (g[0] != 0).any(0)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_pixel_of_the_cnn_sees_all_before_it_and_none_after(channels):
    torch.manual_seed(0)
    H, W = 5, 6
    for i, j, seen in seen_by(PixelCNN(shape=(channels, H, W), width=8, depth=6, outputs=3 * channels), channels, H, W):
        before = torch.arange(H * W).view(H, W) < i * W + j
        assert torch.equal(seen, before)                       # with two stacks no corner is blind


@pytest.mark.parametrize("channels", [1, 2])
def test_a_pixel_of_the_rnn_sees_a_triangle_above_it_and_none_after(channels):
    """r rows up: to the right 3 by the first convolution, which must leave the row for it, and 1 for each other row; left: all add."""
    torch.manual_seed(0)
    H, W, depth = 5, 12, 2
    rows, columns = torch.arange(H)[:, None], torch.arange(W)
    for i, j, seen in seen_by(PixelRNN(shape=(channels, H, W), width=8, depth=depth, outputs=3 * channels), channels, H, W):
        r = i - rows
        right = torch.where(r == 0, -1, r + 2)
        triangle = (r >= 0) & (columns <= j + right) & (columns >= j - (3 + depth + r))
        assert torch.equal(seen, triangle)


def test_a_row_lstm_without_neighbours_is_an_lstm_of_each_column():
    torch.manual_seed(0)
    layer, reference = RowLSTM(3, 5, kernel=1), torch.nn.LSTM(3, 5, batch_first=True)
    reference.load_state_dict({
        "weight_ih_l0": layer.input_to_state.weight[:, :, 0, 0], "weight_hh_l0": layer.state_to_state.weight[:, :, 0],
        "bias_ih_l0": layer.input_to_state.bias, "bias_hh_l0": torch.zeros(20),
    })
    x = torch.randn(2, 3, 6, 4)
    found = layer(x)
    for column in range(4):
        torch.testing.assert_close(found[..., column].mT, reference(x[..., column].mT)[0])


def test_a_row_lstm_by_hand():
    """One channel, two rows, all weights one: the gates of row 2 read x left of and at their place, and all three states above it."""
    layer = RowLSTM(1, 1)
    for p in layer.parameters():
        torch.nn.init.ones_(p)
    torch.nn.init.zeros_(layer.input_to_state.bias)
    x = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]])

    def cell(gates, c):
        c = torch.sigmoid(gates) * c + torch.sigmoid(gates) * torch.tanh(gates)
        return torch.sigmoid(gates) * torch.tanh(c), c

    h1, c1 = cell(torch.tensor([1.0, 1.0 - 2.0, -2.0 + 0.5]), torch.zeros(3))
    above = torch.stack([h1[0] + h1[1], h1.sum(), h1[1] + h1[2]])
    h2, _ = cell(torch.tensor([0.3, 0.4, -0.9]) + above, c1)
    torch.testing.assert_close(layer(x[None, None])[0, 0], torch.stack([h1, h2]))


def networks(shape, levels, classes=0):
    torch.manual_seed(0)
    keywords = {"shape": shape, "width": 6, "depth": 2, "outputs": levels * shape[0], "classes": classes, "turns": shape[0]}
    return [PixelCNN(**keywords), PixelRNN(**keywords)]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("shape", [(1, 2, 3), (3, 1, 2)])
def test_all_images_together_have_probability_one(which, shape):
    objective = PixelByPixel(networks(shape, 2)[which], shape, levels=2)
    every = torch.tensor(list(product((0.0, 1.0), repeat=6))).view(64, *shape)
    p = (-objective.bits(every, None) * 6 * log(2)).exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    drawn = objective.sample(4000, torch.Generator().manual_seed(0))
    place = (drawn.flatten(1) * 2 ** torch.arange(5, -1, -1)).sum(1).long()
    shares = torch.bincount(place, minlength=64) / 4000
    assert (shares - p).abs().max() < 5 * (p.max() / 4000).sqrt()


def slowly(objective, k, known, generator, y=None):
    """The whole network for every place, as the equation says."""
    k = k.clone()
    k[:, :, known:] = 0
    for i, j, c in product(range(known, k.shape[2]), range(k.shape[3]), range(k.shape[1])):
        p = objective.logits(k, y)[:, :, c, i, j].softmax(1)
        k[:, c, i, j] = torch.multinomial(p, 1, generator=generator)[:, 0]
    return k


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("shape", "known", "classes"), [((1, 9, 7), 0, 0), ((1, 9, 5), 4, 3), ((3, 6, 5), 0, 2), ((3, 7, 4), 1, 0)])
def test_drawing_place_by_place_is_drawing_from_the_whole(which, shape, known, classes):
    objective = PixelByPixel(networks(shape, 5, classes)[which], shape, levels=5, classes=classes)
    k, y = torch.randint(5, (6, *shape)), torch.arange(6) % classes if classes else None
    whole = objective.logits(k, y)
    x = objective.read(k)
    told = torch.stack(list(objective.network.telling(x, y, known)), dim=2)                       # x holds what "was drawn" already
    torch.testing.assert_close(told, whole[..., known:, :].permute(0, 1, 3, 4, 2).flatten(2), atol=1e-5, rtol=1e-5)
    drawn = objective.continued(k, known, torch.Generator().manual_seed(1), y, 1.0)
    assert torch.equal(drawn, slowly(objective, k, known, torch.Generator().manual_seed(1), y))


@pytest.mark.parametrize("which", [0, 1])
def test_a_channel_sees_those_before_it_in_its_own_pixel(which):
    """Outputs l C + c belong to channel c: R sees the pixels before, G also R, B both."""
    network = networks((3, 4, 4), 2)[which]
    for (i, j), c in product(((0, 0), (2, 1), (3, 3)), range(3)):
        x = torch.rand(1, 3, 4, 4, requires_grad=True)
        (g,) = torch.autograd.grad(network(x)[:, c::3, i, j].square().sum(), x)
        here = (g[0, :, i, j] != 0).tolist()
        assert here == [k < c for k in range(3)] and not (g[0].flatten(1)[:, i * 4 + j + 1 :] != 0).any()


@pytest.mark.parametrize("which", [0, 1])
def test_channels_that_are_alike_cost_one(which):
    """Grey noise in colour: a bit for red, none for green and blue that repeat it; unknown to each other they would cost one each."""
    objective = PixelByPixel(networks((3, 4, 4), 2)[which], (3, 4, 4), levels=2)
    optimizer, g = torch.optim.Adam(objective.parameters(), lr=2e-2), torch.Generator().manual_seed(0)

    def grey(n):
        return torch.randint(2, (n, 1, 4, 4), generator=g).float().expand(-1, 3, -1, -1)

    for _ in range(100):
        optimizer.zero_grad()
        objective.loss({"x": grey(48)})["loss"].backward()
        optimizer.step()
    assert objective.bits(grey(256), None).mean().item() == pytest.approx(1 / 3, abs=0.05)
    drawn = objective.sample(64, torch.Generator().manual_seed(0))
    assert (drawn[:, :1] == drawn).float().mean() > 0.97


def test_drawing_tells_how_far_it_is():
    objective, told = PixelByPixel(networks((1, 3, 4), 2)[0], (1, 3, 4), levels=2), []
    with paced(lambda done, total: told.append((done, total))):
        objective.sample(2, torch.Generator().manual_seed(0))
        with share(1, 2):
            objective.complete(torch.rand(1, 1, 3, 4), 2, torch.Generator().manual_seed(0))
    assert told == [(k, 12) for k in range(1, 13)] + [(k, 8) for k in range(5, 9)]
    objective.sample(2, torch.Generator().manual_seed(0))
    assert len(told) == 16                                                                       # nobody waits any more


@pytest.mark.parametrize("which", [0, 1])
def test_completion_keeps_what_is_known(which):
    objective = PixelByPixel(networks((2, 6, 4), 4)[which], (2, 6, 4), levels=4)
    x = torch.rand(3, 2, 6, 4)
    whole = objective.complete(x, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(whole[:, :, :3], (3 * x[:, :, :3]).round() / 3)
    other = torch.cat([x[:, :, :3], torch.rand(3, 2, 3, 4)], dim=2)
    assert torch.equal(objective.complete(other, 3, torch.Generator().manual_seed(0)), whole)   # the lost half is not looked at
    greedy = [objective.complete(x, 3, torch.Generator().manual_seed(seed), temperature=0.0) for seed in (0, 1)]
    assert torch.equal(*greedy)
    k = (3 * greedy[0]).round().long()
    assert torch.equal(objective.logits(k, None).argmax(1)[:, :, 3:], k[:, :, 3:])               # each the likeliest after those before


@pytest.mark.parametrize("which", [0, 1])
def test_the_class_is_heard(which):
    objective = PixelByPixel(networks((1, 4, 4), 3, classes=5)[which], (1, 4, 4), levels=3, classes=5)
    x = torch.rand(1, 1, 4, 4).expand(5, -1, -1, -1)
    bits = objective.bits(x, torch.arange(5))
    assert len(bits.unique()) == 5
    assert objective.sample(7, torch.Generator().manual_seed(0), label=4).shape == (7, 1, 4, 4)
    with pytest.raises(UsageError, match="label must be from 0 to 4, got 5"):
        objective.sample(1, torch.Generator(), label=5)


def test_digits_cost_less_than_pixels_alone(here):
    run = didact.train(RECIPES["pixelrnn"], epochs=4, width=16, lr=1e-2)
    data = load("digits")
    level = [(data.split(part).columns["x"].float() / 255 * 15).round().long().flatten(1) for part in ("train", "test")]
    counts = torch.nn.functional.one_hot(level[0], 16).sum(0) + 0.1
    alone = -(counts / counts.sum(1, keepdim=True)).log2().gather(1, level[1].T).mean().item()
    assert run.facts["test"]["bits_per_dim"] < alone - 0.1
    assert run.load("gallery")["completions"].shape == (5, 8, 1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pixelcnn", "pixelrnn"])
def test_digits_with_all_defaults(name, here):
    assert didact.train(RECIPES[name]).facts["test"]["bits_per_dim"] < 1.8                   # each pixel by itself gives 2.37


def test_each_channel_needs_features():
    with pytest.raises(UsageError, match="--width must be at least 3, a feature for each channel of a pixel, got 2"):
        turns((3, 8, 8), 2)


def test_an_even_kernel_has_no_centre():
    with pytest.raises(UsageError, match="must be odd, got 4"):
        RECIPES["pixelcnn"](load("digits"), kernel=4)
