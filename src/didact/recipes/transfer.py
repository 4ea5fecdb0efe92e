"""What one task taught, for another with few labels."""

from dataclasses import replace
from functools import cache, partial
from math import ceil
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.data.assemble import moments
from didact.data.balance import chosen
from didact.data.core import SPLITS, Absent, Data, Resident
from didact.data.load import load, sources
from didact.errors import UsageError
from didact.layers.resize import Resize
from didact.objectives.reuse import Reuse, layers
from didact.objectives.supervised import likelihood_of
from didact.optim.named import default_lr, make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import augmenting
from didact.recipes.vision import Names, cnn, fitted, note_of, start_from
from didact.registry import recipe
from didact.train.experiment import Experiment, Settings
from didact.train.loop import Training
from didact.train.randomness import initialisation

Mode = Annotated[
    Literal["scratch", "features", "partial", "full"],
    "what learns: all of a new network, the head alone, the last layers, or all layers of the reused one",
]
STEPS = 300  # at least, where no number of epochs is given: few examples make short epochs
Origin = Annotated[str, "where the reused weights come from: a run's folder, a file, lite0 (ImageNet's), or a data set to learn from first"]


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.5", "Gaba 4.7", "Lhotte 7.6", "Van Schependom 3.3", "Fleuret 5.2"),
    grid={"mode": ("scratch", "features", "partial", "full")},
)
def transfer(
    data: Data, *,
    mode: Mode = "full", weights: Origin = "letters",
    model: Annotated[Names | None, "the network (cnn if not given; efficientnet_lite0 for lite0)"] = None,
    labels: Annotated[int | None, Range(1), "training examples of each class (all if not given)"] = 10,
    thaw: Annotated[float, Range(0, 1), "share of the layers, from the last, that learn in mode partial"] = 0.5,
    ratio: Annotated[float, Range(0, 1, open_low=True), "rate of the first layer as a share of the last one's; 1 from scratch"] = 0.1,
    pixels: Annotated[int | None, Range(8, 1024), "side that images are resized to (their own if not given; 224 for lite0)"] = None,
    smoothing: a.Smoothing = 0.0, augment: a.Augment = (),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, momentum: a.Momentum = 0.9,
    schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Transfer learning: a network that has learned something else, reused where labels are few.

    θ starts where another task left it; the head is new; η_l = η ρ^(1 - l / L) for layer l of L, 0 for those that are frozen.
    `didact sweep transfer` compares the ways of reusing with a network from scratch. Measured on MNIST with 3 labels of each class
    (seeds 0 and 1, 2,000 test images): scratch 0.54, and after letters features 0.76, partial 0.77, full 0.76.
    """
    lite = weights == "lite0"
    model, pixels = model or ("efficientnet_lite0" if lite else "cnn"), pixels or (224 if lite else None)
    data = few(data, labels) if labels else data
    batch = batch or 32
    each = ceil(len(data.train) / batch)
    epochs = epochs or max(10, ceil(STEPS / each))
    likelihood = likelihood_of(data, smoothing=smoothing)
    size = (pixels, pixels) if pixels else data.shape[1:]
    network = fitted(model, data, likelihood.outputs, size=size)
    rate = lr or 3 * default_lr[optimizer]  # few steps: they may be large
    begin = partial(reuse, network, weights, data, model, size)
    if pixels:
        network.standardise = nn.Sequential(Resize((pixels, pixels)), network.get_submodule("standardise"))
    L = len(layers(network))
    learning = {"features": 1, "partial": max(1, ceil(thaw * L))}.get(mode, L)
    return Experiment(
        data=data,
        objective=Reuse(network, likelihood, learning=learning, lr=rate, ratio=1.0 if mode == "scratch" else ratio),
        optimizer=make(optimizer, lr=rate, weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        evaluate_every=max(1, epochs * each // 10),  # an epoch of few examples is over at once, the validation split is as large as ever
        clip_norm=clip_norm, epochs=epochs, batch=batch, begin=begin if mode != "scratch" else None,
        notes=(*note_of(network), f"{learning} of {L} layers learn; the last one is new"),
    )


def few(data: Data, n: int) -> Data:
    """n training examples of each class, drawn anew for each seed of initialisation; validation and test stay whole."""
    seed = int(torch.randint(2**31, ()))
    count, label = min(zip(data.counts["train"], data.labels, strict=True))
    if count < n and not isinstance(data.train, Absent):
        raise UsageError(f"--labels {n}: class {label!r} of {data.name!r} has only {count} training examples")

    def draw(rows: Tensor, generator: torch.Generator) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:n]]

    return chosen(data, draw, seed, f"{n} labelled training examples of each class")


def reuse(network: nn.Module, where: str, data: Data, model: str, size: tuple[int, ...], device: torch.device) -> tuple[str, ...]:
    """Learned weights in all layers but the last, which is new even where both tasks have as many classes; what became of them."""
    head = layers(network)[-1][-1]
    fresh = {name: value.clone() for name, value in head.state_dict().items()}
    resized = network.get_submodule("standardise")
    if isinstance(resized, nn.Sequential):  # the weights know nothing of the resizing before it
        network.standardise = resized[1]
    if where in sources():
        told = learn_first(network, where, model, (data.shape[0], *size), device)
    else:
        told = start_from(network, where, model)
    if isinstance(resized, nn.Sequential):
        network.standardise = nn.Sequential(resized[0], network.get_submodule("standardise"))
    head.load_state_dict(fresh)
    return told


def learn_first(network: nn.Module, source: str, model: str, shape: tuple[int, ...], device: torch.device) -> tuple[str, ...]:
    """The weights that the recipe `cnn` learns from another data set, in the size and colours of those that the network will read."""
    state, note = learned(source, model, shape, device)
    own = network.state_dict()
    network.load_state_dict({name: value for name, value in state.items() if name in own and value.shape == own[name].shape}, strict=False)
    return (note,)


@cache  # a sweep asks for the same again and again
def learned(source: str, model: Any, shape: tuple[int, ...], device: torch.device) -> tuple[dict[str, Tensor], str]:
    """A whole training of `cnn` without a folder: its best weights and a line on how it went."""
    data = load(source)
    cnn.check(data)
    with initialisation(0):
        experiment: Experiment = cnn(reshaped(data, shape), model=model)
        training = Training(experiment, Settings(), device=device)
        scores = training.train().validation
    state = {name.removeprefix("network."): value.cpu() for name, value in training.best.items()}
    return state, f"{model} learned {source!r} first: validation accuracy {scores['accuracy']:.3f} after {training.state.seconds:.0f} s"


def reshaped(data: Data, shape: tuple[int, ...]) -> Data:
    """The images of a set that lies in memory, in another size and number of channels, as bytes."""
    channels, *size = shape
    parts: dict[str, Any] = {}
    for part in SPLITS:
        split = data.split(part)
        assert isinstance(split, Resident), "only resident sets come by name"
        x = F.interpolate(split.columns["x"].float(), size=size, mode="bilinear", antialias=True)
        if channels != x.shape[1]:
            x = x.mean(1, keepdim=True).expand(-1, channels, -1, -1)
        parts[part] = replace(split, columns={**split.columns, "x": x.round().clamp(0, 255).to(torch.uint8)})
    mean, std = moments(parts["train"])
    return replace(data, shape=shape, mean=mean, std=std, **parts)
