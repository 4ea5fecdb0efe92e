"""Objectives: what is minimized. Each owns its networks and knows the loss of a batch and the metrics of a split.

    base, abilities   the contract with the training loop: Objective, Player; what a trained objective can do
    supervised        classification and regression;  transfer  fine-tuning;  mc_dropout  uncertainty
    ensemble          the mean of several networks: over folds;  bagging: over bootstrap samples
    distributions/    likelihoods of classes, numbers and pixels: cross-entropy, MSE, Huber; label smoothing
    text/             language models, masked LM, sequence to sequence, tagging, word2vec; chunked cross-entropy
    vision/           object detection, semantic segmentation, restoration
    generative/       autoencoders, VAE, VQ-VAE, GAN, diffusion, flow matching, normalizing flows, autoregressive images
    here              losses (R-Drop), semi_supervised, forecasting, feature_cache, numpy_engine

    from didact.objectives import Classify, VAEObjective
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.objectives.abilities import ABILITIES as ABILITIES
    from didact.objectives.abilities import CanClassify as CanClassify
    from didact.objectives.abilities import CanGenerateText as CanGenerateText
    from didact.objectives.abilities import CanRegress as CanRegress
    from didact.objectives.abilities import CanSample as CanSample
    from didact.objectives.abilities import MeanAndStd as MeanAndStd
    from didact.objectives.bagging import Bagging as Bagging
    from didact.objectives.base import Objective as Objective
    from didact.objectives.base import Player as Player
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
    from didact.objectives.ensemble import Ensemble as Ensemble
    from didact.objectives.ensemble import FoldEnsemble as FoldEnsemble
    from didact.objectives.feature_cache import FeatureCache as FeatureCache
    from didact.objectives.forecasting import ForecastObjective as ForecastObjective
    from didact.objectives.generative.autoencoder import AutoencoderObjective as AutoencoderObjective
    from didact.objectives.generative.consistency import ConsistencyObjective as ConsistencyObjective
    from didact.objectives.generative.diffusion import DiffusionObjective as DiffusionObjective
    from didact.objectives.generative.flow import FlowObjective as FlowObjective
    from didact.objectives.generative.flow import ImageFlowObjective as ImageFlowObjective
    from didact.objectives.generative.flow_matching import FlowMatchingObjective as FlowMatchingObjective
    from didact.objectives.generative.gan import GAN_LOSSES as GAN_LOSSES
    from didact.objectives.generative.gan import GANLoss as GANLoss
    from didact.objectives.generative.gan import GANObjective as GANObjective
    from didact.objectives.generative.gan import gradient_penalty as gradient_penalty
    from didact.objectives.generative.latent_diffusion import LatentDiffusionObjective as LatentDiffusionObjective
    from didact.objectives.generative.noise_schedule import NoiseSchedule as NoiseSchedule
    from didact.objectives.generative.pixel_autoregressive import (
        PixelAutoregressiveObjective as PixelAutoregressiveObjective,
    )
    from didact.objectives.generative.table_flow import TableFlow as TableFlow
    from didact.objectives.generative.table_gan import TableGAN as TableGAN
    from didact.objectives.generative.table_rows import RowLayout as RowLayout
    from didact.objectives.generative.table_vae import TableVAE as TableVAE
    from didact.objectives.generative.vae import VAEObjective as VAEObjective
    from didact.objectives.generative.vae import iwae_bound as iwae_bound
    from didact.objectives.generative.vae import kl_standard_normal as kl_standard_normal
    from didact.objectives.generative.vqvae import VQVAEObjective as VQVAEObjective
    from didact.objectives.generative.vqvae_prior import CodePrior as CodePrior
    from didact.objectives.losses import r_drop as r_drop
    from didact.objectives.numpy_engine import NumpyEngineObjective as NumpyEngineObjective
    from didact.objectives.semi_supervised import SemiSupervisedObjective as SemiSupervisedObjective
    from didact.objectives.supervised import Classify as Classify
    from didact.objectives.supervised import RDrop as RDrop
    from didact.objectives.supervised import Regress as Regress
    from didact.objectives.supervised import Supervised as Supervised
    from didact.objectives.supervised import likelihood_for as likelihood_for
    from didact.objectives.supervised import make_supervised as make_supervised
    from didact.objectives.text.causal_lm import CausalLanguageModel as CausalLanguageModel
    from didact.objectives.text.causal_lm import GenerativeLanguageModel as GenerativeLanguageModel
    from didact.objectives.text.language_model import LanguageModel as LanguageModel
    from didact.objectives.text.language_model import next_token_loss as next_token_loss
    from didact.objectives.text.masked_lm import MaskedLanguageModel as MaskedLanguageModel
    from didact.objectives.text.seq2seq import Seq2SeqObjective as Seq2SeqObjective
    from didact.objectives.text.tagging import TaggingObjective as TaggingObjective
    from didact.objectives.text.word2vec import NegativeSamplingObjective as NegativeSamplingObjective
    from didact.objectives.text.word2vec import negative_sampling as negative_sampling
    from didact.objectives.transfer import TransferClassifier as TransferClassifier
    from didact.objectives.vision.detection import DetectionObjective as DetectionObjective
    from didact.objectives.vision.detection import SSDObjective as SSDObjective
    from didact.objectives.vision.detection import YOLOObjective as YOLOObjective
    from didact.objectives.vision.restoration import RestorationObjective as RestorationObjective
    from didact.objectives.vision.segmentation import SegmentationObjective as SegmentationObjective
    from didact.objectives.vision.segmentation import dice_loss as dice_loss

_EXPORTS = {
    "ABILITIES": "abilities",
    "AutoencoderObjective": "generative.autoencoder",
    "Bagging": "bagging",
    "Bernoulli": "distributions.classification",
    "CanClassify": "abilities",
    "CanGenerateText": "abilities",
    "CanRegress": "abilities",
    "CanSample": "abilities",
    "Categorical": "distributions.classification",
    "CausalLanguageModel": "text.causal_lm",
    "Classify": "supervised",
    "CodePrior": "generative.vqvae_prior",
    "ConsistencyObjective": "generative.consistency",
    "DetectionObjective": "vision.detection",
    "DiffusionObjective": "generative.diffusion",
    "Ensemble": "ensemble",
    "FeatureCache": "feature_cache",
    "FoldEnsemble": "ensemble",
    "FlowMatchingObjective": "generative.flow_matching",
    "FlowObjective": "generative.flow",
    "ForecastObjective": "forecasting",
    "GANLoss": "generative.gan",
    "GANObjective": "generative.gan",
    "GAN_LOSSES": "generative.gan",
    "GenerativeLanguageModel": "text.causal_lm",
    "Heteroscedastic": "distributions.regression",
    "Huber": "distributions.regression",
    "ImageFlowObjective": "generative.flow",
    "LanguageModel": "text.language_model",
    "Laplace": "distributions.regression",
    "LatentDiffusionObjective": "generative.latent_diffusion",
    "Likelihood": "distributions.base",
    "MaskedLanguageModel": "text.masked_lm",
    "MeanAndStd": "abilities",
    "MultiLabelBernoulli": "distributions.classification",
    "NegativeSamplingObjective": "text.word2vec",
    "NoiseSchedule": "generative.noise_schedule",
    "Normal": "distributions.regression",
    "NumpyEngineObjective": "numpy_engine",
    "Objective": "base",
    "PixelAutoregressiveObjective": "generative.pixel_autoregressive",
    "PixelDistribution": "distributions.pixels",
    "Player": "base",
    "RDrop": "supervised",
    "Regress": "supervised",
    "RestorationObjective": "vision.restoration",
    "RowLayout": "generative.table_rows",
    "SSDObjective": "vision.detection",
    "SegmentationObjective": "vision.segmentation",
    "SemiSupervisedObjective": "semi_supervised",
    "Seq2SeqObjective": "text.seq2seq",
    "Supervised": "supervised",
    "TableFlow": "generative.table_flow",
    "TableGAN": "generative.table_gan",
    "TableVAE": "generative.table_vae",
    "TaggingObjective": "text.tagging",
    "TransferClassifier": "transfer",
    "VAEObjective": "generative.vae",
    "VQVAEObjective": "generative.vqvae",
    "YOLOObjective": "vision.detection",
    "dice_loss": "vision.segmentation",
    "gradient_penalty": "generative.gan",
    "iwae_bound": "generative.vae",
    "kl_standard_normal": "generative.vae",
    "likelihood_for": "supervised",
    "make_likelihood": "distributions.classification",
    "make_pixel_distribution": "distributions.pixels",
    "make_supervised": "supervised",
    "negative_sampling": "text.word2vec",
    "next_token_loss": "text.language_model",
    "r_drop": "losses",
    "smooth_labels": "distributions.label_smoothing",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
