"""Image classifiers: one recipe for all architectures, one for ablations of a plain convolutional network."""

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.data.core import Data
from didact.errors import ImageTooSmallError, UsageError, shorten
from didact.layers.conv.norm_pool import Norm2d, Pool2d
from didact.layers.conv.resize_pixels import ResizeAndStandardize
from didact.layers.flip_tta import FlipTTA
from didact.models.pretrained.weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LITE_MEAN,
    LITE_STD,
    efficientnet_lite0_path,
    load_weights,
    read_weights,
    set_standardization,
    summarize_names,
)
from didact.models.vision.cnn import CNN, Convolution
from didact.models.vision.efficientnet import EfficientNet
from didact.models.vision.resnet import ResNet, Stem
from didact.objectives.supervised import ClassifyWithTrainAccuracy, likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range, RunReference
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import (
    CLASSIFICATION_TASKS,
    SUPERVISED_TASKS,
    apply_balance,
    choose_budget,
    make_image_augmentation,
)
from didact.registry import MODELS, create_model, recipe
from didact.run import Run
from didact.training.experiment import Experiment, InitContext

ModelName = Literal[
    "cnn",
    "lenet5",
    "lenet_like",
    "cifar10net",
    "cifar10net_separable",
    "resnet9",
    "cifar_resnet8",
    "cifar_resnet20",
    "cifar_resnet32",
    "cifar_resnet44",
    "cifar_resnet56",
    "cifar_resnet110",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "alexnet",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "vgg11_bn",
    "vgg13_bn",
    "vgg16_bn",
    "vgg19_bn",
    "efficientnet_b0",
    "efficientnet_lite0",
    "convnext_tiny",
    "vit_tiny",
    "vit_s_16",
    "vit_b_16",
    "mixer_tiny",
    "mixer_small",
    "mixer_s_16",
    "mixer_b_16",
]
_Architecture = Annotated[ModelName, "architecture"]
StemOption = Annotated[
    Stem,
    "first layer of a ResNet: 3×3 for small images, 7×7 for large ones (auto: that of the weights, or by the size)",
]
_ShortcutOption = Annotated[
    Literal["auto", "projection", "pad", "none"],
    "residual shortcut of a ResNet: auto is the model's, none a plain network",
]
_ImageSize = Annotated[
    int | None,
    Range(8, 1024),
    "side in pixels that images are resized to inside the network (if not given, only those too small for it are)",
]
_InitialWeights = Annotated[
    str | None,
    RunReference(allow_other=True),
    "initial weights: a .safetensors or .pth file, a run (its folder, or latest), or lite0 (ImageNet)",
]
_FEW_IMAGES = 100        # training images of a class, below which pretrained weights are suggested
_WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


@recipe(
    data="digits",
    accepts=("images",),
    tasks=SUPERVISED_TASKS,
    chapter="convolutions",
    abilities=("classify", "regress", "draw"),
    sources=("Gaba 4.4", "Gaba 4.6", "Groudiev 4", "Van Schependom 5", "Fleuret 5.2", "Lhotte 6"),
)
def cnn(
    data: Data,
    *,
    model: _Architecture = "cnn",
    weights: _InitialWeights = None,
    image_size: _ImageSize = None,
    stem: StemOption = "auto",
    shortcut: _ShortcutOption = "auto",
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: a.Balance = "none",
    augment: a.ImageAugment = (),
    flip_tta: Annotated[
        bool, "test-time augmentation: average over an image and its horizontal flip", Aliases("tta")
    ] = False,
    train_accuracy: Annotated[bool, "also log the accuracy on training batches, augmented and with dropout"] = False,
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 0.01,
    momentum: a.Momentum = 0.9,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Image classifier: LeNet, VGG, ResNet, EfficientNet, ConvNeXt, ViT, Mixer.

    Y[i, j] = Σ_mn X[i + m, j + n] K[m, n], layer by layer; then a mean over the image and one score per class or label,
    or a number.
    """
    if train_accuracy and data.task not in CLASSIFICATION_TASKS:
        raise UsageError(f"--train-accuracy is for classes, but the targets of {data.name!r} are {data.task}")
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing, weights=class_weights)
    stem = infer_stem(weights, model, stem)
    network, image_size, size_notes = _build_resizing(
        lambda size: build_network(model, data, likelihood.num_outputs, size=size, stem=stem, shortcut=shortcut),
        data,
        image_size,
    )
    return Experiment(
        data=data,
        objective=(ClassifyWithTrainAccuracy if train_accuracy else make_supervised)(
            FlipTTA(network) if flip_tta else network, likelihood
        ),
        optimizer=make_optimizer(optimizer, lr=lr, weight_decay=weight_decay, momentum=momentum, rho=rho),
        schedule=make_schedule(schedule),
        augment=make_image_augmentation(data, augment),
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        notes=(*notes, *size_notes, *get_network_notes(network), *([] if weights else _suggest_transfer(data))),
        initialize_weights=partial(load_pretrained, network, weights, model) if weights else None,
        resolved_arguments={"stem": stem, "image_size": image_size},
    )


@recipe(
    data="digits",
    accepts=("images",),
    tasks=("binary", "multiclass"),
    chapter="convolutions",
    abilities=("classify", "draw"),
    sources=("Gaba 4.8", "Gaba 4.3", "Groudiev 4.3"),
    grid={"kernel_size": (3, 5), "channels": (16, 32), "num_blocks": (2, 3)},
)
def cnn_ablation(
    data: Data,
    *,
    kernel_size: Annotated[int, Range(1, 15), "kernel size"] = 3,
    channels: Annotated[int, Range(1), "channels of the first block", Aliases("filters")] = 32,
    num_blocks: Annotated[int, Range(1), "number of convolutional blocks; each halves the image"] = 3,
    norm: Annotated[Norm2d, "normalization after each convolution"] = "batch",
    pool: Annotated[Pool2d, "pooling: max or average"] = "max",
    convolution: Annotated[
        Convolution, "kind of convolution: standard, depthwise separable, dilated by 2, or deformable"
    ] = "plain",
    squeeze_excite: Annotated[bool, "squeeze-and-excitation: channel attention in each block"] = False,
    image_size: _ImageSize = None,
    augment: a.ImageAugment = (),
    lr: a.LearningRate = 1e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Ablation of a CNN: kernels, channels, depth, norm, pooling.

    blocks × [convolution k×k, norm, ReLU, pooling], widths f, 2f, 4f, 4f, …, then a mean over the image.
    """
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data)
    network, image_size, size_notes = _build_resizing(
        lambda size: CNN(
            kernel_size=kernel_size,
            filters=channels,
            num_blocks=num_blocks,
            norm=norm,
            pool=pool,
            convolution=convolution,
            squeeze_excite=squeeze_excite,
            num_classes=likelihood.num_outputs,
            channels=data.shape[0],
            size=size,
            mean=data.mean,
            std=data.std,
        ),
        data,
        image_size,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=make_image_augmentation(data, augment),
        epochs=epochs,
        batch_size=batch_size,
        notes=(*notes, *size_notes),
        resolved_arguments={"image_size": image_size},
    )


def _build_resizing(
    build: Callable[[tuple[int, int]], nn.Module], data: Data, image_size: int | None
) -> tuple[nn.Module, int | None, tuple[str, ...]]:
    """A network that resizes its input to `image_size`; without one, only if the images are too small for the network.

    Images that --size made too small are refused, as the network does it. Returns the network, the side and notes.
    """
    height, width = data.shape[1:]
    notes: tuple[str, ...] = ()
    if image_size is None:
        rng_state = torch.get_rng_state()  # a network that is refused halfway has drawn some of its weights
        try:
            return build((height, width)), None, ()
        except ImageTooSmallError as error:
            if data.source.get("size") is not None:
                raise
            image_size = error.min_size
            notes = (
                f"images of {height}×{width} pixels are resized to {image_size}×{image_size} inside the network, the "
                "smallest that it takes",
            )
        torch.set_rng_state(rng_state)
    network = build((image_size, image_size))
    network.standardize = ResizeAndStandardize((image_size, image_size), data.mean, data.std)
    return network, image_size, notes


def _suggest_transfer(data: Data) -> list[str]:
    """A note where one's own images are few for a network from scratch."""
    n, path = len(data.train), data.source.get("path")
    if path is None or n >= _FEW_IMAGES * data.num_classes:
        return []
    return [
        f"{n:,} training images of {data.num_classes} classes are few for a network that starts from scratch; a "
        f"pretrained one: didact train transfer --data {shlex.quote(str(path))} --weights lite0 --mode features "
        "--size 224 --labels-per-class none"
    ]


def build_network(
    name: str, data: Data, num_outputs: int, *, size: tuple[int, ...] = (), stem: Stem = "auto", shortcut: str = "auto"
) -> nn.Module:
    """The named network for these images, in channels_last, the layout that is fast on GPUs."""
    options: dict[str, Any] = {"num_classes": num_outputs, "channels": data.shape[0], "size": size or data.shape[1:]}
    if stem != "auto":
        if MODELS[name].model_class is not ResNet:
            raise UsageError(f"--stem {stem} is for ResNets, got --model {name}; leave it out")
        options["stem"] = stem
    if shortcut != "auto":
        if MODELS[name].model_class is not ResNet:
            raise UsageError(f"--shortcut {shortcut} is for ResNets, got --model {name}; leave it out")
        options["shortcut"] = shortcut
    network: nn.Module = create_model(name, **options, mean=data.mean, std=data.std)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def get_network_notes(network: nn.Module) -> tuple[str, ...]:
    """What the network chose from the size of the images."""
    note = getattr(network, "note", "")
    return (note,) if isinstance(note, str) and note else ()


def load_pretrained(
    network: nn.Module, location: str, model: str, context: InitContext | None = None
) -> tuple[str, ...]:
    """Load trained weights. Returns a note on the file's tensors; frozen layers must be among them."""
    report = load_weights(network, _locate_weights(location, model))
    uninitialized = [
        name for name, p in network.named_parameters() if not p.requires_grad and name not in report.matched
    ]
    if uninitialized:
        raise UsageError(
            f"{summarize_names(uninitialized)} would stay random: {report}; give images of the size it was trained on, "
            "or --mode full"
        )
    if any(name.startswith("standardize.") for name in report.matched):
        return (str(report),)
    is_lite = isinstance(network, EfficientNet) and network.lite
    set_standardization(network, *((LITE_MEAN, LITE_STD) if is_lite else (IMAGENET_MEAN, IMAGENET_STD)))
    return (
        str(report),
        f"pixels are standardized as for {'EfficientNet-Lite' if is_lite else 'ImageNet'}: the file does not say how",
    )


def _is_weights_file(location: str) -> bool:
    path = os.path.expanduser(location)
    return Path(path).suffix in _WEIGHT_SUFFIXES or os.path.isfile(path)


def infer_stem(location: str | None, model: str, stem: Stem) -> Stem:
    """The stem of the weights, whatever the size of the images: another one would stay random."""
    if stem != "auto" or location is None or MODELS[model].model_class is not ResNet:
        return stem
    try:
        tensors = read_weights(_locate_weights(location, model))
    except UsageError:  # reported when the weights are loaded; a run that has started no longer needs them
        return stem
    # the shortest name: convolutions of blocks have longer ones
    stem_weight_name = min((name for name in tensors if name.endswith("conv1.weight")), key=len, default="")
    return stem if not stem_weight_name else "large" if tensors[stem_weight_name].shape[-1:] == (7,) else "small"


def _locate_weights(location: str, model: str) -> Path:
    """The file of a location: lite0, a file, or a run."""
    if location == "lite0":
        return efficientnet_lite0_path()
    if _is_weights_file(location):
        return Path(os.path.expanduser(location))
    try:
        run = Run.open(os.path.expanduser(location))
    except UsageError as error:
        advice = f"give a .safetensors or .pth file, a run's folder or its name, or lite0; {error}"
        raise UsageError(f"no weights at {shorten(location)}: {advice}") from None
    trained_model = run.metadata["arguments"].get("model", model)
    if trained_model != model:
        hint = (
            f"add --model {trained_model}"
            if trained_model in get_args(ModelName)
            else "give a run of an image classifier"
        )
        raise UsageError(f"{run.folder} trained {trained_model}, not {model}; {hint}")
    return run.folder / "model.safetensors"
