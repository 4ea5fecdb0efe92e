"""Metrics of generated images: distance to real ones, coverage, diversity. Features (N, D) are given, of any extractor.
"""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_ACTIVE_VARIANCE = 0.01   # variance over examples above which a latent dimension counts as active


def bits_per_dim(log_p: Tensor, num_dims: int) -> Tensor:
    """−log p(x) / (D log 2): nats of a whole example as bits for each of its D numbers.  Theis et al. 2016."""
    return -log_p / (num_dims * log(2))


def gaussian_frechet_distance(x: Tensor, y: Tensor) -> Tensor:
    """Fréchet distance (FID): ‖μx − μy‖² + Tr(Σx + Σy − 2 (Σx Σy)^½), of Gaussians fitted to each.  Heusel et al. 2017;
    Gaba eq. 8.19.

    Tr (Σx Σy)^½ is the trace of (A Σy A)^½ with A = Σx^½, whose eigenvalues are real and not negative.
    """
    x, y = x.double(), y.double()
    sx, sy = covariance(x), covariance(y)
    values, vectors = torch.linalg.eigh(sx)
    a = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    root: Tensor = torch.linalg.eigvalsh(a @ sy @ a).clamp(min=0).sqrt().sum()
    return (x.mean(0) - y.mean(0)).square().sum() + sx.trace() + sy.trace() - 2 * root


def covariance(x: Tensor) -> Tensor:
    centered = x - x.mean(0)
    return centered.mT @ centered / max(1, len(x) - 1)


def kernel_distance(x: Tensor, y: Tensor) -> Tensor:
    """E k(x, x') + E k(y, y') − 2 E k(x, y), k = (x·y / D + 1)³, without bias.  KID, Bińkowski et al. 2018, eq. 4."""
    x, y = x.double(), y.double()

    def k(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.mT / a.shape[1] + 1) ** 3

    def mean_off_diagonal(a: Tensor) -> Tensor:
        """The mean over pairs of different examples."""
        n, each = len(a), k(a, a)
        return (each.sum() - each.trace()) / (n * (n - 1))

    return mean_off_diagonal(x) + mean_off_diagonal(y) - 2 * k(x, y).mean()


def manifold_precision_recall(real: Tensor, generated: Tensor, *, k: int = 3) -> tuple[Tensor, Tensor]:
    """Precision: fraction of generated examples inside the real manifold; recall: of real ones inside the generated
    manifold.

    The manifold of a set of examples is the union of balls around them, each reaching to the example's k-th neighbor.
    Kynkäänniemi et al. 2019, eqs. 1-2.
    """
    # float64: cdist squares by products, which lose small distances in float32
    real, generated = real.double(), generated.double()

    def inside(points: Tensor, members: Tensor) -> Tensor:
        radius = torch.cdist(members, members).kthvalue(k + 1, dim=1).values  # the nearest is the member itself
        return (torch.cdist(points, members) <= radius).any(1).double().mean()

    return inside(generated, real), inside(real, generated)


def inception_score(p: Tensor) -> Tensor:
    """exp E KL(p(y | x) ‖ p(y)), from 1 to K: large if each image is clear and all differ.  Salimans et al. 2016; Gaba
    eq. 8.18.
    """
    p = p.double()
    # H(y) − H(y | x)
    mutual_information: Tensor = torch.special.entr(p.mean(0)).sum() - torch.special.entr(p).sum(1).mean()
    return mutual_information.exp()


def _class_shares(labels: Tensor, num_classes: int) -> Tensor:
    """The fraction of each class."""
    return F.one_hot(labels, num_classes).double().mean(0)


def class_coverage(generated: Tensor, real: Tensor, num_classes: int, *, min_share: float = 0.25) -> Tensor:
    """Fraction of the real classes that are generated at least `min_share` times as often as they are real; mode
    collapse lowers it.
    """
    real_shares, generated_shares = _class_shares(real, num_classes), _class_shares(generated, num_classes)
    return (generated_shares >= min_share * real_shares)[real_shares > 0].double().mean()


def class_entropy(labels: Tensor, num_classes: int) -> Tensor:
    """−Σ p_k log p_k / log K of the frequencies of generated classes: 1 for a uniform distribution, 0 for one class
    alone.
    """
    entropy: Tensor = torch.special.entr(_class_shares(labels, num_classes)).sum()
    return entropy / log(num_classes)


def class_evenness(generated: Tensor, real: Tensor, num_classes: int) -> Tensor:
    """min_k r_k / max_k r_k, r_k the fraction of a class among generated over that among real images: ½ if all are
    within a factor of two.
    """
    real_shares = _class_shares(real, num_classes)
    ratio = _class_shares(generated, num_classes)[real_shares > 0] / real_shares[real_shares > 0]
    return ratio.min() / ratio.max().clamp(min=1e-12)          # 0 if none of the real classes is generated


def class_metrics(generated: Tensor, real: Tensor, num_classes: int) -> dict[str, float]:
    """Metrics of mode collapse and imbalance, from the class labels of generated and of real images."""
    generated_shares = _class_shares(generated, num_classes)[_class_shares(real, num_classes) > 0]
    return {
        "class_coverage": float(class_coverage(generated, real, num_classes)),
        "class_entropy": float(class_entropy(generated, num_classes)),
        "rarest": float(generated_shares.min()),
        "commonest": float(generated_shares.max()),
        "evenness": float(class_evenness(generated, real, num_classes)),
    }


def perplexity(counts: Tensor) -> Tensor:
    """exp −Σ p_k log p_k: the effective number of codes in use.  Van den Oord et al. 2017."""
    p = counts.double() / counts.sum()
    entropy: Tensor = torch.special.entr(p).sum()
    return entropy.exp()


def active_units(latent: Tensor, *, min_variance: float = MIN_ACTIVE_VARIANCE) -> Tensor:
    """Number of dimensions of E q(z | x) whose variance over x exceeds 0.01; the others have collapsed onto the prior.

    Burda et al. 2016.
    """
    return (latent.double().var(0, correction=0) > min_variance).sum()
