"""Latent diffusion: a diffusion model in the latent space of an autoencoder."""

from dataclasses import replace
from typing import Annotated, Literal

import torch

from didact.data.core import Data
from didact.errors import UsageError
from didact.objectives.generative.latent_diffusion import FrozenAutoencoder, LatentDiffusionObjective
from didact.objectives.generative.noise_schedule import NoiseSchedule
from didact.objectives.generative.vae import VAEObjective
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._source_run import SourceRunOption, resolve_source_run
from didact.recipes.diffusion import (
    RECIPE_METADATA,
    Conditional,
    Guidance,
    LabelDropout,
    OptionalSamplingSteps,
    TimeDim,
    UNetChannels,
    build_objective_options,
    choose_sampling_steps,
    make_experiment,
    make_unet,
)
from didact.registry import recipe
from didact.samplers.ddim import SamplingConfig
from didact.training.experiment import Experiment, InitContext

_NUM_SCALE_EXAMPLES = 4096  # training images whose latents give mean and standard deviation


@recipe(
    **RECIPE_METADATA,
    abilities=("sample", "walk"),
    sources=("Gaba 9.10", "Gaba 10.10"),
    grid={"autoencoder": ("vqvae", "vae network=conv")},
)
def latent_diffusion(
    data: Data,
    *,
    from_: SourceRunOption = None,
    autoencoder: Annotated[
        str | None,
        "recipe and arguments of the autoencoder: read from --from, or trained first (vqvae if not given)",
    ] = None,
    timesteps: Annotated[int, Range(1, 100_000), "diffusion steps T", Aliases("T", "num_timesteps")] = 1000,
    noise_schedule: Annotated[Literal["linear", "cosine"], "noise schedule", Aliases("beta_schedule")] = "linear",
    prediction_type: Annotated[
        Literal["noise", "image", "velocity"],
        "prediction target: noise ε, latent z_0, or velocity v = a ε − σ z_0",
    ] = "velocity",
    sampling_steps: OptionalSamplingSteps = None,
    eta: Annotated[float, Range(0, 1), "DDIM's η: 0 is deterministic; 1 with all timesteps is DDPM"] = 0.0,
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
    """Latent diffusion: a diffusion model in the latent space of a (VQ-)VAE.

    z_t = √ᾱ_t z_0 + √(1 − ᾱ_t) ε, z_0 = (encode(x) − μ) / s; min E ‖v − f(z_t, t)‖². Measured on digits, one seed:
    Fréchet distance of thumbnails 0.53 with a VQ-VAE, whose reconstructions alone have 0.36.
    """
    sampling = SamplingConfig(choose_sampling_steps(timesteps, sampling_steps), eta, guidance)
    source_run = resolve_source_run(from_, autoencoder, data, allowed_recipes=("vqvae", "vae"))
    if source_run.arguments.get("conditional"):
        raise UsageError(
            "the autoencoder must not be class-conditional, but this one was trained with --conditional; use another"
        )
    autoencoder_objective = source_run.build_experiment(data).objective
    assert isinstance(autoencoder_objective, VAEObjective | VQVAEObjective)
    frozen_autoencoder = FrozenAutoencoder(autoencoder_objective)
    _, options = build_objective_options(data, conditional, label_dropout, sampling)
    shape = frozen_autoencoder.shape
    network = make_unet(
        shape, channels or ((64, 128) if min(shape[1:]) > 1 else (128,)), time_dim, options["num_classes"], dropout
    )
    objective = LatentDiffusionObjective(
        frozen_autoencoder,
        network,
        NoiseSchedule(timesteps, noise_schedule),
        prediction_type=prediction_type,
        **options,
    )

    def initialize_weights(context: InitContext) -> tuple[str, ...]:
        note = source_run.train_or_load(autoencoder_objective, data, context)
        batches = data.train.batches([torch.arange(min(_NUM_SCALE_EXAMPLES, len(data.train)))])
        objective.fit_latent_scale(data.train.decode(next(iter(batches)))["x"])
        return note, f"latents of {shape[0]} × {shape[1]} × {shape[2]} numbers, standardized"

    experiment = make_experiment(
        data, objective, lr=lr, schedule=schedule, ema=ema, clip_norm=clip_norm, epochs=epochs, batch_size=batch_size
    )
    return replace(
        experiment,
        initialize_weights=initialize_weights,
        resolved_arguments={"from_": source_run.location, "autoencoder": source_run.description},
    )
