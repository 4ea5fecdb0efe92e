"""Diffusion samplers against closed forms, the course's loop, and diffusers where it is installed."""

import pytest
import torch

from didact.errors import UsageError
from didact.objectives.generative.noise_schedule import TO_X0_AND_EPS, NoiseSchedule
from didact.samplers.ddim import ddim_sample, make_noise_source, repaint_timesteps, sampling_timesteps


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_ddim_sample_with_all_steps_and_eta_one_is_ddpm():
    noise_schedule, g = NoiseSchedule(30), seeded_generator()
    x0, x = torch.randn(2, 2, 1, 4, 4, generator=g)
    states = list(
        ddim_sample(
            lambda x, t: x0,
            x,
            noise_schedule.alpha_bar.tolist(),
            sampling_timesteps(30, 30),
            eta=1.0,
            noise_source=make_noise_source(seeded_generator(5)),
        )
    )
    generator, state = seeded_generator(5), x
    for t, next_state in zip(range(30, 0, -1), states, strict=True):
        mean, variance = noise_schedule.posterior(x0, state, torch.tensor([t, t]))
        z = torch.randn(x.shape, generator=generator) if t > 1 else 0.0
        torch.testing.assert_close(next_state, mean + variance.sqrt() * z, rtol=1e-4, atol=1e-4)
        state = next_state


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_ddim_with_the_truth_stays_on_the_marginal(steps):
    noise_schedule = NoiseSchedule(50)
    x0, eps = torch.randn(2, 2, 1, 4, 4, generator=seeded_generator())
    x = noise_schedule.q_sample(x0, torch.tensor([50, 50]), eps)
    timesteps = sampling_timesteps(50, steps)
    for s, state in zip(
        timesteps[1:], ddim_sample(lambda x, t: x0, x, noise_schedule.alpha_bar.tolist(), timesteps), strict=True
    ):
        torch.testing.assert_close(state, noise_schedule.q_sample(x0, torch.tensor([s, s]), eps), rtol=1e-3, atol=1e-3)


def test_sampling_timesteps_descend_to_zero():
    assert sampling_timesteps(10, 10) == list(range(10, -1, -1)) and sampling_timesteps(1000, 4) == [
        1000,
        750,
        500,
        250,
        0,
    ]
    with pytest.raises(UsageError, match="in 1 to 10 of them, got 11"):
        sampling_timesteps(10, 11)


def sampled_scale(schedule, steps, solver_order):
    """Where 50 quantiles of noise end, for x_0 of a normal with standard deviation 1/2.

    Its best prediction is known: √ᾱ v / (ᾱ v + 1 − ᾱ) x_t.
    """
    alpha_bar, v = NoiseSchedule(1000, schedule).alpha_bar.double().tolist(), 0.25
    x = torch.special.ndtri(torch.linspace(0.01, 0.99, 50, dtype=torch.float64))
    *_, end = ddim_sample(
        lambda x, t: alpha_bar[t] ** 0.5 * v / (alpha_bar[t] * v + 1 - alpha_bar[t]) * x,
        x,
        alpha_bar,
        sampling_timesteps(1000, steps),
        solver_order=solver_order,
    )
    return end / x


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_ddim_maps_quantiles_of_noise_to_quantiles_of_data(schedule):
    """With the best prediction every deterministic sampler ends in the data's standard deviation.

    The first order falls short as 1/steps.
    """
    errors = {
        (steps, order): (1 - sampled_scale(schedule, steps, order) / 0.5).max().item()
        for steps in (25, 50, 100)
        for order in (1, 2)
    }
    assert (
        0.03 < errors[50, 1] < 0.06
        and errors[25, 1] / errors[50, 1] == pytest.approx(2, rel=0.15) == errors[50, 1] / errors[100, 1]
    )
    assert abs(errors[50, 2]) < 0.1 * errors[50, 1] and abs(errors[100, 2]) < 0.1 * errors[100, 1]


def test_second_order_is_ignored_where_noise_is_drawn():
    noise_schedule, x = NoiseSchedule(50), torch.randn(2, 1, 4, 4, generator=seeded_generator())
    results = [
        list(
            ddim_sample(
                lambda x, t: x.tanh(),
                x,
                noise_schedule.alpha_bar.tolist(),
                sampling_timesteps(50, 10),
                eta=1.0,
                solver_order=order,
                noise_source=make_noise_source(seeded_generator(1)),
            )
        )
        for order in (1, 2)
    ]
    assert torch.equal(results[0][-1], results[1][-1])
    timesteps = [50, 20, 50, 20]  # after new noise, the prediction before it is not used
    repeated_results = [
        list(
            ddim_sample(
                lambda x, t: x.tanh(),
                x,
                noise_schedule.alpha_bar.tolist(),
                timesteps,
                solver_order=order,
                noise_source=make_noise_source(seeded_generator(1)),
            )
        )
        for order in (1, 2)
    ]
    assert torch.equal(repeated_results[0][-1], repeated_results[1][-1])


def test_repaint_resampling_keeps_the_noise_level():
    assert repaint_timesteps([9, 4, 0], 3) == [9, 4, 9, 4, 9, 4, 0, 4, 0, 4, 0] and repaint_timesteps([9, 4, 0], 1) == [
        9,
        4,
        0,
    ]
    noise_schedule, x0 = NoiseSchedule(50), torch.full((20_000,), 0.7)
    noise, alpha_bar = torch.randn(20_000, generator=seeded_generator()), noise_schedule.alpha_bar.tolist()
    *_, x = ddim_sample(
        lambda x, t: x0, noise, alpha_bar, [50, 20, 30, 10], noise_source=make_noise_source(seeded_generator(1))
    )
    a, sigma = (v.item() for v in noise_schedule.coefficients(torch.tensor([10])))
    assert x.mean().item() == pytest.approx(0.7 * a, abs=0.02) and x.std().item() == pytest.approx(sigma, rel=0.03)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_beta_variance_matches_the_sampling_loop_of_the_course(schedule):
    """x ← (x − β/√(1 − ᾱ) ε)/√α + √β z, and no z at the end, for a network ε = √(1 − ᾱ) x + 0.1.  Gaba 10.8."""
    noise_schedule, x = NoiseSchedule(30, schedule), torch.randn(5, generator=seeded_generator())
    beta, alpha_bar = noise_schedule.beta.double(), noise_schedule.alpha_bar.double()
    g, expected = seeded_generator(7), x
    for t in range(30, 0, -1):
        eps = (1 - alpha_bar[t]).sqrt() * expected + 0.1
        expected = (expected - beta[t] / (1 - alpha_bar[t]).sqrt() * eps) / (1 - beta[t]).sqrt()
        if t > 1:
            expected = expected + beta[t].sqrt() * torch.randn(5, generator=g)

    def predict_x0(x, t):
        return (x - (1 - alpha_bar[t]).sqrt() * ((1 - alpha_bar[t]).sqrt() * x + 0.1)) / alpha_bar[t].sqrt()

    *_, sampled = ddim_sample(
        predict_x0,
        x,
        noise_schedule.alpha_bar.tolist(),
        sampling_timesteps(30, 30),
        eta=1.0,
        variance="beta",
        noise_source=make_noise_source(seeded_generator(7)),
    )
    torch.testing.assert_close(sampled, expected, rtol=1e-3, atol=1e-3)
    *_, posterior = ddim_sample(
        predict_x0,
        x,
        noise_schedule.alpha_bar.tolist(),
        sampling_timesteps(30, 30),
        eta=1.0,
        noise_source=make_noise_source(seeded_generator(7)),
    )
    assert not torch.allclose(posterior, sampled, rtol=1e-2, atol=1e-2)
    deterministic_samples = [
        list(ddim_sample(predict_x0, x, noise_schedule.alpha_bar.tolist(), sampling_timesteps(30, 6), variance=v))[-1]
        for v in ("posterior", "beta")
    ]
    assert torch.equal(*deterministic_samples), "DDIM is deterministic, whatever the variance"


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_noise_schedule_and_ddim_match_diffusers(schedule):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    options = {
        "num_train_timesteps": 1000,
        "beta_schedule": {"linear": "linear", "cosine": "squaredcos_cap_v2"}[schedule],
    }
    reference, noise_schedule = (
        diffusers.DDIMScheduler(**options, clip_sample=False, set_alpha_to_one=True),
        NoiseSchedule(1000, schedule),
    )
    torch.testing.assert_close(noise_schedule.alpha_bar[1:], reference.alphas_cumprod, rtol=1e-3, atol=1e-5)
    reference.set_timesteps(1000)
    x, eps = torch.randn(2, 2, 1, 4, 4, generator=seeded_generator())
    for t in (1, 400, 900):
        a, sigma = noise_schedule.alpha_bar[t] ** 0.5, (1 - noise_schedule.alpha_bar[t]) ** 0.5
        (actual,) = ddim_sample(
            lambda x, t, a=a, sigma=sigma: (x - sigma * eps) / a, x, noise_schedule.alpha_bar.tolist(), (t, t - 1)
        )
        torch.testing.assert_close(actual, reference.step(eps, t - 1, x).prev_sample, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("prediction_type", ["epsilon", "sample", "v_prediction"])
def test_ddim_jumps_match_diffusers(prediction_type):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    reference = diffusers.DDIMScheduler(
        num_train_timesteps=1000,
        beta_schedule="linear",
        prediction_type=prediction_type,
        clip_sample=True,
        timestep_spacing="trailing",
    )
    reference.set_timesteps(20)
    assert [t - 1 for t in sampling_timesteps(1000, 20)[:-1]] == reference.timesteps.tolist()  # they count from 0
    noise_schedule, name = (
        NoiseSchedule(1000),
        {"epsilon": "noise", "sample": "image", "v_prediction": "velocity"}[prediction_type],
    )
    x, out = torch.randn(2, 2, 1, 4, 4, generator=seeded_generator())
    for eta in (0.0, 0.7):
        for t in (900, 500, 100):
            a, sigma = noise_schedule.alpha_bar[t] ** 0.5, (1 - noise_schedule.alpha_bar[t]) ** 0.5
            x0 = TO_X0_AND_EPS[name](out, x, a, sigma)[0].clamp(-1, 1)
            (actual,) = ddim_sample(
                lambda x, t, x0=x0: x0,
                x,
                noise_schedule.alpha_bar.tolist(),
                (t, t - 50),
                eta=eta,
                noise_source=make_noise_source(seeded_generator(4)),
            )
            noise = torch.randn(x.shape, generator=seeded_generator(4))
            expected = reference.step(
                out, t - 1, x, eta=eta, use_clipped_model_output=True, variance_noise=noise
            ).prev_sample
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [8, 50])
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")      # theirs, with numpy 2
def test_second_order_steps_match_diffusers(schedule, steps):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    reference = diffusers.DPMSolverMultistepScheduler(
        num_train_timesteps=1000, beta_schedule={"linear": "linear", "cosine": "squaredcos_cap_v2"}[schedule],
        algorithm_type="dpmsolver++", solver_order=2, prediction_type="sample", timestep_spacing="trailing",
    )
    reference.set_timesteps(steps)
    alpha_bar, x = (
        NoiseSchedule(1000, schedule).alpha_bar.tolist(),
        torch.randn(3, 1, 4, 5, generator=seeded_generator(), dtype=torch.float64),
    )

    def predict_x0(x, t):
        return torch.tanh(alpha_bar[t] ** 0.5 * x + 0.3 * t / 1000)

    *_, actual = ddim_sample(predict_x0, x, alpha_bar, sampling_timesteps(1000, steps), solver_order=2)
    for t in reference.timesteps:
        x = reference.step(predict_x0(x, int(t) + 1), t, x).prev_sample
    torch.testing.assert_close(actual, x, rtol=0, atol=1e-5)
