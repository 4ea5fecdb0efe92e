"""Image restoration: noise, blur and missing color undone."""

from math import log
from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.errors import UsageError
from didact.models.vision.denoising_autoencoder import DenoisingAutoencoder
from didact.objectives.vision.restoration import AddBlur, AddNoise, Degradation, RestorationObjective, ToGrayscale
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import choose_epochs
from didact.registry import recipe
from didact.training.experiment import Experiment

_DegradationKind = Annotated[Literal["noise", "blur", "grayscale"], "degradation to be undone"]
_Strength = Annotated[
    float | None, Range(0, open_low=True),
    "standard deviation of the noise (0.1 if not given) or of the blur in pixels (1.5); grayscale has none",
]
_TARGET_STEPS = 900            # where no epochs are given
_MIN_NOISE_STD = 0.5 / 255     # half a gray level
# exp(−1 / 2σ²) = 1/255: the weight of a neighboring pixel in a Gaussian of this standard deviation
MIN_BLUR_STD = (2 * log(255)) ** -0.5


@recipe(
    data="shapes",
    accepts=("images", "masks", "boxes"),
    chapter="convolutions",
    kind="self-supervised",
    abilities=("restore",),
    sources=("Fleuret 6.1",),
)
def denoising(
    data: Data,
    *,
    degradation: _DegradationKind = "noise",
    strength: _Strength = None,
    channels: Annotated[tuple[int, ...], Range(1), "channels at each resolution, the highest first"] = (16, 32, 64),
    loss: Annotated[Literal["mse", "l1"], "reconstruction loss: mean squared or mean absolute error"] = "mse",
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.0,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.BatchSize = 8,
) -> Experiment:
    """Image restoration by a convolutional autoencoder: noise, blur, grayscale.

    min E ‖f(x̃) − x‖², x̃ a degraded x. PSNR and SSIM are of the restored images, and of the degraded ones for
    comparison.
    """
    epochs, evaluate_every, notes = choose_epochs(data, batch_size, epochs, steps=_TARGET_STEPS, min_epochs=8)
    network = DenoisingAutoencoder(widths=channels, channels=data.shape[0], mean=data.mean, std=data.std)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Experiment(
        data=data,
        objective=RestorationObjective(
            network, _make_degradation(data, degradation, strength), data.shape, distance=loss
        ),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        evaluate_every=evaluate_every,
        notes=notes,
    )


def _make_degradation(data: Data, kind: str, strength: float | None) -> Degradation:
    """The degradation by its name; one that would change nothing is refused."""
    min_strength = {"noise": _MIN_NOISE_STD, "blur": MIN_BLUR_STD}.get(kind, 0.0)
    if strength is not None and strength < min_strength:
        raise UsageError(
            f"--strength of {kind} expects at least {min_strength:.2g}: less changes no gray level, got {strength:g}"
        )
    if kind == "noise":
        return AddNoise(strength or 0.1)
    if kind == "blur":
        return AddBlur(strength or 1.5)
    if strength is not None:
        raise UsageError(f"--degradation grayscale has no --strength, got {strength:g}")
    if data.shape[0] != 3:
        raise UsageError(
            f"--degradation grayscale is for color images, but {data.name!r} has {data.shape[0]} channel; "
            "use noise or blur"
        )
    return ToGrayscale()
