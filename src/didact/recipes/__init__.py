"""The catalogue: importing it registers every recipe."""

from didact.recipes.curves import approximate, bagging, uncertain_regression
from didact.recipes.mlp import mlp, mlp_wide_deep
from didact.recipes.optimizers import optimizers
from didact.recipes.regularised import dropout_weight_decay, regularised_mlp
from didact.recipes.scratch import scratch_gpt, scratch_lenet, scratch_manual, scratch_mlp, scratch_rnn
from didact.recipes.vision import cnn

__all__ = [
    "approximate",
    "bagging",
    "cnn",
    "dropout_weight_decay",
    "mlp",
    "mlp_wide_deep",
    "optimizers",
    "regularised_mlp",
    "scratch_gpt",
    "scratch_lenet",
    "scratch_manual",
    "scratch_mlp",
    "scratch_rnn",
    "uncertain_regression",
]
