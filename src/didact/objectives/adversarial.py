"""A game of two: the generator makes images, the discriminator tells them from real ones.

    min_G max_D E log D(x) + E log(1 − D(G(z)));  for the best D, p / (p + p_G), it is −log 4 + 2 JSD(p ‖ p_G)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.objectives.core import Objective, Player
from didact.objectives.referee import side_by_side, study, verdict
from didact.objectives.walks import SHOWN, asked, between, by_class, normal, rows_of, seeded

ROWS = 4096   # noise vectors that judging goes through in turn

# The losses are of logits s, D = sigmoid(s): −log D = softplus(−s), −log(1 − D) = softplus(s).


def tell_apart(real: Tensor, fake: Tensor) -> Tensor:
    """−log D(x) − log(1 − D(G(z))), of each pair.  Goodfellow et al. 2014, eq. 1; Gaba eq. 8.1."""
    return F.softplus(-real) + F.softplus(fake)


def saturating(fake: Tensor) -> Tensor:
    """log(1 − D(G(z))): the generator's side of the same game; its gradient −D vanishes where D is sure.  Gaba 8.3."""
    return -F.softplus(fake)


def non_saturating(fake: Tensor) -> Tensor:
    """−log D(G(z)): the same optimum, and a gradient −(1 − D) that is largest where D is sure.  Gaba 8.3, Groudiev 11.3."""
    return F.softplus(-fake)


def critic(real: Tensor, fake: Tensor) -> Tensor:
    """f(G(z)) − f(x): over 1-Lipschitz f its least mean is minus the Wasserstein distance.  Arjovsky et al. 2017; Gaba eq. 8.15."""
    return fake - real


def raised(fake: Tensor) -> Tensor:
    """−f(G(z))."""
    return -fake


@dataclass(frozen=True)
class Game:
    """What each side minimises."""

    discriminator: Callable[[Tensor, Tensor], Tensor]
    generator: Callable[[Tensor], Tensor]


GAMES = {
    "minimax": Game(tell_apart, saturating),
    "non_saturating": Game(tell_apart, non_saturating),
    "wasserstein": Game(critic, raised),
}


def gradient_penalty(score: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, t: Tensor) -> Tensor:
    """E (‖∇f(x̂)‖ − 1)², x̂ = t x + (1 − t) G(z), t one number an example.  Gulrajani et al. 2017, eq. 3; Gaba eq. 8.16."""
    t = t.view(-1, *[1] * (real.ndim - 1))
    x = (t * real + (1 - t) * fake).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(score(x).sum(), x, create_graph=True)
    norm = gradient.float().flatten(1).square().sum(1).add(1e-12).sqrt()  # the root of 0 has no gradient
    return (norm - 1).square().mean()


class Adversarial(Objective):
    """Two players, and a referee where the data have labels.  Gaba 8, Groudiev 11, Van Schependom 8.4.

    No loss says how good the images are: both sides may win as much as they lose. What is watched is the Fréchet distance between 8×8
    thumbnails of a split and as many drawn ones, which needs no extractor and is the same for every run. The referee, a small
    classifier, learns beside the game from the same real batches and never touches it: it says which classes are drawn
    (mode collapse leaves some out) and how surely; its own accuracy on the real images of the split stands beside what it says.
    """

    watch = "frechet"
    noises: Tensor

    def __init__(
        self, generator: nn.Module, discriminator: nn.Module, *,
        game: Game, latent: int, classes: int = 0, penalty: float = 0.0, turns: int = 1, referee: nn.Module | None = None,
    ):
        super().__init__()
        self.generator, self.discriminator, self.referee = generator, discriminator, referee
        self.game, self.latent, self.classes, self.penalty, self.turns = game, latent, classes, penalty, turns
        self.register_buffer("noises", torch.randn(ROWS, latent, generator=torch.Generator().manual_seed(0)), persistent=False)

    def players(self) -> tuple[Player, ...]:
        found = [
            Player("discriminator", list(self.discriminator.parameters()), turns=self.turns, compilable=not self.penalty),
            Player("generator", list(self.generator.parameters())),
        ]
        return (*found, Player("referee", list(self.referee.parameters()))) if self.referee is not None else tuple(found)

    def label(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.classes else None

    def seen(self, batch: Batch) -> Tensor:
        """What the discriminator reads."""
        return 2 * batch["x"] - 1

    def outside(self, x: Tensor) -> Tensor:
        """What the generator made, as it is shown: images in [0, 1]."""
        return (x + 1) / 2

    def loss(self, batch: Batch, player: str = "generator") -> dict[str, Tensor]:
        if player == "referee":
            assert self.referee is not None
            return study(self.referee, batch)
        x, y = self.seen(batch), self.label(batch)
        fake = self.generator(torch.randn(len(x), self.latent, device=x.device), y).to(x.dtype)
        if player == "generator":
            return {"loss": self.game.generator(self.discriminator(fake, y).float()).mean()}
        fake = fake.detach()
        loss = self.game.discriminator(self.discriminator(x, y).float(), self.discriminator(fake, y).float()).mean()
        if not self.penalty:
            return {"loss": loss}
        penalty = gradient_penalty(lambda between: self.discriminator(between, y), x, fake, torch.rand(len(x), device=x.device))
        return {"loss": loss + self.penalty * penalty, "penalty": penalty}

    def forward(self, batch: Batch) -> Tensor:
        """The generator's loss, whose gradient passes through both networks."""
        return self.loss(batch, "generator")["loss"]

    def judge(self, batch: Batch) -> Batch:
        y = self.label(batch)
        made = self.generator(self.noises[batch["row"] % ROWS], y).float()
        scores = (self.discriminator(x, y).float() for x in (self.seen(batch), made))
        return {"loss": self.game.discriminator(*scores)} | self.compared(batch, made)

    def compared(self, batch: Batch, made: Tensor) -> Batch:
        """Rows of real examples and of those made beside them."""
        return side_by_side(self.referee, batch, self.outside(made))

    def score(self, rows: Batch) -> dict[str, float]:
        return super().score(rows) | verdict(rows, conditional=bool(self.classes))

    def shown(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """What codes draw."""
        return self.outside(self.generator(z, y).float())

    def codes(self, n: int, generator: Generator) -> Tensor:
        return normal(n, self.latent, generator)

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.shown(z, y)

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        return self.shown(self.codes(n, generator), asked(n, label, self.classes, generator.device))

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g = seeded(batch["x"])
        found = {"samples": by_class(self.sample, self.classes, g)}
        rows = SHOWN // 2
        walk = between(normal(rows, self.latent, g), normal(rows, self.latent, g))
        same = torch.arange(rows, device=g.device).repeat_interleave(SHOWN) % self.classes if self.classes else None
        return found | {"interpolation": rows_of(self.shown(walk, same))}
