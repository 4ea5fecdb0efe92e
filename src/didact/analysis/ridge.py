"""Ridge regression in closed form, for every penalty from one eigendecomposition.

    min_W ‖Y − X W‖² / N + α s² ‖W‖²,   W = V (Λ + α)⁻¹ Vᵀ Xᵀ Y / (N s²),   Xᵀ X / (N s²) = V Λ Vᵀ

of centered X and Y; s² is the mean square of X, so that α has no unit. scikit-learn's alpha is N s² α.
Hoerl & Kennard 1970.
"""

import torch
from torch import Tensor

PENALTIES = tuple(10.0**k for k in range(-5, 4))


class RidgeRegression:
    """The solutions for features (N, P) and targets (N, K)."""

    def __init__(self, x: Tensor, y: Tensor):
        x, y = x.double(), y.double()
        self.x_mean, self.y_mean = x.mean(0), y.mean(0)
        centered = x - self.x_mean
        self.scale = centered.square().mean().sqrt().clamp(min=1e-12)
        centered = centered / self.scale
        self.eigenvalues, self.eigenvectors = torch.linalg.eigh(centered.T @ centered / len(x))
        self.projections = self.eigenvectors.T @ (centered.T @ (y - self.y_mean)) / len(x)

    def get_weights(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Weight (K, P) and bias (K,) of a linear layer."""
        shrunk = self.projections / (self.eigenvalues.clamp(min=0) + penalty)[:, None]
        weight = (self.eigenvectors @ shrunk / self.scale).T
        return weight, self.y_mean - weight @ self.x_mean

    def predict(self, x: Tensor, penalty: float) -> Tensor:
        weight, bias = self.get_weights(penalty)
        return x.double() @ weight.T + bias
