"""The evidence lower bound: reconstruct from a noisy code, and keep the codes near the prior.

    log p(x) = ELBO + KL(q(z | x) ‖ p(z | x)) >= ELBO = E_q log p(x | z) − KL(q(z | x) ‖ p(z))
"""

from math import exp, log, pi

import torch
from torch import Generator, Tensor

from didact import metrics
from didact.data.core import Batch
from didact.metrics.generative import active_units
from didact.models.vae import VAE
from didact.objectives.core import Objective
from didact.objectives.pixels import Pixels
from didact.objectives.walks import SHOWN, asked, between, by_class, normal, plane, rows_of, seeded, traversal

ROWS = 64  # noise vectors that judging goes through in turn


def kl_to_standard(mu: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ (σ² + μ² − 1 − log σ²), of each dimension.  Gaba eq. 9.18."""
    return 0.5 * (log_variance.exp() + mu.square() - 1 - log_variance)


def kl_of_gaussians(mu: Tensor, covariance: Tensor, to_mu: Tensor, to_covariance: Tensor) -> Tensor:
    """½ (log det Σ₂ / det Σ₁ − d + Tr Σ₂⁻¹ Σ₁ + (μ₂ − μ₁)ᵀ Σ₂⁻¹ (μ₂ − μ₁)).  Gaba eq. 9.28."""
    apart = (to_mu - mu)[..., None]
    inverse: Tensor = torch.linalg.solve(to_covariance, torch.cat([covariance, apart], dim=-1))
    trace = inverse[..., :-1].diagonal(dim1=-2, dim2=-1).sum(-1)
    quadratic = (apart * inverse[..., -1:]).sum((-2, -1))
    return 0.5 * (torch.logdet(to_covariance) - torch.logdet(covariance) - mu.shape[-1] + trace + quadratic)


def log_normal(z: Tensor, mu: Tensor | float = 0.0, log_variance: Tensor | float = 0.0) -> Tensor:
    """log N(z; μ, σ²), summed over the last axis."""
    v = log_variance                                                      # a number stays one: a CUDA graph takes none from the host
    precision = (-v).exp() if isinstance(v, Tensor) else exp(-v)
    return -0.5 * ((z - mu).square() * precision + v + log(2 * pi)).sum(-1)


def importance_bound(log_w: Tensor) -> Tensor:
    """log 1/k Σ_i w_i, w_i = p(x, z_i) / q(z_i | x): (k, B) -> (B,), grows with k to log p(x).  Burda et al. 2016; Gaba eq. 9.29."""
    return log_w.logsumexp(0) - log(len(log_w))


class ELBO(Objective):
    """min E −log p(x | z) + β KL(q(z | x) ‖ p(z)), z = μ + σ ε.  Kingma and Welling 2014; β: Higgins et al. 2017, Gaba eq. 9.23.

    `warmup` steps take β from 0 to its value (KL annealing). `free_bits` κ: Σ_j max(KL_j, κ), KL_j a batch's
    mean, so that the first κ nats of each dimension cost nothing (Kingma et al. 2016). Both fight posterior collapse (Gaba 9.9).
    `samples` above 1 maximise the importance-weighted bound instead. What is judged is the bound itself, with β but without the two cures.
    """

    any_size = False
    taken: Tensor
    noises: Tensor

    def __init__(
        self, network: VAE, pixels: Pixels, *, beta: float = 1.0, warmup: int = 0, free_bits: float = 0.0, samples: int = 1
    ):
        super().__init__()
        self.network, self.pixels, self.classes = network, pixels, network.classes
        self.beta, self.warmup, self.free_bits, self.samples = beta, warmup, free_bits, samples
        self.register_buffer("taken", torch.zeros(()))  # steps, on the device: β moves without the host, inside a captured graph too
        noises = torch.randn(ROWS, samples, network.latent, generator=torch.Generator().manual_seed(0))
        self.register_buffer("noises", noises, persistent=False)

    def label(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.classes else None

    def seen(self, batch: Batch) -> Tensor:
        """What is encoded, and told by the decoder."""
        return batch["x"]

    def weight(self) -> Tensor | float:
        """β now."""
        if not self.warmup:
            return self.beta
        return self.beta * (self.taken / self.warmup).clamp(max=1.0)

    def stepped(self, player: str = "model") -> None:
        if self.warmup:
            self.taken.add_(1)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x, y = self.seen(batch), self.label(batch)
        mu, log_variance = self.network.encode(x, y)
        z = mu + (0.5 * log_variance).exp() * torch.randn(self.samples, *mu.shape, device=mu.device)   # (k, B, latent)
        nll = self.surprise(x, y, z)
        if self.samples > 1:
            return {"loss": -importance_bound(log_normal(z) - log_normal(z, mu, log_variance) - nll).mean()}
        each = kl_to_standard(mu, log_variance).mean(0)                    # (latent,)
        kl = each.clamp(min=self.free_bits).sum() if self.free_bits else each.sum()
        return {"loss": nll.mean() + self.weight() * kl, "reconstruction": nll.mean(), "kl": each.sum()}

    def surprise(self, x: Tensor, y: Tensor | None, z: Tensor) -> Tensor:
        """−log p(x | z) of several codes for each example: (k, B, latent) -> (k, B)."""
        k, B, _ = z.shape
        out = self.network.decode(z.flatten(0, 1), y.repeat(k) if y is not None else None)
        return self.pixels.nll(out, x.repeat(k, *[1] * (x.ndim - 1))).view(k, B)

    def given_back(self, x: Tensor, out: Tensor) -> Batch:
        """How near the decoder comes to each example."""
        return {"psnr": metrics.psnr(self.pixels.mean(out), x)}

    def judge(self, batch: Batch) -> Batch:
        x, y = self.seen(batch), self.label(batch)
        mu, log_variance = self.network.encode(x, y)
        z = mu + (0.5 * log_variance).exp() * self.noises[batch["row"] % ROWS].movedim(1, 0)
        nll, each = self.surprise(x, y, z), kl_to_standard(mu, log_variance)
        kl = each.sum(1)
        bound = importance_bound(log_normal(z) - log_normal(z, mu, log_variance) - nll)
        rows = {
            "loss": -bound if self.samples > 1 else nll[0] + self.beta * kl,
            "reconstruction": nll.mean(0), "kl": kl, "kl_each": each, "latent": mu,
        } | self.given_back(x, self.network.decode(mu, y))
        return rows | ({"y": batch["y"]} if "y" in batch else {})

    def score(self, rows: Batch) -> dict[str, float]:
        means = {name: float(column.double().mean()) for name, column in rows.items() if name not in ("loss", "latent", "kl_each", "y")}
        elbo = -means["reconstruction"] - means["kl"]
        return super().score(rows) | {"elbo": elbo} | means | {"active_units": float(active_units(rows["latent"]))}

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """The mean image of p(x | z) for n codes from the prior."""
        return self.shown(self.codes(n, generator), asked(n, label, self.classes, generator.device))

    def shown(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.pixels.mean(self.network.decode(z, y))

    def codes(self, n: int, generator: Generator) -> Tensor:
        return normal(n, self.network.latent, generator)

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        return self.shown(z, y)

    def embed(self, batch: Batch) -> Tensor:
        return self.network.encode(self.seen(batch), self.label(batch))[0]

    def encode(self, batch: Batch) -> Tensor:
        return self.embed(batch)

    def restore(self, batch: Batch) -> Tensor:
        """Through the mean code and back; of a model that was told the classes, as the class that explains the image best."""
        batch = batch if not self.classes or "y" in batch else batch | {"y": self.likeliest(batch["x"])}
        return self.shown(self.embed(batch), self.label(batch))

    def likeliest(self, x: Tensor) -> Tensor:
        """argmax_y of the ELBO of x given y, z = μ(x, y): (B,)."""
        costs = []
        for k in range(self.classes):
            y = torch.full((len(x),), k, device=x.device)
            mu, log_variance = self.network.encode(x, y)
            costs.append(self.pixels.nll(self.network.decode(mu, y), x) + kl_to_standard(mu, log_variance).sum(1))
        return torch.stack(costs).argmin(0)

    def exhibit(self, batch: Batch) -> Batch:
        return {"reconstruction": self.restore(batch)}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x, y = batch["x"], self.label(batch)
        mu, _ = self.network.encode(x, y)
        classes, first = self.network.classes, None if y is None else y[:SHOWN]
        found = {
            "samples": by_class(self.sample, classes, seeded(x)),
            "reconstructions": torch.stack([x[:SHOWN], self.shown(mu[:SHOWN], first)]),
        }
        if rows := min(len(mu) // 2, SHOWN // 2):
            same = None if y is None else y[:rows].repeat_interleave(SHOWN)
            found["interpolation"] = rows_of(self.shown(between(mu[:rows], mu[-rows:]), same))
        widest = mu.var(0, correction=0).argsort(descending=True)[:SHOWN]
        still = None if y is None else y[:1].expand(SHOWN * len(widest))
        found["one dimension at a time"] = rows_of(self.shown(traversal(mu[0], widest), still))
        if self.network.latent == 2 and y is None:
            found["plane of codes"] = rows_of(self.shown(plane().to(mu)), 2 * SHOWN)
        return found
