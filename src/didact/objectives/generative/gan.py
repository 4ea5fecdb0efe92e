"""Generative adversarial networks: the generator makes images, the discriminator tells them from real ones.

    min_G max_D E log D(x) + E log(1 − D(G(z)));  for the best D, p / (p + p_G), it is −log 4 + 2 JSD(p ‖ p_G)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.objectives.base import Objective, Player
from didact.objectives.generative.sample_quality import classifier_loss, compare_with_real, sample_quality_metrics
from didact.samplers.latent import (
    GRID_SIZE,
    labels_to_sample,
    lerp,
    sample_grid,
    seeded_generator,
    standard_normal,
    to_grid,
)

NUM_EVAL_NOISES = 4096   # fixed noise vectors that evaluation uses in turn

# The losses are of logits s, D = sigmoid(s): −log D = softplus(−s), −log(1 − D) = softplus(s).


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """−log D(x) − log(1 − D(G(z))), of each pair.  Goodfellow et al. 2014, eq. 1; Gaba eq. 8.1."""
    return F.softplus(-real) + F.softplus(fake)


def generator_loss_saturating(fake: Tensor) -> Tensor:
    """Minimax loss log(1 − D(G(z))); its gradient −D vanishes where the discriminator is confident.  Gaba 8.3."""
    return -F.softplus(fake)


def generator_loss_non_saturating(fake: Tensor) -> Tensor:
    """Non-saturating loss −log D(G(z)): its gradient −(1 − D) is large where D is sure.  Gaba 8.3, Groudiev 11.3."""
    return F.softplus(-fake)


def wasserstein_critic_loss(real: Tensor, fake: Tensor) -> Tensor:
    """f(G(z)) − f(x): its least mean over 1-Lipschitz f is −W(p, p_G).  Arjovsky et al. 2017; Gaba eq. 8.15."""
    return fake - real


def wasserstein_generator_loss(fake: Tensor) -> Tensor:
    """−f(G(z))."""
    return -fake


@dataclass(frozen=True)
class GANLoss:
    """What each player minimizes."""

    discriminator: Callable[[Tensor, Tensor], Tensor]
    generator: Callable[[Tensor], Tensor]


GAN_LOSSES = {
    "minimax": GANLoss(discriminator_loss, generator_loss_saturating),
    "non_saturating": GANLoss(discriminator_loss, generator_loss_non_saturating),
    "wasserstein": GANLoss(wasserstein_critic_loss, wasserstein_generator_loss),
}


def gradient_penalty(critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, t: Tensor) -> Tensor:
    """E (‖∇f(x̂)‖ − 1)², x̂ = t x + (1 − t) G(z), one t per example.  Gulrajani et al. 2017, eq. 3; Gaba eq. 8.16."""
    t = t.view(-1, *[1] * (real.ndim - 1))
    x = (t * real + (1 - t) * fake).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    gradient_norm = gradient.float().flatten(1).square().sum(1).add(1e-12).sqrt()  # √ has no gradient at 0
    return (gradient_norm - 1).square().mean()


class GANObjective(Objective):
    """Two players, and a referee where the data have labels.  Gaba 8, Groudiev 11, Van Schependom 8.4.

    No loss says how good the images are: both players may improve as much as they lose. Monitored is the Fréchet
    distance between 8×8 thumbnails of a split and of as many samples, which needs no feature extractor and is the same
    for every run. The referee, a small classifier, is trained alongside on the same real batches and changes nothing:
    it says which classes are sampled (mode collapse leaves some out) and with what confidence; its own accuracy on real
    images is a metric too.
    """

    monitor = "frechet"
    noises: Tensor

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        *,
        gan_loss: GANLoss,
        latent_dim: int,
        num_classes: int = 0,
        gradient_penalty: float = 0.0,
        discriminator_steps: int = 1,
        referee: nn.Module | None = None,
    ):
        super().__init__()
        self.generator, self.discriminator, self.referee = generator, discriminator, referee
        self.gan_loss, self.latent_dim, self.num_classes, self.gradient_penalty, self.discriminator_steps = (
            gan_loss,
            latent_dim,
            num_classes,
            gradient_penalty,
            discriminator_steps,
        )
        self.register_buffer(
            "noises",
            torch.randn(NUM_EVAL_NOISES, latent_dim, generator=torch.Generator().manual_seed(0)),
            persistent=False,
        )

    def players(self) -> tuple[Player, ...]:
        players = [
            Player(
                "discriminator",
                list(self.discriminator.parameters()),
                steps_per_round=self.discriminator_steps,
                compilable=not self.gradient_penalty,
            ),
            Player("generator", list(self.generator.parameters())),
        ]
        return (
            (*players, Player("referee", list(self.referee.parameters())))
            if self.referee is not None
            else tuple(players)
        )

    def get_labels(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.num_classes else None

    def get_inputs(self, batch: Batch) -> Tensor:
        """The discriminator's input."""
        return 2 * batch["x"] - 1

    def to_data_space(self, x: Tensor) -> Tensor:
        """The generator's output as data: images in [0, 1]."""
        return (x + 1) / 2

    def loss(self, batch: Batch, player: str = "generator") -> dict[str, Tensor]:
        if player == "referee":
            assert self.referee is not None
            return classifier_loss(self.referee, batch)
        x, y = self.get_inputs(batch), self.get_labels(batch)
        fake = self.generator(torch.randn(len(x), self.latent_dim, device=x.device), y).to(x.dtype)
        if player == "generator":
            return {"loss": self.gan_loss.generator(self.discriminator(fake, y).float()).mean()}
        fake = fake.detach()
        loss = self.gan_loss.discriminator(self.discriminator(x, y).float(), self.discriminator(fake, y).float()).mean()
        if not self.gradient_penalty:
            return {"loss": loss}
        penalty = gradient_penalty(
            lambda between: self.discriminator(between, y), x, fake, torch.rand(len(x), device=x.device)
        )
        return {"loss": loss + self.gradient_penalty * penalty, "penalty": penalty}

    def forward(self, batch: Batch) -> Tensor:
        """The generator's loss, whose gradient passes through both networks."""
        return self.loss(batch, "generator")["loss"]

    def evaluate_batch(self, batch: Batch) -> Batch:
        y = self.get_labels(batch)
        generated = self.generator(self.noises[batch["row"] % NUM_EVAL_NOISES], y).float()
        logits = (self.discriminator(x, y).float() for x in (self.get_inputs(batch), generated))
        return {"loss": self.gan_loss.discriminator(*logits)} | self.compare_samples(batch, generated)

    def compare_samples(self, batch: Batch, generated: Tensor) -> Batch:
        """Features of real examples and of the samples that are compared with them."""
        return compare_with_real(self.referee, batch, self.to_data_space(generated))

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        return super().compute_metrics(outputs) | sample_quality_metrics(outputs, conditional=bool(self.num_classes))

    def decode(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """The images of latent codes."""
        return self.to_data_space(self.generator(z, y).float())

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        return standard_normal(n, self.latent_dim, generator)

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.decode(z, y)

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        return self.decode(
            self.sample_latents(n, generator), labels_to_sample(n, label, self.num_classes, generator.device)
        )

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        g = seeded_generator(batch["x"])
        grids = {"samples": sample_grid(self.sample, self.num_classes, g)}
        num_pairs = GRID_SIZE // 2
        latents = lerp(standard_normal(num_pairs, self.latent_dim, g), standard_normal(num_pairs, self.latent_dim, g))
        labels = (
            torch.arange(num_pairs, device=g.device).repeat_interleave(GRID_SIZE) % self.num_classes
            if self.num_classes
            else None
        )
        return grids | {"interpolation": to_grid(self.decode(latents, labels))}
