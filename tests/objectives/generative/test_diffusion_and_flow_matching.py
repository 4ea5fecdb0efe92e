"""Diffusion and flow matching: noise schedules, losses, classifier-free guidance; diffusers where it is installed."""

import math

import pytest
import torch

from didact.errors import UsageError
from didact.layers.timestep_embedding import timestep_features
from didact.models.generative.diffusion_unet import DiffusionUNet, SpatialAttention
from didact.objectives.generative.diffusion import DiffusionObjective
from didact.objectives.generative.flow_matching import FlowMatchingObjective
from didact.objectives.generative.noise_schedule import (
    PREDICTION_TARGETS,
    TO_X0_AND_EPS,
    NoiseSchedule,
    linear_betas,
)
from didact.samplers.ddim import SamplingConfig, classifier_free_guidance, make_noise_source


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("T", [50, 1000])
def test_noise_schedule_marginal_matches_the_chain(schedule, T):
    noise_schedule = NoiseSchedule(T, schedule)
    mean_scale, variance = 1.0, 0.0
    for t in range(1, T + 1):
        b = float(noise_schedule.beta[t])
        mean_scale, variance = math.sqrt(1 - b) * mean_scale, (1 - b) * variance + b
        a, sigma = noise_schedule.coefficients(torch.tensor([t]))
        assert a.item() == pytest.approx(mean_scale, abs=1e-5) and sigma.item() ** 2 == pytest.approx(
            variance, abs=1e-5
        )
    assert (
        (noise_schedule.alpha_bar.diff() < 0).all()
        and noise_schedule.alpha_bar[0] == 1
        and noise_schedule.alpha_bar[-1] < 1e-3
    )


def test_linear_betas_match_the_courses():
    noise_schedule = NoiseSchedule(1000)
    assert noise_schedule.beta[1].item() == pytest.approx(1e-4) and noise_schedule.beta[-1].item() == pytest.approx(
        0.02
    )
    # both end in noise
    assert noise_schedule.alpha_bar[-1].sqrt() < 0.01 and NoiseSchedule(200).alpha_bar[-1].sqrt() < 0.01


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("T", [1, 2, 3, 5, 20])
def test_noise_schedule_of_few_steps_ends_in_noise(schedule, T):
    assert NoiseSchedule(T, schedule).alpha_bar[-1].sqrt() < 0.04
    assert len(linear_betas(T)) == T and (T == 1 or linear_betas(T)[0].item() == pytest.approx(0.1 / T))


def test_noise_schedule_posterior_matches_the_joint_normal():
    noise_schedule, t = NoiseSchedule(20), torch.arange(2, 21)
    x0, xt = torch.randn(2, 19, 1, 1, 1, generator=seeded_generator())
    previous_alpha_bar, alpha = noise_schedule.alpha_bar[t - 1].view_as(x0), 1 - noise_schedule.beta[t].view_as(x0)
    # of x_{t−1} and x_t given x_0
    covariance = alpha.sqrt() * (1 - previous_alpha_bar)
    gain = covariance / (alpha * (1 - previous_alpha_bar) + 1 - alpha)
    mean, variance = noise_schedule.posterior(x0, xt, t)
    torch.testing.assert_close(
        mean, previous_alpha_bar.sqrt() * x0 + gain * (xt - alpha.sqrt() * previous_alpha_bar.sqrt() * x0)
    )
    torch.testing.assert_close(variance, (1 - previous_alpha_bar) - gain * covariance)


@pytest.mark.parametrize("prediction_type", ["noise", "image", "velocity"])
def test_prediction_types_convert_into_each_other(prediction_type):
    noise_schedule, t = NoiseSchedule(100, "cosine"), torch.tensor([1, 30, 60, 95])
    x0, eps = torch.randn(2, 4, 3, 5, 5, generator=seeded_generator())
    a, sigma = noise_schedule.coefficients(t)
    x0_and_eps = TO_X0_AND_EPS[prediction_type](
        PREDICTION_TARGETS[prediction_type](x0, eps, a, sigma), noise_schedule.q_sample(x0, t, eps), a, sigma
    )
    torch.testing.assert_close(x0_and_eps[0], x0, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(x0_and_eps[1], eps, rtol=1e-3, atol=1e-3)


def test_fixed_betas_leave_signal_after_200_steps():
    """log ᾱ_200 = Σ log(1 − β_t) ≈ −Σ β_t = −200 · 0.01005: √ᾱ is near e^−1.005 = 0.366. Scaled, nothing is left."""
    assert NoiseSchedule(200, "linear_fixed").alpha_bar[-1].sqrt().item() == pytest.approx(0.363, abs=2e-3)
    assert NoiseSchedule(200, "linear").alpha_bar[-1].sqrt().item() < 0.01
    torch.testing.assert_close(NoiseSchedule(1000, "linear_fixed").beta, NoiseSchedule(1000, "linear").beta)


def test_resolve_sampling_keeps_the_variance_of_the_run():
    objective = DiffusionObjective(
        make_network(), (1, 6, 6), NoiseSchedule(40), sampling=SamplingConfig(8, 1.0, variance="beta", solver_order=2)
    )
    assert objective.resolve_sampling(4, None, None) == SamplingConfig(4, 1.0, 0.0, "beta", 2)


def make_network(num_classes=0):
    torch.manual_seed(0)
    return DiffusionUNet(shape=(1, 6, 6), widths=(8, 16), time_dim=16, num_classes=num_classes)


def test_ddim_is_deterministic_and_ddpm_is_not():
    objective, noise = (
        DiffusionObjective(make_network(), (1, 6, 6), NoiseSchedule(40), sampling=SamplingConfig(8)),
        torch.randn(3, 1, 6, 6),
    )
    samples = {
        eta: [
            objective.run_sampler(noise, None, SamplingConfig(8, eta), make_noise_source(seeded_generator(k)))
            for k in (1, 2)
        ]
        for eta in (0.0, 1.0)
    }
    assert torch.equal(*samples[0.0]) and not torch.equal(*samples[1.0])
    assert torch.equal(
        objective.sample(2, seeded_generator(3)), objective.sample(2, seeded_generator(3), steps=8, eta=0.0)
    )


def test_classifier_free_guidance_matches_hand_values():
    torch.testing.assert_close(classifier_free_guidance(torch.tensor(3.0), torch.tensor(1.0), 2.0), torch.tensor(7.0))
    objective = DiffusionObjective(make_network(3), (1, 6, 6), NoiseSchedule(40), num_classes=3)
    x, y = torch.randn(2, 1, 6, 6), torch.tensor([0, 2])
    t = torch.full((2,), 0.5)
    conditional, unconditional = objective.network(x, t, y), objective.network(x, t)
    assert not torch.allclose(conditional, unconditional)
    torch.testing.assert_close(
        objective.predict(x, 0.5, y, 1.5), 2.5 * conditional - 1.5 * unconditional, rtol=1e-4, atol=1e-5
    )


class LabelEcho(torch.nn.Module):
    """A network that outputs the number of its label alone, and records the labels it was given."""

    def __init__(self, num_classes):
        super().__init__()
        self.label = torch.nn.Embedding(num_classes + 1, 1)

    def forward(self, x, t, y):
        self.seen_labels = y
        return self.label(y)[:, :, None, None].expand_as(x)


def make_objective(kind, network, **options):
    return {"diffusion": lambda: DiffusionObjective(network, (1, 6, 6), NoiseSchedule(40), **options),
            "flow": lambda: FlowMatchingObjective(network, (1, 6, 6), **options)}[kind]()


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_label_dropout_withholds_a_share_of_the_labels(kind):
    """Without labels only the last embedding, that of the null label, learns; with all of them only the classes'."""
    batch = {
        "x": torch.rand(4000, 1, 6, 6, generator=seeded_generator()),
        "y": torch.arange(4000) % 3,
        "row": torch.arange(4000),
    }
    for label_dropout, expected_learning in (
        (0.0, [True, True, True, False]),
        (1.0, [False, False, False, True]),
        (0.5, [True] * 4),
    ):
        objective = make_objective(kind, LabelEcho(3), num_classes=3, label_dropout=label_dropout)
        torch.manual_seed(0)
        objective.loss(batch)["loss"].backward()
        seen_labels = objective.network.seen_labels
        assert (objective.network.label.weight.grad[:, 0] != 0).tolist() == expected_learning
        is_kept = seen_labels != 3
        assert torch.equal(seen_labels[is_kept], batch["y"][is_kept]) and (
            ~is_kept
        ).double().mean().item() == pytest.approx(label_dropout, abs=0.03)
        for k in range(3):                                                             # the same for each class
            assert (~is_kept)[k::3].double().mean().item() == pytest.approx(label_dropout, abs=0.05)


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_label_dropout_is_off_in_evaluation(kind):
    objective = make_objective(kind, LabelEcho(3), num_classes=3, label_dropout=1.0)
    y = torch.tensor([2, 0, 1])
    with torch.no_grad():
        x = torch.rand(3, 1, 6, 6)
        objective.per_example_loss(x, y, objective.to_timestep(torch.rand(3)), torch.randn(3, 1, 6, 6))
        assert torch.equal(objective.network.seen_labels, y)
        objective.compare_samples = lambda batch: {}
        objective.evaluate_batch({"x": x, "y": y, "row": torch.arange(3)})
    assert torch.equal(objective.network.seen_labels, y)


class ZeroNetwork(torch.nn.Module):
    """The network that outputs 0."""

    def forward(self, x, t, y=None):
        return torch.zeros_like(x)


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_evaluation_gives_every_row_its_own_noise(kind):
    """The error of the output 0 is the target: the noise, for a flow the noise minus a black image of −1.

    1024 fixed noises are used in turn.
    """
    objective, row = make_objective(kind, ZeroNetwork()), torch.tensor([5, 0, 1023, 1024, 2 * 1024 + 5])
    loss = objective.evaluate_batch({"x": torch.zeros(5, 1, 6, 6), "row": row})["loss"]
    eps = torch.randn(1024, 1, 6, 6, generator=seeded_generator())[[5, 0, 1023, 0, 5]]
    torch.testing.assert_close(loss, (eps + (kind == "flow")).square().mean((1, 2, 3)))
    assert len(set(loss.tolist())) == 3


def test_diffusion_unet_learns_the_null_label_from_dropped_labels():
    """The last label embedding is that of the null label."""
    batch = {"x": torch.rand(8, 1, 6, 6, generator=seeded_generator()), "y": torch.arange(8) % 3}
    for label_dropout, expected_learning in ((0.0, [True, True, True, False]), (1.0, [False, False, False, True])):
        objective = DiffusionObjective(
            make_network(3), (1, 6, 6), NoiseSchedule(40), num_classes=3, label_dropout=label_dropout
        )
        objective.loss(batch)["loss"].backward()
        assert objective.network.label.weight.grad.abs().sum(1).gt(0).tolist() == expected_learning


def test_sampling_refuses_unsupported_options():
    objective = DiffusionObjective(make_network(), (1, 6, 6), NoiseSchedule(40))
    for options, message in (
        ({"steps": 41}, "in 1 to 40"),
        ({"guidance": 1.0}, "needs a class-conditional model"),
        ({"label": 1}, "is not class-conditional"),
    ):
        with pytest.raises(UsageError, match=message):
            objective.sample(1, seeded_generator(), **options)
    for options, message in (
        ({"eta": 0.5}, "got --steps 25, --eta 0.5"),
        ({"solver_order": 2}, "--eta 0, --solver-order 2"),
    ):
        with pytest.raises(UsageError, match=message):
            FlowMatchingObjective(make_network(), (1, 6, 6)).sample(1, seeded_generator(), **options)


def test_sample_uses_the_solver_order_of_the_run_or_of_the_call():
    objective = DiffusionObjective(
        make_network(), (1, 6, 6), NoiseSchedule(40), sampling=SamplingConfig(steps=8, solver_order=2)
    )
    default_samples, first_order_samples, second_order_samples = (
        objective.sample(2, seeded_generator(), **options) for options in ({}, {"solver_order": 1}, {"solver_order": 2})
    )
    assert torch.equal(default_samples, second_order_samples) and not torch.equal(default_samples, first_order_samples)


def test_flow_matching_follows_a_straight_flow_exactly():
    """For one image x₀ the field is (x − x₀)/t: every line ends in x₀, in however many steps."""
    objective, x0 = FlowMatchingObjective(make_network(), (1, 6, 6)), torch.full((4, 1, 6, 6), 0.3)
    objective.predict = lambda x, t, y, w: (x - x0) / max(t, 1e-6)
    *_, end = objective.reverse_process(
        torch.randn(4, 1, 6, 6), None, SamplingConfig(64), make_noise_source(seeded_generator())
    )
    torch.testing.assert_close(end, x0, rtol=0, atol=0.05)
    xt, _, target = objective.q_sample(x0, torch.full((4,), 0.25), torch.ones_like(x0))
    torch.testing.assert_close(xt, torch.full_like(x0, 0.75 * 0.3 + 0.25))
    torch.testing.assert_close(target, torch.full_like(x0, 0.7))


def test_flow_matching_re_noise_keeps_the_noise_level():
    x0, noise = torch.full((20_000,), 0.7), torch.randn(20_000, generator=seeded_generator())
    for s in (0.4, 0.8):  # at 0.8 the noise that is kept is a fifth of the variance
        renoised = FlowMatchingObjective(make_network(), (1, 6, 6)).re_noise(
            (1 - s) * x0 + s * noise, s, 0.9, make_noise_source(seeded_generator(2))
        )
        assert renoised.mean().item() == pytest.approx(0.1 * 0.7, abs=0.02) and renoised.std().item() == pytest.approx(
            0.9, rel=0.03
        )


class LogisticField(torch.nn.Module):
    """dx/dt = 4t x (1 − x), whose logit moves by ∫ 4t dt: from t = 1 to 0, logit x(0) = logit x(1) − 2."""

    def forward(self, x, t, y=None):
        return 4 * t[:, None, None, None] * x * (1 - x)


def test_flow_matching_integrates_by_heuns_rule():
    """Half the step, a quarter of the error (Euler's would be half of it); and each state by the rule in NumPy."""
    objective = FlowMatchingObjective(LogisticField(), (1, 2, 3))
    start = torch.rand(4, 1, 2, 3, generator=seeded_generator()) * 0.8 + 0.1
    exact, errors = (start.double().logit() - 2).sigmoid(), []
    for steps in (12, 24, 48):
        states = list(
            objective.reverse_process(start, None, SamplingConfig(steps), make_noise_source(seeded_generator()))
        )
        errors.append((states[-1] - exact).abs().max().item())
        x, h = start.double().numpy(), 1 / steps
        for k, state in enumerate(states):
            t = 1 - k * h
            first_slope = 4 * t * x * (1 - x)
            guess = x - h * first_slope
            x = x - h / 2 * (first_slope + 4 * (t - h) * guess * (1 - guess))
            torch.testing.assert_close(state.double(), torch.from_numpy(x), rtol=0, atol=1e-6)
    assert (
        len(states) == 48
        and errors[0] / errors[1] == pytest.approx(4, rel=0.15)
        and errors[1] / errors[2] == pytest.approx(4, rel=0.15)
    )


def test_timestep_features_match_gaba():
    """Gaba 10.8's columns, all sines first; D = 4 has the frequencies 1 and 1/100."""
    features = timestep_features(torch.tensor([0.0, 3.0]), 4)
    torch.testing.assert_close(features[1], torch.tensor([math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)]))
    assert features[0].tolist() == [0, 0, 1, 1]


def test_spatial_attention_matches_pytorch():
    torch.manual_seed(0)
    layer, reference = SpatialAttention(16), torch.nn.MultiheadAttention(16, 1, batch_first=True)
    reference.load_state_dict({
        "in_proj_weight": layer.qkv.weight.flatten(1), "in_proj_bias": layer.qkv.bias,
        "out_proj.weight": layer.out.weight.flatten(1), "out_proj.bias": layer.out.bias,
    })
    x = torch.randn(2, 16, 3, 4)
    n = layer.norm(x).flatten(2).mT
    torch.testing.assert_close(layer(x), x + reference(n, n, n)[0].mT.reshape(x.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(2, 2), (7, 9), (28, 28)])
def test_diffusion_unet_keeps_any_size(size):
    widths = (8, 16) if min(size) < 4 else (8, 16, 24)
    model = DiffusionUNet(shape=(3, *size), widths=widths, time_dim=16)
    x = torch.randn(2, 3, *size)
    assert model(x, torch.rand(2)).shape == x.shape
    assert not torch.allclose(model(x, torch.zeros(2)), model(x, torch.ones(2)))
    with pytest.raises(UsageError, match="give fewer --channels"):
        DiffusionUNet(shape=(3, *size), widths=(8,) * 8)


def test_q_sample_matches_diffusers():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    noise_schedule, reference = NoiseSchedule(1000), diffusers.DDPMScheduler(num_train_timesteps=1000)
    x0, eps = torch.randn(2, 3, 1, 4, 4, generator=seeded_generator())
    t = torch.tensor([1, 400, 1000])
    torch.testing.assert_close(
        noise_schedule.q_sample(x0, t, eps), reference.add_noise(x0, eps, t - 1), rtol=1e-4, atol=1e-4
    )
    velocity = PREDICTION_TARGETS["velocity"](x0, eps, *noise_schedule.coefficients(t))
    torch.testing.assert_close(velocity, reference.get_velocity(x0, eps, t - 1), rtol=1e-4, atol=1e-4)
