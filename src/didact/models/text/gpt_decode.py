"""Fast decoding of GPT-2, one token at a time: five Triton kernels a layer instead of twenty kernels of PyTorch."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from didact.layers.attention.kv_cache import KVCache
    from didact.models.text.gpt import GPT, Block, Conv1D


class FastDecoder:
    """The numbers of `GPT.decode_step` for one new token per text. Holds a transposed copy of the matrices."""

    def __init__(self, model: "GPT"):
        self.model = model
        # (outputs, inputs): each output reads one contiguous row. The model keeps GPT-2's (inputs, outputs).
        self.matrices = [
            [layer.weight.detach().mT.contiguous() for layer in _linear_layers(block)] for block in model.blocks
        ]

    def __call__(self, tokens: Tensor, cache: "KVCache") -> Tensor:
        """Logits of the token after these, (B, 1) -> (B, V); afterwards the cache holds them, too."""
        from didact.kernels.decode import decode_attention, fused_norm_linear

        model = self.model
        x = model.wte(tokens[:, 0]) + model.wpe(cache.length)
        for layer, (block, (qkv, out, up, down)) in enumerate(zip(model.blocks, self.matrices, strict=True)):
            b_qkv, b_out, b_up, b_down = (part.bias for part in _linear_layers(block))
            # five kernels: LN + W_QKV, attention (writes the new key and value into the cache), W_O + residual,
            # LN + W_1 + GELU, W_2 + residual
            y = fused_norm_linear(x, qkv, b_qkv, norm=block.ln_1)
            y = decode_attention(y, cache.k[layer], cache.v[layer], cache.length)
            x = fused_norm_linear(y, out, b_out, residual=x)
            y = fused_norm_linear(x, up, b_up, norm=block.ln_2, gelu=True)
            x = fused_norm_linear(y, down, b_down, residual=x)
        cache.length.add_(1)        # in place, after all layers have read it: a captured graph counts on at each replay
        return fused_norm_linear(x, model.head, norm=model.ln_f)


def _linear_layers(block: "Block") -> "tuple[Conv1D, ...]":
    mlp: Any = block.mlp           # not a mixture of experts: `make_fast_decoder` has checked
    return block.attn.c_attn, block.attn.c_proj, mlp.c_fc, mlp.c_proj


def make_fast_decoder(model: "GPT", batch_size: int) -> FastDecoder | None:
    """A fast decoder where one is possible, else None: CUDA and Triton, few texts at once, GPT-2's own matrices (no
    LoRA, int8 or experts).
    """
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
