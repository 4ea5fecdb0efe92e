import pytest
import torch

from didact.errors import UsageError
from didact.models.gan import DCGANDiscriminator, DCGANGenerator, StyleGenerator
from didact.models.vae import VAE
from didact.models.vqvae import VQVAE


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_dcgan_has_gabas_sizes():
    generator, discriminator = DCGANGenerator(), DCGANDiscriminator()
    assert count(generator) == 837_504 and count(discriminator) == 431_872
    x, seen = torch.randn(2, 100)[:, :, None, None], []
    for block in generator.blocks:
        x = block(x, None)
        seen.append(tuple(x.shape[1:]))
    assert seen == [(256, 4, 4), (128, 7, 7), (64, 14, 14)]
    x, seen = torch.randn(2, 1, 28, 28), []
    for layer in discriminator.layers:
        x = layer(x)
        seen += [tuple(x.shape[1:])] if isinstance(layer, torch.nn.Conv2d) else []
    assert seen == [(64, 14, 14), (128, 7, 7), (256, 4, 4), (1, 1, 1)]


def test_dcgan_begins_as_gaba_says():
    torch.manual_seed(0)
    model = DCGANGenerator()
    assert model.last.weight.std().item() == pytest.approx(0.02, rel=0.1)
    norm = model.blocks[0].norm
    assert norm.weight.mean().item() == pytest.approx(1, abs=0.01) and norm.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert not norm.bias.any()


def test_vae_has_gabas_size():
    assert count(VAE(shape=(1, 28, 28), widths=(512,), latent=20)) == 835_384


@pytest.mark.parametrize("side", [5, 8, 28, 32, 33, 64])
def test_every_size_is_drawn_and_judged(side):
    x = DCGANGenerator(shape=(3, side, side), latent=9, width=4)(torch.randn(2, 9))
    assert x.shape == (2, 3, side, side) and x.abs().max() <= 1
    assert StyleGenerator(shape=(3, side, side), latent=9, width=4, style=6)(torch.randn(2, 9)).shape == x.shape
    assert DCGANDiscriminator(shape=(3, side, side), width=4)(x).shape == (2,)


def test_too_small_for_convolutions():
    with pytest.raises(UsageError, match="at least 5×5 pixels, got 4×4"):
        DCGANGenerator(shape=(1, 4, 4))


@pytest.mark.parametrize("condition", ["input", "batch_norm"])
def test_the_class_changes_what_is_drawn(condition):
    torch.manual_seed(0)
    model = DCGANGenerator(shape=(1, 8, 8), latent=5, width=4, classes=3, condition=condition)
    if condition == "batch_norm":
        torch.nn.init.normal_(model.blocks[0].norm.beta.weight)
    z = torch.randn(1, 5).expand(3, 5)
    x = model.eval()(z, torch.tensor([0, 1, 1]))
    assert torch.equal(x[1], x[2]) and not torch.allclose(x[0], x[1])
    judge = DCGANDiscriminator(shape=(1, 8, 8), width=4, classes=3).eval()
    scores = judge(x[:1].expand(3, -1, -1, -1), torch.tensor([0, 1, 1]))
    assert scores[1] == scores[2] and scores[0] != scores[1]


def test_a_style_is_a_direction():
    torch.manual_seed(0)
    model, z = StyleGenerator(shape=(1, 8, 8), latent=5, width=4, style=6).eval(), torch.randn(2, 5)
    torch.testing.assert_close(model(3 * z), model(z), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(model(-z), model(z), atol=1e-3)


def test_a_layer_norm_discriminator_looks_at_one_image_at_a_time():
    torch.manual_seed(0)
    model, x = DCGANDiscriminator(shape=(1, 16, 16), width=4, norm="layer"), torch.randn(4, 1, 16, 16)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    torch.manual_seed(0)
    model = DCGANDiscriminator(shape=(1, 16, 16), width=4, norm="batch")
    assert not torch.allclose(model(x)[:2], model(x[:2]))


def test_vqvae_gives_codes_and_takes_them_back():
    torch.manual_seed(0)
    keywords, x = VQVAE.example(3)
    model = VQVAE(**keywords).eval()
    z, e, k = model.encode(x)
    assert z.shape == e.shape == (3, 5, *model.grid) and k.shape == (3, *model.grid) and k.max() < model.codes == 11
    torch.testing.assert_close(model.decode_codes(k), model(x))
    assert model(x).shape == x.shape
