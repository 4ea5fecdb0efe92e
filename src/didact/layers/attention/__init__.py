"""Attention layers and what decoding needs.

    multihead          dot-product attention, explicit and fused; MultiHeadAttention, CrossAttention
    attention_masks    causal, padding, sliding-window and strided masks
    kv_cache           keys and values of the tokens read so far
    grouped_query      heads that share keys and values (LLaMA)
    additive           Bahdanau's and Luong's alignment attention
    differential, flash, linear_attention, sparse
                       other ways to weight values, as functions and layers
    variants           self-attention layers by the name of such a variant
"""

from didact.layers.attention.additive import BahdanauAttention, LuongAttention, make_alignment_attention
from didact.layers.attention.attention_masks import causal_mask, local_mask, padding_mask, strided_mask
from didact.layers.attention.differential import DifferentialAttention, differential_attention
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.kv_cache import KVCache
from didact.layers.attention.linear_attention import causal_linear_attention, linear_attention
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention, dot_product_attention, fused_attention
from didact.layers.attention.sparse import local_attention, strided_attention, topk_attention
from didact.layers.attention.variants import AttentionVariant, make_self_attention

__all__ = [
    "AttentionVariant", "BahdanauAttention", "CrossAttention", "DifferentialAttention", "GroupedQueryAttention",
    "KVCache", "LuongAttention", "MultiHeadAttention", "causal_linear_attention", "causal_mask",
    "differential_attention", "dot_product_attention", "flash_attention", "fused_attention", "linear_attention",
    "local_attention", "local_mask", "make_alignment_attention", "make_self_attention", "padding_mask",
    "strided_attention", "strided_mask", "topk_attention",
]  # fmt: skip
