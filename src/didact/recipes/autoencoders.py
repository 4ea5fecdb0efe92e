"""Autoencoders: plain, semi-supervised, variational and with a discrete codebook."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from torch import nn

from didact.data.core import Data
from didact.data.few_labels import with_few_labels
from didact.data.load import reject_options
from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.models.generative.autoencoder import Autoencoder, ConvAutoencoder
from didact.models.generative.vae import VAE, ConvVAE
from didact.models.generative.vqvae import VQVAE
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.pixels import make_pixel_distribution
from didact.objectives.generative.autoencoder import AutoencoderObjective
from didact.objectives.generative.table_rows import RowLayout
from didact.objectives.generative.table_vae import TableVAE
from didact.objectives.generative.vae import VAEObjective
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.objectives.semi_supervised import SemiSupervisedObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range, RequiresLabels
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SMALL_TRAIN_SIZE, choose_budget
from didact.registry import recipe
from didact.training.experiment import Experiment, InitContext
from didact.training.plan import TrainingPlan

_Network = Annotated[Literal["dense", "conv"], "encoder and decoder: dense layers, or strided convolutions"]
_LatentDim = Annotated[int, Range(1), "latent dimension"]
_OptionalHiddenSizes = Annotated[
    tuple[int, ...],
    Range(1),
    "units of each dense layer, or channels of each convolution (chosen if not given)",
]
_InputNoise = Annotated[
    float, Range(0), "denoising autoencoder: standard deviation of the Gaussian noise added to the input"
]
_PRETRAIN_FRACTION = 2 / 3    # of the steps of semi_supervised --fine-tune


@recipe(
    data="digits",
    accepts=("images",),
    chapter="generative",
    kind="self-supervised",
    abilities=("embed", "restore"),
    sources=("Gaba 9.2", "Groudiev 10.1", "Van Schependom 8.1", "Fleuret 6.1"),
    grid={"latent_dim": (2, 4, 8, 16)},
)
def autoencoder(
    data: Data,
    *,
    network: _Network = "dense",
    latent_dim: _LatentDim = 16,
    hidden: _OptionalHiddenSizes = (),
    input_noise: _InputNoise = 0.0,
    mask_ratio: Annotated[
        float, Range(0, 0.95), "mask ratio: fraction of the pixels hidden from the encoder"
    ] = 0.0,
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.0,
    schedule: a.Schedule = "cosine",
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Autoencoder: compress images into a few numbers; with noise, denoising.

    min E ‖x − g(f(x̃))‖². Nothing shapes the latent space: random codes decode to nothing in particular.
    """
    shape, epochs, batch_size, notes = _shape_and_budget(data, epochs, batch_size)
    model_class = {"dense": Autoencoder, "conv": ConvAutoencoder}[network]
    model = model_class(shape=shape, widths=hidden or _default_hidden_sizes(network, shape), latent_dim=latent_dim)
    return Experiment(
        data=data,
        objective=AutoencoderObjective(model, data.shape, input_noise=input_noise, mask_ratio=mask_ratio),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        patience=patience, epochs=epochs, batch_size=batch_size, notes=notes,
    )


@recipe(
    data="digits",
    accepts=("images",),
    tasks=("binary", "multiclass"),
    chapter="generative",
    kind="self-supervised",
    abilities=("classify", "embed"),
    sources=("Van Schependom 8.5", "Groudiev 10.1"),
    grid={"labels_per_class": (1, 2, 5, 10, 20)},
)
def semi_supervised(
    data: Data,
    *,
    labels_per_class: Annotated[
        int, Range(1), "labeled training examples per class; all others are used without their labels"
    ] = 5,
    network: _Network = "dense",
    latent_dim: _LatentDim = 16,
    hidden: _OptionalHiddenSizes = (),
    input_noise: _InputNoise = 0.3,
    fine_tune: Annotated[
        bool, "fine-tune the encoder together with the classifier in the last third of the steps"
    ] = False,
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "cosine",
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Semi-supervised learning: all images train the encoder, few have labels.

    min ‖x − g(f(x̃))‖² over every image, by f and g; min −log p(y | h(f(x))) over the labeled ones, by h, and with
    `--fine-tune` by f too, in the last third of the steps. `gain` is the accuracy above that of a network of f and h's
    size that saw the labeled examples only. Measured on digits with 5 labels per class (test accuracy, seeds 0-2):
    0.896 ± 0.021, with `--fine-tune` 0.892 ± 0.015; that network alone 0.848 ± 0.017.
    """
    shape, epochs, batch_size, notes = _shape_and_budget(data, epochs, batch_size)
    labeled_data = with_few_labels(data, labels_per_class)
    hidden = hidden or _default_hidden_sizes(network, shape)
    model_class = {"dense": Autoencoder, "conv": ConvAutoencoder}[network]
    model, baseline = (model_class(shape=shape, widths=hidden, latent_dim=latent_dim) for _ in range(2))
    head, baseline_head = (MLP(latent_dim, data.num_classes, hidden=(64,)) for _ in range(2))
    objective = SemiSupervisedObjective(
        model,
        head,
        nn.Sequential(baseline.body, baseline.code, baseline_head),
        input_noise=input_noise,
        fine_tune=fine_tune,
    )
    experiment = Experiment(
        data=labeled_data,
        objective=objective,
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        epochs=epochs,
        batch_size=batch_size,
        notes=(*notes, *labeled_data.notes[len(data.notes) :]),
    )
    if not fine_tune:
        return experiment

    def set_pretrain_steps(context: InitContext) -> tuple[str, ...]:
        """The steps before fine-tuning, once the budget is settled: --steps may have replaced the recipe's."""
        budget = context.settings.epochs, context.settings.steps
        budgeted = experiment.with_budget(*budget) if any(budget) else experiment
        total = TrainingPlan.from_experiment(budgeted).total_rounds
        pretrain_steps = round(_PRETRAIN_FRACTION * total)
        objective.pretrain_steps.fill_(pretrain_steps)
        return (f"the encoder is fine-tuned with the classifier after {pretrain_steps:,} of {total:,} steps",)

    return replace(experiment, initialize_weights=set_pretrain_steps)


@recipe(
    data="digits",
    accepts=("images", "table"),
    chapter="generative",
    kind="generative",
    abilities=("sample", "walk", "encode", "restore", "tabulate", "embed"),
    sources=("Gaba 9.8", "Gaba 9.9", "Groudiev 10.2", "Van Schependom 8.3"),
    grid={"beta": (0.5, 1.0, 2.0, 4.0, 10.0)},
    comparison_metrics=("elbo", "reconstruction", "kl"),
)
def vae(
    data: Data,
    *,
    network: _Network = "dense",
    latent_dim: _LatentDim = 20,
    hidden: _OptionalHiddenSizes = (),
    likelihood: Annotated[
        Literal["bernoulli", "gaussian", "categorical"] | None,
        "likelihood p(x | z) of a pixel (bernoulli if not given)",
    ] = None,
    levels: Annotated[int, Range(2, 256), "gray levels of the categorical likelihood"] = 16,
    beta: Annotated[float, Range(0), "weight β of the KL term; above 1, a β-VAE", Aliases("kl_weight")] = 1.0,
    kl_warmup: Annotated[int, Range(0), "KL annealing: steps in which the weight of the KL term rises from 0"] = 0,
    free_bits: Annotated[float, Range(0), "free bits: nats per latent dimension that the KL term leaves free"] = 0.0,
    num_samples: Annotated[
        int, Range(1, 10_000), "latent samples per image; above 1, the importance-weighted bound (IWAE)"
    ] = 1,
    conditional: Annotated[
        bool, RequiresLabels(), "class-conditional encoder and decoder, so that `sample --class` works"
    ] = False,
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 0.0,
    schedule: a.Schedule = "constant",
    clip_norm: a.ClipNorm = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Variational autoencoder (VAE, β-VAE, IWAE) of images or table rows.

    max E_q log p(x | z) − β KL(q(z | x) ‖ N(0, I)), z = μ(x) + σ(x) ε. On MNIST with its defaults, Gaba's network and
    budget. Of a table all columns are learned together; p(x | z) is Gaussian for numbers and categorical for
    categories.
    """
    if num_samples > 1 and (beta != 1 or kl_warmup or free_bits):
        raise UsageError(
            f"--num-samples {num_samples} maximizes the importance-weighted bound, which has no --beta, --kl-warmup or "
            "--free-bits"
        )
    if likelihood != "categorical":
        reject_options("it is for --likelihood categorical", levels=None if levels == 16 else levels)
    num_classes = require_num_classes(data) if conditional else 0
    vae_options: dict[str, Any] = {
        "beta": beta,
        "kl_warmup": kl_warmup,
        "free_bits": free_bits,
        "num_samples": num_samples,
    }
    if data.kind == "table":
        reject_options(
            f"{data.name!r} is a table", likelihood=likelihood, network=None if network == "dense" else network
        )
        layout = RowLayout(data, joint=not conditional, conditional=conditional)
        model = VAE(
            shape=(layout.num_features, 1, 1),
            widths=hidden or (128, 128),
            latent_dim=latent_dim,
            num_classes=num_classes,
        )
        objective: VAEObjective = TableVAE(model, layout, **vae_options)
        epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    else:
        shape, epochs, batch_size, notes = _shape_and_budget(data, epochs, batch_size, large_epochs=30)
        distribution = make_pixel_distribution(likelihood or "bernoulli", levels=levels)
        hidden = hidden or ((512,) if network == "dense" else _default_hidden_sizes(network, shape))
        model_class = {"dense": VAE, "conv": ConvVAE}[network]
        model = model_class(
            shape=shape,
            widths=hidden,
            latent_dim=latent_dim,
            outputs=shape[0] * distribution.num_outputs,
            num_classes=num_classes,
        )
        objective = VAEObjective(model, distribution, **vae_options)
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make_optimizer("adam", lr=lr or (3e-3 if data.kind == "table" else 1e-3), weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch_size=batch_size, notes=notes,
    )


@recipe(
    data="digits",
    accepts=("images",),
    chapter="generative",
    kind="self-supervised",
    abilities=("embed", "restore"),
    sources=("Gaba 9.7", "Gaba Ex 9.5"),
    grid={"codebook_size": (8, 32, 128, 512)},
)
def vqvae(
    data: Data,
    *,
    codebook_size: Annotated[int, Range(2), "codebook size: number of code vectors", Aliases("num_embeddings")] = 64,
    code_dim: Annotated[int, Range(1), "dimension of a code vector", Aliases("embedding_dim")] = 16,
    channels: Annotated[
        tuple[int, ...], Range(1), "channels of the convolutions, each of which halves the image"
    ] = (32, 64),
    commitment: Annotated[float, Range(0), "weight β of the commitment loss", Aliases("commitment_cost")] = 0.25,
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.0,
    schedule: a.Schedule = "cosine",
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """VQ-VAE: images as maps of discrete codes from a learned codebook.

    L = ‖x − x̂‖² / Var x + ‖sg[z] − e‖² + β ‖z − sg[e]‖²; the gradient passes straight through the choice of the
    nearest code.
    """
    shape, epochs, batch_size, notes = _shape_and_budget(data, epochs, batch_size)
    model = VQVAE(shape=shape, widths=channels, codebook_size=codebook_size, code_dim=code_dim)
    return Experiment(
        data=data,
        objective=VQVAEObjective(model, variance=float(data.std.square().mean()), beta=commitment),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        epochs=epochs, batch_size=batch_size, notes=notes,
    )


def _shape_and_budget(
    data: Data, epochs: int | None, batch_size: int | None, *, large_epochs: int = 10
) -> tuple[Shape, int, int, tuple[str, ...]]:
    """The shape of the images, and epochs and batch size; `large_epochs` on a large dataset."""
    channels, height, width = data.shape
    epochs, batch_size, notes = choose_budget(
        data, epochs or (large_epochs if len(data.train) >= SMALL_TRAIN_SIZE else None), batch_size
    )
    return (channels, height, width), epochs, batch_size, notes


def _default_hidden_sizes(network: str, shape: Shape) -> tuple[int, ...]:
    """Dense layers of 256 and 128; or convolutions down to about 4×4."""
    return (
        (256, 128) if network == "dense" else tuple(32 * 2**n for n in range(4) if max(shape[1:]) > 4 * 2**n) or (32,)
    )


def require_num_classes(data: Data) -> int:
    """The number of classes of a class-conditional model; an error if the data have none."""
    if data.task not in ("binary", "multiclass"):
        item, hint = (
            ("row", "; leave it out, or name a --target") if data.kind == "table" else ("image", "; leave it out")
        )
        raise UsageError(f"--conditional needs the class of each {item}, but {data.name!r} has none{hint}")
    return data.num_classes
