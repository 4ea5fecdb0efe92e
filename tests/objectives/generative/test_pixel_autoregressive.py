"""PixelCNN and PixelRNN: receptive fields by gradient, probabilities of all images that sum to one, inpainting."""

from itertools import product
from math import log

import pytest
import torch

import didact
from didact.data.load import load
from didact.errors import UsageError
from didact.layers.conv.masked_conv import MaskedConv2d, causal_mask2d
from didact.layers.recurrent.row_lstm import RowLSTM
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.pixelrnn import PixelRNN
from didact.objectives.generative.pixel_autoregressive import PixelAutoregressiveObjective
from didact.progress import subtask, use_progress_callback
from didact.recipes.pixelcnn import count_channel_groups
from didact.registry import RECIPES


def test_causal_mask2d_matches_hand_values():
    assert causal_mask2d((3, 3), "A").tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert causal_mask2d((3, 3), "B").tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert causal_mask2d((3, 3), "rows").tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
    layer, x = MaskedConv2d(2, 3, (3, 3), "B"), torch.randn(1, 2, 5, 6)
    plain = torch.nn.Conv2d(2, 3, 3, padding=1)
    plain.load_state_dict({"weight": layer.weight * layer.mask, "bias": layer.bias})
    torch.testing.assert_close(layer(x), plain(x))


def iterate_seen_pixels(model, channels, H, W):
    """For each position in order, the positions its logits depend on: (H, W) of bools."""
    for i, j in product(range(H), range(W)):
        x = torch.rand(1, channels, H, W, requires_grad=True)
        (g,) = torch.autograd.grad(model(x)[..., i, j].square().sum(), x)
        yield i, j, (g[0] != 0).any(0)


@pytest.mark.parametrize("channels", [1, 2])
def test_pixelcnn_sees_all_pixels_before_and_none_after(channels):
    torch.manual_seed(0)
    H, W = 5, 6
    for i, j, is_seen in iterate_seen_pixels(
        PixelCNN(shape=(channels, H, W), channels=8, num_layers=6, outputs=3 * channels), channels, H, W
    ):
        is_before = torch.arange(H * W).view(H, W) < i * W + j
        assert torch.equal(is_seen, is_before)                       # with two stacks no corner is blind


@pytest.mark.parametrize("channels", [1, 2])
def test_pixelrnn_sees_a_triangle_above_and_none_after(channels):
    """r rows up: to the right 3 by the first convolution and 1 for each other row; to the left all positions."""
    torch.manual_seed(0)
    H, W, depth = 5, 12, 2
    rows, columns = torch.arange(H)[:, None], torch.arange(W)
    for i, j, is_seen in iterate_seen_pixels(
        PixelRNN(shape=(channels, H, W), channels=8, num_layers=depth, outputs=3 * channels), channels, H, W
    ):
        r = i - rows
        right = torch.where(r == 0, -1, r + 2)
        triangle = (r >= 0) & (columns <= j + right) & (columns >= j - (3 + depth + r))
        assert torch.equal(is_seen, triangle)


def test_row_lstm_with_kernel_one_is_an_lstm_of_each_column():
    torch.manual_seed(0)
    layer, reference = RowLSTM(3, 5, kernel_size=1), torch.nn.LSTM(3, 5, batch_first=True)
    reference.load_state_dict({
        "weight_ih_l0": layer.input_to_state.weight[:, :, 0, 0], "weight_hh_l0": layer.state_to_state.weight[:, :, 0],
        "bias_ih_l0": layer.input_to_state.bias, "bias_hh_l0": torch.zeros(20),
    })
    x = torch.randn(2, 3, 6, 4)
    output = layer(x)
    for column in range(4):
        torch.testing.assert_close(output[..., column].mT, reference(x[..., column].mT)[0])


def test_row_lstm_matches_hand_values():
    """One channel, two rows, all weights one: gates read x left of and at their position, and three states above."""
    layer = RowLSTM(1, 1)
    for p in layer.parameters():
        torch.nn.init.ones_(p)
    torch.nn.init.zeros_(layer.input_to_state.bias)
    x = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]])

    def step_cell(gates, c):
        c = torch.sigmoid(gates) * c + torch.sigmoid(gates) * torch.tanh(gates)
        return torch.sigmoid(gates) * torch.tanh(c), c

    h1, c1 = step_cell(torch.tensor([1.0, 1.0 - 2.0, -2.0 + 0.5]), torch.zeros(3))
    above = torch.stack([h1[0] + h1[1], h1.sum(), h1[1] + h1[2]])
    h2, _ = step_cell(torch.tensor([0.3, 0.4, -0.9]) + above, c1)
    torch.testing.assert_close(layer(x[None, None])[0, 0], torch.stack([h1, h2]))


def make_networks(shape, levels, num_classes=0):
    torch.manual_seed(0)
    keywords = {
        "shape": shape,
        "channels": 6,
        "num_layers": 2,
        "outputs": levels * shape[0],
        "num_classes": num_classes,
        "channel_groups": shape[0],
    }
    return [PixelCNN(**keywords), PixelRNN(**keywords)]


@pytest.mark.parametrize("network_index", [0, 1])
@pytest.mark.parametrize("shape", [(1, 2, 3), (3, 1, 2)])
def test_pixel_autoregressive_probabilities_sum_to_one(network_index, shape):
    objective = PixelAutoregressiveObjective(make_networks(shape, 2)[network_index], shape, levels=2)
    all_images = torch.tensor(list(product((0.0, 1.0), repeat=6))).view(64, *shape)
    p = (-objective.compute_bits(all_images, None) * 6 * log(2)).exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    samples = objective.sample(4000, torch.Generator().manual_seed(0))
    image_index = (samples.flatten(1) * 2 ** torch.arange(5, -1, -1)).sum(1).long()
    shares = torch.bincount(image_index, minlength=64) / 4000
    assert (shares - p).abs().max() < 5 * (p.max() / 4000).sqrt()


def sample_slowly(objective, k, num_known, generator, y=None):
    """The whole network for every position, as in the equation."""
    k = k.clone()
    k[:, :, num_known:] = 0
    for i, j, c in product(range(num_known, k.shape[2]), range(k.shape[3]), range(k.shape[1])):
        p = objective.logits(k, y)[:, :, c, i, j].softmax(1)
        k[:, c, i, j] = torch.multinomial(p, 1, generator=generator)[:, 0]
    return k


@pytest.mark.parametrize("network_index", [0, 1])
@pytest.mark.parametrize(
    ("shape", "num_known", "num_classes"), [((1, 9, 7), 0, 0), ((1, 9, 5), 4, 3), ((3, 6, 5), 0, 2), ((3, 7, 4), 1, 0)]
)
def test_pixel_sampling_matches_the_full_network(network_index, shape, num_known, num_classes):
    objective = PixelAutoregressiveObjective(
        make_networks(shape, 5, num_classes)[network_index], shape, levels=5, num_classes=num_classes
    )
    k, y = torch.randint(5, (6, *shape)), torch.arange(6) % num_classes if num_classes else None
    full_logits = objective.logits(k, y)
    x = objective.to_network_input(k)
    # x already holds the "sampled" pixels
    incremental_logits = torch.stack(list(objective.network.iterate_conditional_logits(x, y, num_known)), dim=2)
    torch.testing.assert_close(
        incremental_logits, full_logits[..., num_known:, :].permute(0, 1, 3, 4, 2).flatten(2), atol=1e-5, rtol=1e-5
    )
    samples = objective.sample_pixels(k, num_known, torch.Generator().manual_seed(1), y, 1.0)
    assert torch.equal(samples, sample_slowly(objective, k, num_known, torch.Generator().manual_seed(1), y))


@pytest.mark.parametrize("network_index", [0, 1])
def test_channels_see_earlier_channels_of_their_pixel(network_index):
    """Outputs l C + c belong to channel c: R sees the pixels before, G also R, B both."""
    network = make_networks((3, 4, 4), 2)[network_index]
    for (i, j), c in product(((0, 0), (2, 1), (3, 3)), range(3)):
        x = torch.rand(1, 3, 4, 4, requires_grad=True)
        (g,) = torch.autograd.grad(network(x)[:, c::3, i, j].square().sum(), x)
        has_gradient = (g[0, :, i, j] != 0).tolist()
        assert has_gradient == [k < c for k in range(3)] and not (g[0].flatten(1)[:, i * 4 + j + 1 :] != 0).any()


@pytest.mark.parametrize("network_index", [0, 1])
def test_equal_channels_cost_as_much_as_one(network_index):
    """Gray noise in color: one bit for red, none for green and blue, which repeat it."""
    objective = PixelAutoregressiveObjective(make_networks((3, 4, 4), 2)[network_index], (3, 4, 4), levels=2)
    optimizer, g = torch.optim.Adam(objective.parameters(), lr=2e-2), torch.Generator().manual_seed(0)

    def make_gray(n):
        return torch.randint(2, (n, 1, 4, 4), generator=g).float().expand(-1, 3, -1, -1)

    for _ in range(100):
        optimizer.zero_grad()
        objective.loss({"x": make_gray(48)})["loss"].backward()
        optimizer.step()
    assert objective.compute_bits(make_gray(256), None).mean().item() == pytest.approx(1 / 3, abs=0.05)
    samples = objective.sample(64, torch.Generator().manual_seed(0))
    assert (samples[:, :1] == samples).float().mean() > 0.97


def test_pixel_sampling_reports_progress():
    objective, progress_calls = PixelAutoregressiveObjective(make_networks((1, 3, 4), 2)[0], (1, 3, 4), levels=2), []
    with use_progress_callback(lambda done, total: progress_calls.append((done, total))):
        objective.sample(2, torch.Generator().manual_seed(0))
        with subtask(1, 2):
            objective.complete(torch.rand(1, 1, 3, 4), 2, torch.Generator().manual_seed(0))
    assert progress_calls == [(k, 12) for k in range(1, 13)] + [(k, 8) for k in range(5, 9)]
    objective.sample(2, torch.Generator().manual_seed(0))
    # the callback is gone
    assert len(progress_calls) == 16


@pytest.mark.parametrize("network_index", [0, 1])
def test_pixel_completion_keeps_known_pixels(network_index):
    objective = PixelAutoregressiveObjective(make_networks((2, 6, 4), 4)[network_index], (2, 6, 4), levels=4)
    x = torch.rand(3, 2, 6, 4)
    completed = objective.complete(x, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(completed[:, :, :3], (3 * x[:, :, :3]).round() / 3)
    changed_images = torch.cat([x[:, :, :3], torch.rand(3, 2, 3, 4)], dim=2)
    # the missing half has no effect
    assert torch.equal(objective.complete(changed_images, 3, torch.Generator().manual_seed(0)), completed)
    greedy_images = [objective.complete(x, 3, torch.Generator().manual_seed(seed), temperature=0.0) for seed in (0, 1)]
    assert torch.equal(*greedy_images)
    k = (3 * greedy_images[0]).round().long()
    # each is the likeliest given those before
    assert torch.equal(objective.logits(k, None).argmax(1)[:, :, 3:], k[:, :, 3:])


@pytest.mark.parametrize("network_index", [0, 1])
def test_pixel_autoregressive_depends_on_the_class(network_index):
    objective = PixelAutoregressiveObjective(
        make_networks((1, 4, 4), 3, num_classes=5)[network_index], (1, 4, 4), levels=3, num_classes=5
    )
    x = torch.rand(1, 1, 4, 4).expand(5, -1, -1, -1)
    bits = objective.compute_bits(x, torch.arange(5))
    assert len(bits.unique()) == 5
    assert objective.sample(7, torch.Generator().manual_seed(0), label=4).shape == (7, 1, 4, 4)
    with pytest.raises(UsageError, match="the class must be from 0 to 4, got 5"):
        objective.sample(1, torch.Generator(), label=5)


def test_pixelrnn_beats_independent_pixels(workdir):
    run = didact.train(RECIPES["pixelrnn"], epochs=4, channels=16, lr=1e-2)
    data = load("digits")
    levels = [
        (data.split(part).columns["x"].float() / 255 * 15).round().long().flatten(1) for part in ("train", "test")
    ]
    counts = torch.nn.functional.one_hot(levels[0], 16).sum(0) + 0.1
    independent_bits = -(counts / counts.sum(1, keepdim=True)).log2().gather(1, levels[1].T).mean().item()
    assert run.metadata["test"]["bits_per_dim"] < independent_bits - 0.1
    assert run.load("gallery")["completions"].shape == (5, 8, 1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pixelcnn", "pixelrnn"])
def test_pixel_autoregressive_on_digits_with_all_defaults(name, workdir):
    # independent pixels give 2.37
    assert didact.train(RECIPES[name]).metadata["test"]["bits_per_dim"] < 1.8


def test_count_channel_groups_refuses_too_few_channels():
    with pytest.raises(UsageError, match="--channels must be at least 3, one for each channel of a pixel, got 2"):
        count_channel_groups((3, 8, 8), 2)


def test_pixelcnn_refuses_an_even_kernel():
    with pytest.raises(UsageError, match="must be odd, so that the kernel has a center, got 4"):
        RECIPES["pixelcnn"](load("digits"), kernel_size=4)
