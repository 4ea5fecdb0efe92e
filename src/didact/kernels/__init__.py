"""Triton kernels. They need CUDA and the library triton, and are imported where they are used.

    cross_entropy    loss and gradient of a large vocabulary in one kernel
    decode           GPT-2 for one token at a time: fused linear layers, attention to the KV cache
"""

__all__ = ["cross_entropy", "decode"]
