"""Diffusion: learn to predict the noise in an image at every noise level; then sample by removing it step by step.

    min E ‖f(x_t, t) − target‖²,  x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε

The samplers (DDPM, DDIM, DPM-Solver++) and classifier-free guidance are in `didact/samplers/ddim.py`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.errors import UsageError
from didact.objectives.generative.base import NUM_EVAL_SAMPLES, GenerativeObjective
from didact.objectives.generative.noise_schedule import (
    PREDICTION_TARGETS,
    TO_X0_AND_EPS,
    NoiseSchedule,
)
from didact.samplers.ddim import (
    NoiseSource,
    SamplingConfig,
    SolverOrder,
    classifier_free_guidance,
    ddim_sample,
    make_noise_source,
    repaint_timesteps,
    sampling_timesteps,
)
from didact.samplers.latent import GRID_SIZE, labels_to_sample, sample_grid, seeded_generator, side_mask, slerp, to_grid

# Inpainting takes each step several times: in a single pass the unknown part would not adapt to the known one.
REPAINT_RESAMPLES = 5
_GOLDEN_FRACTION = 0.6180339887  # its multiples modulo 1 are evenly spread over the unit interval


class Inpainting(NamedTuple):
    """The known part of an image."""

    x0: Tensor
    mask: Tensor    # (H, W), true where x0 is known


class DenoisingObjective(GenerativeObjective):
    """What diffusion and flow matching share: each image gets a noise level and noise; a network predicts a target.

    Images are scaled to [−1, 1]. A conditional model is trained without the label with probability `label_dropout`, so
    that the same network also learns the unconditional f(x, ∅) for classifier-free guidance.
    """

    def __init__(
        self,
        network: nn.Module,
        shape: tuple[int, ...],
        *,
        num_classes: int = 0,
        label_dropout: float = 0.1,
        sampling: SamplingConfig | None = None,
        referee: nn.Module | None = None,
    ):
        super().__init__(shape, num_classes=num_classes, referee=referee)
        self.network, self.label_dropout, self.sampling, self.shape = (
            network,
            label_dropout,
            sampling or SamplingConfig(),
            shape,
        )

    def to_model_space(self, x: Tensor) -> Tensor:
        """Images in [0, 1] -> the space in which noise is added."""
        return 2 * x - 1

    def to_data_space(self, x0: Tensor) -> Tensor:
        """Samples without noise -> images in [0, 1]."""
        return ((x0 + 1) / 2).clamp(0, 1)

    def to_timestep(self, u: Tensor) -> Tensor:
        """The timestep for each u in [0, 1)."""
        raise NotImplementedError

    def q_sample(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_t, the network's time in [0, 1], and the target."""
        raise NotImplementedError

    def reverse_process(
        self,
        x: Tensor,
        y: Tensor | None,
        sampling: SamplingConfig,
        noise_source: NoiseSource,
        inpainting: Inpainting | None = None,
    ) -> Iterator[Tensor]:
        """The states from noise to image, one for each step; with `inpainting`, its known part is kept at each."""
        raise NotImplementedError

    def per_example_loss(self, x: Tensor, y: Tensor | None, t: Tensor, eps: Tensor) -> Tensor:
        """The mean squared error of each example."""
        xt, time, target = self.q_sample(self.to_model_space(x), t, eps)
        error: Tensor = (self.network(xt, time, y).float() - target).square()
        return error.flatten(1).mean(1)

    def training_loss(self, batch: Batch) -> dict[str, Tensor]:
        x, y = batch["x"], self.get_labels(batch)
        if y is not None and self.label_dropout:
            # the label num_classes means "no label": one embedding more than there are classes
            y = torch.where(torch.rand(len(x), device=x.device) < self.label_dropout, self.num_classes, y)
        t = self.to_timestep(torch.rand(len(x), device=x.device))
        eps = torch.randn(len(x), *self.shape, device=x.device)
        return {"loss": self.per_example_loss(x, y, t, eps).mean()}

    def evaluate_batch(self, batch: Batch) -> Batch:
        row = batch["row"]
        # the same timestep and noise for an example in every evaluation
        t = self.to_timestep((row.double() * _GOLDEN_FRACTION % 1).float())
        loss = self.per_example_loss(batch["x"], self.get_labels(batch), t, self.noises[row % NUM_EVAL_SAMPLES])
        return {"loss": loss, **self.compare_samples(batch)}

    def predict(self, x: Tensor, time: float, y: Tensor | None, w: float) -> Tensor:
        """The network's prediction at one time, with classifier-free guidance where w is not 0."""
        t = torch.full((len(x),), time, device=x.device)
        if y is None or not w:
            return self.network(x, t, y).float()  # type: ignore[no-any-return]
        # both predictions in one pass of twice the batch
        conditional, unconditional = (
            self.network(x.repeat(2, 1, 1, 1), t.repeat(2), torch.cat([y, torch.full_like(y, self.num_classes)]))
            .float()
            .chunk(2)
        )
        return classifier_free_guidance(conditional, unconditional, w)

    def sample_for_rows(self, row: Tensor, y: Tensor | None) -> Tensor:
        # at each step noise for every row of the split, of which each takes its own: independent of the batch
        noise_source = make_noise_source(seeded_generator(self.noises))
        return self.run_sampler(self.noises[row], y, self.sampling, lambda _: noise_source(self.noises)[row])

    def run_sampler(
        self,
        x: Tensor,
        y: Tensor | None,
        sampling: SamplingConfig,
        noise_source: NoiseSource,
        inpainting: Inpainting | None = None,
    ) -> Tensor:
        """The last state of the reverse process, in [0, 1]."""
        for state in self.reverse_process(x, y, sampling, noise_source, inpainting):
            x = state
        return self.to_data_space(x)

    def resolve_sampling(
        self, steps: int | None, eta: float | None, guidance: float | None, solver_order: SolverOrder | None = None
    ) -> SamplingConfig:
        """The run's own sampling settings, where None is given."""
        if guidance and not self.num_classes:
            raise UsageError(
                "guidance needs a class-conditional model; train with --conditional"
            )
        default = self.sampling
        eta, guidance = default.eta if eta is None else eta, default.guidance if guidance is None else guidance
        return default._replace(
            steps=steps or default.steps, eta=eta, guidance=guidance, solver_order=solver_order or default.solver_order
        )

    def sample_noise(self, n: int, generator: Generator) -> Tensor:
        return torch.randn(n, *self.shape, generator=generator, device=generator.device)

    def sample(
        self, n: int, generator: Generator, *,
        label: int | None = None, steps: int | None = None, eta: float | None = None, guidance: float | None = None,
        solver_order: SolverOrder | None = None,
    ) -> Tensor:
        """n images; with the run's own settings where None is given."""
        sampling = self.resolve_sampling(steps, eta, guidance, solver_order)
        return self.run_sampler(
            self.sample_noise(n, generator),
            labels_to_sample(n, label, self.num_classes, generator.device),
            sampling,
            make_noise_source(generator),
        )

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        return self.sample_noise(n, generator)

    def walk(
        self, z: Tensor, y: Tensor | None = None, *, steps: int | None = None, guidance: float | None = None
    ) -> Tensor:
        """Deterministic sampling (η = 0), so that similar noise gives similar images."""
        return self.run_sampler(
            z, y, self.resolve_sampling(steps, 0.0, guidance), make_noise_source(seeded_generator(z))
        )

    def complete(
        self, x: Tensor, num_known: int, generator: Generator, y: Tensor | None = None, *,
        side: str = "top", steps: int | None = None, eta: float | None = None, guidance: float | None = None,
        solver_order: SolverOrder | None = None,
    ) -> Tensor:
        """RePaint inpainting: keep `num_known` rows or columns, counted from `side`.  Lugmayr et al. 2022, algorithm 1.

        At every step the known part is noised to the noise level of the rest; each step is taken several times, with
        new noise between them.
        """
        inpainting = Inpainting(self.to_model_space(x), side_mask((x.shape[2], x.shape[3]), num_known, side, x.device))
        return self.run_sampler(
            self.sample_noise(len(x), generator),
            y,
            self.resolve_sampling(steps, eta, guidance, solver_order),
            make_noise_source(generator),
            inpainting,
        )

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, g, num_pairs = batch["x"][:GRID_SIZE], seeded_generator(batch["x"]), GRID_SIZE // 2
        noise, y = self.sample_noise(GRID_SIZE, g), labels_to_sample(GRID_SIZE, None, self.num_classes, x.device)
        states = torch.stack(
            [self.to_data_space(state) for state in self.reverse_process(noise, y, self.sampling, make_noise_source(g))]
        )
        state_index = torch.linspace(0, len(states) - 1, GRID_SIZE, device=x.device).long()
        noised = [
            self.q_sample(
                self.to_model_space(x),
                self.to_timestep(torch.full((len(x),), k / GRID_SIZE, device=x.device)),
                noise[: len(x)],
            )[0]
            for k in range(GRID_SIZE)
        ]
        labels = None if y is None else y[:num_pairs].repeat_interleave(GRID_SIZE)
        return {
            "samples": sample_grid(self.sample, self.num_classes, g),
            "reverse process": to_grid(states[state_index].transpose(0, 1).flatten(0, 1)),
            "forward process": torch.stack([self.to_data_space(xt) for xt in noised], dim=1),
            "interpolation": to_grid(
                self.run_sampler(
                    slerp(noise[:num_pairs], noise[num_pairs:]),
                    labels,
                    self.sampling._replace(eta=0.0),
                    make_noise_source(g),
                )
            ),
        }


class DiffusionObjective(DenoisingObjective):
    """E ‖target − f(√ᾱ_t x_0 + √(1 − ᾱ_t) ε, t)‖², t uniform in 1 … T.  Ho et al. 2020, eq. 14; Gaba eq. 10.16.

    `prediction_type` is what f predicts: the noise ε, the image x_0, or the velocity v = a ε − σ x_0; samplers solve
    for the others.
    """

    clip_range: float = 1.0   # pixels lie in [−1, 1]

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], noise_schedule: NoiseSchedule, *,
        prediction_type: str = "noise", **shared_options: Any,
    ):
        super().__init__(network, shape, **shared_options)
        self.noise_schedule, self.prediction_type = noise_schedule, prediction_type
        # floats on the host: the sampler computes its coefficients from them without synchronization
        self.alpha_bar_on_host = noise_schedule.alpha_bar.tolist()

    def to_timestep(self, u: Tensor) -> Tensor:
        return (u * self.noise_schedule.timesteps).long() + 1

    def q_sample(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, sigma = self.noise_schedule.coefficients(t)
        return (
            a * x0 + sigma * eps,
            t / self.noise_schedule.timesteps,
            PREDICTION_TARGETS[self.prediction_type](x0, eps, a, sigma),
        )

    def reverse_process(
        self,
        x: Tensor,
        y: Tensor | None,
        sampling: SamplingConfig,
        noise_source: NoiseSource,
        inpainting: Inpainting | None = None,
    ) -> Iterator[Tensor]:
        def predict_x0(x: Tensor, t: int) -> Tensor:
            a, sigma = (torch.tensor(v**0.5) for v in (self.alpha_bar_on_host[t], 1 - self.alpha_bar_on_host[t]))
            out = self.predict(x, t / self.noise_schedule.timesteps, y, sampling.guidance)
            x0 = TO_X0_AND_EPS[self.prediction_type](out, x, a, sigma)[0].clamp(-self.clip_range, self.clip_range)
            # with the true x_0 the step gives a sample of q(x_s | x_0) there
            return x0 if inpainting is None else torch.where(inpainting.mask, inpainting.x0, x0)

        timesteps = sampling_timesteps(self.noise_schedule.timesteps, sampling.steps)
        timesteps = timesteps if inpainting is None else repaint_timesteps(timesteps, REPAINT_RESAMPLES)
        return ddim_sample(
            predict_x0,
            x,
            self.alpha_bar_on_host,
            timesteps,
            eta=sampling.eta,
            variance=sampling.variance,
            solver_order=sampling.solver_order,
            noise_source=noise_source,
        )

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return super().gallery(batch) | {
            "schedule": torch.stack([self.noise_schedule.beta, self.noise_schedule.alpha_bar])[:, 1:]
        }
