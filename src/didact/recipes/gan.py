"""Generative adversarial networks: a generator against a discriminator."""

from functools import partial
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple

from torch import nn
from torch.optim import Adam, RMSprop

from didact.data.core import Data
from didact.data.load import reject_options
from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.models.generative.gan import (
    Conditioning,
    DCGANDiscriminator,
    DCGANGenerator,
    DenseDiscriminator,
    DenseGenerator,
    StyleGenerator,
)
from didact.models.generative.table_networks import TableGenerator
from didact.models.tabular.mlp import MLP
from didact.objectives.generative.gan import GAN_LOSSES, GANObjective
from didact.objectives.generative.sample_quality import metric_notes
from didact.objectives.generative.table_gan import TableGAN
from didact.objectives.generative.table_rows import RowLayout
from didact.optim.factory import make_optimizer
from didact.optim.weight_clipping import with_weight_clipping
from didact.options import Aliases, Range, RequiresLabels
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import SMALL_TRAIN_SIZE
from didact.recipes.autoencoders import require_num_classes
from didact.registry import recipe
from didact.training.experiment import Experiment, OptimizerFactory

_GeneratorLoss = Annotated[
    Literal["non_saturating", "minimax"], "generator loss: non-saturating −log D(G(z)), or saturating log(1 − D(G(z)))"
]
_LatentDim = Annotated[int, Range(1), "latent dimension: size of the noise vector z"]
_Conditional = Annotated[
    bool, RequiresLabels(), "class-conditional generator and discriminator, so that `sample --class` works"
]
_DiscriminatorSteps = Annotated[int, Range(1, 100), "discriminator steps per generator step", Aliases("n_critic")]
_DiscriminatorLearningRate = Annotated[
    float | None, Range(0, open_low=True), "learning rate of the discriminator (the generator's if not given)"
]
_Channels = Annotated[int, Range(1), "channels at the highest resolution, doubled at each lower one"]
_Beta1 = Annotated[float, Range(0, 0.9999), "β1 of Adam"]
_RECIPE_METADATA: dict[str, Any] = {
    "data": "digits",
    "accepts": ("images",),
    "chapter": "generative",
    "kind": "generative",
    "abilities": ("sample", "walk"),
}

_TABLE_RECIPE_METADATA = _RECIPE_METADATA | {
    "accepts": ("images", "table"),
    "abilities": ("sample", "walk", "tabulate"),
}


@recipe(
    **_TABLE_RECIPE_METADATA,
    sources=("Gaba 8.2", "Gaba 8.3", "Groudiev 11.3", "Van Schependom 8.4"),
    grid={"loss": ("non_saturating", "minimax")},
)
def gan(
    data: Data,
    *,
    loss: _GeneratorLoss = "non_saturating",
    latent_dim: _LatentDim = 32,
    conditional: _Conditional = False,
    hidden: Annotated[
        tuple[int, ...],
        Range(1),
        "units of the generator's layers; those of the discriminator are the reverse",
    ] = (128, 256),
    discriminator_steps: _DiscriminatorSteps = 1,
    lr: a.LearningRate = 1e-3,
    lr_discriminator: _DiscriminatorLearningRate = None,
    beta1: Annotated[float | None, Range(0, 0.9999), "β1 of Adam (0.5 for images, 0 for tables if not given)"] = None,
    ema: a.EMADecay = 0.99,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """GAN: two MLPs, generator and discriminator, for images or table rows.

    min_G max_D E log D(x) + E log(1 − D(G(z))). For tables, `wgan` comes closer to the frequencies of categories.
    Measured on moons, seeds 0-2: 5 % of the sampled rows lie more than 0.1 from every training point of their class
    (`wgan` 12 %, test points 2 %); Fréchet distance 0.061 ± 0.015 (`wgan` 0.052 ± 0.023).
    """
    num_classes = require_num_classes(data) if conditional else 0
    is_table = data.kind == "table"
    if beta1 is None:
        beta1 = 0.0 if is_table else 0.5
    if is_table:
        players = _make_table_players(data, latent_dim=latent_dim, hidden=hidden, num_classes=num_classes)
    else:
        generator = DenseGenerator(
            shape=get_image_shape(data), latent_dim=latent_dim, widths=hidden, num_classes=num_classes
        )
        players = _GANPlayers(
            generator, DenseDiscriminator(shape=get_image_shape(data), widths=hidden[::-1], num_classes=num_classes)
        )
    return _make_gan_experiment(
        data,
        *players,
        loss=loss,
        latent_dim=latent_dim,
        num_classes=num_classes,
        discriminator_steps=discriminator_steps,
        ema=ema,
        epochs=epochs,
        batch_size=batch_size,
        target_rounds=3_000,
        # after few steps the samples may have the means and covariances of the rows, all that the monitor compares
        num_evaluations=3 if is_table else 25,
        optimizers=_make_adam_pair(lr, lr_discriminator, (beta1, 0.999)),
    )


@recipe(
    **_RECIPE_METADATA,
    sources=("Gaba 8.6", "Gaba 8.7", "Gaba 8.9", "Groudiev 11.5"),
    grid={"latent_dim": (32, 64, 100, 256)},
)
def dcgan(
    data: Data,
    *,
    loss: _GeneratorLoss = "non_saturating",
    latent_dim: _LatentDim = 100,
    channels: _Channels = 64,
    conditional: _Conditional = False,
    conditioning: Annotated[
        Conditioning,
        "class conditioning of the generator: concatenated to the noise, or conditional batch normalization",
    ] = "input",
    discriminator_steps: _DiscriminatorSteps = 1,
    lr: a.LearningRate = 2e-4,
    lr_discriminator: _DiscriminatorLearningRate = None,
    beta1: _Beta1 = 0.5,
    ema: a.EMADecay = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """DCGAN: a convolutional GAN.

    Strided convolutions and batch norm, no dense layer; at 28 pixels the networks of Gaba 8.7, at other sizes with as
    many layers as it takes. Batch size, rates and epochs on large datasets are the course's too; --lr 1e-4
    --lr-discriminator 4e-4 are its two time-scales.
    """
    shape, num_classes = get_image_shape(data), require_num_classes(data) if conditional else 0
    if not conditional:
        reject_options(
            "it is for --conditional", conditioning=None if conditioning == "input" else conditioning
        )
    return _make_gan_experiment(
        data,
        DCGANGenerator(
            shape=shape, latent_dim=latent_dim, channels=channels, num_classes=num_classes, conditioning=conditioning
        ),
        DCGANDiscriminator(shape=shape, channels=channels, num_classes=num_classes),
        loss=loss,
        latent_dim=latent_dim,
        num_classes=num_classes,
        discriminator_steps=discriminator_steps,
        ema=ema,
        epochs=epochs,
        batch_size=batch_size,
        optimizers=_make_adam_pair(lr, lr_discriminator, (beta1, 0.999)),
    )


@recipe(**_TABLE_RECIPE_METADATA, sources=("Gaba 8.4", "Gaba Ex 8.3"), grid={"discriminator_steps": (1, 3, 5)})
def wgan(
    data: Data,
    *,
    lipschitz: Annotated[
        Literal["penalty", "clip"], "Lipschitz constraint of the critic: gradient penalty or weight clipping"
    ] = "penalty",
    gradient_penalty: Annotated[
        float, Range(0, open_low=True), "weight λ of the gradient penalty", Aliases("lambda_gp")
    ] = 10.0,
    weight_clip: Annotated[
        float,
        Range(0, open_low=True),
        "weight clipping: largest absolute weight of the critic, with --lipschitz clip",
    ] = 0.01,
    latent_dim: _LatentDim = 100,
    channels: _Channels = 64,
    conditional: _Conditional = False,
    discriminator_steps: _DiscriminatorSteps = 5,
    lr: a.OptionalLearningRate = None,
    lr_discriminator: _DiscriminatorLearningRate = None,
    ema: a.EMADecay = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Wasserstein GAN with gradient penalty or weight clipping.

    W(p, p_G) = sup over 1-Lipschitz f of E f(x) − E f(G(z)); the penalty is λ E (‖∇f(x̂)‖ − 1)². The critic takes
    several steps per generator step. For a table both are MLPs, and the EMA of the weights is used (--ema 0.99 by
    default).
    """
    num_classes = require_num_classes(data) if conditional else 0
    is_clipped = lipschitz == "clip"
    if is_clipped:
        reject_options(
            "--lipschitz clip has no penalty",
            gradient_penalty=None if gradient_penalty == 10 else gradient_penalty,
        )
    else:
        reject_options("it is for --lipschitz clip", weight_clip=None if weight_clip == 0.01 else weight_clip)
    if data.kind == "table":
        players = _make_table_players(
            data, latent_dim=latent_dim, hidden=(2 * channels, 4 * channels), num_classes=num_classes
        )
    else:
        generator = DCGANGenerator(
            shape=get_image_shape(data), latent_dim=latent_dim, channels=channels, num_classes=num_classes
        )
        critic = DCGANDiscriminator(
            shape=get_image_shape(data),
            channels=channels,
            num_classes=num_classes,
            norm="batch" if is_clipped else "layer",
        )
        players = _GANPlayers(generator, critic)
    optimizers: dict[str, OptimizerFactory] = {}
    if is_clipped:  # RMSprop: with momentum, training with clipped weights is unstable.  Arjovsky et al. 2017
        rmsprop_lr = lr or 5e-5 * (10 if len(data.train) < SMALL_TRAIN_SIZE else 1)
        clipped_rmsprop = partial(
            with_weight_clipping, base=partial(RMSprop, lr=lr_discriminator or rmsprop_lr), bound=weight_clip
        )
        optimizers = {"generator": partial(RMSprop, lr=rmsprop_lr), "discriminator": clipped_rmsprop}
    else:
        optimizers = _make_adam_pair(
            lr or (1e-3 if len(data.train) < SMALL_TRAIN_SIZE else 1e-4), lr_discriminator, (0.0, 0.9)
        )
    return _make_gan_experiment(
        data,
        *players,
        ema=0.99 if ema is None and players.layout is not None else ema,
        loss="wasserstein",
        gradient_penalty=0.0 if is_clipped else gradient_penalty,
        target_rounds=1_500 if is_clipped or players.layout is not None else 500,
        latent_dim=latent_dim,
        num_classes=num_classes,
        discriminator_steps=discriminator_steps,
        epochs=epochs,
        batch_size=batch_size,
        optimizers=optimizers,
    )


@recipe(**_RECIPE_METADATA, sources=("Gaba 8.10",))
def stylegan(
    data: Data,
    *,
    latent_dim: _LatentDim = 64,
    channels: _Channels = 16,
    conditional: _Conditional = False,
    style_dim: Annotated[int, Range(1), "dimension of the style vector w"] = 64,
    mapping_layers: Annotated[int, Range(1), "number of layers of the mapping network z → w"] = 3,
    channels_discriminator: Annotated[
        int, Range(1), "channels of the discriminator's first layer, doubled at each next one"
    ] = 128,
    discriminator_steps: _DiscriminatorSteps = 1,
    lr: a.LearningRate = 1e-3,
    lr_discriminator: _DiscriminatorLearningRate = None,
    beta1: _Beta1 = 0.0,
    ema: a.EMADecay = 0.99,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """A small StyleGAN: a style vector scales the feature maps by AdaIN.

    w = MLP(z), AdaIN(x, w) = s(w) (x − μ(x)) / σ(x) + b(w), starting from a learned constant.
    """
    shape, num_classes = get_image_shape(data), require_num_classes(data) if conditional else 0
    return _make_gan_experiment(
        data,
        StyleGenerator(
            shape=shape,
            latent_dim=latent_dim,
            channels=channels,
            style_dim=style_dim,
            mapping_layers=mapping_layers,
            num_classes=num_classes,
        ),
        DCGANDiscriminator(shape=shape, channels=channels_discriminator, num_classes=num_classes, norm="layer"),
        loss="non_saturating",
        latent_dim=latent_dim,
        num_classes=num_classes,
        discriminator_steps=discriminator_steps,
        ema=ema,
        epochs=epochs,
        batch_size=batch_size,
        target_rounds=1_200,
        optimizers=_make_adam_pair(lr, lr_discriminator, (beta1, 0.99)),
    )


class _GANPlayers(NamedTuple):
    """Generator and discriminator, and the layout of the rows if the data are a table."""

    generator: nn.Module
    discriminator: nn.Module
    layout: RowLayout | None = None


def _make_table_players(data: Data, *, latent_dim: int, hidden: tuple[int, ...], num_classes: int) -> _GANPlayers:
    """Two MLPs over the rows of a table; without classes, the target is one of the columns."""
    layout = RowLayout(data, joint=not num_classes, conditional=bool(num_classes))
    column_layout: dict[str, Any] = {
        "features": layout.num_features,
        "categories": layout.categories,
        "gaps": layout.gaps.tolist(),
    }
    generator = TableGenerator(**column_layout, latent_dim=latent_dim, widths=hidden, num_classes=num_classes)
    return _GANPlayers(
        generator,
        DenseDiscriminator(shape=(layout.num_features, 1, 1), widths=hidden[::-1], num_classes=num_classes),
        layout,
    )


def _make_gan_experiment(
    data: Data,
    generator: nn.Module,
    discriminator: nn.Module,
    layout: RowLayout | None = None,
    *,
    loss: str,
    latent_dim: int,
    num_classes: int,
    discriminator_steps: int,
    optimizers: dict[str, OptimizerFactory],
    ema: float | None,
    epochs: int | None,
    batch_size: int | None,
    gradient_penalty: float = 0.0,
    target_rounds: int = 1_500,
    num_evaluations: int = 25,
) -> Experiment:
    """The experiment of any GAN: so many rounds on a small dataset, 25 epochs on a large one.

    Labeled images add a referee, a small classifier that evaluates the samples.
    """
    referee = None
    if data.task in ("binary", "multiclass") and layout is None:
        referee = MLP(data.num_features, data.num_classes, hidden=(128,), dropout=0.2, mean=data.mean, std=data.std)
        optimizers = {**optimizers, "referee": make_optimizer("adamw", lr=2e-3, weight_decay=0.01)}
    is_small = len(data.train) < SMALL_TRAIN_SIZE
    batch_size = batch_size or (64 if is_small else 128)
    rounds_per_epoch = max(1, ceil(len(data.train) / batch_size) // discriminator_steps)
    epochs = epochs or (ceil(target_rounds / rounds_per_epoch) if is_small else 25)
    gan_options: dict[str, Any] = {
        "gan_loss": GAN_LOSSES[loss],
        "latent_dim": latent_dim,
        "num_classes": num_classes,
        "gradient_penalty": gradient_penalty,
        "discriminator_steps": discriminator_steps,
    }
    objective = (
        TableGAN(generator, discriminator, layout, **gan_options) if layout is not None else
        GANObjective(generator, discriminator, **gan_options, referee=referee)
    )
    return Experiment(
        data=data,
        objective=objective,
        optimizer=optimizers,
        ema=ema,
        epochs=epochs,
        batch_size=batch_size,
        evaluate_every=max(1, rounds_per_epoch * epochs // num_evaluations),
        notes=metric_notes(
            data, referee=referee is not None, conditional=bool(num_classes), num_noises=len(objective.noises)
        ),
    )


def _make_adam_pair(
    lr: float, lr_discriminator: float | None, betas: tuple[float, float]
) -> dict[str, OptimizerFactory]:
    """Adam for both players, each with its own learning rate."""
    return {
        "generator": partial(Adam, lr=lr, betas=betas),
        "discriminator": partial(Adam, lr=lr_discriminator or lr, betas=betas),
    }


def get_image_shape(data: Data) -> Shape:
    channels, height, width = data.shape
    if min(height, width) < 2:
        raise UsageError(
            f"a generator needs images of at least 2×2 pixels, but those of {data.name!r} have {width}×{height} pixels"
        )
    return channels, height, width
