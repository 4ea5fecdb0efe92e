"""GPT-2 for one token at a time: five kernels a layer instead of twenty."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from didact.layers.attention.kv_cache import KVCache
    from didact.models.text.gpt import GPT, Block, Conv1D


class FastDecoder:
    """The same numbers as `GPT.go_on` for a single new token a text; holds the matrices once more, laid out for
    that."""

    def __init__(self, model: "GPT"):
        self.model = model
        self.matrices = [
            [layer.weight.detach().mT.contiguous() for layer in _linear_layers(block)] for block in model.blocks
        ]

    def __call__(self, tokens: Tensor, cache: "KVCache") -> Tensor:
        """Logits behind these tokens, (B, 1) -> (B, V); the cache holds them afterwards."""
        from didact.kernels.decode import decode_attention, fused_norm_linear

        model = self.model
        x = model.wte(tokens[:, 0]) + model.wpe(cache.length)
        for layer, (block, (qkv, out, up, down)) in enumerate(zip(model.blocks, self.matrices, strict=True)):
            b_qkv, b_out, b_up, b_down = (part.bias for part in _linear_layers(block))
            y = decode_attention(
                fused_norm_linear(x, qkv, b_qkv, norm=block.ln_1), cache.k[layer], cache.v[layer], cache.length
            )
            x = fused_norm_linear(y, out, b_out, residual=x)
            x = fused_norm_linear(fused_norm_linear(x, up, b_up, norm=block.ln_2, gelu=True), down, b_down, residual=x)
        cache.length.add_(1)
        return fused_norm_linear(x, model.head, norm=model.ln_f)


def _linear_layers(block: "Block") -> "tuple[Conv1D, ...]":
    mlp: Any = block.mlp           # a perceptron: `swift` passes over experts
    return block.attn.c_attn, block.attn.c_proj, mlp.c_fc, mlp.c_proj


def make_fast_decoder(model: "GPT", batch_size: int) -> FastDecoder | None:
    """Where it can be had: on a GPU that Triton knows, for few texts at once, with matrices as GPT-2 has them (no
    LoRA, bytes, experts)."""
    w = model.wte.weight
    if not w.is_cuda or find_spec("triton") is None or not all(hasattr(block.mlp, "c_fc") for block in model.blocks):
        return None
    from didact.kernels.decode import is_supported

    has_plain_layers = all(
        getattr(layer, "inputs_first", False) for block in model.blocks for layer in _linear_layers(block)
    )
    return (
        FastDecoder(model) if has_plain_layers and is_supported(batch_size, w.shape[1] // model.num_heads, w) else None
    )
