"""Image classifiers: one recipe for every family of convolutional and patch networks, one for the shape of a plain one."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.core import Data
from didact.errors import UsageError
from didact.layers.block import Norm2d, Pool
from didact.layers.mirror import Mirrored
from didact.models.cifar import CNN
from didact.models.efficientnet import EfficientNet
from didact.models.weights import IMAGENET_MEAN, IMAGENET_STD, LITE_MEAN, LITE_STD, lite0_file, load_weights, restandardise
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import augmenting, balanced, budget
from didact.registry import create, recipe
from didact.run import Run
from didact.train.experiment import Experiment

Names = Literal[
    "cnn", "lenet5", "lenet_like", "cifar10net", "cifar10net_separable", "resnet9",
    "cifar_resnet8", "cifar_resnet20", "cifar_resnet32", "cifar_resnet44", "cifar_resnet56", "cifar_resnet110",
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "alexnet",
    "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn",
    "efficientnet_b0", "efficientnet_lite0", "convnext_tiny", "vit_tiny", "vit_s_16", "vit_b_16", "mixer_tiny", "mixer_small",
]
Family = Annotated[Names, "the network"]
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.4", "Gaba 4.6", "Groudiev 4", "Van Schependom 5", "Fleuret 5.2", "Lhotte 6"),
)
def cnn(
    data: Data, *,
    model: Family = "cnn",
    weights: Annotated[str | None, "start from a .safetensors or .pth file, a run's folder, or lite0 (ImageNet's)"] = None,
    smoothing: a.Smoothing = 0.0, balance: a.Balance = "none", augment: a.Augment = (),
    mirror: Annotated[bool, "judge an image and its mirror image, and take the mean"] = False,
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
    network = fitted(model, data, likelihood.outputs)
    return Experiment(
        data=data,
        objective=supervised(Mirrored(network) if mirror else network, likelihood),
        optimizer=make(optimizer, lr=lr, weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch, notes=(*notes, *note_of(network)),
        begin=partial(start_from, network, weights, model) if weights else None,
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
    pool: Annotated[Pool, "what halves the image: the maximum or the mean"] = "max", augment: a.Augment = (),
    lr: a.Rate = 1e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine",
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """What the parts of a convolutional network are worth: kernels, maps, depth, norm and pooling, one at a time.

    blocks × [convolution k×k, norm, ReLU, pooling], widths f, 2f, 4f, 4f, …, then a mean over the image.
    """
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data)
    network = CNN(
        kernel=kernel, filters=filters, blocks=blocks, norm=norm, pool=pool,
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


def fitted(name: str, data: Data, outputs: int, *, size: tuple[int, ...] = ()) -> nn.Module:
    """The named network for these images: their channels, size and classes; kernels laid out as GPUs like them."""
    keywords: dict[str, Any] = {"classes": outputs, "channels": data.shape[0], "size": size or data.shape[1:]}
    network: nn.Module = create(name, **keywords, mean=data.mean, std=data.std)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def note_of(network: nn.Module) -> tuple[str, ...]:
    """What the network chose from the size of the images, where it says so."""
    note = getattr(network, "note", "")
    return (note,) if isinstance(note, str) and note else ()


def start_from(network: nn.Module, where: str, model: str, device: torch.device | None = None) -> tuple[str, ...]:
    """Trained weights in place of drawn ones, and what became of the file's tensors."""
    report = load_weights(network, weights_file(where, model))
    if any(name.startswith("standardise.") for name in report.matched):
        return (str(report),)
    lite = isinstance(network, EfficientNet) and network.lite
    restandardise(network, *((LITE_MEAN, LITE_STD) if lite else (IMAGENET_MEAN, IMAGENET_STD)))
    return str(report), f"pixels are centred and scaled as {'EfficientNet-Lite' if lite else 'ImageNet'}'s were: the file does not say how"


def weights_file(where: str, model: str) -> Path:
    """The file that a word means: lite0, a file's path, or a run's folder."""
    if where == "lite0":
        return lite0_file()
    path = Path(where).expanduser()
    if path.suffix in SUFFIXES or path.is_file():
        return path
    if not path.is_dir():
        raise UsageError(f"no weights at {where}: give a .safetensors or .pth file, a run's folder, or lite0")
    run = Run.open(where)
    learned = run.facts["arguments"].get("model", model)
    if learned != model:
        hint = f"add --model {learned}" if learned in get_args(Names) else "give a run of an image classifier"
        raise UsageError(f"{run.folder} trained {learned}, not {model}; {hint}")
    return run.folder / "model.safetensors"
