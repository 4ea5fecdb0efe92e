"""Networks as in the courses, which the measured tables train: options other than didact's own defaults."""

import pytest
import torch
import torch.nn.functional as F

from didact.errors import UsageError
from didact.layers.timestep_embedding import timestep_features
from didact.models.generative.diffusion_unet import SimpleUNet, TimeResBlock
from didact.models.text.rnn import RecurrentClassifier
from didact.models.text.transformer_classifier import TransformerClassifier
from didact.recipes.diffusion import make_unet


def make_simple_unet(**options):
    torch.manual_seed(0)
    return SimpleUNet(**{"shape": (1, 28, 28), "widths": (32, 64, 128)} | options)


def test_simple_unet_has_the_expected_parameter_count():
    """The 545,795 of C10.16, whose first block reads one channel; here it reads the 32 of the stem, which has 9 · 32 +
    32 itself.
    """
    first_block_size = sum(p.numel() for p in TimeResBlock(1, 32, 128, groups=1).parameters())
    block_size = sum(p.numel() for p in TimeResBlock(32, 32, 128, groups=8).parameters())
    num_parameters = sum(p.numel() for p in make_simple_unet().parameters())
    assert num_parameters == 555_041 == 545_795 - first_block_size + block_size + 320
    recipe_unet = make_unet((1, 28, 28), None, 128, 0, 0.0, network_class=SimpleUNet)
    assert sum(p.numel() for p in recipe_unet.parameters()) == num_parameters


def forward_reference(net, x, t):
    """The forward pass written with functions alone: eight groups, max pooling, transposed convolutions, skip
    connections.
    """
    tau = F.silu(F.linear(timestep_features(1000 * t, 128), net.time.weight, net.time.bias))

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


def test_simple_unet_matches_its_functional_form():
    net, x, t = make_simple_unet(), torch.randn(2, 1, 28, 28), torch.tensor([0.1, 0.9])
    torch.testing.assert_close(net(x, t), forward_reference(net, x, t), rtol=1e-4, atol=1e-5)
    assert make_simple_unet(shape=(3, 11, 9))(torch.randn(2, 3, 11, 9)).shape == (2, 3, 11, 9), "odd sides come back"


def test_simple_unet_widths_must_be_multiples_of_eight():
    with pytest.raises(UsageError, match=r"multiples of 8, got \(12, 24\)"):
        make_simple_unet(widths=(12, 24))


def test_embedding_std_sets_the_initial_deviation_of_embeddings():
    torch.manual_seed(0)
    default_model, unit_std_model = (
        TransformerClassifier(5000, 2, embed_dim=64, num_layers=1, num_heads=2, ffn_dim=8, embedding_std=std)
        for std in (None, 1.0)
    )
    assert default_model.embedding.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    assert (
        unit_std_model.embedding.weight[1:].std().item() == pytest.approx(1, rel=0.02)
        and not unit_std_model.embedding.weight[0].any()
    )
    default_model, unit_std_model = (
        RecurrentClassifier(5000, 2, embed_dim=64, hidden_size=4, embedding_std=std) for std in (None, 1.0)
    )
    assert default_model.embedding.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    assert unit_std_model.embedding.weight[1:].std().item() == pytest.approx(1, rel=0.02)


def test_rnn_classifier_head_of_layers_matches_its_formula():
    torch.manual_seed(0)
    net, tokens = (
        RecurrentClassifier(30, 3, embed_dim=6, hidden_size=5, head=(7, 4)).eval(),
        torch.randint(1, 30, (4, 9)),
    )
    h = net.embed(tokens)
    for layer in (net.head[0], net.head[3]):
        h = torch.relu(h @ layer.weight.T + layer.bias)
    torch.testing.assert_close(net(tokens), h @ net.head[6].weight.T + net.head[6].bias)
    assert isinstance(RecurrentClassifier(30, 3, embed_dim=6, hidden_size=5).head, torch.nn.Linear), (
        "one layer by default"
    )


def test_rnn_classifier_embedding_dropout_is_separate():
    net, tokens = (
        RecurrentClassifier(30, 3, embed_dim=6, hidden_size=5, dropout=0.9, embedding_dropout=0.0).train(),
        torch.randint(1, 30, (4, 9)),
    )
    assert torch.equal(net.embed(tokens), net.embed(tokens)), (
        "one layer drops nothing inside, and the words are not dropped"
    )
    shared_dropout_net = RecurrentClassifier(30, 3, embed_dim=6, hidden_size=5, dropout=0.9).train()
    assert not torch.equal(shared_dropout_net.embed(tokens), shared_dropout_net.embed(tokens))
