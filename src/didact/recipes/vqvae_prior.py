"""The prior over the codes of a VQ-VAE."""

from dataclasses import replace
from typing import Annotated

from didact.data.core import Data
from didact.models.generative.pixelcnn import PixelCNN
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.objectives.generative.vqvae_prior import CodePrior
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._source_run import SourceRunOption, resolve_source_run
from didact.recipes.autoencoders import require_num_classes
from didact.recipes.pixelcnn import RECIPE_METADATA, Conditional, KernelSize, make_experiment, require_odd_kernel
from didact.registry import recipe
from didact.training.experiment import Experiment, InitContext


@recipe(**RECIPE_METADATA, sources=("Gaba 9.7", "Gaba 9.10", "Groudiev 9.2.4"), grid={"num_layers": (1, 2, 4)})
def vqvae_prior(
    data: Data,
    *,
    from_: SourceRunOption = None,
    autoencoder: Annotated[
        str | None, "vqvae and its arguments: read from --from, or trained first (vqvae if not given)"
    ] = None,
    channels: Annotated[int, Range(1), "channels of both stacks"] = 32,
    num_layers: Annotated[int, Range(1), "number of gated masked-convolution blocks", Aliases("layers")] = 4,
    kernel_size: KernelSize = 3,
    conditional: Conditional = False,
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Prior over VQ-VAE codes: a PixelCNN whose samples become new images.

    p(k) = Π_i p(k_i | k_<i), k the codes of x; −log₂ p(k) / D are its bits per code, log₂ K if all codes were equally
    likely.
    """
    require_odd_kernel(kernel_size)
    source_run = resolve_source_run(from_, autoencoder, data, allowed_recipes=("vqvae",))
    vqvae_objective = source_run.build_experiment(data).objective
    assert isinstance(vqvae_objective, VQVAEObjective)
    dim, num_classes = (
        vqvae_objective.network.quantizer.codebook.shape[1],
        require_num_classes(data) if conditional else 0,
    )
    shape = (dim, *vqvae_objective.network.grid)
    network = PixelCNN(
        shape=shape,
        channels=channels,
        num_layers=num_layers,
        outputs=vqvae_objective.network.codebook_size,
        kernel_size=kernel_size,
        num_classes=num_classes,
    )

    def initialize_weights(context: InitContext) -> tuple[str, ...]:
        return (
            source_run.train_or_load(vqvae_objective, data, context),
            f"an image is {shape[1]} × {shape[2]} codes of a codebook of {vqvae_objective.network.codebook_size}",
        )

    experiment = make_experiment(
        data,
        CodePrior(network, vqvae_objective, num_classes=num_classes),
        lr=lr,
        weight_decay=weight_decay,
        schedule=schedule,
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
    )
    return replace(
        experiment,
        initialize_weights=initialize_weights,
        resolved_arguments={"from_": source_run.location, "autoencoder": source_run.description},
    )
