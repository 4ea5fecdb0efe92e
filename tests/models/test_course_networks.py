"""Networks as the courses list them, which the measured tables train: options beside didact's own defaults."""

import pytest
import torch
import torch.nn.functional as F

from didact.errors import UsageError
from didact.layers.time import time_features
from didact.models.denoise_unet import SimpleUNet, TimedBlock
from didact.models.recurrent import RecurrentClassifier
from didact.models.text_encoder import TextEncoder
from didact.recipes.diffusion import unet


def simple(**words):
    torch.manual_seed(0)
    return SimpleUNet(**{"shape": (1, 28, 28), "widths": (32, 64, 128)} | words)


def test_the_simple_unet_counts():
    """The 545,795 of C10.16, whose first block reads one channel; here it reads the 32 of the stem, which has 9 · 32 + 32 itself."""
    first = sum(p.numel() for p in TimedBlock(1, 32, 128, groups=1).parameters())
    block = sum(p.numel() for p in TimedBlock(32, 32, 128, groups=8).parameters())
    found = sum(p.numel() for p in simple().parameters())
    assert found == 555_041 == 545_795 - first + block + 320
    made = unet((1, 28, 28), None, 128, 0, 0.0, make=SimpleUNet)
    assert sum(p.numel() for p in made.parameters()) == found


def by_hand(net, x, t):
    """The pass written with functions alone: eight groups, the largest of four, transposed convolutions, what was kept beside."""
    tau = F.silu(F.linear(time_features(1000 * t, 128), net.time.weight, net.time.bias))

    def block(b, x):
        h = F.conv2d(F.silu(F.group_norm(x, 8, b.norm1.weight, b.norm1.bias)), b.conv1.weight, b.conv1.bias, padding=1)
        h = h + F.linear(F.silu(tau), b.time.weight, b.time.bias)[:, :, None, None]
        h = F.conv2d(F.silu(F.group_norm(h, 8, b.norm2.weight, b.norm2.bias)), b.conv2.weight, b.conv2.bias, padding=1)
        return h + (x if x.shape == h.shape else F.conv2d(x, b.skip.weight, b.skip.bias))

    e1 = block(net.down[0], F.conv2d(x, net.stem.weight, net.stem.bias, padding=1))
    e2 = block(net.down[1], F.max_pool2d(e1, 2))
    b = block(net.middle, F.max_pool2d(e2, 2))
    d2 = block(net.up[0], torch.cat([F.conv_transpose2d(b, net.grow[0].weight, net.grow[0].bias, stride=2), e2], 1))
    d1 = block(net.up[1], torch.cat([F.conv_transpose2d(d2, net.grow[1].weight, net.grow[1].bias, stride=2), e1], 1))
    return F.conv2d(d1, net.head.weight, net.head.bias)


def test_the_simple_unet_by_hand():
    net, x, t = simple(), torch.randn(2, 1, 28, 28), torch.tensor([0.1, 0.9])
    torch.testing.assert_close(net(x, t), by_hand(net, x, t), rtol=1e-4, atol=1e-5)
    assert simple(shape=(3, 11, 9))(torch.randn(2, 3, 11, 9)).shape == (2, 3, 11, 9), "odd sides come back"


def test_widths_are_shared_among_eight_groups():
    with pytest.raises(UsageError, match=r"multiples, got \(12, 24\)"):
        simple(widths=(12, 24))


def test_words_as_pytorch_draws_them():
    torch.manual_seed(0)
    usual, theirs = (TextEncoder(5000, 2, dim=64, layers=1, heads=2, hidden=8, embedding_std=std) for std in (None, 1.0))
    assert usual.embedding.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    assert theirs.embedding.weight[1:].std().item() == pytest.approx(1, rel=0.02) and not theirs.embedding.weight[0].any()
    usual, theirs = (RecurrentClassifier(5000, 2, width=64, hidden=4, embedding_std=std) for std in (None, 1.0))
    assert usual.embedding.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    assert theirs.embedding.weight[1:].std().item() == pytest.approx(1, rel=0.02)


def test_a_head_of_layers_by_hand():
    torch.manual_seed(0)
    net, tokens = RecurrentClassifier(30, 3, width=6, hidden=5, head=(7, 4)).eval(), torch.randint(1, 30, (4, 9))
    h = net.embed(tokens)
    for layer in (net.head[0], net.head[3]):
        h = torch.relu(h @ layer.weight.T + layer.bias)
    torch.testing.assert_close(net(tokens), h @ net.head[6].weight.T + net.head[6].bias)
    assert isinstance(RecurrentClassifier(30, 3, width=6, hidden=5).head, torch.nn.Linear), "one layer where nothing is said"


def test_words_are_dropped_apart_from_units():
    net, tokens = RecurrentClassifier(30, 3, width=6, hidden=5, dropout=0.9, embedding_dropout=0.0).train(), torch.randint(1, 30, (4, 9))
    assert torch.equal(net.embed(tokens), net.embed(tokens)), "one layer drops nothing inside, and the words are not dropped"
    same = RecurrentClassifier(30, 3, width=6, hidden=5, dropout=0.9).train()
    assert not torch.equal(same.embed(tokens), same.embed(tokens))
