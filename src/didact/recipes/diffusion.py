"""Images out of noise, step by step: diffusion, and flow matching."""

from math import ceil
from typing import Annotated, Any, Literal

import torch
from torch import nn

from didact.data.core import Data
from didact.errors import UsageError
from didact.layers.coder import Shape
from didact.models.denoise_unet import DenoiseUNet, SimpleUNet
from didact.models.mlp import MLP
from didact.objectives.diffusion import Diffusion, Noised, Way
from didact.objectives.flow_matching import FlowMatching
from didact.objectives.noising import Noising, Order, Variance, moments
from didact.objectives.referee import about_scores
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import OnlyWith, Range, TellsClass
from didact.recipes import arguments as a
from didact.recipes.autoencoders import classes_of
from didact.recipes.common import SMALL
from didact.recipes.gan import shape_of
from didact.registry import recipe
from didact.train.experiment import Experiment

Widths = Annotated[
    tuple[int, ...] | None, Range(1), "channels of the U-Net at each size, halved between (24,48 of small images, 32,64,128 of others)"
]
Time = Annotated[int, Range(2), "numbers of the vector that says how much noise there is"]
Conditional = Annotated[bool, TellsClass(), "tell the network the class, so that one can be asked for"]
Drop = Annotated[float, Range(0, 1), OnlyWith("conditional", True), "share of labels withheld while learning, which guidance needs"]
Guidance = Annotated[float, Range(0), "how much a sample insists on its class: (1 + w) f(x, c) − w f(x, ∅)"]
Steps = Annotated[int, Range(1), "steps from noise to image"]
FewSteps = Annotated[int | None, Range(1), "steps from noise to image, of the T (25 if not given, all where there are fewer)"]
COMMON: dict[str, Any] = {"data": "digits", "accepts": ("images",), "chapter": "generative", "kind": "generative"}
UPDATES = 1_000  # on a small set
JUDGED = 5
FEW = 25         # steps from noise to image


@recipe(
    **COMMON, abilities=("sample", "walk", "complete"),
    sources=("Gaba 10.2", "Gaba 10.3", "Gaba 10.6", "Gaba 10.8", "Gaba 10.9", "Fleuret 7.2"),
    grid={"noise": ("linear", "cosine"), "T": (200, 1000)},
)
def diffusion(
    data: Data, *,
    T: Annotated[int, Range(1, 100_000), "steps into noise"] = 1000,
    noise: Annotated[
        Literal["linear", "linear_fixed", "cosine"], "how the noise grows over them (fixed: as over 1000, however few they are)"
    ] = "cosine",
    predict: Annotated[Literal["noise", "image", "velocity"], "what the network says: ε, x_0, or v = a ε − σ x_0"] = "velocity",
    sampling_steps: FewSteps = None,
    eta: Annotated[float, Range(0, 1), "noise added on the way back: 0 is DDIM, 1 with all T steps is DDPM"] = 0.0,
    variance: Annotated[Variance, OnlyWith("eta", above=0), "of that noise: the posterior's, or β_t, which is a little more"] = "posterior",
    order: Annotated[Order, "of the steps that draw nothing: 1 is DDIM, 2 also looks back at the step before"] = 2,
    network: Annotated[Literal["unet", "simple"], "the U-Net: with attention, or the simple one of Gaba 10.8"] = "unet",
    widths: Widths = None, time: Time = 128, dropout: a.Dropout = 0.0,
    conditional: Conditional = False, drop: Drop = 0.1, guidance: Guidance = 0.0,
    lr: a.OptionalRate = None, schedule: a.ScheduleName = "warmup_cosine", ema: a.Average = 0.995, clip_norm: a.Clip = 1.0,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
    judged: Annotated[int, Range(1), "times that it is judged, which means drawing"] = JUDGED,
) -> Experiment:
    """DDPM: a U-Net that sees the noise in an image; taken away step by step, from noise alone, it leaves a new image.

    x_t = a x_0 + σ ε, a = √ᾱ_t, σ = √(1 − ᾱ_t); min E ‖v − f(x_t, t)‖², v = a ε − σ x_0. On large sets the batch and epochs of Gaba 10.8;
    its own choices are `--noise linear --predict noise --schedule constant --lr 2e-4`, and DDIM's steps `--order 1`.
    Measured on digits, one seed: Fréchet distance of thumbnails 0.30 in 25 steps; with linear noise, ε and a constant rate 0.35.
    """
    shape, words = fitted(data, conditional, drop, Way(few(T, sampling_steps), eta, guidance, variance, order))
    made = unet(shape, widths, time, words["classes"], dropout, make=SimpleUNet if network == "simple" else DenoiseUNet)
    objective = Diffusion(made, shape, Noising(T, noise), predict=predict, **words)
    words = {"lr": lr, "schedule": schedule, "ema": ema, "clip_norm": clip_norm, "epochs": epochs, "batch": batch}
    return learning(data, objective, **words, judged=judged, rate=1e-3)


@recipe(**COMMON, abilities=("sample", "walk", "complete"), sources=("Gaba 10.10",), grid={"sampling_steps": (1, 4, 16)})
def flow_matching(
    data: Data, *,
    sampling_steps: Steps = 12,
    widths: Widths = None, time: Time = 128, dropout: a.Dropout = 0.0,
    conditional: Conditional = False, drop: Drop = 0.1, guidance: Guidance = 0.0,
    lr: a.OptionalRate = None, schedule: a.ScheduleName = "constant", ema: a.Average = 0.995, clip_norm: a.Clip = 1.0,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Flow matching: the velocity of straight lines from images to noise, followed backwards by Heun's rule.

    x_t = (1 − t) x_0 + t ε, min E ‖f(x_t, t) − (ε − x_0)‖².
    """
    shape, words = fitted(data, conditional, drop, Way(sampling_steps, guidance=guidance))
    objective = FlowMatching(unet(shape, widths, time, words["classes"], dropout), shape, **words)
    return learning(data, objective, lr=lr, schedule=schedule, ema=ema, clip_norm=clip_norm, epochs=epochs, batch=batch)


def few(T: int, sampling_steps: int | None) -> int:
    """As many as were asked for, where there are so many."""
    steps = min(FEW, T) if sampling_steps is None else sampling_steps
    moments(T, steps)
    return steps


def fitted(data: Data, conditional: bool, drop: float, way: Way) -> tuple[Shape, dict[str, Any]]:
    """The images' shape, and what both objectives are told alike; a referee joins where there are labels."""
    if way.guidance and not conditional:
        raise UsageError(f"--guidance {way.guidance:g} insists on a class, which the network is told with --conditional only")
    if way.guidance and not drop:
        raise UsageError(f"--guidance {way.guidance:g} needs what the network says without a label; give --drop more than 0")
    labelled = data.task in ("binary", "multiclass")
    referee: nn.Module | None = None
    if labelled:
        referee = MLP(data.features, data.classes, hidden=(128,), dropout=0.2, mean=data.mean, std=data.std)
    classes = classes_of(data) if conditional else 0
    return shape_of(data), {"classes": classes, "drop": drop, "way": way, "referee": referee}


def unet(
    shape: Shape, widths: tuple[int, ...] | None, time: int, classes: int, dropout: float, *,
    make: type[DenoiseUNet] | type[SimpleUNet] = DenoiseUNet,
) -> nn.Module:
    widths = widths or ((32, 64, 128) if min(shape[1:]) >= 16 else (24, 48))
    made = make(shape=shape, widths=widths, time=time, classes=classes, dropout=dropout)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def learning(
    data: Data, objective: Noised, *,
    lr: float | None, schedule: str, ema: float | None, clip_norm: float | None, epochs: int | None, batch: int | None,
    updates: int = UPDATES, judged: int = JUDGED, rate: float = 2e-4,
) -> Experiment:
    """So many steps on a small set, 20 epochs of a large one at this rate; judged few times, since that means drawing."""
    rows, small = len(data.train), len(data.train) < SMALL
    batch = batch or (64 if small else 128)
    epoch = ceil(rows / batch)
    epochs = epochs or (ceil(updates / epoch) if small else 20)
    optimizers = {"model": make("adam", lr=lr or (2e-3 if small else rate))}
    if objective.referee is not None:
        optimizers["referee"] = make("adamw", lr=2e-3, weight_decay=0.01)
    return Experiment(
        data=data, objective=objective, optimizer=optimizers, schedule=make_schedule(schedule), clip_norm=clip_norm, ema=ema,
        epochs=epochs, batch=batch, evaluate_every=max(1, epoch * epochs // judged),
        notes=about_scores(
            data, referee=objective.referee is not None, conditional=bool(objective.classes), noises=len(objective.noises), first=True
        ),
    )
