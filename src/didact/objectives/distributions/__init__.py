"""Likelihoods p(y | out): what a network's outputs say about targets. They define the losses of supervised learning.

    base              the contract: loss, mode, mean, samples and metrics
    classification    categorical, Bernoulli and multi-label likelihoods: cross-entropy, class weights
    label_smoothing   label smoothing
    regression        Normal (MSE), Laplace (L1), Huber, heteroscedastic
    pixels            the pixels of a decoder: Bernoulli, Gaussian, categorical
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.objectives.distributions.base import Likelihood as Likelihood
    from didact.objectives.distributions.classification import Bernoulli as Bernoulli
    from didact.objectives.distributions.classification import Categorical as Categorical
    from didact.objectives.distributions.classification import MultiLabelBernoulli as MultiLabelBernoulli
    from didact.objectives.distributions.classification import make_likelihood as make_likelihood
    from didact.objectives.distributions.label_smoothing import smooth_labels as smooth_labels
    from didact.objectives.distributions.pixels import PixelDistribution as PixelDistribution
    from didact.objectives.distributions.pixels import make_pixel_distribution as make_pixel_distribution
    from didact.objectives.distributions.regression import Heteroscedastic as Heteroscedastic
    from didact.objectives.distributions.regression import Huber as Huber
    from didact.objectives.distributions.regression import Laplace as Laplace
    from didact.objectives.distributions.regression import Normal as Normal

_EXPORTS = {
    "Bernoulli": "classification",
    "Categorical": "classification",
    "Heteroscedastic": "regression",
    "Huber": "regression",
    "Laplace": "regression",
    "Likelihood": "base",
    "MultiLabelBernoulli": "classification",
    "Normal": "regression",
    "PixelDistribution": "pixels",
    "make_likelihood": "classification",
    "make_pixel_distribution": "pixels",
    "smooth_labels": "label_smoothing",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
