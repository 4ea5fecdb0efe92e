"""Int8 quantization of weights: a quarter of the memory, and a known error.  Lhotte 9.2.

    s_i = max_j |W_ij| / 127,   q_ij = round(W_ij / s_i),   W ≈ s q, a scale for each output
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.parametrize import register_parametrization

from didact.adaptation.lora import as_out_in, is_affine, merge_lora, packed_weights, replace_layers, weight_out_in


def quantize_tensor(w: Tensor) -> tuple[Tensor, Tensor]:
    """q in −127 … 127 and s: (…, outputs, inputs) -> the same, (…, outputs, 1). The error of a weight is at most s / 2.
    """
    s = w.abs().amax(dim=-1, keepdim=True) / 127
    s = torch.where(s > 0, s, 1.0)                      # a row of zeros stays zero
    return (w / s).round().to(torch.int8), s


class Int8Linear(nn.Module):
    """y = s ⊙ (q x) + b: weights are stored in int8 and converted to the data type of x when used."""

    q: Tensor
    s: Tensor

    def __init__(self, layer: nn.Module):
        super().__init__()
        q, s = quantize_tensor(weight_out_in(layer))
        self.register_buffer("q", q)
        self.register_buffer("s", s[:, 0])
        self.bias = layer.bias
        self.out_features, self.in_features = q.shape

    def forward(self, x: Tensor) -> Tensor:
        y = linear(x, self.q.to(x.dtype)) * self.s
        return y if self.bias is None else y + self.bias  # type: ignore[operator]


class Int8Embedding(nn.Module):
    """E[i] = s_i q_i, a scale for each token. `weight` is the dequantized table, for its use as an output matrix."""

    q: Tensor
    s: Tensor

    def __init__(self, table: nn.Embedding):
        super().__init__()
        q, s = quantize_tensor(table.weight.data)
        self.register_buffer("q", q)
        self.register_buffer("s", s)
        self.num_embeddings, self.embedding_dim = q.shape

    @property
    def weight(self) -> Tensor:
        return self.s * self.q

    def forward(self, i: Tensor) -> Tensor:
        return self.s[i] * self.q[i]


class DequantizedWeight(nn.Module):
    """Parametrization s q of a weight that is no layer of its own, such as packed W_Q, W_K, W_V and stacked experts."""

    def forward(self, q: Tensor, s: Tensor) -> Tensor:
        return s * q

    def right_inverse(self, w: Tensor) -> tuple[Tensor, Tensor]:
        q, s = quantize_tensor(as_out_in(w))
        return as_out_in(q).contiguous(), as_out_in(s).contiguous()


@dataclass(frozen=True)
class QuantizationReport:
    """Result of a quantization: layers changed, bytes before and after, ‖W − s q‖ / ‖W‖ over all of them."""

    num_layers: int
    bytes_before: int
    bytes_after: int
    relative_error: float

    def __str__(self) -> str:
        return (
            f"{self.num_layers} layers in int8: {self.bytes_before / 1e6:.1f} MB -> {self.bytes_after / 1e6:.1f} MB, "
            f"relative error {self.relative_error:.4f}"
        )


@torch.no_grad()
def quantize_module(module: nn.Module) -> QuantizationReport:
    """Quantize every affine layer and embedding inside, packed W_Q, W_K, W_V of attention, and experts, in place.

    LoRA is merged first. An output matrix that is tied to a layer's weight is stored a second time.
    """
    merge_lora(module)
    squared_error = squared_norm = 0.0
    for w in _quantizable_weights(module):
        q, s = quantize_tensor(w)
        squared_error += float((w - s * q).square().sum())
        squared_norm += float(w.square().sum())
    bytes_before = _num_bytes(module)
    num_layers = replace_layers(module, lambda _, child: is_affine(child), Int8Linear)
    num_layers += replace_layers(module, lambda _, child: isinstance(child, nn.Embedding), Int8Embedding)  # type: ignore[arg-type]
    for _, child, weight_name in (packed := packed_weights(module)):
        child.get_parameter(weight_name).requires_grad_(False)                 # integers have no gradient
        register_parametrization(child, weight_name, DequantizedWeight())
    return QuantizationReport(
        num_layers + len(packed),
        bytes_before,
        _num_bytes(module),
        (squared_error / squared_norm) ** 0.5 if squared_norm else 0.0,
    )


def _quantizable_weights(module: nn.Module) -> Iterator[Tensor]:
    """Weights that are quantized, as (outputs, inputs), stacks of these, or (tokens, width)."""
    yield from (
        weight_out_in(child) for child in module.modules() if is_affine(child) or isinstance(child, nn.Embedding)
    )
    yield from (as_out_in(child.get_parameter(weight_name)) for _, child, weight_name in packed_weights(module))


def _num_bytes(module: nn.Module) -> int:
    """Bytes of all parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
