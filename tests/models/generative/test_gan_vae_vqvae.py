import pytest
import torch

from didact.errors import UsageError
from didact.models.generative.gan import DCGANDiscriminator, DCGANGenerator, StyleGenerator
from didact.models.generative.vae import VAE
from didact.models.generative.vqvae import VQVAE


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_dcgan_has_gabas_sizes():
    generator, discriminator = DCGANGenerator(), DCGANDiscriminator()
    assert count_parameters(generator) == 837_504 and count_parameters(discriminator) == 431_872
    x, shapes = torch.randn(2, 100)[:, :, None, None], []
    for block in generator.blocks:
        x = block(x, None)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(256, 4, 4), (128, 7, 7), (64, 14, 14)]
    x, shapes = torch.randn(2, 1, 28, 28), []
    for layer in discriminator.layers:
        x = layer(x)
        shapes += [tuple(x.shape[1:])] if isinstance(layer, torch.nn.Conv2d) else []
    assert shapes == [(64, 14, 14), (128, 7, 7), (256, 4, 4), (1, 1, 1)]


def test_dcgan_init_matches_gaba():
    torch.manual_seed(0)
    model = DCGANGenerator()
    assert model.last.weight.std().item() == pytest.approx(0.02, rel=0.1)
    norm = model.blocks[0].norm
    assert norm.weight.mean().item() == pytest.approx(1, abs=0.01) and norm.weight.std().item() == pytest.approx(
        0.02, rel=0.3
    )
    assert not norm.bias.any()


def test_vae_has_gabas_size():
    assert count_parameters(VAE(shape=(1, 28, 28), widths=(512,), latent_dim=20)) == 835_384


@pytest.mark.parametrize("side", [5, 8, 28, 32, 33, 64])
def test_gan_networks_support_every_size(side):
    x = DCGANGenerator(shape=(3, side, side), latent_dim=9, channels=4)(torch.randn(2, 9))
    assert x.shape == (2, 3, side, side) and x.abs().max() <= 1
    assert (
        StyleGenerator(shape=(3, side, side), latent_dim=9, channels=4, style_dim=6)(torch.randn(2, 9)).shape == x.shape
    )
    assert DCGANDiscriminator(shape=(3, side, side), channels=4)(x).shape == (2,)


def test_dcgan_refuses_too_small_images():
    with pytest.raises(UsageError, match="at least 5×5 pixels, got 4×4"):
        DCGANGenerator(shape=(1, 4, 4))


@pytest.mark.parametrize("condition", ["input", "batch_norm"])
def test_conditional_dcgan_output_depends_on_the_class(condition):
    torch.manual_seed(0)
    model = DCGANGenerator(shape=(1, 8, 8), latent_dim=5, channels=4, num_classes=3, conditioning=condition)
    if condition == "batch_norm":
        torch.nn.init.normal_(model.blocks[0].norm.beta.weight)
    z = torch.randn(1, 5).expand(3, 5)
    x = model.eval()(z, torch.tensor([0, 1, 1]))
    assert torch.equal(x[1], x[2]) and not torch.allclose(x[0], x[1])
    discriminator = DCGANDiscriminator(shape=(1, 8, 8), channels=4, num_classes=3).eval()
    scores = discriminator(x[:1].expand(3, -1, -1, -1), torch.tensor([0, 1, 1]))
    assert scores[1] == scores[2] and scores[0] != scores[1]


def test_style_generator_depends_on_the_direction_of_z_alone():
    torch.manual_seed(0)
    model, z = StyleGenerator(shape=(1, 8, 8), latent_dim=5, channels=4, style_dim=6).eval(), torch.randn(2, 5)
    torch.testing.assert_close(model(3 * z), model(z), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(model(-z), model(z), atol=1e-3)


def test_layer_norm_discriminator_treats_images_independently():
    torch.manual_seed(0)
    model, x = DCGANDiscriminator(shape=(1, 16, 16), channels=4, norm="layer"), torch.randn(4, 1, 16, 16)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    torch.manual_seed(0)
    model = DCGANDiscriminator(shape=(1, 16, 16), channels=4, norm="batch")
    assert not torch.allclose(model(x)[:2], model(x[:2]))


def test_vqvae_decode_codes_matches_its_reconstruction():
    torch.manual_seed(0)
    keywords, x = VQVAE.example(3)
    model = VQVAE(**keywords).eval()
    z, e, k = model.encode(x)
    assert (
        z.shape == e.shape == (3, 5, *model.grid)
        and k.shape == (3, *model.grid)
        and k.max() < model.codebook_size == 11
    )
    torch.testing.assert_close(model.decode_codes(k), model(x))
    assert model(x).shape == x.shape
