"""Consistency distillation: a student that goes from any noise to the image at once, as its teacher's small steps would.

    f(x_t, t) = f(x_s, s) along the teacher's way, and f(x_0, 0) = x_0: so all of it leads to where the way ends
"""

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.errors import UsageError
from didact.objectives.diffusion import Diffusion, Known, Way, guided
from didact.objectives.noising import SOLVED, Fresh, drawn_from, moments
from didact.objectives.walks import SHOWN, asked, by_class, seeded


class Consistency(Diffusion):
    """min E ‖f(x_t, t) − f⁻(x̂_s, s)‖², x̂_s one DDIM step of the teacher from x_t.  Song et al. 2023, eq. 7; Gaba 10.10.

    f(x, t) = c_skip x + c_out F(x, t) with c_skip = √ᾱ_t, c_out = −√(1 − ᾱ_t), so that f(x, 0) = x whatever F says: their boundary
    condition (eq. 5) for data of unit variance, and F is a velocity. f⁻ averages the student over its steps, and is what is
    drawn with.
    """

    stops: Tensor
    next: Tensor

    def __init__(self, teacher: Diffusion, *, intervals: int, decay: float, steps: int = 1):
        words = {"classes": teacher.classes, "drop": teacher.drop, "referee": teacher.referee}
        super().__init__(teacher.network, teacher.shape, teacher.noising, predict="velocity", way=Way(steps), **words)
        self.teacher, self.target = (deepcopy(teacher.network).requires_grad_(False) for _ in range(2))
        self.taught, self.insists, self.decay = teacher.predict, teacher.way.guidance, decay
        stops = moments(self.noising.T, intervals)
        self.register_buffer("stops", torch.tensor(stops[:-1]), persistent=False)
        following = torch.zeros(self.noising.T + 1, dtype=torch.long)
        following[stops[:-1]] = torch.tensor(stops[1:])
        self.register_buffer("next", following, persistent=False)

    def train(self, mode: bool = True) -> "Consistency":
        """Teacher and average only answer."""
        super().train(mode)
        self.teacher.eval()
        self.target.eval()
        return self

    def moment(self, u: Tensor) -> Tensor:
        return self.stops[(u * len(self.stops)).long()]

    def f(self, network: nn.Module, x: Tensor, t: Tensor, y: Tensor | None) -> Tensor:
        a, sigma = self.noising.at(t)
        out: Tensor = network(x, t / self.noising.T, y)
        return a * x - sigma * out.float()

    def taught_step(self, x: Tensor, t: Tensor, s: Tensor, y: Tensor | None) -> Tensor:
        """One step of DDIM with the teacher, guided as the teacher is."""
        a, sigma = self.noising.at(t)
        told = self.teacher(x, t / self.noising.T, y).float()
        if y is not None and self.insists:
            told = guided(told, self.teacher(x, t / self.noising.T, torch.full_like(y, self.classes)).float(), self.insists)
        x0 = SOLVED[self.taught](told, x, a, sigma)[0].clamp(-self.reach, self.reach)
        return self.noising.noised(x0, s, (x - a * x0) / sigma)

    def errors(self, x: Tensor, y: Tensor | None, t: Tensor, eps: Tensor) -> Tensor:
        xt, s = self.noising.noised(self.inside(x), t, eps), self.next[t]
        with torch.no_grad():
            aim = self.f(self.target, self.taught_step(xt, t, s, y), s, y)
        return (self.f(self.network, xt, t, y) - aim).square().flatten(1).mean(1)

    @torch.no_grad()
    def stepped(self, player: str = "model") -> None:
        """θ⁻ <- μ θ⁻ + (1 − μ) θ after each step of the student."""
        if player == "model":
            torch._foreach_lerp_(list(self.target.parameters()), [p.detach() for p in self.network.parameters()], 1 - self.decay)

    def back(self, x: Tensor, y: Tensor | None, way: Way, fresh: Fresh, known: Known | None = None) -> Iterator[Tensor]:
        """x̂_0 at once, and again from a little less noise as often as there are steps.  Song et al. 2023, algorithm 1."""
        if way.eta or way.guidance or way.order > 1:
            raise UsageError("a distilled model draws as it was taught: --eta, --order and --guidance are its teacher's; leave them out")
        for t, s in pairwise(moments(self.noising.T, way.steps)):
            x = self.f(self.target, x, torch.full((len(x),), t, device=x.device), y).clamp(-self.reach, self.reach)
            if s:
                x = self.noising.noised(x, torch.full((len(x),), s, device=x.device), fresh(x))
            yield x

    def walk(self, z: Tensor, y: Tensor | None = None, *, steps: int | None = None, guidance: float | None = None) -> Tensor:
        if (steps or 1) > 1:
            raise UsageError(f"between two steps new noise is added, so that like noises part: walk in one step, got --steps {steps}")
        return super().walk(z, y, steps=1, guidance=guidance)

    complete = None  # type: ignore[assignment]   # at once, from noise alone: what is known would have no say

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g = seeded(batch["x"])
        noise, y = self.noise(SHOWN, g), asked(SHOWN, None, self.classes, g.device)
        few = [self.end(noise, y, Way(steps), drawn_from(g)) for steps in (1, 2, 4) if steps <= self.noising.T]
        return {"samples": by_class(self.sample, self.classes, g), "few steps": torch.stack(few)}
