"""GPT-2 for one token at a time: five kernels a layer instead of twenty."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from didact.layers.cache import Cache
    from didact.models.gpt import GPT, Affine, Block


class Swift:
    """The same numbers as `GPT.go_on` for a single new token a text; holds the matrices once more, laid out for that."""

    def __init__(self, model: "GPT"):
        self.model = model
        self.matrices = [[layer.weight.detach().mT.contiguous() for layer in lines(block)] for block in model.blocks]

    def __call__(self, tokens: Tensor, cache: "Cache") -> Tensor:
        """Logits behind these tokens, (B, 1) -> (B, V); the cache holds them afterwards."""
        from didact.layers.kernels import line, look

        model = self.model
        x = model.wte(tokens[:, 0]) + model.wpe(cache.at)
        for layer, (block, (qkv, out, up, down)) in enumerate(zip(model.blocks, self.matrices, strict=True)):
            b_qkv, b_out, b_up, b_down = (part.bias for part in lines(block))
            y = look(line(x, qkv, b_qkv, norm=block.ln_1), cache.k[layer], cache.v[layer], cache.at)
            x = line(y, out, b_out, plus=x)
            x = line(line(x, up, b_up, norm=block.ln_2, gelu=True), down, b_down, plus=x)
        cache.at.add_(1)
        return line(x, model.head, norm=model.ln_f)


def lines(block: "Block") -> "tuple[Affine, ...]":
    mlp: Any = block.mlp           # a perceptron: `swift` passes over experts
    return block.attn.c_attn, block.attn.c_proj, mlp.c_fc, mlp.c_proj


def swift(model: "GPT", rows: int) -> Swift | None:
    """Where it can be had: on a GPU that Triton knows, for few texts at once, with matrices as GPT-2 has them (no LoRA, bytes, experts)."""
    w = model.wte.weight
    if not w.is_cuda or find_spec("triton") is None or not all(hasattr(block.mlp, "c_fc") for block in model.blocks):
        return None
    from didact.layers.kernels import fits

    plain = all(getattr(layer, "inputs_first", False) for block in model.blocks for layer in lines(block))
    return Swift(model) if plain and fits(rows, w.shape[1] // model.heads, w) else None
