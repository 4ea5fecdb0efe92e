"""Networks of table rows and of time series.

    mlp           multi-layer perceptron
    wide_deep     a linear model plus an MLP
    forecaster    recurrent forecaster of a time series
"""

from didact.models.tabular.forecaster import RNNForecaster
from didact.models.tabular.mlp import MLP
from didact.models.tabular.wide_deep import WideDeep

__all__ = [
    "MLP", "RNNForecaster", "WideDeep",
]  # fmt: skip
