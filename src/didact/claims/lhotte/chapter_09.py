"""Lhotte, chapter 9: GPT and LoRA."""


import torch
from torch import Tensor, nn
from torch.linalg import matrix_rank

from didact.adaptation.int8 import Int8Linear, quantize_module
from didact.adaptation.lora import LoRA, add_lora
from didact.claims.forms import Approximately, Display, Equal, LessOrEqual
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.models.text.gpt import GPT


@claim("CL43", Approximately(1.5, 0.05, "stated with 'about'"))
def size_of_gpt_2() -> float:
    """billions of parameters of didact's GPT-2 in its largest size: 48 layers of 1600, 25 heads, 1024 positions, 50,257
    tokens"""
    with torch.device("meta"):
        net = GPT(50_257, context_length=1024, embed_dim=1600, num_layers=48, num_heads=25)
    return count_parameters(net) / 1e9


@claim("CL44", LessOrEqual())
def rank_of_lora() -> Pair:
    """rank of the update of a 20 × 30 matrix by didact's LoRA, and of the sum of its r outer products, against r = 1,
    2, 5, and 4 with B = 0"""
    ranks = []
    for r in (1, 2, 5):
        layer = LoRA(nn.Linear(30, 20), rank=r)
        nn.init.normal_(layer.b)
        sum_of_products = sum((torch.outer(layer.b[:, i], layer.a[i]) for i in range(r)), torch.zeros(20, 30))
        ranks += [matrix_rank(_lora_update(layer)), matrix_rank(sum_of_products)]
    return [*ranks, matrix_rank(_lora_update(LoRA(nn.Linear(30, 20), rank=4)))], [1, 1, 2, 2, 5, 5, 4]


def _lora_update(layer: LoRA) -> Tensor:
    """W − W_0 after merging."""
    weight_before = layer.layer.get_parameter("weight").detach().clone()
    return layer.merge_weights().get_parameter("weight").detach() - weight_before


@claim("CL45", LessOrEqual(), remark="for r below d_in d_out/(d_in + d_out): 16 × 16 with r = 8 saves nothing")
def parameters_of_lora() -> Display:
    """trainable parameters of didact's LoRA for a layer, r = 8, against r(d_in + d_out) and d_in d_out − 1: 17 × 17 to
    1024 × 256"""
    sizes, r = ((17, 17), (64, 256), (1024, 256)), 8
    counts = [add_lora(nn.Sequential(nn.Linear(i, o)), rank=r) for i, o in sizes]
    full = [i * o for i, o in sizes]
    return Display(
        (counts * 2, [r * (i + o) for i, o in sizes] + [n - 1 for n in full]), {"LoRA": counts, "full matrix": full}
    )


@claim("CL46", Equal(1e-3))
def memory_of_eight_bits() -> Display:
    """bytes of a 300 × 400 layer in didact's int8, over a quarter of its 32-bit weights plus a scale per row and the
    biases; and the largest |w − s q| over s/2"""
    net = nn.Sequential(nn.Linear(400, 300, dtype=torch.float32))
    w = net[0].get_parameter("weight").detach().clone()
    sizes, layer = quantize_module(net), net[0]
    assert isinstance(layer, Int8Linear)
    expected, s = w.nbytes / 4 + 4 * 300 + 4 * 300, layer.s[:, None]
    error = ((w - s * layer.q).abs() / (s / 2)).max()
    return Display(
        ([sizes.bytes_after / expected, error], [1.0, 1.0]),
        {"bytes before": sizes.bytes_before, "after": sizes.bytes_after},
    )
