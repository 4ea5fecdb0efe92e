"""Images given back as they were."""

from math import log
from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.errors import UsageError
from didact.models.denoiser import Denoiser
from didact.objectives.denoising import Blur, Degradation, Denoise, Greyscale, Noise
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import passes
from didact.registry import recipe
from didact.train.experiment import Experiment

Damage = Annotated[Literal["noise", "blur", "greyscale"], "what is done to the images"]
Strength = Annotated[
    float | None, Range(0, open_low=True),
    "deviation of the noise (0.1 if not given) or of the blur in pixels (1.5); greyscale has none",
]
STEPS = 900                                 # where no number of epochs is given
FAINTEST = 0.5 / 255                        # half a grey level
SHARPEST = (2 * log(255)) ** -0.5           # exp(−1 / 2σ²) = 1/255: what a pixel's neighbour weighs in a Gaussian of that deviation


@recipe(
    data="shapes", accepts=("images", "masks", "boxes"), chapter="convolutions", kind="self-supervised", abilities=("restore",),
    sources=("Fleuret 6.1",),
)
def denoising(
    data: Data, *,
    damage: Damage = "noise", strength: Strength = None,
    widths: Annotated[tuple[int, ...], Range(1), "channels at each resolution, the finest first"] = (16, 32, 64),
    distance: Annotated[Literal["mse", "l1"], "squared or absolute difference"] = "mse",
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.0, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.BatchSize = 8,
) -> Experiment:
    """A convolutional autoencoder that takes noise out, sharpens what is blurred, or colours what is grey.

    min E ‖f(x̃) − x‖², x̃ a damaged x. PSNR and SSIM are of the restored images, and of the damaged ones to compare with.
    """
    epochs, evaluate_every, notes = passes(data, batch, epochs, steps=STEPS, least=8)
    network = Denoiser(widths=widths, channels=data.shape[0], mean=data.mean, std=data.std)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Experiment(
        data=data,
        objective=Denoise(network, degradation(data, damage, strength), data.shape, distance=distance),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, ema=ema, patience=patience,
        epochs=epochs, batch=batch, evaluate_every=evaluate_every, notes=notes,
    )


def degradation(data: Data, damage: str, strength: float | None) -> Degradation:
    """The damage by its name; one that would change nothing is refused."""
    least = {"noise": FAINTEST, "blur": SHARPEST}.get(damage, 0.0)
    if strength is not None and strength < least:
        raise UsageError(f"--strength of {damage} expects at least {least:.2g}: less changes no grey level, got {strength:g}")
    if damage == "noise":
        return Noise(strength or 0.1)
    if damage == "blur":
        return Blur(strength or 1.5)
    if strength is not None:
        raise UsageError(f"--damage greyscale has no --strength, got {strength:g}")
    if data.shape[0] != 3:
        raise UsageError(f"--damage greyscale takes colours away, but {data.name!r} has {data.shape[0]} channel; use noise or blur")
    return Greyscale()
