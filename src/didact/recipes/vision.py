"""Image classifiers: one recipe for every family of convolutional and patch networks."""

import inspect
from typing import Annotated, Any, Literal

import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.core import Data
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.recipes import arguments as a
from didact.recipes.common import augmenting, balanced, budget
from didact.registry import MODELS, create, recipe
from didact.train.experiment import Experiment

Family = Annotated[
    Literal[
        "cnn", "lenet5", "lenet_like", "cifar10net", "cifar10net_separable", "cifar_resnet8", "cifar_resnet20", "cifar_resnet56",
        "resnet18", "resnet34", "resnet50", "vgg11_bn", "vgg16_bn", "alexnet", "efficientnet_b0", "convnext_tiny",
        "vit_tiny", "vit_s_16", "vit_b_16", "mixer_tiny", "mixer_small",
    ],
    "the network",
]


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.4", "Gaba 4.6", "Groudiev 4", "Van Schependom 5", "Fleuret 5.2", "Lhotte 6"),
)
def cnn(
    data: Data, *,
    model: Family = "cnn", smoothing: a.Smoothing = 0.0, balance: a.Balance = "none", augment: a.Augment = (),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, momentum: a.Momentum = 0.9,
    schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0, ema: a.Average = None, patience: a.Patience = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """An image classifier of any family: LeNet, VGG, ResNet, EfficientNet, ConvNeXt, ViT, Mixer.

    Y[i, j] = Σ_mn X[i + m, j + n] K[m, n], again and again; then a mean over the image and one score a class.
    """
    data, weights = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing, weights=weights)
    network = fitted(model, data, likelihood.outputs)
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make(optimizer, lr=lr, weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch, notes=(*notes, *note_of(network)),
    )


def fitted(name: str, data: Data, outputs: int) -> nn.Module:
    """The named network for these images: their channels, size and classes; kernels laid out as GPUs like them."""
    keywords: dict[str, Any] = {"classes": outputs, "channels": data.shape[0], "mean": data.mean, "std": data.std}
    known = inspect.signature(MODELS[name].make).parameters
    if "size" in known:
        keywords["size"] = data.shape[1:] if "tuple" in str(known["size"].annotation) else data.shape[-1]
    network: nn.Module = create(name, **keywords)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def note_of(network: nn.Module) -> tuple[str, ...]:
    """What the network chose from the size of the images, where it says so."""
    note = getattr(network, "note", "")
    return (note,) if isinstance(note, str) and note else ()
