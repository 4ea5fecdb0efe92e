"""Variational autoencoders: the evidence lower bound (ELBO).

    log p(x) = ELBO + KL(q(z | x) ‖ p(z | x)) >= ELBO = E_q log p(x | z) − KL(q(z | x) ‖ p(z))
"""

from math import exp, log, pi

import torch
from torch import Generator, Tensor

from didact import metrics
from didact.data.core import Batch
from didact.metrics.generative import active_units
from didact.models.generative.vae import VAE
from didact.objectives.base import Objective
from didact.objectives.distributions.pixels import PixelDistribution
from didact.samplers.latent import (
    GRID_SIZE,
    labels_to_sample,
    latent_grid,
    latent_traversal,
    lerp,
    sample_grid,
    seeded_generator,
    standard_normal,
    to_grid,
)

_NUM_EVAL_NOISES = 64  # fixed noise vectors that evaluation uses in turn


def kl_standard_normal(mu: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ (σ² + μ² − 1 − log σ²), of each dimension.  Gaba eq. 9.18."""
    return 0.5 * (log_variance.exp() + mu.square() - 1 - log_variance)


def kl_gaussians(mu: Tensor, covariance: Tensor, other_mu: Tensor, other_covariance: Tensor) -> Tensor:
    """½ (log det Σ₂ / det Σ₁ − d + Tr Σ₂⁻¹ Σ₁ + (μ₂ − μ₁)ᵀ Σ₂⁻¹ (μ₂ − μ₁)).  Gaba eq. 9.28."""
    difference = (other_mu - mu)[..., None]
    inverse: Tensor = torch.linalg.solve(other_covariance, torch.cat([covariance, difference], dim=-1))
    trace = inverse[..., :-1].diagonal(dim1=-2, dim2=-1).sum(-1)
    quadratic = (difference * inverse[..., -1:]).sum((-2, -1))
    return 0.5 * (torch.logdet(other_covariance) - torch.logdet(covariance) - mu.shape[-1] + trace + quadratic)


def log_normal(z: Tensor, mu: Tensor | float = 0.0, log_variance: Tensor | float = 0.0) -> Tensor:
    """log N(z; μ, σ²), summed over the last axis."""
    # a float stays a float: a CUDA graph cannot copy it from the host
    v = log_variance
    precision = (-v).exp() if isinstance(v, Tensor) else exp(-v)
    return -0.5 * ((z - mu).square() * precision + v + log(2 * pi)).sum(-1)


def iwae_bound(log_w: Tensor) -> Tensor:
    """Importance-weighted bound log 1/k Σ_i w_i, w_i = p(x, z_i) / q(z_i | x): (k, B) -> (B,).

    It grows with k to log p(x).  Burda et al. 2016; Gaba eq. 9.29.
    """
    return log_w.logsumexp(0) - log(len(log_w))


class VAEObjective(Objective):
    """min E −log p(x | z) + β KL(q(z | x) ‖ p(z)), z = μ + σ ε.  Kingma and Welling 2014.

    With β other than 1 a β-VAE (Higgins et al. 2017, Gaba eq. 9.23). In `kl_warmup` steps β rises from 0 to its value
    (KL annealing). `free_bits` κ: Σ_j max(KL_j, κ), KL_j a batch's mean, so that the first κ nats of each dimension
    cost nothing (Kingma et al. 2016). Both are against posterior collapse (Gaba 9.9). `num_samples` above 1 maximizes
    the importance- weighted bound instead. Evaluation is of the bound itself, with β but without annealing and free
    bits.
    """

    any_size = False
    steps_taken: Tensor
    noises: Tensor

    def __init__(
        self,
        network: VAE,
        pixels: PixelDistribution,
        *,
        beta: float = 1.0,
        kl_warmup: int = 0,
        free_bits: float = 0.0,
        num_samples: int = 1,
    ):
        super().__init__()
        self.network, self.pixels, self.num_classes = network, pixels, network.num_classes
        self.beta, self.kl_warmup, self.free_bits, self.num_samples = beta, kl_warmup, free_bits, num_samples
        # counted on the device: β also rises inside a captured CUDA graph, which never runs Python again
        self.register_buffer("steps_taken", torch.zeros(()))
        noises = torch.randn(
            _NUM_EVAL_NOISES, num_samples, network.latent_dim, generator=torch.Generator().manual_seed(0)
        )
        self.register_buffer("noises", noises, persistent=False)

    def get_labels(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.num_classes else None

    def get_inputs(self, batch: Batch) -> Tensor:
        """What is encoded, and reconstructed by the decoder."""
        return batch["x"]

    def kl_weight(self) -> Tensor | float:
        """β at the current step."""
        if not self.kl_warmup:
            return self.beta
        return self.beta * (self.steps_taken / self.kl_warmup).clamp(max=1.0)

    def after_step(self, player: str = "model") -> None:
        if self.kl_warmup:
            self.steps_taken.add_(1)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, y = self.get_inputs(batch), self.get_labels(batch)
        mu, log_variance = self.network.encode(x, y)
        # (k, B, latent)
        z = mu + (0.5 * log_variance).exp() * torch.randn(self.num_samples, *mu.shape, device=mu.device)
        nll = self.reconstruction_nll(x, y, z)
        if self.num_samples > 1:
            return {"loss": -iwae_bound(log_normal(z) - log_normal(z, mu, log_variance) - nll).mean()}
        kl_per_dim = kl_standard_normal(mu, log_variance).mean(0)                    # (latent,)
        kl = kl_per_dim.clamp(min=self.free_bits).sum() if self.free_bits else kl_per_dim.sum()
        return {"loss": nll.mean() + self.kl_weight() * kl, "reconstruction": nll.mean(), "kl": kl_per_dim.sum()}

    def reconstruction_nll(self, x: Tensor, y: Tensor | None, z: Tensor) -> Tensor:
        """−log p(x | z) of several codes for each example: (k, B, latent) -> (k, B)."""
        k, B, _ = z.shape
        out = self.network.decode(z.flatten(0, 1), y.repeat(k) if y is not None else None)
        return self.pixels.nll(out, x.repeat(k, *[1] * (x.ndim - 1))).view(k, B)

    def reconstruction_metrics(self, x: Tensor, out: Tensor) -> Batch:
        """The reconstruction quality of each example."""
        return {"psnr": metrics.psnr(self.pixels.mean(out), x)}

    def evaluate_batch(self, batch: Batch) -> Batch:
        x, y = self.get_inputs(batch), self.get_labels(batch)
        mu, log_variance = self.network.encode(x, y)
        z = mu + (0.5 * log_variance).exp() * self.noises[batch["row"] % _NUM_EVAL_NOISES].movedim(1, 0)
        nll, kl_per_dim = self.reconstruction_nll(x, y, z), kl_standard_normal(mu, log_variance)
        kl = kl_per_dim.sum(1)
        bound = iwae_bound(log_normal(z) - log_normal(z, mu, log_variance) - nll)
        outputs = {
            "loss": -bound if self.num_samples > 1 else nll[0] + self.beta * kl,
            "reconstruction": nll.mean(0), "kl": kl, "kl_each": kl_per_dim, "latent": mu,
        } | self.reconstruction_metrics(x, self.network.decode(mu, y))
        return outputs | ({"y": batch["y"]} if "y" in batch else {})

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        means = {
            name: float(column.double().mean())
            for name, column in outputs.items()
            if name not in ("loss", "latent", "kl_each", "y")
        }
        elbo = -means["reconstruction"] - means["kl"]
        return (
            super().compute_metrics(outputs)
            | {"elbo": elbo}
            | means
            | {"active_units": float(active_units(outputs["latent"]))}
        )

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """The mean images of p(x | z) for n codes from the prior."""
        return self.decode(
            self.sample_latents(n, generator), labels_to_sample(n, label, self.num_classes, generator.device)
        )

    def decode(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.pixels.mean(self.network.decode(z, y))

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        return standard_normal(n, self.network.latent_dim, generator)

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.decode(z, y)

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(self.get_inputs(batch), self.get_labels(batch))[0]

    def encode(self, batch: Batch) -> Tensor:
        return self.embed(batch)

    def restore(self, batch: Batch) -> Tensor:
        """Reconstruction from the mean code; if conditional and without a label, as the class with the largest ELBO."""
        batch = batch if not self.num_classes or "y" in batch else batch | {"y": self.most_likely_class(batch["x"])}
        return self.decode(self.embed(batch), self.get_labels(batch))

    def most_likely_class(self, x: Tensor) -> Tensor:
        """argmax_y of the ELBO of x given y, z = μ(x, y): (B,)."""
        costs = []
        for k in range(self.num_classes):
            y = torch.full((len(x),), k, device=x.device)
            mu, log_variance = self.network.encode(x, y)
            costs.append(self.pixels.nll(self.network.decode(mu, y), x) + kl_standard_normal(mu, log_variance).sum(1))
        return torch.stack(costs).argmin(0)

    def report_examples(self, batch: Batch) -> Batch:
        return {"reconstruction": self.restore(batch)}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, y = batch["x"], self.get_labels(batch)
        mu, _ = self.network.encode(x, y)
        num_classes, first_labels = self.network.num_classes, None if y is None else y[:GRID_SIZE]
        grids = {
            "samples": sample_grid(self.sample, num_classes, seeded_generator(x)),
            "reconstructions": torch.stack([x[:GRID_SIZE], self.decode(mu[:GRID_SIZE], first_labels)]),
        }
        if num_pairs := min(len(mu) // 2, GRID_SIZE // 2):
            labels = None if y is None else y[:num_pairs].repeat_interleave(GRID_SIZE)
            grids["interpolation"] = to_grid(self.decode(lerp(mu[:num_pairs], mu[-num_pairs:]), labels))
        widest_dims = mu.var(0, correction=0).argsort(descending=True)[:GRID_SIZE]
        repeated_label = None if y is None else y[:1].expand(GRID_SIZE * len(widest_dims))
        grids["latent traversal"] = to_grid(self.decode(latent_traversal(mu[0], widest_dims), repeated_label))
        if self.network.latent_dim == 2 and y is None:
            grids["latent plane"] = to_grid(self.decode(latent_grid().to(mu)), 2 * GRID_SIZE)
        return grids
