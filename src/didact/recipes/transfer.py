"""What one task taught, for another with few labels."""

from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from didact.data.balance import chosen
from didact.data.core import Absent, Data
from didact.data.load import sources
from didact.errors import UsageError
from didact.layers.resize import Resize
from didact.objectives.reuse import Reuse, layers
from didact.objectives.supervised import likelihood_of
from didact.optim.named import default_lr, make
from didact.optim.schedule import make_schedule
from didact.options import NamesRun, OnlyWith, Range, plain
from didact.recipes import arguments as a
from didact.recipes.common import augmenting
from didact.recipes.vision import FirstLayer, Names, cnn, fitted, note_of, start_from, stem_of
from didact.registry import recipe
from didact.run import Run
from didact.train.experiment import Experiment, Settings, Start
from didact.train.loop import Tell
from didact.train.session import prepare, train

Mode = Annotated[
    Literal["scratch", "features", "partial", "full"],
    "what learns: all of a new network, the head alone, the last layers, or all layers of the reused one",
]
COMMON = Settings()
OWN = "glyphs"  # printed numerals and letters: near enough to digits, and made on the spot
STEPS = 300  # at least, where no number of epochs is given: few examples make short epochs
RATE = {"scratch": 3.0, "features": 10.0, "partial": 3.0, "full": 3.0}  # times the optimizer's own: few steps, and a head is easily moved
Origin = Annotated[
    str, NamesRun(or_else=True), "where the reused weights come from: a run, a file, lite0 (ImageNet's), or a data set to learn from first",
]


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="convolutions", abilities=("classify", "draw"),
    sources=("Gaba 4.5", "Gaba 4.7", "Lhotte 7.6", "Van Schependom 3.3.3", "Fleuret 6.3"),
    grid={"mode": ("scratch", "features", "partial", "full")},
)
def transfer(
    data: Data, *,
    mode: Mode = "full", weights: Origin = OWN,
    model: Annotated[Names | None, "the network (cnn if not given; efficientnet_lite0 for lite0)"] = None, stem: FirstLayer = "auto",
    labels: Annotated[int | None, Range(1), "training examples of each class (all if none)"] = 1,
    thaw: Annotated[float, Range(0, 1), OnlyWith("mode", "partial"), "share of the layers, from the last, that learn"] = 0.5,
    ratio: Annotated[
        float, Range(0, 1, open_low=True), OnlyWith("mode", "partial", "full"), "rate of the first layer as a share of the last one's"
    ] = 0.1,
    pixels: Annotated[int | None, Range(8, 1024), "side that images are resized to (their own if not given; 224 for lite0)"] = None,
    smoothing: a.Smoothing = 0.0, augment: a.Augment = (),
    optimizer: a.Optimizer = "adamw", lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, momentum: a.Momentum = 0.9,
    schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Transfer learning: a network that has learned something else, reused where labels are few.

    θ starts where another task left it; the head is new; η_l = η ρ^(1 - l / L) for layer l of L, 0 for those that are frozen.
    `didact sweep transfer --seeds 3` compares the ways of reusing with a network from scratch. Measured with one label of each digit
    (seeds 0 to 2): scratch 0.62 ± 0.09, and after printed glyphs features 0.73 ± 0.02, partial 0.77 ± 0.03, full 0.74 ± 0.04; each way
    gains with each seed.
    """
    lite = weights == "lite0"
    model, pixels = model or ("efficientnet_lite0" if lite else "cnn"), pixels or (224 if lite else None)
    data = few(data, labels) if labels else data
    batch = batch or 32
    each = ceil(len(data.train) / batch)
    epochs = epochs or max(10, ceil(STEPS / each))
    likelihood = likelihood_of(data, smoothing=smoothing)
    stem = stem_of(weights, model, stem) if mode != "scratch" else stem
    size = (pixels, pixels) if pixels else data.shape[1:]
    network = fitted(model, data, likelihood.outputs, size=size, stem=stem)
    rate = lr or RATE[mode] * default_lr[optimizer]
    begin = partial(reuse, network, weights, model, max(size))
    if pixels:
        network.standardise = nn.Sequential(Resize((pixels, pixels)), network.get_submodule("standardise"))
    L = len(layers(network))
    learning = {"features": 1, "partial": max(1, ceil(thaw * L))}.get(mode, L)
    idle = mode == "scratch" and weights not in (OWN, "lite0")                # lite0 says which network, too
    fresh = (f"--weights {weights} does nothing: --mode scratch begins with new ones",) if idle else ()
    return Experiment(
        data=data,
        objective=Reuse(network, likelihood, learning=learning, lr=rate, ratio=1.0 if mode == "scratch" else ratio, keep=not augment),
        optimizer=make(optimizer, lr=rate, weight_decay=weight_decay, momentum=momentum),
        schedule=make_schedule(schedule),
        augment=augmenting(data, augment),
        evaluate_every=max(1, epochs * each // 10),  # an epoch of few examples is over at once, the validation split is as large as ever
        clip_norm=clip_norm, epochs=epochs, batch=batch, begin=begin if mode != "scratch" else None,
        settled={"stem": stem},
        notes=(*note_of(network), *fresh, f"{learning} of {L} layers learn; the last one is new"),
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


def reuse(
    network: nn.Module, where: str, model: str, side: int, start: Start
) -> tuple[str, ...]:
    """Learned weights in all layers but the last, which is new even where both tasks have as many classes; what became of them."""
    head = layers(network)[-1][-1]
    fresh = {name: value.clone() for name, value in head.state_dict().items()}
    resized = network.get_submodule("standardise")
    if isinstance(resized, nn.Sequential):  # the weights know nothing of the resizing before it
        network.standardise = resized[1]
    notes: tuple[str, ...] = ()
    if where in sources():
        run = first(where, model, side, replace(start.settings, device=str(start.device)), start.tell)
        accuracy, seconds = run.facts["validation"]["accuracy"], run.facts["seconds"]
        notes = (f"{model} learned {where!r} first: validation accuracy {accuracy:.3f} after {seconds:.0f} s; {run.folder}",)
        where = str(run.folder)
    told = start_from(network, where, model)
    if isinstance(resized, nn.Sequential):
        network.standardise = nn.Sequential(resized[0], network.get_submodule("standardise"))
    head.load_state_dict(fresh)
    return *notes, *told


def first(source: str, model: str, side: int, settings: Settings, tell: Tell) -> Run:
    """The run of `cnn` that learned another set in this size: one that is there, or a new one. Each seed begins with one of its own."""
    seed, common = int(torch.randint(2**31, ())), {"precision": settings.precision, "runs": settings.runs}
    sized = {"size": side} if sources()[source].kind == "images" else {}  # `cnn` itself refuses all others
    how = {"model": model, "augment": ("affine",)}                      # seen from many sides, it says more of what it has not seen
    asked = prepare(cnn, {"data": source, **sized, **how})
    wanted = {"arguments": plain(asked.arguments), "source": asked.data.source, "seed": seed, **common}
    for file in Path(settings.runs).glob("cnn/*/run.json"):
        facts = Run(file.parent).facts
        found = {"arguments": facts["arguments"], "source": facts["data"]["source"], **facts["settings"]}
        if facts.get("status") == "finished" and {name: found[name] for name in wanted} == wanted:
            return Run(file.parent)
    return train(cnn, data=asked.data, tell=tell, serves=transfer.name, seed=seed, device=settings.device, **how, **common)
