"""Networks of table rows and of time series.

    mlp           multi-layer perceptron
    wide_deep     a linear model plus an MLP
    ensemble      K MLPs on piecewise linear encodings, as one network
    forecaster    recurrent forecaster of a time series
    linear_forecaster    Linear, NLinear, DLinear
    residual_forecaster  a linear forecaster plus a network
"""

from didact.models.tabular.ensemble import TabularEnsemble
from didact.models.tabular.forecaster import RNNForecaster
from didact.models.tabular.linear_forecaster import DLinearForecaster, LinearForecaster
from didact.models.tabular.mlp import MLP
from didact.models.tabular.residual_forecaster import ResidualForecaster
from didact.models.tabular.wide_deep import WideDeep

__all__ = [
    "MLP", "DLinearForecaster", "LinearForecaster", "RNNForecaster", "ResidualForecaster", "TabularEnsemble",
    "WideDeep",
]  # fmt: skip
