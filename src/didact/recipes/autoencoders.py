"""Images as a few numbers: autoencoders, plain and variational, and what their codes are good for."""

from typing import Annotated, Any, Literal

from torch import nn

from didact.data.core import Data
from didact.data.few import few_labels
from didact.data.load import forbid
from didact.errors import UsageError
from didact.layers.coder import Shape
from didact.models.autoencoder import Autoencoder, ConvAutoencoder
from didact.models.mlp import MLP
from didact.models.vae import VAE, ConvVAE
from didact.models.vqvae import VQVAE
from didact.objectives.autoencoding import Autoencode
from didact.objectives.elbo import ELBO
from didact.objectives.pixels import pixels
from didact.objectives.row_elbo import RowELBO
from didact.objectives.rows import Rows
from didact.objectives.semi_supervised import SemiSupervised
from didact.objectives.vector_quantised import VectorQuantised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range, TellsClass
from didact.recipes import arguments as a
from didact.recipes.common import SMALL, budget
from didact.registry import recipe
from didact.train.experiment import Experiment

Network = Annotated[Literal["dense", "conv"], "layers of both halves: dense, or convolutions that halve the image"]
Latent = Annotated[int, Range(1), "numbers in a code"]
OptionalWidths = Annotated[tuple[int, ...], Range(1), "units of each dense layer, or channels of each convolution (chosen if not given)"]
Noise = Annotated[float, Range(0), "deviation of noise added to the images that are encoded: a denoising autoencoder"]


@recipe(
    data="digits", accepts=("images",), chapter="generative", kind="self-supervised", abilities=("embed", "restore"),
    sources=("Gaba 9.2", "Groudiev 10.1", "Van Schependom 8.1", "Fleuret 6.1"),
    grid={"latent": (2, 4, 8, 16)},
)
def autoencoder(
    data: Data, *,
    network: Network = "dense", latent: Latent = 16, widths: OptionalWidths = (), noise: Noise = 0.0,
    masked: Annotated[float, Range(0, 0.95), "share of the pixels that are blacked out before encoding"] = 0.0,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.0, schedule: a.ScheduleName = "cosine", patience: a.Patience = None,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """An autoencoder: an image through a bottleneck of a few numbers and back; with noise, a denoising one.

    min E ‖x − g(f(x̃))‖². Nothing shapes the codes: those drawn at random decode to nothing in particular.
    """
    shape, epochs, batch, notes = sized(data, epochs, batch)
    made = {"dense": Autoencoder, "conv": ConvAutoencoder}[network]
    model = made(shape=shape, widths=widths or default_widths(network, shape), latent=latent)
    return Experiment(
        data=data,
        objective=Autoencode(model, data.shape, noise=noise, masked=masked),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        patience=patience, epochs=epochs, batch=batch, notes=notes,
    )


@recipe(
    data="digits", accepts=("images",), tasks=("binary", "multiclass"), chapter="generative", kind="self-supervised",
    abilities=("classify", "embed"), sources=("Van Schependom 8.5", "Groudiev 10.1"), grid={"labels": (1, 2, 5, 10, 20)},
)
def semi_supervised(
    data: Data, *,
    labels: Annotated[int, Range(1), "labelled training examples of each class; all others are images alone"] = 5,
    network: Network = "dense", latent: Latent = 16, widths: OptionalWidths = (), noise: Noise = 0.3,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "cosine",
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Many images, few labels: encode with all of them, classify the codes with the few.

    f and g learn ‖x − g(f(x̃))‖² from every image, h learns −log p(y | h(f(x))) from the labelled ones. `gain` is the accuracy above that
    of a network of f and h's size that saw the labelled examples only.
    """
    shape, epochs, batch, notes = sized(data, epochs, batch)
    few = few_labels(data, labels)
    widths = widths or default_widths(network, shape)
    made = {"dense": Autoencoder, "conv": ConvAutoencoder}[network]
    model, other = (made(shape=shape, widths=widths, latent=latent) for _ in range(2))
    head, its_head = (MLP(latent, data.classes, hidden=(64,)) for _ in range(2))
    return Experiment(
        data=few,
        objective=SemiSupervised(model, head, nn.Sequential(other.body, other.code, its_head), noise=noise),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        epochs=epochs, batch=batch, notes=(*notes, *few.notes[len(data.notes):]),
    )


@recipe(
    data="digits", accepts=("images", "table"), chapter="generative", kind="generative",
    abilities=("sample", "walk", "encode", "restore", "tabulate", "embed"),
    sources=("Gaba 9.8", "Gaba 9.9", "Groudiev 10.2", "Van Schependom 8.3"),
    grid={"beta": (0.5, 1.0, 2.0, 4.0, 10.0)}, compare=("elbo", "reconstruction", "kl"),
)
def vae(
    data: Data, *,
    network: Network = "dense", latent: Latent = 20, widths: OptionalWidths = (),
    likelihood: Annotated[
        Literal["bernoulli", "gaussian", "categorical"] | None, "distribution of a pixel given the code (bernoulli if not given)"
    ] = None,
    levels: Annotated[int, Range(2, 256), "grey levels of the categorical likelihood"] = 16,
    beta: Annotated[float, Range(0), "weight of the KL term; above 1, a β-VAE"] = 1.0,
    warmup: Annotated[int, Range(0), "steps in which the KL term's weight rises from 0: KL annealing"] = 0,
    free_bits: Annotated[float, Range(0), "nats of each latent dimension that cost nothing"] = 0.0,
    samples: Annotated[int, Range(1, 10_000), "codes drawn for each image; above 1, the importance-weighted bound (IWAE)"] = 1,
    conditional: Annotated[bool, TellsClass(), "tell both halves the label, so that a class can be asked for"] = False,
    lr: a.OptionalRate = None, weight_decay: a.Decay = 0.0, schedule: a.ScheduleName = "constant", clip_norm: a.Clip = None,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """A variational autoencoder: codes near a standard Gaussian, so that new images, or rows of a table, can be drawn.

    max E_q log p(x | z) − β KL(q(z | x) ‖ N(0, I)), z = μ(x) + σ(x) ε. On MNIST with its defaults, Gaba's network and budget.
    Of a table all columns are learned together; p(x | z) is Gaussian for numbers and categorical for categories.
    """
    if samples > 1 and (beta != 1 or warmup or free_bits):
        raise UsageError(f"--samples {samples} maximises the importance-weighted bound, which has no --beta, --warmup or --free-bits")
    if likelihood != "categorical":
        forbid("only --likelihood categorical tells levels apart", levels=None if levels == 16 else levels)
    classes = classes_of(data) if conditional else 0
    words: dict[str, Any] = {"beta": beta, "warmup": warmup, "free_bits": free_bits, "samples": samples}
    if data.kind == "table":
        forbid(f"{data.name!r} is a table", likelihood=likelihood, network=None if network == "dense" else network)
        rows = Rows(data, joint=not conditional, told=conditional)
        coder = VAE(shape=(rows.features, 1, 1), widths=widths or (128, 128), latent=latent, classes=classes)
        objective: ELBO = RowELBO(coder, rows, **words)
        epochs, batch, notes = budget(data, epochs, batch)
    else:
        shape, epochs, batch, notes = sized(data, epochs, batch, large=30)
        distribution = pixels(likelihood or "bernoulli", levels=levels)
        widths = widths or ((512,) if network == "dense" else default_widths(network, shape))
        made = {"dense": VAE, "conv": ConvVAE}[network]
        coder = made(shape=shape, widths=widths, latent=latent, outputs=shape[0] * distribution.outputs, classes=classes)
        objective = ELBO(coder, distribution, **words)
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make("adam", lr=lr or (3e-3 if data.kind == "table" else 1e-3), weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, notes=notes,
    )


@recipe(
    data="digits", accepts=("images",), chapter="generative", kind="self-supervised", abilities=("embed", "restore"),
    sources=("Gaba 9.7", "Gaba Ex 9.5"), grid={"codes": (8, 32, 128, 512)},
)
def vqvae(
    data: Data, *,
    codes: Annotated[int, Range(2), "vectors in the codebook"] = 64,
    dim: Annotated[int, Range(1), "numbers in each of them"] = 16,
    widths: Annotated[tuple[int, ...], Range(1), "channels of each convolution, every one of which halves the image"] = (32, 64),
    commitment: Annotated[float, Range(0), "weight of the encoder's pull towards its codes"] = 0.25,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.0, schedule: a.ScheduleName = "cosine",
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """A VQ-VAE: an image as a small map of words out of a learned codebook.

    L = ‖x − x̂‖² / Var x + ‖sg[z] − e‖² + β ‖z − sg[e]‖²; the gradient passes straight through the choice of the nearest code.
    """
    shape, epochs, batch, notes = sized(data, epochs, batch)
    model = VQVAE(shape=shape, widths=widths, codes=codes, dim=dim)
    return Experiment(
        data=data,
        objective=VectorQuantised(model, variance=float(data.std.square().mean()), beta=commitment),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        epochs=epochs, batch=batch, notes=notes,
    )


def sized(data: Data, epochs: int | None, batch: int | None, *, large: int = 10) -> tuple[Shape, int, int, tuple[str, ...]]:
    """The images' shape and the budget; `large` epochs for a large set."""
    channels, height, width = data.shape
    epochs, batch, notes = budget(data, epochs or (large if len(data.train) >= SMALL else None), batch)
    return (channels, height, width), epochs, batch, notes


def default_widths(network: str, shape: Shape) -> tuple[int, ...]:
    """Dense layers of 256 and 128; or convolutions down to about 4×4."""
    return (256, 128) if network == "dense" else tuple(32 * 2**n for n in range(4) if max(shape[1:]) > 4 * 2**n) or (32,)


def classes_of(data: Data) -> int:
    """How many classes a conditional model is told of."""
    if data.task not in ("binary", "multiclass"):
        each, how = ("row", "; leave it out, or name a --target") if data.kind == "table" else ("image", "; leave it out")
        raise UsageError(f"--conditional tells the model the class of each {each}, but {data.name!r} has none{how}")
    return data.classes
