"""Diffusion: learn to take a little noise away, at every strength; then begin with nothing but noise.

    min E ‖f(x_t, t) − target‖²,  x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.errors import UsageError
from didact.objectives.drawing import ROWS, Drawing
from didact.objectives.noising import SOLVED, TARGETS, Fresh, Noising, Order, Variance, drawn_from, hesitant, moments, way_back
from didact.objectives.walks import SHOWN, arcs, asked, by_class, rows_of, seeded, side_of

AGAIN = 5              # times that each step is taken where a part is known: else the rest is settled before it has heard of it
GOLDEN = 0.6180339887  # its multiples, modulo 1, fill the unit interval evenly


def guided(told: Tensor, untold: Tensor, w: float) -> Tensor:
    """(1 + w) f(x, c) − w f(x, ∅): w = 0 asks for the class, more insists on it.  Ho and Salimans 2022; Gaba eq. 10.22."""
    return (1 + w) * told - w * untold


class Way(NamedTuple):
    """How an image is drawn: in how many steps, with how much new noise, how much insisting on its class."""

    steps: int = 25
    eta: float = 0.0
    guidance: float = 0.0
    variance: Variance = "posterior"    # of the new noise
    order: Order = 1                    # of the steps without it: 1 is DDIM


class Known(NamedTuple):
    """A part of the image that is given, and where it lies."""

    x0: Tensor
    there: Tensor    # (H, W), true where x0 is known


class Noised(Drawing):
    """What diffusion and flow matching share: a moment and noise for each image, a network that sees the mixture, a target to meet.

    Images are in [−1, 1]. Of a conditional model a share `drop` of the labels is withheld, so that it also learns f(x, ∅) for guidance.
    """

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], *,
        classes: int = 0, drop: float = 0.1, way: Way | None = None, referee: nn.Module | None = None,
    ):
        super().__init__(shape, classes=classes, referee=referee)
        self.network, self.drop, self.way, self.shape = network, drop, way or Way(), shape

    def inside(self, x: Tensor) -> Tensor:
        """Images in [0, 1] -> what is noised."""
        return 2 * x - 1

    def outside(self, x0: Tensor) -> Tensor:
        """What is left without noise -> images in [0, 1]."""
        return ((x0 + 1) / 2).clamp(0, 1)

    def moment(self, u: Tensor) -> Tensor:
        """A moment for each u in [0, 1)."""
        raise NotImplementedError

    def mixed(self, x0: Tensor, t: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_t, the time in [0, 1] that the network is told, and the target."""
        raise NotImplementedError

    def back(self, x: Tensor, y: Tensor | None, way: Way, fresh: Fresh, known: Known | None = None) -> Iterator[Tensor]:
        """States from noise to image, one for each step; where the image is known it goes its known way."""
        raise NotImplementedError

    def errors(self, x: Tensor, y: Tensor | None, t: Tensor, eps: Tensor) -> Tensor:
        """Mean squared error of each example."""
        xt, time, target = self.mixed(self.inside(x), t, eps)
        error: Tensor = (self.network(xt, time, y).float() - target).square()
        return error.flatten(1).mean(1)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        x, y = batch["x"], self.label(batch)
        if y is not None and self.drop:
            y = torch.where(torch.rand(len(x), device=x.device) < self.drop, self.classes, y)
        t = self.moment(torch.rand(len(x), device=x.device))
        eps = torch.randn(len(x), *self.shape, device=x.device)
        return {"loss": self.errors(x, y, t, eps).mean()}

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

    def drawn(self, row: Tensor, y: Tensor | None) -> Tensor:
        fresh = drawn_from(seeded(self.noises))    # at each step for every row there may be; each takes its own
        return self.end(self.noises[row], y, self.way, lambda _: fresh(self.noises)[row])

    def end(self, x: Tensor, y: Tensor | None, way: Way, fresh: Fresh, known: Known | None = None) -> Tensor:
        for x in self.back(x, y, way, fresh, known):  # noqa: B020, B007 (each state takes the place of the last)
            pass
        return self.outside(x)

    def asked_way(self, steps: int | None, eta: float | None, guidance: float | None, order: Order | None = None) -> Way:
        """The run's own way where nothing else is asked."""
        if guidance and not self.classes:
            raise UsageError("guidance insists on a class, but this model was not told the classes; train with --conditional")
        own = self.way
        eta, guidance = own.eta if eta is None else eta, own.guidance if guidance is None else guidance
        return own._replace(steps=steps or own.steps, eta=eta, guidance=guidance, order=order or own.order)

    def noise(self, n: int, generator: Generator) -> Tensor:
        return torch.randn(n, *self.shape, generator=generator, device=generator.device)

    def sample(
        self, n: int, generator: Generator, *,
        label: int | None = None, steps: int | None = None, eta: float | None = None, guidance: float | None = None,
        order: Order | None = None,
    ) -> Tensor:
        """n images, in the run's own way where nothing else is asked."""
        way = self.asked_way(steps, eta, guidance, order)
        return self.end(self.noise(n, generator), asked(n, label, self.classes, generator.device), way, drawn_from(generator))

    def codes(self, n: int, generator: Generator) -> Tensor:
        return self.noise(n, generator)

    def walk(self, z: Tensor, y: Tensor | None = None, *, steps: int | None = None, guidance: float | None = None) -> Tensor:
        """Without new noise on the way, so that like noises end alike."""
        return self.end(z, y, self.asked_way(steps, 0.0, guidance), drawn_from(seeded(z)))

    def complete(
        self, x: Tensor, known: int, generator: Generator, y: Tensor | None = None, *,
        side: str = "top", steps: int | None = None, eta: float | None = None, guidance: float | None = None,
        order: Order | None = None,
    ) -> Tensor:
        """Images whose first `known` rows, or columns, counted from a side stay: noised as the rest is, put back at every step.

        Each step is taken several times, with new noise between them.  Lugmayr et al. 2022 (RePaint), algorithm 1.
        """
        given = Known(self.inside(x), side_of((x.shape[2], x.shape[3]), known, side, x.device))
        return self.end(self.noise(len(x), generator), y, self.asked_way(steps, eta, guidance, order), drawn_from(generator), given)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, g, rows = batch["x"][:SHOWN], seeded(batch["x"]), SHOWN // 2
        noise, y = self.noise(SHOWN, g), asked(SHOWN, None, self.classes, x.device)
        states = torch.stack([self.outside(state) for state in self.back(noise, y, self.way, drawn_from(g))])
        stops = torch.linspace(0, len(states) - 1, SHOWN, device=x.device).long()
        later = [self.mixed(self.inside(x), self.moment(torch.full((len(x),), k / SHOWN, device=x.device)), noise[: len(x)])[0]
                 for k in range(SHOWN)]
        same = None if y is None else y[:rows].repeat_interleave(SHOWN)
        return {
            "samples": by_class(self.sample, self.classes, g),
            "out of noise": rows_of(states[stops].transpose(0, 1).flatten(0, 1)),
            "into noise": torch.stack([self.outside(xt) for xt in later], dim=1),
            "interpolation": rows_of(self.end(arcs(noise[:rows], noise[rows:]), same, self.way._replace(eta=0.0), drawn_from(g))),
        }


class Diffusion(Noised):
    """E ‖target − f(√ᾱ_t x_0 + √(1 − ᾱ_t) ε, t)‖², t even in 1 … T.  Ho et al. 2020, eq. 14; Gaba eq. 10.16.

    `predict` is what f says: the noise ε, the image x_0, or the velocity v = a ε − σ x_0; the sampler solves for the others.
    """

    reach: float = 1.0   # no pixel of an image lies outside [−1, 1]

    def __init__(
        self, network: nn.Module, shape: tuple[int, ...], noising: Noising, *,
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

    def back(self, x: Tensor, y: Tensor | None, way: Way, fresh: Fresh, known: Known | None = None) -> Iterator[Tensor]:
        def clean(x: Tensor, t: int) -> Tensor:
            a, sigma = (torch.tensor(v**0.5) for v in (self.kept[t], 1 - self.kept[t]))
            out = self.says(x, t / self.noising.T, y, way.guidance)
            x0 = SOLVED[self.predict](out, x, a, sigma)[0].clamp(-self.reach, self.reach)
            # with the true x_0 in its place the step leads to a draw of q(x_s | x_0) there
            return x0 if known is None else torch.where(known.there, known.x0, x0)

        times = moments(self.noising.T, way.steps)
        times = times if known is None else hesitant(times, AGAIN)
        return way_back(clean, x, self.kept, times, eta=way.eta, variance=way.variance, order=way.order, fresh=fresh)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        return super().gallery(batch) | {"schedule": torch.stack([self.noising.beta, self.noising.alpha_bar])[:, 1:]}
