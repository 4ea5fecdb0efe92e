"""Autoregressive models of pixels: masked convolutions, or LSTMs along the rows."""

from typing import Annotated, Any

from didact.data.core import Data
from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.pixelrnn import PixelRNN
from didact.objectives.generative.pixel_autoregressive import PixelAutoregressiveObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range, RequiresLabels
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import choose_budget
from didact.recipes.autoencoders import require_num_classes
from didact.recipes.gan import get_image_shape
from didact.registry import recipe
from didact.training.experiment import Experiment

_Levels = Annotated[int, Range(2, 256), "gray levels per pixel; 2 is black and white"]
KernelSize = Annotated[int, Range(3, 15), "kernel size, odd"]
Conditional = Annotated[bool, RequiresLabels(), "class-conditional network, so that `sample --class` works"]
_TARGET_STEPS = 1_000  # of the slower PixelRNN on a small dataset: its validation loss falls no further
RECIPE_METADATA: dict[str, Any] = {
    "data": "digits",
    "accepts": ("images",),
    "chapter": "generative",
    "kind": "generative",
    "abilities": ("sample", "complete"),
}


@recipe(
    **RECIPE_METADATA, sources=("Groudiev 9.2.3", "Groudiev 9.2.4", "Groudiev 9.2.5"), grid={"num_layers": (2, 5, 8)}
)
def pixelcnn(
    data: Data,
    *,
    levels: _Levels = 16,
    channels: Annotated[int, Range(1), "channels of both stacks"] = 32,
    num_layers: Annotated[int, Range(1), "number of gated masked-convolution blocks", Aliases("layers")] = 5,
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
    """Gated PixelCNN: an autoregressive model of pixels, with exact likelihood.

    p(x) = Π_i p(x_i | x_<i) by masked convolutions over the pixels above and to the left, trained for all pixels at
    once, sampled one after the other; half an image can be inpainted. Of a pixel red comes before green before blue.
    Bits per dimension are −log p(x) / (D log 2), D the numbers of an image.
    """
    require_odd_kernel(kernel_size)
    shape, num_classes = get_image_shape(data), require_num_classes(data) if conditional else 0
    network_options: dict[str, Any] = {"shape": shape, "channels": channels, "num_layers": num_layers,
        "outputs": levels * shape[0], "channel_groups": count_channel_groups(shape, channels)}
    network = PixelCNN(**network_options, kernel_size=kernel_size, num_classes=num_classes)
    return make_experiment(
        data,
        PixelAutoregressiveObjective(network, shape, levels=levels, num_classes=num_classes),
        lr=lr,
        weight_decay=weight_decay,
        schedule=schedule,
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
    )


@recipe(**RECIPE_METADATA, sources=("Groudiev 9.2.3",), grid={"num_layers": (1, 2, 4)})
def pixelrnn(
    data: Data,
    *,
    levels: _Levels = 16,
    channels: Annotated[int, Range(1), "channels of the LSTM states"] = 32,
    num_layers: Annotated[int, Range(1), "number of row LSTM layers", Aliases("layers")] = 2,
    conditional: Conditional = False,
    lr: a.LearningRate = 4e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """PixelRNN: row LSTMs over pixels, with exact likelihood.

    p(x) = Π_i p(x_i | x_<i), h_r = LSTM(h_(r−1), x_r) with convolutions along the row. Slower than a PixelCNN: rows are
    computed one after another. Of a pixel red comes before green before blue. Bits per dimension are −log p(x) / (D log
    2), D the numbers of an image.
    """
    shape, num_classes = get_image_shape(data), require_num_classes(data) if conditional else 0
    network_options: dict[str, Any] = {
        "shape": shape,
        "channels": channels,
        "num_layers": num_layers,
        "outputs": levels * shape[0],
        "channel_groups": count_channel_groups(shape, channels),
    }
    network = PixelRNN(**network_options, num_classes=num_classes)
    return make_experiment(
        data,
        PixelAutoregressiveObjective(network, shape, levels=levels, num_classes=num_classes),
        lr=lr,
        weight_decay=weight_decay,
        schedule=schedule,
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        target_steps=_TARGET_STEPS,
    )


def require_odd_kernel(kernel_size: int) -> None:
    if kernel_size % 2 == 0:
        raise UsageError(f"--kernel-size must be odd, so that the kernel has a center, got {kernel_size}")


def count_channel_groups(shape: Shape, channels: int) -> int:
    """The channels of a pixel are predicted one after another: each needs features of its own."""
    if channels < shape[0]:
        raise UsageError(
            f"--channels must be at least {shape[0]}, one for each channel of a pixel, got {channels}"
        )
    return shape[0]


def make_experiment(
    data: Data, objective: PixelAutoregressiveObjective, *, lr: float, weight_decay: float, schedule: str,
    epochs: int | None, batch_size: int | None, target_steps: int = 1_500, **options: Any,
) -> Experiment:
    """The experiment of an autoregressive model; `target_steps` steps on a small dataset."""
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size, target_steps=target_steps)
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        epochs=epochs,
        batch_size=batch_size,
        notes=notes,
        **options,
    )
