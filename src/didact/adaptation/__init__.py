"""Changes to trained networks: LoRA, int8 quantization, head pruning.

    lora            freeze the network, train a low-rank update of its matrices, merge it
    int8            quantize weights to eight bits, with the error and the bytes saved
    head_pruning    disable attention heads, or remove them for good
"""

from didact.adaptation.head_pruning import disable_heads, find_attention_layers, prune_heads
from didact.adaptation.int8 import QuantizationReport, quantize_module
from didact.adaptation.lora import LoRA, add_lora, merge_lora

__all__ = [
    "LoRA", "QuantizationReport", "add_lora", "disable_heads", "find_attention_layers", "merge_lora", "prune_heads",
    "quantize_module",
]  # fmt: skip
