"""Consistency distillation by hand and with a teacher whose trajectory is known; latent diffusion; inpainting."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.models.generative.diffusion_unet import DiffusionUNet
from didact.models.generative.vae import ConvVAE
from didact.models.generative.vqvae import VQVAE
from didact.objectives.abilities import abilities
from didact.objectives.distributions.pixels import make_pixel_distribution
from didact.objectives.generative.consistency import ConsistencyObjective
from didact.objectives.generative.diffusion import DiffusionObjective
from didact.objectives.generative.flow_matching import FlowMatchingObjective
from didact.objectives.generative.latent_diffusion import FrozenAutoencoder, LatentDiffusionObjective
from didact.objectives.generative.noise_schedule import NoiseSchedule
from didact.objectives.generative.vae import VAEObjective
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.samplers.ddim import SamplingConfig, ddim_sample
from didact.samplers.latent import side_mask, slerp

SHAPE = (1, 6, 5)


def seeded_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make_unet(shape=SHAPE, num_classes=0, dropout=0.0):
    torch.manual_seed(0)
    return DiffusionUNet(shape=shape, widths=(8, 16), time_dim=16, num_classes=num_classes, dropout=dropout)


def make_student(prediction_type="velocity", **options):
    return ConsistencyObjective(
        DiffusionObjective(make_unet(**options), SHAPE, NoiseSchedule(40), prediction_type=prediction_type),
        num_intervals=8,
        ema_decay=0.9,
    )


class SingleImageOracle(nn.Module):
    """The exact prediction of a network that has learned a single image c."""

    def __init__(self, noise_schedule: NoiseSchedule, c: float, prediction_type: str):
        super().__init__()
        self.noise_schedule, self.c, self.prediction_type = noise_schedule, c, prediction_type
        self.dummy_parameter = nn.Parameter(torch.zeros(()))

    def forward(self, x, t, y=None):
        a, sigma = self.noise_schedule.coefficients((t * self.noise_schedule.timesteps).round().long())
        eps = (x - a * self.c) / sigma.clamp(min=1e-6)
        return {"noise": eps, "velocity": a * eps - sigma * self.c}[self.prediction_type] + 0 * self.dummy_parameter


def test_consistency_student_is_the_identity_at_zero_noise():
    objective, x = make_student(), torch.randn(3, *SHAPE)
    torch.testing.assert_close(
        objective.f(objective.network, x, torch.zeros(3, dtype=torch.long), None), x, rtol=0, atol=0
    )
    assert not torch.allclose(objective.f(objective.network, x, torch.full((3,), 20), None), x)


@pytest.mark.parametrize("prediction_type", ["noise", "image", "velocity"])
def test_teacher_step_is_one_ddim_step(prediction_type):
    objective, x = make_student(prediction_type), torch.randn(4, *SHAPE)
    teacher = DiffusionObjective(objective.teacher, SHAPE, NoiseSchedule(40), prediction_type=prediction_type)
    for t, s in ((40, 35), (20, 15), (5, 0)):
        step = objective.teacher_step(x, torch.full((4,), t), torch.full((4,), s), None)
        a, sigma = (v**0.5 for v in (teacher.alpha_bar_on_host[t], 1 - teacher.alpha_bar_on_host[t]))
        out = teacher.predict(x, t / 40, None, 0.0)
        x0 = {"noise": (x - sigma * out) / a, "image": out, "velocity": a * x - sigma * out}[prediction_type].clamp(
            -1, 1
        )
        (expected,) = ddim_sample(lambda x, t, x0=x0: x0, x, teacher.alpha_bar_on_host, (t, s))
        torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prediction_type", ["noise", "velocity"])
def test_consistency_loss_of_an_oracle_is_zero(prediction_type):
    """All of the teacher's trajectories end in c; a student whose velocity points there is consistent."""
    objective, c = make_student(prediction_type), 0.4
    objective.teacher = SingleImageOracle(objective.noise_schedule, c, prediction_type)
    objective.network = objective.target = SingleImageOracle(objective.noise_schedule, c, "velocity")
    x, eps = torch.full((16, *SHAPE), (1 + c) / 2), torch.randn(16, *SHAPE)
    t = objective.to_timestep(torch.linspace(0, 0.999, 16))
    assert set(t.tolist()) == {5, 10, 15, 20, 25, 30, 35, 40}
    assert objective.per_example_loss(x, None, t, eps).max() < 1e-6
    for steps in (1, 2):
        torch.testing.assert_close(
            objective.sample(3, seeded_generator(), steps=steps),
            torch.full((3, *SHAPE), (1 + c) / 2),
            rtol=0,
            atol=1e-3,
        )
    objective.network = SingleImageOracle(objective.noise_schedule, 0.1, "velocity")
    assert objective.per_example_loss(x, None, t, eps).max() > 0.01


def test_consistency_target_is_the_moving_average_of_the_student():
    objective = make_student(dropout=0.5)
    assert {id(p) for player in objective.players() for p in player.parameters} == {
        id(p) for p in objective.network.parameters()
    }
    weights_before = [p.clone() for p in objective.target.parameters()]
    with torch.no_grad():
        for p in objective.network.parameters():
            p.add_(1.0)
    for _ in range(3):
        # micro-batches and evaluation are no steps
        objective.train().loss({"x": torch.rand(4, *SHAPE)})["loss"].backward()
    assert all(map(torch.equal, weights_before, objective.target.parameters()))
    objective.after_step()
    for old_weight, new_weight in zip(weights_before, objective.target.parameters(), strict=True):
        torch.testing.assert_close(new_weight, old_weight + 0.1)                              # 0.9 θ⁻ + 0.1 (θ⁻ + 1)
    assert objective.network.training and not objective.teacher.training and not objective.target.training


def test_consistency_refuses_options_of_its_teacher():
    objective = make_student()
    assert "complete" not in abilities(objective) and "sample" in abilities(objective)
    with pytest.raises(UsageError, match="--eta, --solver-order and --guidance belong to its teacher; leave them out"):
        objective.sample(1, seeded_generator(), eta=1.0)
    with pytest.raises(UsageError, match="in 1 to 40 of them, got 41"):
        objective.sample(1, seeded_generator(), steps=41)


def make_autoencoders():
    torch.manual_seed(0)
    shape = (1, 12, 8)
    vae = VAEObjective(ConvVAE(shape=shape, widths=(8, 16), latent_dim=6), make_pixel_distribution("bernoulli"))
    return {
        "vqvae": VQVAEObjective(VQVAE(shape=shape, widths=(8, 16), codebook_size=12, code_dim=5), variance=0.1),
        "vae": vae,
    }


@pytest.mark.parametrize("name", ["vqvae", "vae"])
def test_latent_diffusion_standardizes_and_restores_codes(name):
    autoencoder = make_autoencoders()[name].eval()
    frozen_autoencoder = FrozenAutoencoder(autoencoder)
    objective = LatentDiffusionObjective(
        frozen_autoencoder,
        DiffusionUNet(shape=frozen_autoencoder.shape, widths=(16,), time_dim=16),
        NoiseSchedule(20),
        sampling=SamplingConfig(3),
    )
    x = torch.rand(64, 1, 12, 8)
    objective.fit_latent_scale(x)
    z = objective.train().to_model_space(x)
    assert (
        z.shape == (64, *frozen_autoencoder.shape)
        and frozen_autoencoder.shape == {"vqvae": (5, 3, 2), "vae": (6, 1, 1)}[name]
    )
    torch.testing.assert_close(z.mean((0, 2, 3)), torch.zeros(frozen_autoencoder.shape[0]), rtol=0, atol=1e-4)
    torch.testing.assert_close(z.std((0, 2, 3)), torch.ones(frozen_autoencoder.shape[0]), rtol=0, atol=1e-3)
    with torch.no_grad():
        expected = (
            autoencoder.restore({"x": x}) if name == "vqvae" else autoencoder.decode(autoencoder.network.encode(x)[0])
        )
    torch.testing.assert_close(objective.to_data_space(z), expected, rtol=1e-4, atol=1e-4)
    assert objective.sample(2, seeded_generator()).shape == (2, 1, 12, 8) and "complete" not in abilities(objective)
    assert not any(p.requires_grad for p in frozen_autoencoder.parameters()) and not autoencoder.network.training
    objective.loss({"x": x})["loss"].backward()
    assert all(p.grad is None for p in frozen_autoencoder.parameters())


@pytest.mark.parametrize("kind", ["ddpm", "two steps"])
def test_diffusion_evaluation_is_independent_of_batching(kind):
    """The noise of each step belongs to the example: batches of 7 give the same samples."""
    ddpm = DiffusionObjective(
        make_unet(num_classes=2), SHAPE, NoiseSchedule(40), sampling=SamplingConfig(5, eta=1.0), num_classes=2
    )
    objective = ddpm if kind == "ddpm" else ConsistencyObjective(ddpm, num_intervals=8, ema_decay=0.9, sampling_steps=2)
    g, n = seeded_generator(), 30
    batch = {"x": torch.rand(n, *SHAPE, generator=g), "y": torch.arange(n) % 2, "row": torch.arange(n)}
    with torch.no_grad():
        full_outputs = objective.eval().evaluate_batch(batch)
        outputs_by_batch = [
            objective.evaluate_batch({k: v[i : i + 7] for k, v in batch.items()}) for i in range(0, n, 7)
        ]
        reversed_outputs = objective.evaluate_batch({k: v.flip(0) for k, v in batch.items()})
    for name, column in full_outputs.items():
        torch.testing.assert_close(torch.cat([c[name] for c in outputs_by_batch]), column, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(reversed_outputs[name].flip(0), column, rtol=1e-4, atol=1e-5)
    objective.noises.copy_(objective.noises[:1].expand_as(objective.noises))     # the same first noise …
    samples = objective.sample_for_rows(torch.arange(n), torch.zeros(n, dtype=torch.long))
    # … and still each row has its own trajectory
    assert (samples[1:] - samples[:1]).abs().flatten(1).max(1).values.min() > 1e-3


class TwoImageOracle(nn.Module):
    """The optimal prediction when an image is either +c or −c everywhere: E[x_0 | x_t] = c tanh(a c Σ x_t / σ²)."""

    def __init__(self, coefficients, prediction_type):
        super().__init__()
        self.coefficients, self.prediction_type, self.c = coefficients, prediction_type, 0.6

    def forward(self, x, t, y=None):
        a, sigma = self.coefficients(t)
        sigma = sigma.clamp(min=1e-3)
        x0 = self.c * torch.tanh(a * self.c * x.sum((1, 2, 3), keepdim=True) / sigma**2) * torch.ones_like(x)
        return x0 if self.prediction_type == "image" else (x - x0) / sigma


def make_oracle_objective(kind):
    if kind == "diffusion":
        noise_schedule = NoiseSchedule(100)
        return DiffusionObjective(
            TwoImageOracle(lambda t: noise_schedule.coefficients((t * 100).round().long()), "image"),
            SHAPE,
            noise_schedule,
            prediction_type="image",
            sampling=SamplingConfig(50),
        )
    network = TwoImageOracle(lambda t: (1 - t[:, None, None, None], t[:, None, None, None]), "velocity")
    return FlowMatchingObjective(network, SHAPE, sampling=SamplingConfig(50))


@pytest.mark.parametrize("side", ["top", "left", "bottom", "right"])
@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_inpainting_follows_the_known_half(kind, side):
    objective = make_oracle_objective(kind)
    samples = objective.sample(64, seeded_generator())
    assert 16 < (samples.mean((1, 2, 3)) > 0.5).sum() < 48                          # +c and −c, depending on the noise
    x = torch.rand(64, *SHAPE) * 0.1 + torch.where(torch.arange(64) % 2 == 0, 0.75, 0.15)[:, None, None, None]
    is_known = side_mask(SHAPE[1:], 3, side, x.device)
    with torch.no_grad():
        completed = objective.complete(x, 3, seeded_generator(1), side=side)
    torch.testing.assert_close(completed[:, :, is_known], x[:, :, is_known], rtol=0, atol=1e-4)
    inpainted_means = completed[:, :, ~is_known].mean((1, 2))
    assert (inpainted_means[::2] > 0.7).float().mean() > 0.9 and (inpainted_means[1::2] < 0.3).float().mean() > 0.9


def test_side_mask_marks_the_known_side():
    device = torch.device("cpu")
    masks = {side: side_mask((2, 3), 1, side, device).int().tolist() for side in ("top", "bottom", "left", "right")}
    assert masks == {"top": [[1, 1, 1], [0, 0, 0]], "bottom": [[0, 0, 0], [1, 1, 1]],
                     "left": [[1, 0, 0], [1, 0, 0]], "right": [[0, 0, 1], [0, 0, 1]]}


def test_slerp_keeps_the_norm_of_noise():
    a, b = torch.randn(2, 3, 1, 20, 20)
    walk = slerp(a, b, steps=5).unflatten(0, (3, 5))
    torch.testing.assert_close(walk[:, 0], a, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(walk[:, -1], b, rtol=1e-4, atol=1e-4)
    # a straight line would have norm 0.7 in the middle
    assert ((walk.flatten(2).norm(dim=2) / 20 - 1).abs() < 0.1).all()
