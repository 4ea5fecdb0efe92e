"""The closed forms of the GAN game, on tables where every expectation is a sum, and its rules in the training loop."""

from functools import partial
from math import log

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.optim import SGD

from didact.data.core import TensorSplit
from didact.models.generative.gan import DenseDiscriminator, DenseGenerator
from didact.objectives.abilities import abilities
from didact.objectives.generative.gan import (
    GAN_LOSSES,
    GANObjective,
    discriminator_loss,
    generator_loss_non_saturating,
    generator_loss_saturating,
    gradient_penalty,
    wasserstein_critic_loss,
)
from didact.objectives.generative.sample_quality import make_thumbnails
from didact.optim.weight_clipping import with_weight_clipping

P, Q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64), torch.tensor([0.4, 0.4, 0.1, 0.1], dtype=torch.float64)


def train_best_discriminator(p, q):
    """Logits of four outcomes, trained, and the value of the game; expectations are sums over the outcomes."""
    s = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([s], max_iter=200, tolerance_grad=1e-12)
    minus_infinity = torch.full_like(s, -1e9)

    def loss():
        optimizer.zero_grad()
        # each half alone: softplus(−1e9) is 0
        value = (p * discriminator_loss(s, minus_infinity) + q * discriminator_loss(-minus_infinity, s)).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return s.detach(), -loss().item()


def test_optimal_discriminator_is_the_share_of_real_data():
    s, value = train_best_discriminator(P, Q)
    torch.testing.assert_close(s.sigmoid(), P / (P + Q), atol=1e-5, rtol=1e-5)
    m = (P + Q) / 2
    jsd = 0.5 * (P * (P / m).log()).sum() + 0.5 * (Q * (Q / m).log()).sum()
    assert value == pytest.approx(-log(4) + 2 * jsd.item(), abs=1e-8) and jsd > 0.05


def test_gan_value_of_equal_distributions_is_minus_log_four():
    s, value = train_best_discriminator(P, P)
    torch.testing.assert_close(s.sigmoid(), torch.full((4,), 0.5, dtype=torch.float64))
    assert value == pytest.approx(-log(4), abs=1e-12)


def test_non_saturating_loss_keeps_its_gradient_for_a_sure_discriminator():
    s = torch.tensor([-12.0, 0.0, 3.0], requires_grad=True)
    d = s.detach().sigmoid()
    torch.testing.assert_close(torch.autograd.grad(generator_loss_saturating(s).sum(), s)[0], -d)
    torch.testing.assert_close(torch.autograd.grad(generator_loss_non_saturating(s).sum(), s)[0], d - 1)
    assert torch.equal(wasserstein_critic_loss(s, s + 2).detach(), torch.full((3,), 2.0))


def test_gradient_penalty_of_a_linear_critic_is_that_of_its_slope():
    torch.manual_seed(0)
    w = torch.randn(1, 2, 5, dtype=torch.float64, requires_grad=True)
    real, fake, t = torch.randn(6, 1, 2, 5).double(), torch.randn(6, 1, 2, 5).double(), torch.rand(6).double()
    penalty = gradient_penalty(lambda x: (x * w).flatten(1).sum(1), real, fake, t)
    norm = w.detach().norm()
    assert penalty.item() == pytest.approx(((norm - 1) ** 2).item(), rel=1e-6)
    (slope,) = torch.autograd.grad(penalty, w)
    torch.testing.assert_close(slope, 2 * (norm - 1) * w.detach() / norm, atol=1e-6, rtol=1e-6)


def test_gradient_penalty_is_taken_between_real_and_fake():
    real, fake, t = torch.full((3, 1, 1, 1), 2.0), torch.zeros(3, 1, 1, 1), torch.tensor([0.0, 0.5, 1.0])
    # the slope at x is x: 0, 1, 2
    penalty = gradient_penalty(lambda x: x.flatten(1).square().sum(1) / 2, real, fake, t)
    assert penalty.item() == pytest.approx((1 + 0 + 1) / 3, rel=1e-4)


def test_gan_loss_weights_the_gradient_penalty_by_lambda():
    """The gradient of each example, at points recomputed from the seed; two weights λ differ by the penalty alone."""
    model, b = make_gan(gan_loss=GAN_LOSSES["wasserstein"], num_classes=3).eval(), make_batch()
    parts = {}
    for model.gradient_penalty in (0.0, 1.0, 10.0):
        torch.manual_seed(2)
        parts[model.gradient_penalty] = model.loss(b, "discriminator")
    torch.manual_seed(2)
    fake = model.generator(torch.randn(30, 4), b["y"]).detach()
    t = torch.rand(30)[:, None, None, None]
    interpolated_images = t * (2 * b["x"] - 1) + (1 - t) * fake
    slopes = [
        jacobian(lambda x, y=y: model.discriminator(x[None], y[None])[0], x).norm()
        for x, y in zip(interpolated_images, b["y"], strict=True)
    ]
    penalty = sum((slope.item() - 1) ** 2 for slope in slopes) / 30
    loss = {weight: loss_parts["loss"].item() for weight, loss_parts in parts.items()}
    assert (
        penalty > 0.1
        and parts[10.0]["penalty"].item() == pytest.approx(penalty, rel=1e-4)
        and "penalty" not in parts[0.0]
    )
    assert loss[10.0] - loss[1.0] == pytest.approx(9 * penalty, rel=1e-4) and loss[1.0] - loss[0.0] == pytest.approx(
        penalty, rel=1e-4
    )


def test_gan_loss_with_gradient_penalty_is_not_compiled():
    """A compiled function can be differentiated once, and the penalty's gradient is a second derivative."""
    assert {p.name: p.compilable for p in make_gan(gradient_penalty=10.0).players()} == {
        "discriminator": False,
        "generator": True,
    }
    assert all(p.compilable for p in make_gan().players())


def test_with_weight_clipping_keeps_weights_within_bounds():
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    start = layer.weight.detach().clone()
    optimizer = with_weight_clipping(layer.parameters(), base=partial(SGD, lr=1.0), bound=0.2)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), (start - 1).clamp(-0.2, 0.2))


def test_make_thumbnails_averages_tiles():
    x = torch.rand(2, 3, 16, 24)
    torch.testing.assert_close(make_thumbnails(x)[0, 0], x[0, 0, :2, :3].mean())
    assert make_thumbnails(x).shape == (2, 3 * 64) and torch.equal(
        make_thumbnails(x[:, :, :5, :7]), x[:, :, :5, :7].flatten(1)
    )


def make_gan(**keywords):
    torch.manual_seed(0)
    shape, classes = (1, 6, 5), keywords.get("num_classes", 0)
    return GANObjective(
        DenseGenerator(shape=shape, latent_dim=4, widths=(8,), num_classes=classes),
        DenseDiscriminator(shape=shape, widths=(8,), num_classes=classes),
        **{"gan_loss": GAN_LOSSES["non_saturating"], "latent_dim": 4, **keywords},
    )


def make_batch(n=30):
    torch.manual_seed(1)
    return {"x": torch.rand(n, 1, 6, 5), "y": torch.arange(n) % 3, "row": torch.arange(n)}


def test_gan_players_train_only_their_own_network():
    model = make_gan(referee=nn.Sequential(nn.Flatten(), nn.Linear(30, 3)))
    for player in model.players():
        model.zero_grad(set_to_none=True)
        for other in model.players():
            for p in other.parameters:
                p.requires_grad_(other.name == player.name)
        model.loss(make_batch(), player.name)["loss"].backward()
        for other in model.players():
            assert all((p.grad is not None) == (other.name == player.name) for p in other.parameters)
    assert {p.name for p in model.players()} == {"discriminator", "generator", "referee"}


def test_gan_evaluation_is_independent_of_batching():
    model, b = make_gan(num_classes=3, referee=nn.Sequential(nn.Flatten(), nn.Linear(30, 3))).eval(), make_batch(40)
    with torch.no_grad():
        outputs = model.evaluate_batch(b)
        outputs_by_batch = [model.evaluate_batch({k: v[i : i + 7] for k, v in b.items()}) for i in range(0, 40, 7)]
    for name in outputs:
        torch.testing.assert_close(torch.cat([c[name] for c in outputs_by_batch]), outputs[name])
    scores = model.compute_metrics(outputs)
    is_expected_class = outputs["probabilities"].argmax(1) == b["y"]
    assert scores["class_accuracy"] == pytest.approx(is_expected_class.double().mean().item())
    assert set(scores) >= {"frechet", "class_coverage", "class_entropy", "inception_score", "referee_accuracy"}


def test_gan_samples_the_requested_class():
    model, g = make_gan(num_classes=3).eval(), torch.Generator()
    assert set(abilities(model)) == {"sample", "walk"}
    with torch.no_grad():
        x = model.sample(5, g.manual_seed(0), label=1)
        assert x.shape == (5, 1, 6, 5) and x.min() >= 0 and x.max() <= 1
        torch.testing.assert_close(model.sample(5, g.manual_seed(0), label=1), x)
        assert not torch.allclose(model.sample(5, g.manual_seed(0), label=2), x)
        assert model.gallery(make_batch())["samples"].shape == (3, 8, 1, 6, 5)
        with pytest.raises(ValueError, match="the class must be from 0 to 2, got 3"):
            model.sample(5, g, label=3)
        with pytest.raises(ValueError, match="train with --conditional"):
            make_gan().sample(5, g, label=1)


def test_gan_without_labels_has_no_referee_metrics():
    model, b = make_gan(), make_batch()
    del b["y"]
    with torch.no_grad():
        assert set(model.compute_metrics(model.evaluate_batch(b))) == {"loss", "frechet"}
    assert isinstance(model.loss(b, "generator")["loss"].item(), float) and len(TensorSplit(b)) == 30
