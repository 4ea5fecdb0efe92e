"""Flows: the way back is exact, volumes are the Jacobian's, and a density integrates to one."""

from math import log

import pytest
import torch

import didact
from didact.errors import UsageError
from didact.models.realnvp import MonotoneFlow, MultiScaleRealNVP, RealNVP
from didact.objectives.likelihood import Flow, ImageFlow
from didact.recipes.realnvp import of_images
from didact.registry import RECIPES
from didact.report import page
from didact.samplers.draw import draw
from didact.train.session import restored


def flow(shape, steps=4, scales=0):
    torch.manual_seed(0)
    keywords = {"shape": shape, "hidden": 16, "steps": steps}
    return MultiScaleRealNVP(**keywords, scales=scales) if scales else RealNVP(**keywords)


SCALES = [((1, 4, 6), 2), ((3, 8, 8), 3), ((1, 5, 7), 1), ((2, 8, 12), 2)]


@pytest.mark.parametrize(("shape", "scales"), [((2,), 0), ((5,), 0), ((1, 4, 6), 0), ((3, 8, 8), 0), ((1, 5, 7), 0), *SCALES])
def test_there_and_back(shape, scales):
    network, x = flow(shape, scales=scales), 2 * torch.randn(7, *shape)
    z, _ = network.encode(x)
    assert z.shape[1:] == network.shape and not torch.allclose(z.flatten(1), x.flatten(1), atol=0.1)
    torch.testing.assert_close(network.decode(z), x, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("shape", "scales"), [((2,), 0), ((5,), 0), ((1, 4, 6), 0), ((1, 5, 3), 0), *SCALES])
def test_log_determinant_is_the_jacobians(shape, scales):
    network, x = flow(shape, scales=scales).double(), torch.randn(3, *shape, dtype=torch.double)
    _, found = network.encode(x)
    for row, log_det in zip(x, found, strict=True):
        n = row.numel()
        jacobian = torch.autograd.functional.jacobian(lambda r: network.encode(r[None])[0][0], row, vectorize=True).reshape(n, n)
        torch.testing.assert_close(log_det, jacobian.det().abs().log(), rtol=1e-5, atol=1e-5)


def test_what_is_kept_is_kept():
    layer, x = flow((4,)).layers[0], torch.randn(3, 4)
    y, _ = layer(x)
    kept = layer.mask.bool()
    assert torch.equal(y[:, kept], x[:, kept]) and not torch.isclose(y[:, ~kept], x[:, ~kept]).any()


def test_half_of_the_numbers_are_done_at_each_scale():
    """What is done at a scale stays as it is whatever the later ones say, and all colours go on to them."""
    network = flow((3, 8, 8), steps=1, scales=3)
    assert network.sizes == [(6, 4, 4), (12, 2, 2), (12, 2, 2)] and network.shape == (192,)
    first, second, last = network.encode(torch.randn(2, 3, 8, 8))[0].split([96, 48, 48], dim=1)
    noise = torch.randn(2, 48)
    x, other = (network.decode(torch.cat([first, second, z], 1)) for z in (last, noise))
    assert (x - other).abs().mean((0, 2, 3)).min() > 1e-3                   # every channel hears of the last scale
    torch.testing.assert_close(network.encode(other)[0], torch.cat([first, second, noise], 1), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("shape", "scales", "complaint"), [
    ((1, 8, 8), 4, "4 scales need images with sides that are multiples of 8 and at least 16 pixels, got 8×8; choose at most 3"),
    ((3, 6, 12), 3, "multiples of 4 and at least 8 pixels, got 12×6; choose at most 2"),
    ((1, 7, 28), 2, "got 28×7; choose at most 1"),
])
def test_sizes_that_cannot_be_halved(shape, scales, complaint):
    with pytest.raises(UsageError, match=complaint):
        flow(shape, scales=scales)


@pytest.mark.parametrize(("size", "scales"), [(8, 3), (28, 3), (7, 1), (10, 2), (2, 1), (32, 3)])
def test_as_many_scales_as_the_images_allow(size, scales):
    network = of_images((1, size, size), None, None, 4, 2)
    assert len(network.scales) == scales
    x = torch.randn(2, 1, size, size)
    torch.testing.assert_close(network.decode(network.encode(x)[0]), x, atol=1e-4, rtol=0)


def test_own_folder_of_colour_images(here):
    """Images in colour whose size can be halved once; no channel but the two that vary is drawn bright."""
    from PIL import Image
    torch.manual_seed(0)
    for name, colour in {"red": (200, 30, 30), "blue": (20, 40, 220)}.items():
        (here / "own" / name).mkdir(parents=True)
        for i in range(30):
            pixels = torch.tensor(colour) + torch.randint(-15, 16, (10, 10, 3))
            Image.fromarray(pixels.to(torch.uint8).numpy()).save(here / "own" / name / f"{i}.png")
    run = didact.train(RECIPES["realnvp"], data="own", epochs=15, couplings=2, hidden=16, batch=16, lr=5e-3)
    assert run.facts["test"]["bits_per_dim"] < 2.5              # pixels alike cost 4
    x = draw(run, 40)
    assert x.shape == (40, 3, 10, 10) and (x[:, 1].mean() < x[:, [0, 2]].mean() - 0.1)       # nothing is green


def test_density_integrates_to_one():
    objective = Flow(flow((2,)), torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    side = torch.linspace(-12, 12, 400)
    x = torch.cartesian_prod(1 + 0.5 * side, -2 + 3 * side)
    cell = 0.5 * 3 * (24 / 399) ** 2
    assert objective.log_p(x).exp().sum().item() * cell == pytest.approx(1, abs=0.01)


def test_images_cost_their_levels_when_nothing_is_known():
    """An even density over v costs log₂ L bits a dimension; the logit's own density is the correction."""
    objective = ImageFlow(flow((1, 4, 4)), (1, 4, 4), levels=8)
    x, u = torch.randint(0, 8, (5, 1, 4, 4)) / 7, torch.rand(5, 1, 4, 4)
    v = ((7 * x).round() + u) / 8
    w = (0.05 + 0.9 * v).double().requires_grad_()
    (slope,) = torch.autograd.grad(w.logit().sum(), w)
    objective.network.forward = lambda y: -(0.9 * slope).log().flatten(1).sum(1)   # exactly undoes the change of variables
    torch.testing.assert_close(objective.bits(x.double(), u.double()), torch.full((5,), log(8, 2), dtype=torch.double))


def test_moons_are_learned(here):
    run = didact.train(RECIPES["realnvp"], epochs=4)
    assert run.facts["test"]["log_likelihood"] > -1.85          # one Gaussian, fitted to the training points, gives −1.99, the truth −1.43
    kept = run.load("gallery")
    assert kept["density"].shape == (1, 2, 1, 96, 96)
    low, high = kept["density ends"]
    assert ((kept["real rows"] > low) & (kept["real rows"] < high)).all(1).float().mean() > 0.9
    shown = page.write(run).read_text(encoding="utf-8")
    assert shown.count(">x1<") >= 5 and ">Density<" in shown and ">Drawn from it<" in shown and 'alt="density"' not in shown


@pytest.mark.parametrize("network", ["plain", "multiscale"])
def test_images_are_learned_and_drawn(network, here):
    run = didact.train(RECIPES["realnvp"], data="digits", network=network, epochs=1, couplings=2, hidden=16, lr=3e-3)
    assert run.facts["test"]["bits_per_dim"] < 3.6              # pixels alike cost 4
    assert run.load("gallery")["interpolation"].shape == (4, 8, 1, 8, 8)
    objective, _ = restored(run)
    a, b = (objective.sample(50, torch.Generator().manual_seed(0), temperature=t) for t in (1.0, 0.0))
    assert a.var(0).mean() > 0.01 and b.var(0).max() == 0       # without noise, one image
    torch.testing.assert_close((15 * a).round(), 15 * a)        # on their levels
    with pytest.raises(UsageError, match="not told the classes"):
        ImageFlow(flow((1, 4, 4)), (1, 4, 4)).sample(1, torch.Generator(), label=1)


@pytest.mark.slow
def test_digits_with_all_defaults(here):
    assert didact.train(RECIPES["realnvp"], data="digits").facts["test"]["bits_per_dim"] < 2.06    # each pixel by itself gives 2.37


def test_a_flow_of_one_number_is_a_mixture_of_logistics():
    """Its density is that of torch's own mixture, it integrates to one, and the way back is exact."""
    torch.manual_seed(0)
    network = MonotoneFlow(components=3).double()
    for p in network.parameters():
        torch.nn.init.normal_(p)
    x = torch.linspace(-30, 30, 20_001, dtype=torch.double)[:, None]
    base = torch.distributions.TransformedDistribution(
        torch.distributions.Uniform(torch.zeros(3).double(), torch.ones(3).double()),
        [torch.distributions.SigmoidTransform().inv, torch.distributions.AffineTransform(network.mu, network.log_s.exp())],
    )
    reference = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=network.weight), base, validate_args=False)
    inside = x.abs()[:, 0] < 8
    torch.testing.assert_close(network(x)[inside], reference.log_prob(x[:, 0])[inside], atol=1e-8, rtol=1e-6)
    assert float(torch.trapezoid(network(x).exp(), x[:, 0]).detach()) == pytest.approx(1, abs=1e-6)
    near = torch.randn(200, 1, dtype=torch.double)
    z, log_det = network.encode(near)
    torch.testing.assert_close(network.decode(z), near, atol=1e-6, rtol=0)
    slope = torch.autograd.functional.jacobian(lambda r: network.encode(r)[0][:, 0].sum(), near)[:, 0]
    torch.testing.assert_close(log_det, slope.log(), atol=1e-5, rtol=1e-5)
