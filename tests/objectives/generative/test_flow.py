"""Normalizing flows: the inverse is exact, log-determinants are the Jacobian's, and a density integrates to one."""

from math import log

import pytest
import torch

import didact
from didact.errors import UsageError
from didact.inference.sample_images import sample_images
from didact.models.generative.realnvp import MonotoneFlow, MultiScaleRealNVP, RealNVP
from didact.objectives.generative.flow import FlowObjective, ImageFlowObjective
from didact.recipes.realnvp import make_image_flow
from didact.registry import RECIPES
from didact.report import page
from didact.training.restore import load_model


def make_flow(shape, num_couplings=4, scales=0):
    torch.manual_seed(0)
    keywords = {"shape": shape, "hidden": 16, "num_couplings": num_couplings}
    return MultiScaleRealNVP(**keywords, num_scales=scales) if scales else RealNVP(**keywords)


MULTISCALE_CASES = [((1, 4, 6), 2), ((3, 8, 8), 3), ((1, 5, 7), 1), ((2, 8, 12), 2)]


@pytest.mark.parametrize(
    ("shape", "scales"), [((2,), 0), ((5,), 0), ((1, 4, 6), 0), ((3, 8, 8), 0), ((1, 5, 7), 0), *MULTISCALE_CASES]
)
def test_flow_decode_inverts_encode(shape, scales):
    network, x = make_flow(shape, scales=scales), 2 * torch.randn(7, *shape)
    z, _ = network.encode(x)
    assert z.shape[1:] == network.shape and not torch.allclose(z.flatten(1), x.flatten(1), atol=0.1)
    torch.testing.assert_close(network.decode(z), x, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("shape", "scales"), [((2,), 0), ((5,), 0), ((1, 4, 6), 0), ((1, 5, 3), 0), *MULTISCALE_CASES])
def test_flow_log_determinant_matches_the_jacobian(shape, scales):
    network, x = make_flow(shape, scales=scales).double(), torch.randn(3, *shape, dtype=torch.double)
    _, log_dets = network.encode(x)
    for row, log_det in zip(x, log_dets, strict=True):
        n = row.numel()
        jacobian = torch.autograd.functional.jacobian(
            lambda r: network.encode(r[None])[0][0], row, vectorize=True
        ).reshape(n, n)
        torch.testing.assert_close(log_det, jacobian.det().abs().log(), rtol=1e-5, atol=1e-5)


def test_affine_coupling_leaves_masked_inputs_unchanged():
    layer, x = make_flow((4,)).layers[0], torch.randn(3, 4)
    y, _ = layer(x)
    is_masked = layer.mask.bool()
    assert torch.equal(y[:, is_masked], x[:, is_masked]) and not torch.isclose(y[:, ~is_masked], x[:, ~is_masked]).any()


def test_multi_scale_realnvp_factors_out_half_at_each_scale():
    """What is factored out at a scale does not depend on later scales, and all color channels go on to them."""
    network = make_flow((3, 8, 8), num_couplings=1, scales=3)
    assert network.sizes == [(6, 4, 4), (12, 2, 2), (12, 2, 2)] and network.shape == (192,)
    first_code, second_code, last_code = network.encode(torch.randn(2, 3, 8, 8))[0].split([96, 48, 48], dim=1)
    noise = torch.randn(2, 48)
    x, changed_images = (network.decode(torch.cat([first_code, second_code, z], 1)) for z in (last_code, noise))
    # every channel depends on the last scale
    assert (x - changed_images).abs().mean((0, 2, 3)).min() > 1e-3
    torch.testing.assert_close(
        network.encode(changed_images)[0], torch.cat([first_code, second_code, noise], 1), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("shape", "scales", "message"),
    [
        (
            (1, 8, 8),
            4,
            "4 scales need images with sides that are multiples of 8 and at least 16 pixels, got 8×8; choose at most 3",
        ),
        ((3, 6, 12), 3, "multiples of 4 and at least 8 pixels, got 12×6; choose at most 2"),
        ((1, 7, 28), 2, "got 28×7; choose at most 1"),
    ],
)
def test_multi_scale_realnvp_refuses_indivisible_sizes(shape, scales, message):
    with pytest.raises(UsageError, match=message):
        make_flow(shape, scales=scales)


@pytest.mark.parametrize(("size", "scales"), [(8, 3), (28, 3), (7, 1), (10, 2), (2, 1), (32, 3)])
def test_make_image_flow_uses_as_many_scales_as_the_images_allow(size, scales):
    network = make_image_flow((1, size, size), None, None, 4, 2)
    assert len(network.scales) == scales
    x = torch.randn(2, 1, size, size)
    torch.testing.assert_close(network.decode(network.encode(x)[0]), x, atol=1e-4, rtol=0)


def test_realnvp_trains_on_a_folder_of_color_images(workdir):
    """Color images whose size can be halved once; only the two channels that vary are bright in samples."""
    from PIL import Image
    torch.manual_seed(0)
    for name, color in {"red": (200, 30, 30), "blue": (20, 40, 220)}.items():
        (workdir / "own" / name).mkdir(parents=True)
        for i in range(30):
            pixels = torch.tensor(color) + torch.randint(-15, 16, (10, 10, 3))
            Image.fromarray(pixels.to(torch.uint8).numpy()).save(workdir / "own" / name / f"{i}.png")
    run = didact.train(RECIPES["realnvp"], data="own", epochs=15, num_couplings=2, hidden=16, batch_size=16, lr=5e-3)
    assert run.metadata["test"]["bits_per_dim"] < 2.5              # uniform pixels cost 4
    x = sample_images(run, 40)
    assert x.shape == (40, 3, 10, 10) and (x[:, 1].mean() < x[:, [0, 2]].mean() - 0.1)       # nothing is green


def test_flow_density_integrates_to_one():
    objective = FlowObjective(make_flow((2,)), torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    side = torch.linspace(-12, 12, 400)
    x = torch.cartesian_prod(1 + 0.5 * side, -2 + 3 * side)
    cell = 0.5 * 3 * (24 / 399) ** 2
    assert objective.log_p(x).exp().sum().item() * cell == pytest.approx(1, abs=0.01)


def test_image_flow_bits_of_a_uniform_density_are_log2_levels():
    """A uniform density over v costs log₂ L bits per dimension; the logit's density is the correction."""
    objective = ImageFlowObjective(make_flow((1, 4, 4)), (1, 4, 4), levels=8)
    x, u = torch.randint(0, 8, (5, 1, 4, 4)) / 7, torch.rand(5, 1, 4, 4)
    v = ((7 * x).round() + u) / 8
    w = (0.05 + 0.9 * v).double().requires_grad_()
    (slope,) = torch.autograd.grad(w.logit().sum(), w)
    # exactly undoes the change of variables
    objective.network.forward = lambda y: -(0.9 * slope).log().flatten(1).sum(1)
    torch.testing.assert_close(
        objective.compute_bits(x.double(), u.double()), torch.full((5,), log(8, 2), dtype=torch.double)
    )


def test_realnvp_learns_moons(workdir):
    run = didact.train(RECIPES["realnvp"], epochs=4)
    # one Gaussian, fitted to the training points, gives −1.99, the truth −1.43
    assert run.metadata["test"]["log_likelihood"] > -1.85
    gallery = run.load("gallery")
    assert gallery["density"].shape == (1, 2, 1, 96, 96)
    low, high = gallery["density limits"]
    assert ((gallery["real rows"] > low) & (gallery["real rows"] < high)).all(1).float().mean() > 0.9
    html = page.write_report(run).read_text(encoding="utf-8")
    assert html.count(">x1<") >= 5 and ">Density<" in html and ">Samples<" in html and 'alt="density"' not in html


@pytest.mark.parametrize("network", ["plain", "multiscale"])
def test_realnvp_learns_and_samples_digits(network, workdir):
    run = didact.train(
        RECIPES["realnvp"], data="digits", network=network, epochs=1, num_couplings=2, hidden=16, lr=3e-3
    )
    assert run.metadata["test"]["bits_per_dim"] < 3.6              # uniform pixels cost 4
    assert run.load("gallery")["interpolation"].shape == (4, 8, 1, 8, 8)
    objective, _ = load_model(run)
    a, b = (objective.sample(50, torch.Generator().manual_seed(0), temperature=t) for t in (1.0, 0.0))
    assert a.var(0).mean() > 0.01 and b.var(0).max() == 0       # without noise, one image
    torch.testing.assert_close((15 * a).round(), 15 * a)        # on their levels
    with pytest.raises(UsageError, match="is not class-conditional"):
        ImageFlowObjective(make_flow((1, 4, 4)), (1, 4, 4)).sample(1, torch.Generator(), label=1)


@pytest.mark.slow
def test_realnvp_on_digits_with_all_defaults(workdir):
    # independent pixels give 2.37
    assert didact.train(RECIPES["realnvp"], data="digits").metadata["test"]["bits_per_dim"] < 2.06


def test_monotone_flow_is_a_mixture_of_logistics():
    """Its density is that of torch's own mixture and integrates to one, and the inverse is exact."""
    torch.manual_seed(0)
    network = MonotoneFlow(components=3).double()
    for p in network.parameters():
        torch.nn.init.normal_(p)
    x = torch.linspace(-30, 30, 20_001, dtype=torch.double)[:, None]
    base = torch.distributions.TransformedDistribution(
        torch.distributions.Uniform(torch.zeros(3).double(), torch.ones(3).double()),
        [
            torch.distributions.SigmoidTransform().inv,
            torch.distributions.AffineTransform(network.mu, network.log_s.exp()),
        ],
    )
    reference = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=network.weight), base, validate_args=False
    )
    is_inside = x.abs()[:, 0] < 8
    torch.testing.assert_close(network(x)[is_inside], reference.log_prob(x[:, 0])[is_inside], atol=1e-8, rtol=1e-6)
    assert float(torch.trapezoid(network(x).exp(), x[:, 0]).detach()) == pytest.approx(1, abs=1e-6)
    points = torch.randn(200, 1, dtype=torch.double)
    z, log_det = network.encode(points)
    torch.testing.assert_close(network.decode(z), points, atol=1e-6, rtol=0)
    slope = torch.autograd.functional.jacobian(lambda r: network.encode(r)[0][:, 0].sum(), points)[:, 0]
    torch.testing.assert_close(log_det, slope.log(), atol=1e-5, rtol=1e-5)
