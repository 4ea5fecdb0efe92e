"""Diffusion models and flow matching: images from noise, step by step."""

from math import ceil
from typing import Annotated, Any, Literal

import torch
from torch import nn

from didact.data.core import Data
from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.models.generative.diffusion_unet import DiffusionUNet, SimpleUNet
from didact.models.tabular.mlp import MLP
from didact.objectives.generative.diffusion import DenoisingObjective, DiffusionObjective
from didact.objectives.generative.flow_matching import FlowMatchingObjective
from didact.objectives.generative.noise_schedule import NoiseSchedule
from didact.objectives.generative.sample_quality import metric_notes
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, OnlyWith, Range, RequiresLabels
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SMALL_TRAIN_SIZE
from didact.recipes.autoencoders import require_num_classes
from didact.recipes.gan import get_image_shape
from didact.registry import recipe
from didact.samplers.ddim import SamplingConfig, SolverOrder, VarianceType, sampling_timesteps
from didact.training.experiment import Experiment

UNetChannels = Annotated[
    tuple[int, ...] | None,
    Range(1),
    "channels of the U-Net at each resolution (24,48 for small images, 32,64,128 for others)",
]
TimeDim = Annotated[int, Range(2), "timestep embedding dimension"]
Conditional = Annotated[bool, RequiresLabels(), "class-conditional network, so that `sample --class` works"]
LabelDropout = Annotated[
    float,
    Range(0, 1),
    OnlyWith("conditional", True),
    "probability of dropping the label in training, for classifier-free guidance",
]
Guidance = Annotated[
    float, Range(0), "classifier-free guidance weight w: (1 + w) f(x, c) − w f(x, ∅)", Aliases("guidance_scale", "cfg")
]
SamplingSteps = Annotated[int, Range(1), "sampling steps", Aliases("num_inference_steps")]
OptionalSamplingSteps = Annotated[
    int | None,
    Range(1),
    "sampling steps (25 of the timesteps if not given, all where there are fewer)",
    Aliases("num_inference_steps"),
]
RECIPE_METADATA: dict[str, Any] = {
    "data": "digits",
    "accepts": ("images",),
    "chapter": "generative",
    "kind": "generative",
}
TARGET_STEPS = 1_000  # on a small dataset
_NUM_EVALUATIONS = 5
_DEFAULT_SAMPLING_STEPS = 25


@recipe(
    **RECIPE_METADATA,
    abilities=("sample", "walk", "complete"),
    sources=("Gaba 10.2", "Gaba 10.3", "Gaba 10.6", "Gaba 10.8", "Gaba 10.9", "Fleuret 7.2"),
    grid={"noise_schedule": ("linear", "cosine"), "timesteps": (200, 1000)},
)
def diffusion(
    data: Data,
    *,
    timesteps: Annotated[int, Range(1, 100_000), "diffusion steps T", Aliases("T", "num_timesteps")] = 1000,
    noise_schedule: Annotated[
        Literal["linear", "linear_fixed", "cosine"],
        "noise schedule (linear_fixed: the β of 1000 timesteps, also for fewer)",
        Aliases("beta_schedule"),
    ] = "cosine",
    prediction_type: Annotated[
        Literal["noise", "image", "velocity"],
        "prediction target: noise ε, image x_0, or velocity v = a ε − σ x_0",
    ] = "velocity",
    sampling_steps: OptionalSamplingSteps = None,
    eta: Annotated[float, Range(0, 1), "DDIM's η: 0 is deterministic; 1 with all timesteps is DDPM"] = 0.0,
    variance: Annotated[
        VarianceType,
        OnlyWith("eta", above=0),
        "variance of the reverse process: that of the posterior, or β_t, which is a little larger",
    ] = "posterior",
    solver_order: Annotated[
        SolverOrder, "solver order with η = 0: 1 is DDIM, 2 is DPM-Solver++(2M)", Aliases("order")
    ] = 2,
    network: Annotated[Literal["unet", "simple"], "U-Net: with attention, or Gaba 10.8's simple one"] = "unet",
    channels: UNetChannels = None,
    time_dim: TimeDim = 128,
    dropout: a.Dropout = 0.0,
    conditional: Conditional = False,
    label_dropout: LabelDropout = 0.1,
    guidance: Guidance = 0.0,
    lr: a.OptionalLearningRate = None,
    schedule: a.Schedule = "warmup_cosine",
    ema: a.EMADecay = 0.995,
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
    evaluations: Annotated[int, Range(1), "number of evaluations; each draws samples"] = _NUM_EVALUATIONS,
) -> Experiment:
    """Diffusion model (DDPM, DDIM) with a U-Net.

    x_t = a x_0 + σ ε, a = √ᾱ_t, σ = √(1 − ᾱ_t); min E ‖v − f(x_t, t)‖², v = a ε − σ x_0. On large datasets batch size
    and epochs of Gaba 10.8; its own choices are `--noise-schedule linear --prediction-type noise --schedule constant
    --lr 2e-4`, and DDIM's steps `--solver-order 1`. Measured on digits, one seed: Fréchet distance of thumbnails 0.30
    in 25 steps; with linear noise, ε and a constant rate 0.35.
    """
    shape, options = build_objective_options(
        data,
        conditional,
        label_dropout,
        SamplingConfig(choose_sampling_steps(timesteps, sampling_steps), eta, guidance, variance, solver_order),
    )
    denoiser = make_unet(
        shape,
        channels,
        time_dim,
        options["num_classes"],
        dropout,
        network_class=SimpleUNet if network == "simple" else DiffusionUNet,
    )
    objective = DiffusionObjective(
        denoiser, shape, NoiseSchedule(timesteps, noise_schedule), prediction_type=prediction_type, **options
    )
    options = {
        "lr": lr,
        "schedule": schedule,
        "ema": ema,
        "clip_norm": clip_norm,
        "epochs": epochs,
        "batch_size": batch_size,
    }
    return make_experiment(data, objective, **options, num_evaluations=evaluations, large_set_lr=1e-3)


@recipe(
    **RECIPE_METADATA,
    abilities=("sample", "walk", "complete"),
    sources=("Gaba 10.10",),
    grid={"sampling_steps": (1, 4, 16)},
)
def flow_matching(
    data: Data,
    *,
    sampling_steps: SamplingSteps = 12,
    channels: UNetChannels = None,
    time_dim: TimeDim = 128,
    dropout: a.Dropout = 0.0,
    conditional: Conditional = False,
    label_dropout: LabelDropout = 0.1,
    guidance: Guidance = 0.0,
    lr: a.OptionalLearningRate = None,
    schedule: a.Schedule = "constant",
    ema: a.EMADecay = 0.995,
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Flow matching: an ODE from noise to images along straight lines.

    x_t = (1 − t) x_0 + t ε, min E ‖f(x_t, t) − (ε − x_0)‖²; sampled by Heun's method.
    """
    shape, options = build_objective_options(
        data, conditional, label_dropout, SamplingConfig(sampling_steps, guidance=guidance)
    )
    objective = FlowMatchingObjective(
        make_unet(shape, channels, time_dim, options["num_classes"], dropout), shape, **options
    )
    return make_experiment(
        data, objective, lr=lr, schedule=schedule, ema=ema, clip_norm=clip_norm, epochs=epochs, batch_size=batch_size
    )


def choose_sampling_steps(timesteps: int, sampling_steps: int | None) -> int:
    """The sampling steps; by default 25, or all timesteps if there are fewer."""
    steps = min(_DEFAULT_SAMPLING_STEPS, timesteps) if sampling_steps is None else sampling_steps
    sampling_timesteps(timesteps, steps)
    return steps


def build_objective_options(
    data: Data, conditional: bool, label_dropout: float, sampling: SamplingConfig
) -> tuple[Shape, dict[str, Any]]:
    """The shape of the images and the options of the objective; labels add a referee, which evaluates samples."""
    if sampling.guidance and not conditional:
        raise UsageError(
            f"--guidance {sampling.guidance:g} needs a class-conditional model; add --conditional"
        )
    if sampling.guidance and not label_dropout:
        raise UsageError(
            f"--guidance {sampling.guidance:g} needs predictions without a label too; give a --label-dropout above 0"
        )
    has_labels = data.task in ("binary", "multiclass")
    referee: nn.Module | None = None
    if has_labels:
        referee = MLP(data.num_features, data.num_classes, hidden=(128,), dropout=0.2, mean=data.mean, std=data.std)
    num_classes = require_num_classes(data) if conditional else 0
    return get_image_shape(data), {
        "num_classes": num_classes,
        "label_dropout": label_dropout,
        "sampling": sampling,
        "referee": referee,
    }


def make_unet(
    shape: Shape, channels: tuple[int, ...] | None, time_dim: int, num_classes: int, dropout: float, *,
    network_class: type[DiffusionUNet] | type[SimpleUNet] = DiffusionUNet,
) -> nn.Module:
    channels = channels or ((32, 64, 128) if min(shape[1:]) >= 16 else (24, 48))
    network = network_class(shape=shape, widths=channels, time_dim=time_dim, num_classes=num_classes, dropout=dropout)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def make_experiment(
    data: Data,
    objective: DenoisingObjective,
    *,
    lr: float | None,
    schedule: str,
    ema: float | None,
    clip_norm: float | None,
    epochs: int | None,
    batch_size: int | None,
    target_steps: int = TARGET_STEPS,
    num_evaluations: int = _NUM_EVALUATIONS,
    large_set_lr: float = 2e-4,
) -> Experiment:
    """The experiment: so many steps on a small dataset, 20 epochs on a large one; few evaluations, since each samples.
    """
    num_examples, is_small = len(data.train), len(data.train) < SMALL_TRAIN_SIZE
    batch_size = batch_size or (64 if is_small else 128)
    steps_per_epoch = ceil(num_examples / batch_size)
    epochs = epochs or (ceil(target_steps / steps_per_epoch) if is_small else 20)
    optimizers = {"model": make_optimizer("adam", lr=lr or (2e-3 if is_small else large_set_lr))}
    if objective.referee is not None:
        optimizers["referee"] = make_optimizer("adamw", lr=2e-3, weight_decay=0.01)
    return Experiment(
        data=data,
        objective=objective,
        optimizer=optimizers,
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        ema=ema,
        epochs=epochs,
        batch_size=batch_size,
        evaluate_every=max(1, steps_per_epoch * epochs // num_evaluations),
        notes=metric_notes(
            data,
            referee=objective.referee is not None,
            conditional=bool(objective.num_classes),
            num_noises=len(objective.noises),
            only_first=True,
        ),
    )
