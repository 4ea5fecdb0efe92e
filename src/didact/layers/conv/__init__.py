"""Convolutional layers.

    convolution       dilated, transposed, TensorFlow-padded and deformable convolutions
    separable         depthwise separable convolution
    residual          residual blocks of ResNets
    squeeze_excite    channel attention
    norm_pool         norm and pooling layers by name
    down_up           convolutions that halve and double images of any size
    masked_conv       masked convolutions of autoregressive models
    fpn, anchors      backbone, feature pyramid and anchor boxes of detectors
    reflect_pad, resize_pixels, tiled_inference
                      images of any size for networks that accept some
"""

from didact.layers.conv.convolution import DeformableConv2d, SameConv2d, deformable_conv2d, dilated_conv, upsample_conv
from didact.layers.conv.fpn import AnchorHead, Backbone, FeaturePyramid
from didact.layers.conv.masked_conv import MaskedConv2d, causal_mask2d
from didact.layers.conv.norm_pool import make_norm2d, make_pool2d
from didact.layers.conv.reflect_pad import ReflectPadded, reflect_pad_to
from didact.layers.conv.residual import BasicBlock, Bottleneck
from didact.layers.conv.resize_pixels import Resize, ResizeAndStandardize
from didact.layers.conv.separable import SeparableConv2d, depthwise, pointwise
from didact.layers.conv.squeeze_excite import SqueezeExcite
from didact.layers.conv.tiled_inference import TiledInference

__all__ = [
    "AnchorHead", "Backbone", "BasicBlock", "Bottleneck", "DeformableConv2d", "FeaturePyramid", "MaskedConv2d",
    "ReflectPadded", "Resize", "ResizeAndStandardize", "SameConv2d", "SeparableConv2d", "SqueezeExcite",
    "TiledInference", "causal_mask2d", "deformable_conv2d", "depthwise", "dilated_conv", "make_norm2d", "make_pool2d",
    "pointwise", "reflect_pad_to", "upsample_conv",
]  # fmt: skip
