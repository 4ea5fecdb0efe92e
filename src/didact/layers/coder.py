"""The two halves of autoencoders: an image to a few numbers, and numbers to an image. Dense or convolutional."""

from math import prod

from torch import nn

from didact.layers.resample import double, halve, halvings
from didact.layers.stack import stack

Shape = tuple[int, int, int]  # channels, height, width


def dense_body(shape: Shape, widths: tuple[int, ...]) -> tuple[nn.Module, int]:
    """x -> flatten -> [affine, ReLU] of these widths; and how many numbers come out."""
    sizes = (prod(shape), *widths)
    return nn.Sequential(nn.Flatten(), *stack(sizes)), sizes[-1]


def dense_decoder(numbers: int, widths: tuple[int, ...], shape: Shape) -> nn.Module:
    """The mirror of `dense_body`, with one more affine map to the pixels."""
    sizes = (numbers, *reversed(widths))
    return nn.Sequential(*stack(sizes), nn.Linear(sizes[-1], prod(shape)), nn.Unflatten(1, shape))


def conv_body(shape: Shape, widths: tuple[int, ...]) -> tuple[nn.Module, int]:
    """x -> [convolution of stride 2, BN, ReLU] of these widths -> flatten.  Gaba Ex 9.3."""
    channels, *size = shape
    sizes = halvings((size[0], size[1]), len(widths))
    layers: list[nn.Module] = []
    for n_in, n_out, at in zip((channels, *widths), widths, sizes, strict=False):
        layers += [halve(n_in, n_out, at, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Flatten()), widths[-1] * prod(sizes[-1])


def conv_decoder(numbers: int, widths: tuple[int, ...], shape: Shape) -> nn.Module:
    """The mirror of `conv_body`."""
    channels, *size = shape
    *sizes, last = halvings((size[0], size[1]), len(widths))
    layers: list[nn.Module] = [nn.Linear(numbers, widths[-1] * prod(last)), nn.Unflatten(1, (widths[-1], *last)), nn.ReLU(inplace=True)]
    for n_in, n_out, to in zip(reversed(widths[1:]), reversed(widths[:-1]), reversed(sizes[1:]), strict=True):
        layers += [double(n_in, n_out, to, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, double(widths[0], channels, sizes[0]))
