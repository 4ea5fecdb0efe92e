"""Fleuret, chapter 2: efficient computation."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

import didact.models  # noqa: F401 (registers the presets)
from didact import scratch
from didact.claims.forms import Conditional, Display, Exactly, InInterval
from didact.claims.helpers import count_multiplications, count_parameters
from didact.claims.registry import claim, mark_not_checkable
from didact.data.images.image_folder import ImageEncoder
from didact.registry import create_model


def _save_and_read_images(number: int, width: int, height: int) -> Tensor:
    """`number` images of that size, as didact reads them from files."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.png" for i in range(number)]
        for file in files:
            Image.new("RGB", (width, height)).save(file)
        return torch.stack([ImageEncoder((3, 1, 1)).open_full_size(file) for file in files])


@claim("CF03", Exactly((50, 3, 24, 32)))
def batch_of_pictures() -> tuple[int, ...]:
    """fifty pictures 32 pixels wide and 24 high, channels first"""
    return tuple(_save_and_read_images(50, 32, 24).shape)


@claim("CF04", Exactly((5, 3)), correction="H is the height and W the width")
def axes_of_an_image() -> Display:
    """(H, W) of a picture 5 pixels wide and 3 high, taken as (width, height)"""
    width, height = 5, 3
    H, W = _save_and_read_images(1, width, height).shape[2:]
    return Display((H, W), {"width": width, "height": height, "H": H, "W": W})


@claim("CF05", Exactly((True, True, True, False)))
def views_without_copies() -> Display:
    """whether a transpose, a slice, a reshaped tensor and a reshaped transpose share the tensor's memory, in didact's
    engine"""
    x = scratch.tensor(torch.randn(4, 6).numpy())
    shared = tuple(bool(np.shares_memory(x.data, y.data)) for y in (x.T, x[1:3, ::2], x.reshape(24), x.T.reshape(24)))
    names = ("memory shared by a transpose", "by a slice", "by a reshaped tensor", "by a reshaped transpose")
    return Display(shared, dict(zip(names, shared, strict=True)))


_NUM_IMAGENET_IMAGES = 1_281_167       # of ImageNet


def _model_size(name: str) -> tuple[int, int]:
    """Parameters, and multiplications for one image."""
    with torch.device("meta"):
        net = create_model(name).eval()
        return count_parameters(net), count_multiplications(lambda: net(torch.zeros(1, 3, 224, 224)))


@claim(
    "CF38",
    InInterval(0, 1),
    condition="ResNet-18 to 152, trained for 90 epochs on ImageNet; VGG-16, trained for 74, has more than 100 million",
)
def sizes_of_vision_models() -> Conditional:
    """log₁₀(parameters/10⁷) and log₁₀(operations/10¹⁸): two per multiplication, three passes, epochs × 1,281,167
    images; ResNets for 90 epochs, and VGG-16 for the 74 of its paper"""
    def training_cost(epochs: int, *names: str) -> Display:
        sizes, products = zip(*map(_model_size, names), strict=True)
        operations = [2 * 3 * n * _NUM_IMAGENET_IMAGES * epochs for n in products]
        value = [[math.log10(n / 1e7) for n in sizes], [math.log10(n / 1e18) for n in operations]]
        return Display(value, {"millions of parameters": [n / 1e6 for n in sizes], "operations": operations})

    return Conditional(training_cost(90, "resnet18", "resnet152"), training_cost(74, "vgg16"))


mark_not_checkable(
    "CF52",
    "peak rates and memory are from data sheets; no network, task or operands are named for which 16 bits lose nothing",
)
