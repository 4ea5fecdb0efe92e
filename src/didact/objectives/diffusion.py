"""Diffusion: learn to take a little noise away, at every strength; then begin with nothing but noise.

    min E ‖f(x_t, t) − target‖²,  x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.errors import UsageError
from didact.models.denoise_unet import DenoiseUNet
from didact.objectives.drawing import ROWS, Drawing
from didact.objectives.noising import SOLVED, TARGETS, Noising, moments, way_back
from didact.objectives.walks import SHOWN, asked, by_class, rows_of, seeded

GOLDEN = 0.6180339887  # its multiples, modulo 1, fill the unit interval evenly


def guided(told: Tensor, untold: Tensor, w: float) -> Tensor:
    """(1 + w) f(x, c) − w f(x, ∅): w = 0 asks for the class, more insists on it.  Ho and Salimans 2022; Gaba eq. 10.24."""
    return (1 + w) * told - w * untold


class Way(NamedTuple):
    """How an image is drawn: in how many steps, with how much new noise, how much insisting on its class."""

    steps: int = 25
    eta: float = 0.0
    guidance: float = 0.0


class Noised(Drawing):
    """What diffusion and flow matching share: a moment and noise for each image, a network that sees the mixture, a target to meet.

    Images are in [−1, 1]. Of a conditional model a share `drop` of the labels is withheld, so that it also learns f(x, ∅) for guidance.
    """

    def __init__(
        self, network: DenoiseUNet, shape: tuple[int, ...], *,
        classes: int = 0, drop: float = 0.1, way: Way | None = None, referee: nn.Module | None = None,
    ):
        super().__init__(shape, classes=classes, referee=referee)
        self.network, self.drop, self.way, self.shape = network, drop, way or Way(), shape

    def moment(self, u: Tensor) -> Tensor:
        """A moment for each u in [0, 1)."""
        raise NotImplementedError

    def mixed(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_t, the time in [0, 1] that the network is told, and the target."""
        raise NotImplementedError

    def back(self, x: Tensor, y: Tensor | None, way: Way, generator: Generator) -> Iterator[Tensor]:
        """States from noise to image, one for each step."""
        raise NotImplementedError

    def errors(self, x: Tensor, y: Tensor | None, t: Tensor, eps: Tensor) -> Tensor:
        """Mean squared error of each example."""
        xt, time, target = self.mixed(2 * x - 1, t, eps)
        error: Tensor = (self.network(xt, time, y).float() - target).square()
        return error.flatten(1).mean(1)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        x, y = batch["x"], self.label(batch)
        if y is not None and self.drop:
            y = torch.where(torch.rand(len(x), device=x.device) < self.drop, self.classes, y)
        t = self.moment(torch.rand(len(x), device=x.device))
        return {"loss": self.errors(x, y, t, torch.randn_like(x)).mean()}

    def judge(self, batch: Batch) -> Batch:
        row = batch["row"]
        t = self.moment((row.double() * GOLDEN % 1).float())             # the same moment and noise for an example each time
        loss = self.errors(batch["x"], self.label(batch), t, self.noises[row % ROWS])
        return {"loss": loss, **self.compared(batch)}

    def says(self, x: Tensor, time: float, y: Tensor | None, w: float) -> Tensor:
        """The network's answer at one moment, guided where w is not 0."""
        t = torch.full((len(x),), time, device=x.device)
        if y is None or not w:
            return self.network(x, t, y).float()  # type: ignore[no-any-return]
        told, untold = self.network(x.repeat(2, 1, 1, 1), t.repeat(2), torch.cat([y, torch.full_like(y, self.classes)])).float().chunk(2)
        return guided(told, untold, w)

    def drawn(self, noise: Tensor, y: Tensor | None) -> Tensor:
        return self.end(noise, y, self.way, seeded(noise))

    def end(self, x: Tensor, y: Tensor | None, way: Way, generator: Generator) -> Tensor:
        for x in self.back(x, y, way, generator):  # noqa: B020, B007 (each state takes the place of the last)
            pass
        return ((x + 1) / 2).clamp(0, 1)

    def sample(
        self, n: int, generator: Generator, *,
        label: int | None = None, steps: int | None = None, eta: float | None = None, guidance: float | None = None,
    ) -> Tensor:
        """n images, in the run's own way where nothing else is asked."""
        if guidance and not self.classes:
            raise UsageError("guidance insists on a class, but this model was not told the classes; train with --conditional")
        own = self.way
        way = Way(steps or own.steps, own.eta if eta is None else eta, own.guidance if guidance is None else guidance)
        noise = torch.randn(n, *self.shape, generator=generator, device=generator.device)
        return self.end(noise, asked(n, label, self.classes, generator.device), way, generator)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, g = batch["x"][:SHOWN], seeded(batch["x"])
        noise = torch.randn(SHOWN, *self.shape, generator=g, device=x.device)
        states = (torch.stack(list(self.back(noise, asked(SHOWN, None, self.classes, x.device), self.way, g))) + 1) / 2
        stops = torch.linspace(0, len(states) - 1, SHOWN, device=x.device).long()
        later = [self.mixed(2 * x - 1, self.moment(torch.full((len(x),), k / SHOWN, device=x.device)), noise[: len(x)])[0]
                 for k in range(SHOWN)]
        return {
            "samples": by_class(self.sample, self.classes, g),
            "out of noise": rows_of(states[stops].transpose(0, 1).flatten(0, 1)),
            "into noise": ((torch.stack(later, dim=1) + 1) / 2).clamp(0, 1),
        }


class Diffusion(Noised):
    """E ‖target − f(√ᾱ_t x_0 + √(1 − ᾱ_t) ε, t)‖², t even in 1 … T.  Ho et al. 2020, eq. 14; Gaba eq. 10.15, 10.7.

    `predict` is what f says: the noise ε, the image x_0, or the velocity v = a ε − σ x_0; the sampler solves for the others.
    """

    def __init__(
        self, network: DenoiseUNet, shape: tuple[int, ...], noising: Noising, *,
        predict: str = "noise", **words: Any,
    ):
        super().__init__(network, shape, **words)
        self.noising, self.predict = noising, predict
        self.kept = noising.alpha_bar.tolist()                           # the sampler reads them on the host

    def moment(self, u: Tensor) -> Tensor:
        return (u * self.noising.T).long() + 1

    def mixed(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, sigma = self.noising.at(t)
        return a * x0 + sigma * eps, t / self.noising.T, TARGETS[self.predict](x0, eps, a, sigma)

    def back(self, x: Tensor, y: Tensor | None, way: Way, generator: Generator) -> Iterator[Tensor]:
        def clean(x: Tensor, t: int) -> Tensor:
            a, sigma = (torch.tensor(v**0.5) for v in (self.kept[t], 1 - self.kept[t]))
            out = self.says(x, t / self.noising.T, y, way.guidance)
            return SOLVED[self.predict](out, x, a, sigma)[0].clamp(-1, 1)   # no pixel lies outside

        return way_back(clean, x, self.kept, moments(self.noising.T, way.steps), eta=way.eta, generator=generator)
