"""Images one pixel at a time: by masked convolutions, or row by row with an LSTM."""

from typing import Annotated, Any

from didact.data.core import Data
from didact.errors import UsageError
from didact.layers.coder import Shape
from didact.models.pixelcnn import PixelCNN
from didact.models.pixelrnn import PixelRNN
from didact.objectives.pixel_by_pixel import PixelByPixel
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range, TellsClass
from didact.recipes import arguments as a
from didact.recipes.autoencoders import classes_of
from didact.recipes.common import budget
from didact.recipes.gan import shape_of
from didact.registry import recipe
from didact.train.experiment import Experiment

Levels = Annotated[int, Range(2, 256), "levels of a pixel that are told apart; 2 is black and white"]
Kernel = Annotated[int, Range(3, 15), "side of each kernel, odd"]
Conditional = Annotated[bool, TellsClass(), "tell the network the class, so that one can be asked for"]
UPDATES = 1_000  # of the slower one, on a small set: what it is judged by falls no further
COMMON: dict[str, Any] = {
    "data": "digits", "accepts": ("images",), "chapter": "generative", "kind": "generative", "abilities": ("sample", "complete"),
}


@recipe(**COMMON, sources=("Groudiev 9.2.3", "Groudiev 9.2.4", "Groudiev 9.2.5"), grid={"depth": (2, 5, 8)})
def pixelcnn(
    data: Data, *,
    levels: Levels = 16,
    width: Annotated[int, Range(1), "channels of both stacks"] = 32,
    depth: Annotated[int, Range(1), "gated blocks; each sees a little further"] = 5,
    kernel: Kernel = 3, conditional: Conditional = False,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Gated PixelCNN: each pixel told from those above and to its left by masked convolutions; the likelihood is exact.

    p(x) = Π_i p(x_i | x_<i), learned for all pixels at once, drawn one after the other; half an image can be completed. Of a pixel
    red comes before green before blue. Bits per dimension are −log p(x) / (D log 2), D the numbers of an image.
    """
    require_centre(kernel)
    shape, classes = shape_of(data), classes_of(data) if conditional else 0
    sizes: dict[str, Any] = {"shape": shape, "width": width, "depth": depth, "outputs": levels * shape[0], "turns": turns(shape, width)}
    network = PixelCNN(**sizes, kernel=kernel, classes=classes)
    return learning(
        data, PixelByPixel(network, shape, levels=levels, classes=classes), lr=lr, weight_decay=weight_decay, schedule=schedule,
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch,
    )


@recipe(**COMMON, sources=("Groudiev 9.2.3",), grid={"depth": (1, 2, 4)})
def pixelrnn(
    data: Data, *,
    levels: Levels = 16,
    width: Annotated[int, Range(1), "channels of each LSTM's state"] = 32,
    depth: Annotated[int, Range(1), "row LSTMs, one upon the other"] = 2,
    conditional: Conditional = False,
    lr: a.Rate = 4e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """PixelRNN: LSTMs go down the rows of an image, each pixel told from their state and from those to its left; the likelihood is exact.

    p(x) = Π_i p(x_i | x_<i), h_r = LSTM(h_(r−1), x_r) with convolutions along the row. Slower than a PixelCNN: rows wait for each other.
    Of a pixel red comes before green before blue. Bits per dimension are −log p(x) / (D log 2), D the numbers of an image.
    """
    shape, classes = shape_of(data), classes_of(data) if conditional else 0
    sizes: dict[str, Any] = {"shape": shape, "width": width, "depth": depth, "outputs": levels * shape[0], "turns": turns(shape, width)}
    network = PixelRNN(**sizes, classes=classes)
    return learning(
        data, PixelByPixel(network, shape, levels=levels, classes=classes), lr=lr, weight_decay=weight_decay, schedule=schedule,
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch, updates=UPDATES,
    )


def require_centre(kernel: int) -> None:
    if kernel % 2 == 0:
        raise UsageError(f"--kernel needs a centre, so it must be odd, got {kernel}")


def turns(shape: Shape, width: int) -> int:
    """The channels of a pixel come one after the other, and each needs features of its own."""
    if width < shape[0]:
        raise UsageError(f"--width must be at least {shape[0]}, a feature for each channel of a pixel, got {width}")
    return shape[0]


def learning(
    data: Data, objective: PixelByPixel, *, lr: float, weight_decay: float, schedule: str,
    epochs: int | None, batch: int | None, updates: int = 1_500, **rest: Any,
) -> Experiment:
    """What all of them have in common; `updates` are of a small set."""
    epochs, batch, notes = budget(data, epochs, batch, updates=updates)
    return Experiment(
        data=data, objective=objective, optimizer=make("adamw", lr=lr, weight_decay=weight_decay), schedule=make_schedule(schedule),
        epochs=epochs, batch=batch, notes=notes, **rest,
    )
