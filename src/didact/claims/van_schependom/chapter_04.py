"""Van Schependom, chapter 4: residual networks."""

import torch
from torch import nn
from torch.autograd.functional import jacobian

from didact.claims.forms import Equal
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.mlp import make_mlp_layers
from didact.layers.norm import PreNorm


@claim("CV19", Equal())
def jacobian_of_a_residual_block() -> Pair:
    """∂(h + f(h))/∂h of didact's residual block, without a norm, = I + ∂f/∂h"""
    f, h = make_mlp_layers((5, 8, 5), "tanh"), torch.randn(5)
    return jacobian(PreNorm(f, nn.Identity()), h), torch.eye(5) + jacobian(f, h)
