"""Encoders and decoders of autoencoders: from an image to features and from a latent code to an image, dense or
convolutional.
"""

from math import prod

from torch import nn

from didact.layers.conv.down_up import doubling_conv, downsampled_sizes, halving_conv
from didact.layers.mlp import make_mlp_layers

Shape = tuple[int, int, int]  # channels, height, width


def dense_encoder(shape: Shape, widths: tuple[int, ...]) -> tuple[nn.Module, int]:
    """x -> flatten -> [affine, ReLU] of these widths; and the number of output features."""
    sizes = (prod(shape), *widths)
    return nn.Sequential(nn.Flatten(), *make_mlp_layers(sizes)), sizes[-1]


def dense_decoder(latent_dim: int, widths: tuple[int, ...], shape: Shape) -> nn.Module:
    """The mirror of `dense_encoder`, with one more affine map to the pixels."""
    sizes = (latent_dim, *reversed(widths))
    return nn.Sequential(*make_mlp_layers(sizes), nn.Linear(sizes[-1], prod(shape)), nn.Unflatten(1, shape))


def conv_encoder(shape: Shape, widths: tuple[int, ...]) -> tuple[nn.Module, int]:
    """x -> [convolution of stride 2, BN, ReLU] of these widths -> flatten; and the number of output features.  Gaba Ex
    9.3.
    """
    channels, *size = shape
    sizes = downsampled_sizes((size[0], size[1]), len(widths))
    layers: list[nn.Module] = []
    for n_in, n_out, in_size in zip((channels, *widths), widths, sizes, strict=False):
        layers += [halving_conv(n_in, n_out, in_size, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten()), widths[-1] * prod(sizes[-1])


def conv_decoder(latent_dim: int, widths: tuple[int, ...], shape: Shape) -> nn.Module:
    """The mirror of `conv_encoder`."""
    channels, *size = shape
    *sizes, smallest = downsampled_sizes((size[0], size[1]), len(widths))
    layers: list[nn.Module] = [
        nn.Linear(latent_dim, widths[-1] * prod(smallest)),
        nn.Unflatten(1, (widths[-1], *smallest)),
        nn.ReLU(inplace=True),
    ]
    for n_in, n_out, out_size in zip(reversed(widths[1:]), reversed(widths[:-1]), reversed(sizes[1:]), strict=True):
        layers += [doubling_conv(n_in, n_out, out_size, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, doubling_conv(widths[0], channels, sizes[0]))
