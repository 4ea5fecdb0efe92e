"""Consistency distillation: a student maps any noisy image to the clean one in a single step.

    f(x_t, t) = f(x_s, s) along the teacher's trajectory, and f(x_0, 0) = x_0: so f maps all of it to its end
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.errors import UsageError
from didact.objectives.generative.diffusion import (
    DiffusionObjective,
    Inpainting,
)
from didact.objectives.generative.noise_schedule import TO_X0_AND_EPS
from didact.samplers.ddim import (
    NoiseSource,
    SamplingConfig,
    classifier_free_guidance,
    make_noise_source,
    sampling_timesteps,
)
from didact.samplers.latent import GRID_SIZE, labels_to_sample, sample_grid, seeded_generator


class ConsistencyObjective(DiffusionObjective):
    """min E ‖f(x_t, t) − f⁻(x̂_s, s)‖², x̂_s one DDIM step of the teacher.  Song et al. 2023, eq. 7; Gaba 10.10.

    f(x, t) = c_skip x + c_out F(x, t) with c_skip = √ᾱ_t, c_out = −√(1 − ᾱ_t), so that f(x, 0) = x whatever F is: the
    boundary condition (eq. 5) for data of unit variance, and F is a velocity. f⁻ is an EMA of the student; it is what
    samples.
    """

    timesteps: Tensor
    next_timestep: Tensor

    def __init__(self, teacher: DiffusionObjective, *, num_intervals: int, ema_decay: float, sampling_steps: int = 1):
        shared_options = {
            "num_classes": teacher.num_classes,
            "label_dropout": teacher.label_dropout,
            "referee": teacher.referee,
        }
        super().__init__(
            teacher.network,
            teacher.shape,
            teacher.noise_schedule,
            prediction_type="velocity",
            sampling=SamplingConfig(sampling_steps),
            **shared_options,
        )
        self.teacher, self.target = (deepcopy(teacher.network).requires_grad_(False) for _ in range(2))
        self.teacher_prediction_type, self.teacher_guidance, self.ema_decay = (
            teacher.prediction_type,
            teacher.sampling.guidance,
            ema_decay,
        )
        timesteps = sampling_timesteps(self.noise_schedule.timesteps, num_intervals)
        self.register_buffer("timesteps", torch.tensor(timesteps[:-1]), persistent=False)
        next_timestep = torch.zeros(self.noise_schedule.timesteps + 1, dtype=torch.long)
        next_timestep[timesteps[:-1]] = torch.tensor(timesteps[1:])
        self.register_buffer("next_timestep", next_timestep, persistent=False)

    def train(self, mode: bool = True) -> "ConsistencyObjective":
        """The teacher and the EMA stay in evaluation mode."""
        super().train(mode)
        self.teacher.eval()
        self.target.eval()
        return self

    def to_timestep(self, u: Tensor) -> Tensor:
        return self.timesteps[(u * len(self.timesteps)).long()]

    def f(self, network: nn.Module, x: Tensor, t: Tensor, y: Tensor | None) -> Tensor:
        a, sigma = self.noise_schedule.coefficients(t)
        out: Tensor = network(x, t / self.noise_schedule.timesteps, y)
        return a * x - sigma * out.float()

    def teacher_step(self, x: Tensor, t: Tensor, s: Tensor, y: Tensor | None) -> Tensor:
        """One DDIM step of the teacher, with the teacher's guidance."""
        a, sigma = self.noise_schedule.coefficients(t)
        prediction = self.teacher(x, t / self.noise_schedule.timesteps, y).float()
        if y is not None and self.teacher_guidance:
            prediction = classifier_free_guidance(
                prediction,
                self.teacher(x, t / self.noise_schedule.timesteps, torch.full_like(y, self.num_classes)).float(),
                self.teacher_guidance,
            )
        x0 = TO_X0_AND_EPS[self.teacher_prediction_type](prediction, x, a, sigma)[0].clamp(
            -self.clip_range, self.clip_range
        )
        return self.noise_schedule.q_sample(x0, s, (x - a * x0) / sigma)

    def per_example_loss(self, x: Tensor, y: Tensor | None, t: Tensor, eps: Tensor) -> Tensor:
        xt, s = self.noise_schedule.q_sample(self.to_model_space(x), t, eps), self.next_timestep[t]
        with torch.no_grad():
            target = self.f(self.target, self.teacher_step(xt, t, s, y), s, y)
        return (self.f(self.network, xt, t, y) - target).square().flatten(1).mean(1)

    @torch.no_grad()
    def after_step(self, player: str = "model") -> None:
        """θ⁻ <- μ θ⁻ + (1 − μ) θ after each step of the student."""
        if player == "model":
            torch._foreach_lerp_(
                list(self.target.parameters()), [p.detach() for p in self.network.parameters()], 1 - self.ema_decay
            )

    def reverse_process(
        self,
        x: Tensor,
        y: Tensor | None,
        sampling: SamplingConfig,
        noise_source: NoiseSource,
        inpainting: Inpainting | None = None,
    ) -> Iterator[Tensor]:
        """x̂_0 in one step; for more steps, noised again to a smaller t each time.  Song et al. 2023, algorithm 1."""
        if sampling.eta or sampling.guidance or sampling.solver_order > 1:
            raise UsageError(
                "a distilled model samples as it was distilled: --eta, --solver-order and --guidance belong to its "
                "teacher; leave them out"
            )
        for t, s in pairwise(sampling_timesteps(self.noise_schedule.timesteps, sampling.steps)):
            x = self.f(self.target, x, torch.full((len(x),), t, device=x.device), y).clamp(
                -self.clip_range, self.clip_range
            )
            if s:
                x = self.noise_schedule.q_sample(x, torch.full((len(x),), s, device=x.device), noise_source(x))
            yield x

    def walk(
        self, z: Tensor, y: Tensor | None = None, *, steps: int | None = None, guidance: float | None = None
    ) -> Tensor:
        if (steps or 1) > 1:
            raise UsageError(
                f"decoding must be deterministic, and further steps add new noise: --steps must be 1, got {steps}"
            )
        return super().walk(z, y, steps=1, guidance=guidance)

    complete = None  # type: ignore[assignment]   # no inpainting: one step has no trajectory to condition

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g = seeded_generator(batch["x"])
        noise, y = self.sample_noise(GRID_SIZE, g), labels_to_sample(GRID_SIZE, None, self.num_classes, g.device)
        few_step_samples = [
            self.run_sampler(noise, y, SamplingConfig(steps), make_noise_source(g))
            for steps in (1, 2, 4)
            if steps <= self.noise_schedule.timesteps
        ]
        return {"samples": sample_grid(self.sample, self.num_classes, g), "few steps": torch.stack(few_step_samples)}
