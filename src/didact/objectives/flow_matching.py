"""Flow matching: learn the velocity that carries noise to images along straight lines, then follow it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.objectives.diffusion import AGAIN, Known, Noised, Way
from didact.objectives.noising import Fresh
from didact.objectives.pace import drawing


class FlowMatching(Noised):
    """min E ‖f(x_t, t) − (ε − x_0)‖², x_t = (1 − t) x_0 + t ε, t even in [0, 1].  Lipman et al. 2023, eq. 23; Liu et al. 2023.

    Drawing solves dx/dt = f from t = 1 to 0 by Heun's rule: x − h/2 (f(x, t) + f(x − h f(x, t), t − h)).
    """

    def moment(self, u: Tensor) -> Tensor:
        return u

    def mixed(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s = t[:, None, None, None]
        return (1 - s) * x0 + s * eps, t, eps - x0

    def back(self, x: Tensor, y: Tensor | None, way: Way, fresh: Fresh, known: Known | None = None) -> Iterator[Tensor]:
        if way.steps < 1 or way.eta or way.order > 1:
            got = f"steps {way.steps}, eta {way.eta:g}, order {way.order}"
            raise UsageError(f"a flow has a rule of its own, of at least one step and without noise, got {got}; leave out the rest")
        h = 1 / way.steps
        for k in range(way.steps):
            drawing(k + 1, way.steps)
            t, s = 1 - k * h, 1 - (k + 1) * h
            for last in (True,) if known is None else (False,) * (AGAIN - 1) + (True,):
                start = x
                first = self.says(x, t, y, way.guidance)
                second = self.says(x - h * first, s, y, way.guidance)
                x = x - h / 2 * (first + second)
                if known is not None:                                    # on its own line, s / t of the way to the noise that it has
                    x = torch.where(known.there, known.x0 + s / t * (start - known.x0), x)
                if not last:
                    x = self.noised_again(x, s, t, fresh)
            yield x

    def noised_again(self, x: Tensor, s: float, t: float, fresh: Fresh) -> Tensor:
        """x_t drawn from x_s, s < t: (1 − t)/(1 − s) x_s and as much new noise as makes it t in all."""
        kept = (1 - t) / (1 - s)
        added: float = (t**2 - (kept * s) ** 2) ** 0.5
        return kept * x + added * fresh(x)
