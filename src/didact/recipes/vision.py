"""Image classifiers: one recipe for every family of convolutional and patch networks, one for the shape of a plain one."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.core import Data
from didact.errors import UsageError, shorten
from didact.layers.block import Norm2d, Pool
from didact.layers.mirror import Mirrored
from didact.models.cifar import CNN, Convolution
from didact.models.efficientnet import EfficientNet
from didact.models.resnet import ResNet, Stem
from didact.models.weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LITE_MEAN,
    LITE_STD,
    lite0_file,
    load_weights,
    read_weights,
    restandardise,
    some,
)
from didact.objectives.supervised import Watched, likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import NamesRun, Range
from didact.recipes import arguments as a
from didact.recipes.common import augmenting, balanced, budget
from didact.registry import MODELS, create, recipe
from didact.run import Run
from didact.train.experiment import Experiment, Start

Names = Literal[
    "cnn", "lenet5", "lenet_like", "cifar10net", "cifar10net_separable", "resnet9",
    "cifar_resnet8", "cifar_resnet20", "cifar_resnet32", "cifar_resnet44", "cifar_resnet56", "cifar_resnet110",
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet",
    "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn",
    "efficientnet_b0", "efficientnet_lite0", "convnext_tiny", "vit_tiny", "vit_s_16", "vit_b_16", "mixer_tiny", "mixer_small",
    "mixer_s_16", "mixer_b_16",
]
Family = Annotated[Names, "the network"]
FirstLayer = Annotated[Stem, "first layer of a ResNet, 3×3 for small images or 7×7 for large (auto: that of the weights, or by the size)"]
Skip = Annotated[
    Literal["auto", "projection", "pad", "none"], "what goes around the blocks of a ResNet: auto is the model's, none the plain network",
]
Begin = Annotated[
    str | None, NamesRun(or_else=True), "start from a .safetensors or .pth file, a run (its folder, or latest), or lite0 (ImageNet's)",
]
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.4", "Gaba 4.6", "Groudiev 4", "Van Schependom 5", "Fleuret 5.2", "Lhotte 6"),
)
def cnn(
    data: Data, *,
    model: Family = "cnn",
    weights: Begin = None,
    stem: FirstLayer = "auto", shortcut: Skip = "auto",
    smoothing: a.Smoothing = 0.0, balance: a.Balance = "none", augment: a.Augment = (),
    mirror: Annotated[bool, "judge an image and its mirror image, and take the mean"] = False,
    watch_training: Annotated[bool, "log the accuracy on training batches too, as they are trained on: augmented, with dropout"] = False,
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, momentum: a.Momentum = 0.9,
    schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0, ema: a.Average = None, patience: a.Patience = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """An image classifier of any family: LeNet, VGG, ResNet, EfficientNet, ConvNeXt, ViT, Mixer.

    Y[i, j] = Σ_mn X[i + m, j + n] K[m, n], again and again; then a mean over the image and one score a class.
    """
    data, class_weights = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing, weights=class_weights)
    stem = stem_of(weights, model, stem)
    network = fitted(model, data, likelihood.outputs, stem=stem, shortcut=shortcut)
    return Experiment(
        data=data,
        objective=(Watched if watch_training else supervised)(Mirrored(network) if mirror else network, likelihood),
        optimizer=make(optimizer, lr=lr, weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch, notes=(*notes, *note_of(network)),
        begin=partial(start_from, network, weights, model) if weights else None, settled={"stem": stem},
    )


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.8", "Gaba 4.3", "Groudiev 4.3"), grid={"kernel": (3, 5), "filters": (16, 32), "blocks": (2, 3)},
)
def cnn_ablation(
    data: Data, *,
    kernel: Annotated[int, Range(1, 15), "side of each kernel"] = 3, filters: Annotated[int, Range(1), "maps of the first block"] = 32,
    blocks: Annotated[int, Range(1), "blocks; each halves the image"] = 3,
    norm: Annotated[Norm2d, "normalisation behind each convolution"] = "batch",
    pool: Annotated[Pool, "what halves the image: the maximum or the mean"] = "max",
    convolution: Annotated[Convolution, "plain, channel by channel first, taps 2 pixels apart, or where it learns to look"] = "plain",
    squeeze: Annotated[bool, "weigh the maps of each block by what the whole image holds (squeeze-excite)"] = False,
    augment: a.Augment = (),
    lr: a.Rate = 1e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine",
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """What the parts of a convolutional network are worth: kernels, maps, depth, norm and pooling, one at a time.

    blocks × [convolution k×k, norm, ReLU, pooling], widths f, 2f, 4f, 4f, …, then a mean over the image.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data)
    network = CNN(
        kernel=kernel, filters=filters, blocks=blocks, norm=norm, pool=pool, convolution=convolution, squeeze=squeeze,
        classes=likelihood.outputs, channels=data.shape[0], size=data.shape[1:], mean=data.mean, std=data.std,  # type: ignore[arg-type]
    )
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        epochs=epochs, batch=batch, notes=notes,
    )


def fitted(
    name: str, data: Data, outputs: int, *, size: tuple[int, ...] = (), stem: Stem = "auto", shortcut: str = "auto"
) -> nn.Module:
    """The named network for these images: their channels, size and classes; kernels laid out as GPUs like them."""
    keywords: dict[str, Any] = {"classes": outputs, "channels": data.shape[0], "size": size or data.shape[1:]}
    if stem != "auto":
        if MODELS[name].make is not ResNet:
            raise UsageError(f"--stem {stem} is the first layer of a ResNet, got --model {name}; leave it out")
        keywords["stem"] = stem
    if shortcut != "auto":
        if MODELS[name].make is not ResNet:
            raise UsageError(f"--shortcut {shortcut} is what goes around the blocks of a ResNet, got --model {name}; leave it out")
        keywords["shortcut"] = shortcut
    network: nn.Module = create(name, **keywords, mean=data.mean, std=data.std)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def note_of(network: nn.Module) -> tuple[str, ...]:
    """What the network chose from the size of the images, where it says so."""
    note = getattr(network, "note", "")
    return (note,) if isinstance(note, str) and note else ()


def start_from(network: nn.Module, where: str, model: str, start: Start | None = None) -> tuple[str, ...]:
    """Trained weights in place of drawn ones, and what became of the file's tensors. What does not learn must be among them."""
    report = load_weights(network, weights_file(where, model))
    drawn = [name for name, p in network.named_parameters() if not p.requires_grad and name not in report.matched]
    if drawn:
        raise UsageError(f"{some(drawn)} would stay as drawn at random: {report}; give images of the size it learned from, or --mode full")
    if any(name.startswith("standardise.") for name in report.matched):
        return (str(report),)
    lite = isinstance(network, EfficientNet) and network.lite
    restandardise(network, *((LITE_MEAN, LITE_STD) if lite else (IMAGENET_MEAN, IMAGENET_STD)))
    return str(report), f"pixels are centred and scaled as {'EfficientNet-Lite' if lite else 'ImageNet'}'s were: the file does not say how"


def is_file(where: str) -> bool:
    path = os.path.expanduser(where)
    return Path(path).suffix in SUFFIXES or os.path.isfile(path)


def stem_of(where: str | None, model: str, stem: Stem) -> Stem:
    """That of the weights, whatever the size of the images: another one would stay as it was drawn."""
    if stem != "auto" or where is None or MODELS[model].make is not ResNet:
        return stem
    try:
        tensors = read_weights(weights_file(where, model))
    except UsageError:  # is told when they are needed; a run that has begun needs them no more
        return stem
    first = min((name for name in tensors if name.endswith("conv1.weight")), key=len, default="")  # those of blocks have longer names
    return stem if not first else "large" if tensors[first].shape[-1:] == (7,) else "small"


def weights_file(where: str, model: str) -> Path:
    """The file that a word means: lite0, a file's path, or a run."""
    if where == "lite0":
        return lite0_file()
    if is_file(where):
        return Path(os.path.expanduser(where))
    try:
        run = Run.open(os.path.expanduser(where))
    except UsageError as error:
        told = f"give a .safetensors or .pth file, a run's folder or its name, or lite0; {error}"
        raise UsageError(f"no weights at {shorten(where)}: {told}") from None
    learned = run.facts["arguments"].get("model", model)
    if learned != model:
        hint = f"add --model {learned}" if learned in get_args(Names) else "give a run of an image classifier"
        raise UsageError(f"{run.folder} trained {learned}, not {model}; {hint}")
    return run.folder / "model.safetensors"
