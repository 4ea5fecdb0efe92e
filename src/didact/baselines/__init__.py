"""Baselines: what simple models reach on the test rows of a run, so that a network's metrics mean something.

    core      Baseline; fit_baselines of any data; scores in the metrics of a run
    tables    the mean or majority, linear models, gradient boosting
    texts     the mean or majority, linear models on TF-IDF of words and of pieces of characters
    series    naive and seasonal naive forecast, ridge regression on lags, exponential smoothing

Those of tables and texts are scikit-learn's, with its defaults, fitted to the training and validation rows: they need
no validation split. Those of series are fitted to the training part, as the run is.
"""

from didact.baselines.core import Baseline, fit_baselines

__all__ = ["Baseline", "fit_baselines"]
