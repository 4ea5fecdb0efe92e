"""The way into noise and back, against the chain, against conditioning a joint normal, and against diffusers where installed."""

import math

import pytest
import torch

from didact.errors import UsageError
from didact.layers.time import time_features
from didact.models.denoise_unet import DenoiseUNet, PixelAttention
from didact.objectives.diffusion import Diffusion, Way, guided
from didact.objectives.flow_matching import FlowMatching
from didact.objectives.noising import SOLVED, TARGETS, Noising, drawn_from, hesitant, linear, moments, way_back


def seeded(k=0):
    return torch.Generator().manual_seed(k)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("T", [50, 1000])
def test_marginal_is_the_chains(schedule, T):
    noising = Noising(T, schedule)
    kept, variance = 1.0, 0.0
    for t in range(1, T + 1):
        b = float(noising.beta[t])
        kept, variance = math.sqrt(1 - b) * kept, (1 - b) * variance + b
        a, sigma = noising.at(torch.tensor([t]))
        assert a.item() == pytest.approx(kept, abs=1e-5) and sigma.item() ** 2 == pytest.approx(variance, abs=1e-5)
    assert (noising.alpha_bar.diff() < 0).all() and noising.alpha_bar[0] == 1 and noising.alpha_bar[-1] < 1e-3


def test_linear_betas_are_the_courses():
    noising = Noising(1000)
    assert noising.beta[1].item() == pytest.approx(1e-4) and noising.beta[-1].item() == pytest.approx(0.02)
    assert noising.alpha_bar[-1].sqrt() < 0.01 and Noising(200).alpha_bar[-1].sqrt() < 0.01       # both end in noise


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("T", [1, 2, 3, 5, 20])
def test_however_few_steps_end_in_noise(schedule, T):
    assert Noising(T, schedule).alpha_bar[-1].sqrt() < 0.04
    assert len(linear(T)) == T and (T == 1 or linear(T)[0].item() == pytest.approx(0.1 / T))


def test_posterior_is_the_joint_normals():
    noising, t = Noising(20), torch.arange(2, 21)
    x0, xt = torch.randn(2, 19, 1, 1, 1, generator=seeded())
    before, alpha = noising.alpha_bar[t - 1].view_as(x0), 1 - noising.beta[t].view_as(x0)
    covariance = alpha.sqrt() * (1 - before)                                   # of x_{t−1} and x_t given x_0
    gain = covariance / (alpha * (1 - before) + 1 - alpha)
    mean, variance = noising.posterior(x0, xt, t)
    torch.testing.assert_close(mean, before.sqrt() * x0 + gain * (xt - alpha.sqrt() * before.sqrt() * x0))
    torch.testing.assert_close(variance, (1 - before) - gain * covariance)


@pytest.mark.parametrize("predict", ["noise", "image", "velocity"])
def test_each_prediction_tells_the_others(predict):
    noising, t = Noising(100, "cosine"), torch.tensor([1, 30, 60, 95])
    x0, eps = torch.randn(2, 4, 3, 5, 5, generator=seeded())
    a, sigma = noising.at(t)
    found = SOLVED[predict](TARGETS[predict](x0, eps, a, sigma), noising.noised(x0, t, eps), a, sigma)
    torch.testing.assert_close(found[0], x0, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[1], eps, rtol=1e-3, atol=1e-3)


def test_all_steps_with_eta_one_are_ddpm():
    noising, g = Noising(30), seeded()
    x0, x = torch.randn(2, 2, 1, 4, 4, generator=g)
    got = list(way_back(lambda x, t: x0, x, noising.alpha_bar.tolist(), moments(30, 30), eta=1.0, fresh=drawn_from(seeded(5))))
    draws, before = seeded(5), x
    for t, after in zip(range(30, 0, -1), got, strict=True):
        mean, variance = noising.posterior(x0, before, torch.tensor([t, t]))
        z = torch.randn(x.shape, generator=draws) if t > 1 else 0.0
        torch.testing.assert_close(after, mean + variance.sqrt() * z, rtol=1e-4, atol=1e-4)
        before = after


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_ddim_with_the_truth_stays_on_the_marginal(steps):
    noising = Noising(50)
    x0, eps = torch.randn(2, 2, 1, 4, 4, generator=seeded())
    x = noising.noised(x0, torch.tensor([50, 50]), eps)
    times = moments(50, steps)
    for s, state in zip(times[1:], way_back(lambda x, t: x0, x, noising.alpha_bar.tolist(), times), strict=True):
        torch.testing.assert_close(state, noising.noised(x0, torch.tensor([s, s]), eps), rtol=1e-3, atol=1e-3)


def test_moments_go_down_to_zero():
    assert moments(10, 10) == list(range(10, -1, -1)) and moments(1000, 4) == [1000, 750, 500, 250, 0]
    with pytest.raises(UsageError, match="in 1 to 10 of them, got 11"):
        moments(10, 11)


def ends(schedule, steps, order):
    """Where 50 quantiles of noise end, for x_0 of a normal with deviation 1/2, whose best guess is known: √ᾱ v / (ᾱ v + 1 − ᾱ) x_t."""
    kept, v = Noising(1000, schedule).alpha_bar.double().tolist(), 0.25
    x = torch.special.ndtri(torch.linspace(0.01, 0.99, 50, dtype=torch.float64))
    *_, end = way_back(lambda x, t: kept[t] ** 0.5 * v / (kept[t] * v + 1 - kept[t]) * x, x, kept, moments(1000, steps), order=order)
    return end / x


def test_betas_of_a_thousand_steps_leave_an_image_in_sight_after_two_hundred():
    """log ᾱ_200 = Σ log(1 − β_t) ≈ −Σ β_t = −200 · 0.01005: √ᾱ is near e^−1.005 = 0.366. In proportion, as with 1000, nothing is left."""
    assert Noising(200, "linear_fixed").alpha_bar[-1].sqrt().item() == pytest.approx(0.363, abs=2e-3)
    assert Noising(200, "linear").alpha_bar[-1].sqrt().item() < 0.01
    torch.testing.assert_close(Noising(1000, "linear_fixed").beta, Noising(1000, "linear").beta)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_quantiles_of_noise_become_those_of_the_data(schedule):
    """With the best guess every way without new noise ends in the data's own deviation; the first order falls short as 1/steps."""
    lost = {(steps, order): (1 - ends(schedule, steps, order) / 0.5).max().item() for steps in (25, 50, 100) for order in (1, 2)}
    assert 0.03 < lost[50, 1] < 0.06 and lost[25, 1] / lost[50, 1] == pytest.approx(2, rel=0.15) == lost[50, 1] / lost[100, 1]
    assert abs(lost[50, 2]) < 0.1 * lost[50, 1] and abs(lost[100, 2]) < 0.1 * lost[100, 1]


def test_where_noise_is_drawn_there_is_no_second_order():
    noising, x = Noising(50), torch.randn(2, 1, 4, 4, generator=seeded())
    found = [list(way_back(lambda x, t: x.tanh(), x, noising.alpha_bar.tolist(), moments(50, 10), eta=1.0, order=order,
                           fresh=drawn_from(seeded(1)))) for order in (1, 2)]
    assert torch.equal(found[0][-1], found[1][-1])
    times = [50, 20, 50, 20]                      # back in the noise, a guess from before it says nothing
    again = [list(way_back(lambda x, t: x.tanh(), x, noising.alpha_bar.tolist(), times, order=order, fresh=drawn_from(seeded(1))))
             for order in (1, 2)]
    assert torch.equal(again[0][-1], again[1][-1])


def test_a_step_taken_again_comes_from_as_much_noise():
    assert hesitant([9, 4, 0], 3) == [9, 4, 9, 4, 9, 4, 0, 4, 0, 4, 0] and hesitant([9, 4, 0], 1) == [9, 4, 0]
    noising, x0 = Noising(50), torch.full((20_000,), 0.7)
    noise, kept = torch.randn(20_000, generator=seeded()), noising.alpha_bar.tolist()
    *_, x = way_back(lambda x, t: x0, noise, kept, [50, 20, 30, 10], fresh=drawn_from(seeded(1)))
    a, sigma = (v.item() for v in noising.at(torch.tensor([10])))
    assert x.mean().item() == pytest.approx(0.7 * a, abs=0.02) and x.std().item() == pytest.approx(sigma, rel=0.03)
    for s in (0.4, 0.8):                          # at 0.8 the noise that is kept is a fifth of the variance
        line = FlowMatching(network(), (1, 6, 6)).noised_again((1 - s) * x0 + s * noise, s, 0.9, drawn_from(seeded(2)))
        assert line.mean().item() == pytest.approx(0.1 * 0.7, abs=0.02) and line.std().item() == pytest.approx(0.9, rel=0.03)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_beta_as_variance_is_the_loop_of_the_course(schedule):
    """x ← (x − β/√(1 − ᾱ) ε)/√α + √β z, and no z at the end, for a network ε = √(1 − ᾱ) x + 0.1.  Gaba 10.8."""
    noising, x = Noising(30, schedule), torch.randn(5, generator=seeded())
    beta, kept = noising.beta.double(), noising.alpha_bar.double()
    g, ours = seeded(7), x
    for t in range(30, 0, -1):
        eps = (1 - kept[t]).sqrt() * ours + 0.1
        ours = (ours - beta[t] / (1 - kept[t]).sqrt() * eps) / (1 - beta[t]).sqrt()
        if t > 1:
            ours = ours + beta[t].sqrt() * torch.randn(5, generator=g)

    def clean(x, t):
        return (x - (1 - kept[t]).sqrt() * ((1 - kept[t]).sqrt() * x + 0.1)) / kept[t].sqrt()

    *_, theirs = way_back(clean, x, noising.alpha_bar.tolist(), moments(30, 30), eta=1.0, variance="beta", fresh=drawn_from(seeded(7)))
    torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-3)
    *_, posterior = way_back(clean, x, noising.alpha_bar.tolist(), moments(30, 30), eta=1.0, fresh=drawn_from(seeded(7)))
    assert not torch.allclose(posterior, theirs, rtol=1e-2, atol=1e-2)
    still = [list(way_back(clean, x, noising.alpha_bar.tolist(), moments(30, 6), variance=v))[-1] for v in ("posterior", "beta")]
    assert torch.equal(*still), "DDIM draws nothing, whatever the variance"


def test_a_run_keeps_its_variance_when_asked_for_other_steps():
    objective = Diffusion(network(), (1, 6, 6), Noising(40), way=Way(8, 1.0, variance="beta", order=2))
    assert objective.asked_way(4, None, None) == Way(4, 1.0, 0.0, "beta", 2)


def network(classes=0):
    torch.manual_seed(0)
    return DenoiseUNet(shape=(1, 6, 6), widths=(8, 16), time=16, classes=classes)


def test_ddim_draws_nothing_and_ddpm_does():
    objective, noise = Diffusion(network(), (1, 6, 6), Noising(40), way=Way(8)), torch.randn(3, 1, 6, 6)
    ends = {eta: [objective.end(noise, None, Way(8, eta), drawn_from(seeded(k))) for k in (1, 2)] for eta in (0.0, 1.0)}
    assert torch.equal(*ends[0.0]) and not torch.equal(*ends[1.0])
    assert torch.equal(objective.sample(2, seeded(3)), objective.sample(2, seeded(3), steps=8, eta=0.0))


def test_guidance_by_hand():
    torch.testing.assert_close(guided(torch.tensor(3.0), torch.tensor(1.0), 2.0), torch.tensor(7.0))
    objective = Diffusion(network(3), (1, 6, 6), Noising(40), classes=3)
    x, y = torch.randn(2, 1, 6, 6), torch.tensor([0, 2])
    t = torch.full((2,), 0.5)
    told, untold = objective.network(x, t, y), objective.network(x, t)
    assert not torch.allclose(told, untold)
    torch.testing.assert_close(objective.says(x, 0.5, y, 1.5), 2.5 * told - 1.5 * untold, rtol=1e-4, atol=1e-5)


class Told(torch.nn.Module):
    """Answers with its label's number alone, and remembers which labels it was told."""

    def __init__(self, classes):
        super().__init__()
        self.label = torch.nn.Embedding(classes + 1, 1)

    def forward(self, x, t, y):
        self.heard = y
        return self.label(y)[:, :, None, None].expand_as(x)


def noised(kind, network, **words):
    return {"diffusion": lambda: Diffusion(network, (1, 6, 6), Noising(40), **words),
            "flow": lambda: FlowMatching(network, (1, 6, 6), **words)}[kind]()


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_a_share_of_the_labels_is_withheld(kind):
    """Without labels only the vector of "not told", the last, learns; with all of them only those of the classes."""
    batch = {"x": torch.rand(4000, 1, 6, 6, generator=seeded()), "y": torch.arange(4000) % 3, "row": torch.arange(4000)}
    for drop, learns in ((0.0, [True, True, True, False]), (1.0, [False, False, False, True]), (0.5, [True] * 4)):
        objective = noised(kind, Told(3), classes=3, drop=drop)
        torch.manual_seed(0)
        objective.loss(batch)["loss"].backward()
        heard = objective.network.heard
        assert (objective.network.label.weight.grad[:, 0] != 0).tolist() == learns
        kept = heard != 3
        assert torch.equal(heard[kept], batch["y"][kept]) and (~kept).double().mean().item() == pytest.approx(drop, abs=0.03)
        for k in range(3):                                                             # of each class alike
            assert (~kept)[k::3].double().mean().item() == pytest.approx(drop, abs=0.05)


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_nothing_is_withheld_when_judging(kind):
    objective = noised(kind, Told(3), classes=3, drop=1.0)
    y = torch.tensor([2, 0, 1])
    with torch.no_grad():
        x = torch.rand(3, 1, 6, 6)
        objective.errors(x, y, objective.moment(torch.rand(3)), torch.randn(3, 1, 6, 6))
        assert torch.equal(objective.network.heard, y)
        objective.compared = lambda batch: {}
        objective.judge({"x": x, "y": y, "row": torch.arange(3)})
    assert torch.equal(objective.network.heard, y)


class Silent(torch.nn.Module):
    """Says 0, whatever it sees."""

    def forward(self, x, t, y=None):
        return torch.zeros_like(x)


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_every_judged_row_has_a_noise_of_its_own(kind):
    """Who says 0 is off by the target: the noise, for a flow its way from a black image at −1. 1024 noises are taken in turn."""
    objective, row = noised(kind, Silent()), torch.tensor([5, 0, 1023, 1024, 2 * 1024 + 5])
    loss = objective.judge({"x": torch.zeros(5, 1, 6, 6), "row": row})["loss"]
    eps = torch.randn(1024, 1, 6, 6, generator=seeded())[[5, 0, 1023, 0, 5]]
    torch.testing.assert_close(loss, (eps + (kind == "flow")).square().mean((1, 2, 3)))
    assert len(set(loss.tolist())) == 3


def test_the_unet_learns_of_withheld_labels_as_not_told():
    """Of the vectors of labels that it adds, the last stands for "not told"."""
    batch = {"x": torch.rand(8, 1, 6, 6, generator=seeded()), "y": torch.arange(8) % 3}
    for drop, learns in ((0.0, [True, True, True, False]), (1.0, [False, False, False, True])):
        objective = Diffusion(network(3), (1, 6, 6), Noising(40), classes=3, drop=drop)
        objective.loss(batch)["loss"].backward()
        assert objective.network.label.weight.grad.abs().sum(1).gt(0).tolist() == learns


def test_what_cannot_be_asked():
    objective = Diffusion(network(), (1, 6, 6), Noising(40))
    for words, told in (({"steps": 41}, "in 1 to 40"), ({"guidance": 1.0}, "not told the classes"), ({"label": 1}, "not told the classes")):
        with pytest.raises(UsageError, match=told):
            objective.sample(1, seeded(), **words)
    for words, told in (({"eta": 0.5}, "got steps 25, eta 0.5"), ({"order": 2}, "eta 0, order 2")):
        with pytest.raises(UsageError, match=told):
            FlowMatching(network(), (1, 6, 6)).sample(1, seeded(), **words)


def test_the_order_is_the_runs_own_or_the_one_asked_for():
    objective = Diffusion(network(), (1, 6, 6), Noising(40), way=Way(steps=8, order=2))
    own, first, second = (objective.sample(2, seeded(), **words) for words in ({}, {"order": 1}, {"order": 2}))
    assert torch.equal(own, second) and not torch.equal(own, first)


def test_a_straight_flow_is_followed_exactly():
    """For one image x₀ the field is (x − x₀)/t: every line ends in x₀, in however many steps."""
    objective, x0 = FlowMatching(network(), (1, 6, 6)), torch.full((4, 1, 6, 6), 0.3)
    objective.says = lambda x, t, y, w: (x - x0) / max(t, 1e-6)
    *_, end = objective.back(torch.randn(4, 1, 6, 6), None, Way(64), drawn_from(seeded()))
    torch.testing.assert_close(end, x0, rtol=0, atol=0.05)
    xt, _, target = objective.mixed(x0, torch.full((4,), 0.25), torch.ones_like(x0))
    torch.testing.assert_close(xt, torch.full_like(x0, 0.75 * 0.3 + 0.25))
    torch.testing.assert_close(target, torch.full_like(x0, 0.7))


class Curve(torch.nn.Module):
    """dx/dt = 4t x (1 − x), whose logit moves by ∫ 4t dt: from t = 1 to 0, logit x(0) = logit x(1) − 2."""

    def forward(self, x, t, y=None):
        return 4 * t[:, None, None, None] * x * (1 - x)


def test_a_curved_flow_is_followed_by_heuns_rule():
    """Half the step, a quarter of the error (Euler's would be half of it); and state by state the rule written out in NumPy."""
    objective = FlowMatching(Curve(), (1, 2, 3))
    start = torch.rand(4, 1, 2, 3, generator=seeded()) * 0.8 + 0.1
    truth, lost = (start.double().logit() - 2).sigmoid(), []
    for steps in (12, 24, 48):
        states = list(objective.back(start, None, Way(steps), drawn_from(seeded())))
        lost.append((states[-1] - truth).abs().max().item())
        x, h = start.double().numpy(), 1 / steps
        for k, state in enumerate(states):
            t = 1 - k * h
            first = 4 * t * x * (1 - x)
            guess = x - h * first
            x = x - h / 2 * (first + 4 * (t - h) * guess * (1 - guess))
            torch.testing.assert_close(state.double(), torch.from_numpy(x), rtol=0, atol=1e-6)
    assert len(states) == 48 and lost[0] / lost[1] == pytest.approx(4, rel=0.15) and lost[1] / lost[2] == pytest.approx(4, rel=0.15)


def test_time_features():
    """Gaba 10.8's columns, all sines first; D = 4 has the frequencies 1 and 1/100."""
    found = time_features(torch.tensor([0.0, 3.0]), 4)
    torch.testing.assert_close(found[1], torch.tensor([math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)]))
    assert found[0].tolist() == [0, 0, 1, 1]


def test_attention_over_pixels_is_pytorchs():
    torch.manual_seed(0)
    layer, other = PixelAttention(16), torch.nn.MultiheadAttention(16, 1, batch_first=True)
    other.load_state_dict({
        "in_proj_weight": layer.qkv.weight.flatten(1), "in_proj_bias": layer.qkv.bias,
        "out_proj.weight": layer.out.weight.flatten(1), "out_proj.bias": layer.out.bias,
    })
    x = torch.randn(2, 16, 3, 4)
    n = layer.norm(x).flatten(2).mT
    torch.testing.assert_close(layer(x), x + other(n, n, n)[0].mT.reshape(x.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(2, 2), (7, 9), (28, 28)])
def test_any_size_comes_back(size):
    widths = (8, 16) if min(size) < 4 else (8, 16, 24)
    model = DenoiseUNet(shape=(3, *size), widths=widths, time=16)
    x = torch.randn(2, 3, *size)
    assert model(x, torch.rand(2)).shape == x.shape
    assert not torch.allclose(model(x, torch.zeros(2)), model(x, torch.ones(2)))
    with pytest.raises(UsageError, match="give fewer --widths"):
        DenoiseUNet(shape=(3, *size), widths=(8,) * 8)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_and_samplers_are_diffusers(schedule):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    words = {"num_train_timesteps": 1000, "beta_schedule": {"linear": "linear", "cosine": "squaredcos_cap_v2"}[schedule]}
    theirs, ours = diffusers.DDIMScheduler(**words, clip_sample=False, set_alpha_to_one=True), Noising(1000, schedule)
    torch.testing.assert_close(ours.alpha_bar[1:], theirs.alphas_cumprod, rtol=1e-3, atol=1e-5)
    theirs.set_timesteps(1000)
    x, eps = torch.randn(2, 2, 1, 4, 4, generator=seeded())
    for t in (1, 400, 900):
        a, sigma = ours.alpha_bar[t] ** 0.5, (1 - ours.alpha_bar[t]) ** 0.5
        (mine,) = way_back(lambda x, t, a=a, sigma=sigma: (x - sigma * eps) / a, x, ours.alpha_bar.tolist(), (t, t - 1))
        torch.testing.assert_close(mine, theirs.step(eps, t - 1, x).prev_sample, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("predict", ["epsilon", "sample", "v_prediction"])
def test_jumps_with_and_without_noise_are_diffusers(predict):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    theirs = diffusers.DDIMScheduler(
        num_train_timesteps=1000, beta_schedule="linear", prediction_type=predict, clip_sample=True, timestep_spacing="trailing"
    )
    theirs.set_timesteps(20)
    assert [t - 1 for t in moments(1000, 20)[:-1]] == theirs.timesteps.tolist()      # they count from 0
    ours, name = Noising(1000), {"epsilon": "noise", "sample": "image", "v_prediction": "velocity"}[predict]
    x, out = torch.randn(2, 2, 1, 4, 4, generator=seeded())
    for eta in (0.0, 0.7):
        for t in (900, 500, 100):
            a, sigma = ours.alpha_bar[t] ** 0.5, (1 - ours.alpha_bar[t]) ** 0.5
            x0 = SOLVED[name](out, x, a, sigma)[0].clamp(-1, 1)
            (mine,) = way_back(lambda x, t, x0=x0: x0, x, ours.alpha_bar.tolist(), (t, t - 50), eta=eta, fresh=drawn_from(seeded(4)))
            drawn = torch.randn(x.shape, generator=seeded(4))
            wanted = theirs.step(out, t - 1, x, eta=eta, use_clipped_model_output=True, variance_noise=drawn).prev_sample
            torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("steps", [8, 50])
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")      # theirs, with numpy 2
def test_steps_of_second_order_are_diffusers(schedule, steps):
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    theirs = diffusers.DPMSolverMultistepScheduler(
        num_train_timesteps=1000, beta_schedule={"linear": "linear", "cosine": "squaredcos_cap_v2"}[schedule],
        algorithm_type="dpmsolver++", solver_order=2, prediction_type="sample", timestep_spacing="trailing",
    )
    theirs.set_timesteps(steps)
    kept, x = Noising(1000, schedule).alpha_bar.tolist(), torch.randn(3, 1, 4, 5, generator=seeded(), dtype=torch.float64)

    def clean(x, t):
        return torch.tanh(kept[t] ** 0.5 * x + 0.3 * t / 1000)

    *_, mine = way_back(clean, x, kept, moments(1000, steps), order=2)
    for t in theirs.timesteps:
        x = theirs.step(clean(x, int(t) + 1), t, x).prev_sample
    torch.testing.assert_close(mine, x, rtol=0, atol=1e-5)


def test_noise_is_added_as_diffusers_adds_it():
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    ours, theirs = Noising(1000), diffusers.DDPMScheduler(num_train_timesteps=1000)
    x0, eps = torch.randn(2, 3, 1, 4, 4, generator=seeded())
    t = torch.tensor([1, 400, 1000])
    torch.testing.assert_close(ours.noised(x0, t, eps), theirs.add_noise(x0, eps, t - 1), rtol=1e-4, atol=1e-4)
    velocity = TARGETS["velocity"](x0, eps, *ours.at(t))
    torch.testing.assert_close(velocity, theirs.get_velocity(x0, eps, t - 1), rtol=1e-4, atol=1e-4)
