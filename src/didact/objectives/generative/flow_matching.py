"""Flow matching: learn the velocity that carries noise to images along straight lines; sample by integrating it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.objectives.generative.diffusion import REPAINT_RESAMPLES, DenoisingObjective, Inpainting
from didact.progress import report_progress
from didact.samplers.ddim import NoiseSource, SamplingConfig


class FlowMatchingObjective(DenoisingObjective):
    """min E ‖f(x_t, t) − (ε − x_0)‖², x_t = (1 − t) x_0 + t ε, t uniform in [0, 1].  Lipman et al. 2023, eq. 23.

    Liu et al. 2023. Sampling solves dx/dt = f from t = 1 to 0 by Heun's method:

        x − h/2 (f(x, t) + f(x − h f(x, t), t − h))
    """

    def to_timestep(self, u: Tensor) -> Tensor:
        return u

    def q_sample(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = t[:, None, None, None]
        return (1 - s) * x0 + s * eps, t, eps - x0

    def reverse_process(
        self,
        x: Tensor,
        y: Tensor | None,
        sampling: SamplingConfig,
        noise_source: NoiseSource,
        inpainting: Inpainting | None = None,
    ) -> Iterator[Tensor]:
        if sampling.steps < 1 or sampling.eta or sampling.solver_order > 1:
            received = f"--steps {sampling.steps}, --eta {sampling.eta:g}, --solver-order {sampling.solver_order}"
            raise UsageError(
                f"flow matching samples by Heun's method, in at least one step and without noise, got {received}; "
                "leave out --eta and --solver-order"
            )
        h = 1 / sampling.steps
        for k in range(sampling.steps):
            report_progress(k + 1, sampling.steps)
            t, s = 1 - k * h, 1 - (k + 1) * h
            for is_last in (True,) if inpainting is None else (False,) * (REPAINT_RESAMPLES - 1) + (True,):
                start = x
                velocity = self.predict(x, t, y, sampling.guidance)
                next_velocity = self.predict(x - h * velocity, s, y, sampling.guidance)
                x = x - h / 2 * (velocity + next_velocity)
                # known pixels move on their own straight line, s / t of the way to their noise
                if inpainting is not None:
                    x = torch.where(inpainting.mask, inpainting.x0 + s / t * (start - inpainting.x0), x)
                if not is_last:
                    x = self.re_noise(x, s, t, noise_source)
            yield x

    def re_noise(self, x: Tensor, s: float, t: float, noise_source: NoiseSource) -> Tensor:
        """x_t sampled from x_s, s < t: (1 − t)/(1 − s) x_s and as much new noise as gives noise of size t in all."""
        signal_scale = (1 - t) / (1 - s)
        noise_scale: float = (t**2 - (signal_scale * s) ** 2) ** 0.5
        return signal_scale * x + noise_scale * noise_source(x)
