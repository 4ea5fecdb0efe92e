"""Images one pixel at a time."""

from typing import Annotated

from didact.data.core import Data
from didact.errors import UsageError
from didact.models.pixelcnn import PixelCNN
from didact.objectives.pixel_by_pixel import PixelByPixel
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.autoencoders import classes_of
from didact.recipes.common import budget
from didact.recipes.gan import shape_of
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="digits", accepts=("images",), chapter="generative", kind="generative", abilities=("sample",),
    sources=("Groudiev 9.2.3", "Groudiev 9.2.4", "Groudiev 9.2.5"), grid={"depth": (2, 5, 8)},
)
def pixelcnn(
    data: Data, *,
    levels: Annotated[int, Range(2, 256), "levels of a pixel that are told apart; 2 is black and white"] = 16,
    width: Annotated[int, Range(1), "channels of both stacks"] = 32,
    depth: Annotated[int, Range(1), "gated blocks; each sees a little further"] = 5,
    kernel: Annotated[int, Range(3, 15), "side of each kernel, odd"] = 3,
    conditional: Annotated[bool, "tell the network the class, so that one can be asked for"] = False,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Gated PixelCNN: each pixel told from those above and to its left by masked convolutions; the likelihood is exact.

    p(x) = Π_i p(x_i | x_<i), learned for all pixels at once, drawn one after the other; half an image can be completed.
    """
    if kernel % 2 == 0:
        raise UsageError(f"--kernel needs a centre, so it must be odd, got {kernel}")
    epochs, batch, notes = budget(data, epochs, batch)
    shape, classes = shape_of(data), classes_of(data) if conditional else 0
    network = PixelCNN(shape=shape, width=width, depth=depth, levels=levels, kernel=kernel, classes=classes)
    return Experiment(
        data=data, objective=PixelByPixel(network, shape, levels=levels, classes=classes),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay), schedule=make_schedule(schedule),
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch, notes=notes,
    )
