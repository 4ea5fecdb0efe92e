"""Games: a generator against a discriminator, in the ways in which the game has been played."""

from functools import partial
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple

from torch import nn
from torch.optim import Adam, RMSprop

from didact.data.core import Data
from didact.data.load import forbid
from didact.errors import UsageError
from didact.layers.coder import Shape
from didact.models.gan import (
    Condition,
    DCGANDiscriminator,
    DCGANGenerator,
    DenseDiscriminator,
    DenseGenerator,
    StyleGenerator,
)
from didact.models.mlp import MLP
from didact.models.rows import RowGenerator
from didact.objectives.adversarial import GAMES, Adversarial
from didact.objectives.referee import about_scores
from didact.objectives.row_game import RowGame
from didact.objectives.rows import Rows
from didact.optim.clipped import clipped
from didact.optim.named import make
from didact.options import Range, TellsClass
from didact.recipes import arguments as a
from didact.recipes.autoencoders import classes_of
from didact.recipes.common import SMALL
from didact.registry import recipe
from didact.train.experiment import Experiment, MakeOptimizer

Loss = Annotated[
    Literal["non_saturating", "minimax"], "of the generator: −log D(G(z)), or log(1 − D(G(z))), whose gradient vanishes where D is sure"
]
Latent = Annotated[int, Range(1), "numbers of noise that an image is made from"]
Conditional = Annotated[bool, TellsClass(), "tell both players the class, so that one can be asked for"]
Turns = Annotated[int, Range(1, 100), "steps of the discriminator for each of the generator"]
OtherRate = Annotated[float | None, Range(0, open_low=True), "learning rate of the discriminator (the generator's if not given)"]
Width = Annotated[int, Range(1), "channels at the finest level, doubled at each coarser one"]
Beta1 = Annotated[float, Range(0, 0.9999), "β1 of Adam"]
COMMON: dict[str, Any] = {
    "data": "digits", "accepts": ("images",), "chapter": "generative", "kind": "generative", "abilities": ("sample", "walk"),
}

TABLES = COMMON | {"accepts": ("images", "table"), "abilities": ("sample", "walk", "tabulate")}


@recipe(
    **TABLES,
    sources=("Gaba 8.2", "Gaba 8.3", "Groudiev 11.3", "Van Schependom 8.4"), grid={"loss": ("non_saturating", "minimax")},
)
def gan(
    data: Data, *,
    loss: Loss = "non_saturating", latent: Latent = 32, conditional: Conditional = False,
    widths: Annotated[tuple[int, ...], Range(1), "units of the generator's layers; the discriminator's are these backwards"] = (128, 256),
    turns: Turns = 1, lr: a.Rate = 1e-3, lr_discriminator: OtherRate = None,
    beta1: Annotated[float | None, Range(0, 0.9999), "β1 of Adam (0.5 for images, 0 for a table, if not given)"] = None,
    ema: a.Average = 0.99, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """The first adversarial networks: two perceptrons, one that makes images, or rows of a table, and one that tells them from real ones.

    min_G max_D E log D(x) + E log(1 − D(G(z))). Of a table, `wgan` comes nearer to how often each category is there.
    Measured on moons, seeds 0-2: 5 % of the rows drawn lie more than 0.1 from every training point of their class (`wgan` 12 %, test points
    2 %); Fréchet distance 0.061 ± 0.015 (`wgan` 0.052 ± 0.023).
    """
    classes = classes_of(data) if conditional else 0
    table = data.kind == "table"
    if beta1 is None:
        beta1 = 0.0 if table else 0.5
    if table:
        players = of_rows(data, latent=latent, widths=widths, classes=classes)
    else:
        generator = DenseGenerator(shape=shape_of(data), latent=latent, widths=widths, classes=classes)
        players = Players(generator, DenseDiscriminator(shape=shape_of(data), widths=widths[::-1], classes=classes))
    return game(
        data, *players,
        loss=loss, latent=latent, classes=classes, turns=turns, ema=ema, epochs=epochs, batch=batch, rounds=3_000,
        judged=3 if table else 25,  # a blob of the first steps may have the rows' means and covariances, which is all that is watched
        optimizers=adam(lr, lr_discriminator, (beta1, 0.999)),
    )


@recipe(
    **COMMON, sources=("Gaba 8.6", "Gaba 8.7", "Gaba 8.9", "Groudiev 11.5"),
    grid={"latent": (32, 64, 100, 256)},
)
def dcgan(
    data: Data, *,
    loss: Loss = "non_saturating", latent: Latent = 100, width: Width = 64, conditional: Conditional = False,
    condition: Annotated[Condition, "how the generator is told the class: beside the noise, or by its batch norms"] = "input",
    turns: Turns = 1, lr: a.Rate = 2e-4, lr_discriminator: OtherRate = None, beta1: Beta1 = 0.5, ema: a.Average = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """DCGAN: strided convolutions, batch norm, no dense layer; at 28 pixels the networks of Gaba 8.7, at others as deep as it takes.

    Its batch, rates and epochs on large sets are the course's too; --lr 1e-4 --lr-discriminator 4e-4 are its two time-scales.
    """
    shape, classes = shape_of(data), classes_of(data) if conditional else 0
    if not conditional:
        forbid("no class is told without --conditional", condition=None if condition == "input" else condition)
    return game(
        data, DCGANGenerator(shape=shape, latent=latent, width=width, classes=classes, condition=condition),
        DCGANDiscriminator(shape=shape, width=width, classes=classes),
        loss=loss, latent=latent, classes=classes, turns=turns, ema=ema, epochs=epochs, batch=batch,
        optimizers=adam(lr, lr_discriminator, (beta1, 0.999)),
    )


@recipe(**TABLES, sources=("Gaba 8.4", "Gaba Ex 8.3"), grid={"turns": (1, 3, 5)})
def wgan(
    data: Data, *,
    lipschitz: Annotated[Literal["penalty", "clip"], "how the critic is kept Lipschitz: gradient penalty, or weights in a box"] = "penalty",
    penalty: Annotated[float, Range(0, open_low=True), "weight λ of the gradient penalty"] = 10.0,
    bound: Annotated[float, Range(0, open_low=True), "largest weight, where they are clipped"] = 0.01,
    latent: Latent = 100, width: Width = 64, conditional: Conditional = False, turns: Turns = 5,
    lr: a.OptionalRate = None, lr_discriminator: OtherRate = None, ema: a.Average = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Wasserstein GAN: a critic that scores, several steps ahead of the generator, kept Lipschitz by a penalty or by clipping.

    W(p, p_G) = sup over 1-Lipschitz f of E f(x) − E f(G(z)); the penalty is λ E (‖∇f(x̂)‖ − 1)². Of a table both are
    perceptrons, and an average of the weights is kept (--ema 0.99) where none is asked for.
    """
    classes = classes_of(data) if conditional else 0
    clip = lipschitz == "clip"
    if clip:
        forbid("--lipschitz clip keeps weights in a box, without a penalty", penalty=None if penalty == 10 else penalty)
    else:
        forbid("--lipschitz penalty clips no weights", bound=None if bound == 0.01 else bound)
    if data.kind == "table":
        players = of_rows(data, latent=latent, widths=(2 * width, 4 * width), classes=classes)
    else:
        generator = DCGANGenerator(shape=shape_of(data), latent=latent, width=width, classes=classes)
        critic = DCGANDiscriminator(shape=shape_of(data), width=width, classes=classes, norm="batch" if clip else "layer")
        players = Players(generator, critic)
    optimizers: dict[str, MakeOptimizer] = {}
    if clip:  # RMSprop: momentum upset a critic whose gradient jumps at the walls.  Arjovsky et al. 2017
        rate = lr or 5e-5 * (10 if len(data.train) < SMALL else 1)
        walled = partial(clipped, base=partial(RMSprop, lr=lr_discriminator or rate), bound=bound)
        optimizers = {"generator": partial(RMSprop, lr=rate), "discriminator": walled}
    else:
        optimizers = adam(lr or (1e-3 if len(data.train) < SMALL else 1e-4), lr_discriminator, (0.0, 0.9))
    return game(
        data, *players, ema=0.99 if ema is None and players.rows is not None else ema,
        loss="wasserstein", penalty=0.0 if clip else penalty, rounds=1_500 if clip or players.rows is not None else 500,
        latent=latent, classes=classes, turns=turns, epochs=epochs, batch=batch, optimizers=optimizers,
    )


@recipe(**COMMON, sources=("Gaba 8.10",))
def stylegan(
    data: Data, *,
    latent: Latent = 64, width: Width = 16, conditional: Conditional = False,
    style: Annotated[int, Range(1), "numbers of the style w"] = 64,
    depth: Annotated[int, Range(1), "layers of the mapping from noise to style"] = 3,
    width_discriminator: Annotated[int, Range(1), "channels of the discriminator's first layer, doubled at each next one"] = 128,
    turns: Turns = 1, lr: a.Rate = 1e-3, lr_discriminator: OtherRate = None, beta1: Beta1 = 0.0, ema: a.Average = 0.99,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """StyleGAN's idea, small: noise becomes a style, and the style rescales every feature map of a learned constant.

    w = MLP(z), AdaIN(x, w) = s(w) (x − μ(x)) / σ(x) + b(w).
    """
    shape, classes = shape_of(data), classes_of(data) if conditional else 0
    return game(
        data, StyleGenerator(shape=shape, latent=latent, width=width, style=style, depth=depth, classes=classes),
        DCGANDiscriminator(shape=shape, width=width_discriminator, classes=classes, norm="layer"),
        loss="non_saturating", latent=latent, classes=classes, turns=turns, ema=ema, epochs=epochs, batch=batch, rounds=1_200,
        optimizers=adam(lr, lr_discriminator, (beta1, 0.99)),
    )


class Players(NamedTuple):
    """Both sides of a game, and the rows that they play with where it is one over a table."""

    generator: nn.Module
    discriminator: nn.Module
    rows: Rows | None = None


def of_rows(data: Data, *, latent: int, widths: tuple[int, ...], classes: int) -> Players:
    """Two perceptrons over the rows of a table; the target is one of the columns, unless it is told."""
    rows = Rows(data, joint=not classes, told=bool(classes))
    places: dict[str, Any] = {"features": rows.features, "categories": rows.categories, "gaps": rows.gaps.tolist()}
    generator = RowGenerator(**places, latent=latent, widths=widths, classes=classes)
    return Players(generator, DenseDiscriminator(shape=(rows.features, 1, 1), widths=widths[::-1], classes=classes), rows)


def game(
    data: Data, generator: nn.Module, discriminator: nn.Module, rows: Rows | None = None, *,
    loss: str, latent: int, classes: int, turns: int, optimizers: dict[str, MakeOptimizer],
    ema: float | None, epochs: int | None, batch: int | None, penalty: float = 0.0, rounds: int = 1_500, judged: int = 25,
) -> Experiment:
    """The experiment of any of them: so many `rounds` on a small set, 25 epochs of a large one, `judged` so often.

    Labelled images bring a referee.
    """
    referee = None
    if data.task in ("binary", "multiclass") and rows is None:
        referee = MLP(data.features, data.classes, hidden=(128,), dropout=0.2, mean=data.mean, std=data.std)
        optimizers = {**optimizers, "referee": make("adamw", lr=2e-3, weight_decay=0.01)}
    small = len(data.train) < SMALL
    batch = batch or (64 if small else 128)
    epoch = max(1, ceil(len(data.train) / batch) // turns)
    epochs = epochs or (ceil(rounds / epoch) if small else 25)
    words: dict[str, Any] = {"game": GAMES[loss], "latent": latent, "classes": classes, "penalty": penalty, "turns": turns}
    objective = (
        RowGame(generator, discriminator, rows, **words) if rows is not None else
        Adversarial(generator, discriminator, **words, referee=referee)
    )
    return Experiment(
        data=data, objective=objective, optimizer=optimizers, ema=ema,
        epochs=epochs, batch=batch, evaluate_every=max(1, epoch * epochs // judged),
        notes=about_scores(data, referee=referee is not None, conditional=bool(classes), noises=len(objective.noises)),
    )


def adam(lr: float, lr_discriminator: float | None, betas: tuple[float, float]) -> dict[str, MakeOptimizer]:
    """Adam for each side at its own rate."""
    return {"generator": partial(Adam, lr=lr, betas=betas), "discriminator": partial(Adam, lr=lr_discriminator or lr, betas=betas)}


def shape_of(data: Data) -> Shape:
    channels, height, width = data.shape
    if min(height, width) < 2:
        raise UsageError(f"a generator draws images, but those of {data.name!r} are {width}×{height} pixels")
    return channels, height, width
