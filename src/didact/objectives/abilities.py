"""Abilities: what a trained objective can do, as small protocols. Commands ask for these, never for a model's name."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Generator, Tensor

from didact.data.core import Batch
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.top_k_top_p import DecodingConfig


class MeanAndStd(NamedTuple):
    """A predicted number and its standard deviation (None: the model predicts none)."""

    mean: Tensor
    std: Tensor | None


@runtime_checkable
class CanClassify(Protocol):
    """Classification: the probability of each class."""

    def classify(self, batch: Batch) -> Tensor:
        """Probabilities (B, K); rows sum to one, except for multi-label targets."""


@runtime_checkable
class CanRegress(Protocol):
    """Regression: a predicted number."""

    def regress(self, batch: Batch) -> MeanAndStd:
        """(B,) in the target's own units."""


@runtime_checkable
class CanSampleTargets(Protocol):
    """Samples of the predictive distribution."""

    def draw(self, batch: Batch) -> Tensor:
        """One sample of p(y | x) for each example."""


@runtime_checkable
class CanSegment(Protocol):
    """Semantic segmentation: class probabilities of each pixel."""

    def segment(self, batch: Batch) -> Tensor:
        """(B, K, H, W); the sums over K are one."""


@runtime_checkable
class CanReconstruct(Protocol):
    """Reconstruction or restoration of an image."""

    any_size: bool  # True where images of any size can be restored; else only those of the training size

    def restore(self, batch: Batch) -> Tensor:
        """(B, C, H, W) in [0, 1]."""


@runtime_checkable
class CanDetect(Protocol):
    """Object detection: bounding boxes with class and confidence."""

    def detect(self, batch: Batch) -> Tensor:
        """(B, D, 6): x1, y1, x2, y2 as fractions of the image, confidence, class; best first, class −1 for padding."""


@runtime_checkable
class CanSample(Protocol):
    """Sampling of new examples."""

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """(n, C, H, W) in [0, 1], or rows of a table, on the generator's device; of one class if conditional."""


@runtime_checkable
class CanDecodeRows(Protocol):
    """Writes sampled rows in its table's own columns and units."""

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        """The names of the columns, and each row's values as text."""


@runtime_checkable
class CanDecodeLatents(Protocol):
    """Decodes latent codes, deterministically: near codes give similar images. For interpolation and traversal."""

    num_classes: int

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        """n codes from the prior N(0, 1), of any shape, on the generator's device."""

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """The decoded codes, the same each time; of the classes y if the model is conditional."""


@runtime_checkable
class CanEncode(Protocol):
    """Encodes an example as a latent code, from which `walk` decodes it, or something close to it."""

    def encode(self, batch: Batch) -> Tensor:
        """(B, …), shaped as `sample_latents` shapes codes; a conditional model reads "y" next to "x"."""


@runtime_checkable
class CanInpaint(Protocol):
    """Inpainting: samples the missing part of an image."""

    def complete(self, x: Tensor, num_known: int, generator: Generator, y: Tensor | None = None) -> Tensor:
        """(B, C, H, W): images whose first `num_known` rows are kept. Some models also take the `side` to start at."""


@runtime_checkable
class CanEmbed(Protocol):
    """Embeds each example as a vector."""

    def embed(self, batch: Batch) -> Tensor:
        """(B, D)."""


@runtime_checkable
class CanTranslate(Protocol):
    """Generates an output sequence for each input sequence."""

    def translate(self, batch: Batch, *, num_beams: int = 1) -> Tensor:
        """(B, T) tokens up to <eos>, then 0; decoded greedily, or by beam search."""


@runtime_checkable
class CanTagTokens(Protocol):
    """Sequence tagging: a label for each token."""

    def tag(self, batch: Batch) -> Tensor:
        """Probabilities (B, T, K); all of them 0 at a token without a label."""


@runtime_checkable
class CanFillMask(Protocol):
    """Masked language modeling: predicts masked tokens."""

    def fill(self, batch: Batch) -> Tensor:
        """Probabilities of the tokens, (B, T, V); all of them 0 where nothing is masked."""

    def mask_inputs(self, batch: Batch) -> Tensor:
        """Texts as they are evaluated, (B, T): some tokens replaced by the mask."""


@runtime_checkable
class CanForecast(Protocol):
    """Forecasting of a time series."""

    def forecast(self, batch: Batch) -> Tensor:
        """The values after each window, (B, horizon), in their own units."""

    def predict_std(self, batch: Batch) -> Tensor | None:
        """The standard deviation of the forecast's error, (B, horizon); None where it was not measured."""


@runtime_checkable
class CanGenerateText(Protocol):
    """Autoregressive text generation."""

    def write(
        self,
        prompt: Tensor,
        n: int,
        *,
        decoding: DecodingConfig | None = None,
        generator: Generator | None = None,
        compile: bool = False,
        progress: ProgressCallback = ignore_progress,
    ) -> Tensor:
        """The next n tokens after each prompt, (B, T) -> (B, n); `progress` is called as they are generated."""


ABILITIES: dict[str, type] = {
    "classify": CanClassify,
    "regress": CanRegress,
    "draw": CanSampleTargets,
    "segment": CanSegment,
    "restore": CanReconstruct,
    "detect": CanDetect,
    "sample": CanSample,
    "tabulate": CanDecodeRows,
    "walk": CanDecodeLatents,
    "encode": CanEncode,
    "complete": CanInpaint,
    "embed": CanEmbed,
    "translate": CanTranslate,
    "tag": CanTagTokens,
    "fill": CanFillMask,
    "forecast": CanForecast,
    "write": CanGenerateText,
}


def abilities(objective: object) -> tuple[str, ...]:
    """The names of an objective's abilities: methods of its class, not submodules that have the same name by chance."""
    method_names = {name for name in ABILITIES if callable(getattr(type(objective), name, None))}
    return tuple(
        name for name, protocol in ABILITIES.items() if name in method_names and isinstance(objective, protocol)
    )
