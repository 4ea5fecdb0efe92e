"""Building blocks of models: one idea a file.

    attention/   multi-head, cross, grouped-query, additive and differential attention, variants, masks, the KV cache
    recurrent/   RNN, LSTM and GRU cells and layers, Mamba, xLSTM
    conv/        convolutions, residual blocks, squeeze-excite, feature pyramids, anchors, padding, tiled inference
    here         activation, init, norm, mlp, feedforward, moe, dropout, drop_path, positional, patch_embed,
                 timestep_embedding, standardize, piecewise_linear, vector_quantizer, coupling, adaptive_norm,
                 auxiliary_loss, nms

    from didact.layers import KVCache, MultiHeadAttention
"""

from didact.layers.activation import ACTIVATIONS, make_activation
from didact.layers.adaptive_norm import AdaIN, ConditionalBatchNorm2d
from didact.layers.attention.additive import BahdanauAttention, LuongAttention
from didact.layers.attention.attention_masks import causal_mask, local_mask, padding_mask, strided_mask
from didact.layers.attention.differential import DifferentialAttention
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.kv_cache import KVCache
from didact.layers.attention.linear_attention import causal_linear_attention, linear_attention
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention, dot_product_attention, fused_attention
from didact.layers.attention.sparse import local_attention, strided_attention, topk_attention
from didact.layers.auxiliary_loss import HasAuxiliaryLoss, pop_auxiliary_loss
from didact.layers.conv.convolution import DeformableConv2d, SameConv2d, dilated_conv, upsample_conv
from didact.layers.conv.fpn import FeaturePyramid
from didact.layers.conv.masked_conv import MaskedConv2d
from didact.layers.conv.reflect_pad import ReflectPadded
from didact.layers.conv.residual import BasicBlock, Bottleneck
from didact.layers.conv.separable import SeparableConv2d
from didact.layers.conv.squeeze_excite import SqueezeExcite
from didact.layers.conv.tiled_inference import TiledInference
from didact.layers.coupling import AffineCoupling, FlowSequential, Squeeze
from didact.layers.drop_path import DropPath
from didact.layers.dropout import dropout_enabled
from didact.layers.feedforward import FeedForward, SwiGLU
from didact.layers.flip_tta import FlipTTA
from didact.layers.init import INITIALIZERS, activation_gain, init_weights
from didact.layers.mlp import make_mlp_layers
from didact.layers.moe import MixtureOfExperts
from didact.layers.nms import batched_nms, nms
from didact.layers.norm import PostNorm, PreNorm, rms_norm
from didact.layers.patch_embed import PatchEmbed
from didact.layers.piecewise_linear import PiecewiseLinearEncoding
from didact.layers.positional import (
    LearnedPositions,
    SinusoidalPositions,
    apply_rotary,
    rotary_angles,
    sinusoidal_table,
)
from didact.layers.recurrent.mamba import Mamba
from didact.layers.recurrent.mixer_stack import SequenceMixerStack
from didact.layers.recurrent.recurrent import Bidirectional, Recurrent, make_recurrent
from didact.layers.recurrent.row_lstm import RowLSTM
from didact.layers.recurrent.xlstm import MLSTM, SLSTM
from didact.layers.standardize import Standardize
from didact.layers.timestep_embedding import TimestepEmbedding
from didact.layers.vector_quantizer import VectorQuantizer, straight_through

__all__ = [
    "ACTIVATIONS", "INITIALIZERS", "MLSTM", "SLSTM", "AdaIN", "AffineCoupling", "BahdanauAttention", "BasicBlock",
    "Bidirectional", "Bottleneck", "ConditionalBatchNorm2d", "CrossAttention", "DeformableConv2d",
    "DifferentialAttention", "DropPath", "FeaturePyramid", "FeedForward", "FlipTTA", "FlowSequential",
    "GroupedQueryAttention", "HasAuxiliaryLoss", "KVCache", "LearnedPositions", "LuongAttention", "Mamba",
    "MaskedConv2d", "MixtureOfExperts", "MultiHeadAttention", "PatchEmbed", "PiecewiseLinearEncoding", "PostNorm",
    "PreNorm", "Recurrent",
    "ReflectPadded", "RowLSTM", "SameConv2d", "SeparableConv2d", "SequenceMixerStack", "SinusoidalPositions",
    "Squeeze", "SqueezeExcite", "Standardize", "SwiGLU", "TiledInference", "TimestepEmbedding", "VectorQuantizer",
    "activation_gain", "apply_rotary", "batched_nms", "causal_linear_attention", "causal_mask", "dilated_conv",
    "dot_product_attention", "dropout_enabled", "flash_attention", "fused_attention", "init_weights",
    "linear_attention", "local_attention", "local_mask", "make_activation", "make_mlp_layers", "make_recurrent",
    "nms", "padding_mask", "pop_auxiliary_loss", "rms_norm", "rotary_angles", "sinusoidal_table",
    "straight_through", "strided_attention", "strided_mask", "topk_attention", "upsample_conv",
]  # fmt: skip
