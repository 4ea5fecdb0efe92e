"""Lhotte, chapter 1: mathematical prerequisites."""

import numpy as np
import torch
from torch import Tensor, nn

from didact import scratch
from didact.adaptation.lora import LoRA
from didact.claims.forms import Exactly
from didact.claims.registry import claim
from didact.models.tabular.mlp import MLP
from didact.scratch import modules
from didact.scratch.gradients.compare_gradients import compare_gradients


@claim("CL01", Exactly((6.5, 2.0)))
def linear_model() -> tuple[float, float]:
    """didact's linear model with w = 2 and b = 0.5: its prediction at 3.0, which is w x + b, and its w"""
    model = modules.Linear(1, 1, dtype=np.float64)
    model.load_state_dict({"weight": [[2.0]], "bias": [0.5]})
    return model(scratch.tensor([[3.0]])).item(), model.weight.item()


@claim("CL02", Exactly("torch.Size([4, 1])"))
def tiny_mlp() -> str:
    """didact's MLP 10 – 32 – 1 on a 4 × 10 input"""
    return str(MLP(10, 1, hidden=(32,))(torch.randn(4, 10)).shape)


@claim("CL03", Exactly("tensor(2.)"))
def derivative_of_a_square() -> str:
    """∂x²/∂x at 1, by didact's own engine, as torch prints it"""
    return str(torch.tensor(compare_gradients("x**2", {"x": 1.0})["reverse"]["x"]))


@claim("CL04", Exactly((2.0, 3.0)))
def gradient_of_two_variables() -> tuple[float, ...]:
    """∇(x₁² + 3x₂) at (1, 2), by didact's own engine"""
    return tuple(compare_gradients("a**2 + 3*b", {"a": 1.0, "b": 2.0})["reverse"].values())


@claim("CL05", Exactly((1, 0)))
def rank_of_an_outer_product() -> tuple[int, ...]:
    """the rank of aaᵀ for a = (1, 2, 3), and for a = 0: as the update of didact's LoRA of rank 1 with B = a and A =
    aᵀ"""
    def rank(a: Tensor) -> int:
        layer = LoRA(nn.Linear(3, 3, bias=False), rank=1)
        w = layer.layer.get_parameter("weight")
        w.data.zero_()
        layer.a.data, layer.b.data = a[None], a[:, None]
        layer.merge_weights()
        return int(torch.linalg.matrix_rank(w))

    return rank(torch.tensor([1.0, 2, 3])), rank(torch.zeros(3))
