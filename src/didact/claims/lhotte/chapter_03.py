"""Lhotte, chapter 3: from neurons to deep networks."""

import numpy as np
import torch
from torch import nn

from didact import scratch
from didact.claims.forms import CorrectedClaim, Equal, Exactly
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.models.tabular.mlp import MLP
from didact.registry import create_model


@claim("CL12", Exactly("torch.Size([1, 1])"))
def one_neuron() -> str:
    """didact's MLP of one neuron and three inputs on a 1 × 3 input"""
    return str(MLP(3, 1, hidden=())(torch.randn(1, 3)).shape)


@claim(
    "CL13",
    Exactly(4),
    correction="three layers with weights, two of them hidden; the input is not a layer of the network",
)
def layers_of_a_network() -> int:
    """layers with weights of 2 → 16 → 16 → 1"""
    net = create_model("mlp", features=2, hidden=(16, 16), outputs=1)
    return sum(isinstance(m, nn.Linear) for m in net.modules())


@claim("CL14", Equal())
def gradient_of_a_matrix() -> Pair:
    """∂J/∂W = (∂J/∂z) uᵀ for z = W u and J = Σ(z − y)⁴, ∂J/∂z = 4(z − y)³, against didact's own engine"""
    W, u, y = torch.randn(4, 3), torch.randn(3), torch.randn(4)
    leaf = scratch.tensor(W.numpy(), requires_grad=True)
    (dW,) = scratch.grad(((leaf @ u.numpy() - y.numpy()) ** 4).sum(), (leaf,))
    return torch.outer(4 * (W @ u - y) ** 3, u), dW.data


@claim("CL15", Equal(), correction="(f∘g)′(x): the prime on the left is missing")
def chain_rule() -> CorrectedClaim:
    """(f∘g)(x) = g′(x) f′(g(x)) for sin∘exp; corrected: its derivative, by didact's own engine"""
    x = scratch.tensor(np.linspace(-1, 1, 20), requires_grad=True)
    composed = x.exp().sin()
    stated = np.exp(x.data) * np.cos(np.exp(x.data))
    return CorrectedClaim((composed.data, stated), (scratch.grad(composed.sum(), (x,))[0].data, stated))
