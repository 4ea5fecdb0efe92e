"""Norm and pooling layers of convolutional blocks, by name."""

from collections.abc import Callable
from typing import Literal

from torch import nn

from didact.errors import look_up

Norm2d = Literal["batch", "group", "instance", "none"]
Pool2d = Literal["max", "mean"]
_CHANNELS_PER_GROUP = 8  # of a group norm, where the width allows

# (x - mean) / std, over: batch and pixels of a channel; pixels of a group of channels; pixels of a channel.
# Gaba 3.5-3.6, Lhotte 4.4
_NORMS_2D: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(
        max(1, channels // _CHANNELS_PER_GROUP) if channels % _CHANNELS_PER_GROUP == 0 else 1, channels
    ),
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "none": lambda channels: nn.Identity(),
}
# Gaba 4.3, Groudiev 4.3
_POOLS: dict[str, Callable[[], nn.Module]] = {"max": lambda: nn.MaxPool2d(2), "mean": lambda: nn.AvgPool2d(2)}


def make_norm2d(name: str, channels: int) -> nn.Module:
    """The norm of that name for maps of this many channels."""
    return look_up("norm", name, _NORMS_2D)(channels)


def make_pool2d(name: str) -> nn.Module:
    """The pooling of that name over 2 x 2 windows, which halves height and width."""
    return look_up("pooling", name, _POOLS)()
