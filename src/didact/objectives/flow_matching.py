"""Flow matching: learn the velocity that carries noise to images along straight lines, then follow it."""

from collections.abc import Iterator

from torch import Generator, Tensor

from didact.errors import UsageError
from didact.objectives.diffusion import Noised, Way


class FlowMatching(Noised):
    """min E ‖f(x_t, t) − (ε − x_0)‖², x_t = (1 − t) x_0 + t ε, t even in [0, 1].  Lipman et al. 2023, eq. 23; Liu et al. 2023.

    Drawing solves dx/dt = f from t = 1 to 0 by Heun's rule: x − h/2 (f(x, t) + f(x − h f(x, t), t − h)).
    """

    def moment(self, u: Tensor) -> Tensor:
        return u

    def mixed(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = t[:, None, None, None]
        return (1 - s) * x0 + s * eps, t, eps - x0

    def back(self, x: Tensor, y: Tensor | None, way: Way, generator: Generator) -> Iterator[Tensor]:
        if way.steps < 1 or way.eta:
            raise UsageError(f"a flow is followed in at least one step and without noise, got steps {way.steps} and eta {way.eta:g}")
        h = 1 / way.steps
        for k in range(way.steps):
            t = 1 - k * h
            first = self.says(x, t, y, way.guidance)
            second = self.says(x - h * first, t - h, y, way.guidance)
            x = x - h / 2 * (first + second)
            yield x
