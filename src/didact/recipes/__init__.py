"""All recipes: importing this package registers them, so that `didact list` and `didact.train` find them.

A recipe is a function of loaded data and typed keywords that returns an Experiment; one file per family:

    mlp, tabular, regression, regularization, optimizers, grokking           tables, curves and training itself
    cnn, transfer, segmentation, detection, denoising               images
    rnn, copy_task, forecast, word2vec                              sequences
    transformers, gpt, fine_tune                                    text with attention
    fasttext                                                        text as n-grams
    autoencoders, gan, diffusion, consistency, latent_diffusion,
    realnvp, pixelcnn, vqvae_prior                                  generative models
    scratch                                                         the NumPy engine
    _hyperparameters, _defaults                                     shared options; budgets and defaults from the data
    _initial_weights, _source_run, _word_vectors                    what an earlier training hands over
"""

from didact.recipes.autoencoders import autoencoder, semi_supervised, vae, vqvae
from didact.recipes.cnn import cnn, cnn_ablation
from didact.recipes.consistency import consistency
from didact.recipes.copy_task import copy_task
from didact.recipes.denoising import denoising
from didact.recipes.detection import detection
from didact.recipes.diffusion import diffusion, flow_matching
from didact.recipes.fasttext import fasttext
from didact.recipes.fine_tune import fine_tune
from didact.recipes.forecast import forecast
from didact.recipes.gan import dcgan, gan, stylegan, wgan
from didact.recipes.gpt import gpt
from didact.recipes.grokking import grokking
from didact.recipes.latent_diffusion import latent_diffusion
from didact.recipes.mlp import mlp, mlp_wide_deep
from didact.recipes.optimizers import optimizers
from didact.recipes.pixelcnn import pixelcnn, pixelrnn
from didact.recipes.realnvp import realnvp
from didact.recipes.regression import approximate, bagging, uncertain_regression
from didact.recipes.regularization import dropout_weight_decay, regularized_mlp
from didact.recipes.rnn import char_rnn, seq2seq, text_rnn
from didact.recipes.scratch import scratch_gpt, scratch_lenet, scratch_manual, scratch_mlp, scratch_rnn
from didact.recipes.segmentation import segmentation
from didact.recipes.tabular import tabular
from didact.recipes.transfer import transfer
from didact.recipes.transformers import bert, text_transformer, translate
from didact.recipes.vqvae_prior import vqvae_prior
from didact.recipes.word2vec import word2vec

__all__ = [
    "approximate",
    "autoencoder",
    "bagging",
    "bert",
    "char_rnn",
    "cnn",
    "cnn_ablation",
    "consistency",
    "copy_task",
    "dcgan",
    "denoising",
    "detection",
    "diffusion",
    "dropout_weight_decay",
    "fasttext",
    "fine_tune",
    "flow_matching",
    "forecast",
    "gan",
    "gpt",
    "grokking",
    "latent_diffusion",
    "mlp",
    "mlp_wide_deep",
    "optimizers",
    "pixelcnn",
    "pixelrnn",
    "realnvp",
    "regularized_mlp",
    "scratch_gpt",
    "scratch_lenet",
    "scratch_manual",
    "scratch_mlp",
    "scratch_rnn",
    "segmentation",
    "semi_supervised",
    "seq2seq",
    "stylegan",
    "tabular",
    "text_rnn",
    "text_transformer",
    "transfer",
    "translate",
    "uncertain_regression",
    "vae",
    "vqvae",
    "vqvae_prior",
    "wgan",
    "word2vec",
]
