"""Images out of a VQ-VAE: a PixelCNN over its codes."""

from dataclasses import replace
from typing import Annotated

from didact.data.core import Data
from didact.models.pixelcnn import PixelCNN
from didact.objectives.code_prior import CodePrior
from didact.objectives.vector_quantised import VectorQuantised
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.autoencoders import classes_of
from didact.recipes.origin import From, origin
from didact.recipes.pixelcnn import COMMON, Conditional, Kernel, learning, require_centre
from didact.registry import recipe
from didact.train.experiment import Experiment, Start


@recipe(**COMMON, sources=("Gaba 9.7", "Gaba 9.10", "Groudiev 9.2.4"), grid={"depth": (1, 2, 4)})
def vqvae_prior(
    data: Data, *,
    from_: From = None,
    coder: Annotated[str | None, "vqvae and its arguments: read from --from, or trained first (vqvae if not given)"] = None,
    width: Annotated[int, Range(1), "channels of both stacks"] = 32,
    depth: Annotated[int, Range(1), "gated blocks; each sees a little further"] = 4,
    kernel: Kernel = 3, conditional: Conditional = False,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    ema: a.Average = None, patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Draw from a VQ-VAE: a PixelCNN learns which codes follow which over the map of a trained one, whose decoder paints the image.

    p(k) = Π_i p(k_i | k_<i), k the codes of x; −log₂ p(k) / D are its bits per code; log₂ K, were all alike.
    """
    require_centre(kernel)
    of = origin(from_, coder, data, known=("vqvae",))
    learned = of.experiment(data).objective
    assert isinstance(learned, VectorQuantised)
    dim, classes = learned.network.quantizer.codebook.shape[1], classes_of(data) if conditional else 0
    shape = (dim, *learned.network.grid)
    network = PixelCNN(shape=shape, width=width, depth=depth, outputs=learned.network.codes, kernel=kernel, classes=classes)

    def begin(start: Start) -> tuple[str, ...]:
        return (of.bring(learned, data, start), f"an image is {shape[1]} × {shape[2]} codes out of {learned.network.codes}")

    made = learning(
        data, CodePrior(network, learned, classes=classes), lr=lr, weight_decay=weight_decay, schedule=schedule,
        clip_norm=clip_norm, ema=ema, patience=patience, epochs=epochs, batch=batch,
    )
    return replace(made, begin=begin, settled={"from_": of.where, "coder": of.words})
