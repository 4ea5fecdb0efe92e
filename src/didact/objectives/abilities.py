"""What a trained objective can do, as small protocols. Verbs work on abilities, never on a model's name."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Generator, Tensor

from didact.data.core import Batch
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.top_k_top_p import DecodingConfig


class MeanAndStd(NamedTuple):
    """A predicted number and how far off it may be (None: the model does not say)."""

    mean: Tensor
    std: Tensor | None


@runtime_checkable
class CanClassify(Protocol):
    """Gives each class a probability."""

    def classify(self, batch: Batch) -> Tensor:
        """(B, K); rows sum to one, except where an example may carry several labels."""


@runtime_checkable
class CanRegress(Protocol):
    """Predicts a number."""

    def regress(self, batch: Batch) -> MeanAndStd:
        """(B,) in the target's own units."""


@runtime_checkable
class CanSampleTargets(Protocol):
    """Offers a random prediction, as often as asked: the output is a distribution."""

    def draw(self, batch: Batch) -> Tensor:
        """One draw from p(y | x) for each example."""


@runtime_checkable
class CanSegment(Protocol):
    """Gives each pixel's class a probability."""

    def segment(self, batch: Batch) -> Tensor:
        """(B, K, H, W); sums over K are one."""


@runtime_checkable
class CanReconstruct(Protocol):
    """Gives back a damaged image as it was."""

    any_size: bool  # pixel by pixel, whatever the sides; else only in the size that it learned from

    def restore(self, batch: Batch) -> Tensor:
        """(B, C, H, W) in [0, 1]."""


@runtime_checkable
class CanDetect(Protocol):
    """Says what is where."""

    def detect(self, batch: Batch) -> Tensor:
        """(B, D, 6): x1, y1, x2, y2 as shares of the image, score, class; the best first, class −1 where there are
        fewer."""


@runtime_checkable
class CanSample(Protocol):
    """Draws new examples from what it has learned."""

    def sample(self, n: int, generator: Generator, *, label: int | None = None) -> Tensor:
        """(n, C, H, W) in [0, 1], or rows of a table; on the generator's device; of one class, where it was told
        the classes."""


@runtime_checkable
class CanDecodeRows(Protocol):
    """Writes the rows that it draws in its table's own columns and units."""

    def tabulate(self, x: Tensor) -> tuple[list[str], list[list[str]]]:
        """Names of the columns, and each row's values as text."""


@runtime_checkable
class CanDecodeLatents(Protocol):
    """Draws what a code says: near codes draw alike, so that one can go from one to another, or change one number
    at a time."""

    num_classes: int

    def sample_latents(self, n: int, generator: Generator) -> Tensor:
        """n codes from N(0, 1), of any shape, on the generator's device."""

    def walk(self, z: Tensor, y: Tensor | None = None) -> Tensor:
        """What each code draws, the same each time; of the classes y, where it was told the classes."""


@runtime_checkable
class CanEncode(Protocol):
    """Finds the code of a given example, from which `walk` draws it again, or one much like it."""

    def encode(self, batch: Batch) -> Tensor:
        """(B, …), of the shape that `codes` have; a model that was told the classes reads "y" beside "x"."""


@runtime_checkable
class CanInpaint(Protocol):
    """Paints what is missing of an image."""

    def complete(self, x: Tensor, num_known: int, generator: Generator, y: Tensor | None = None) -> Tensor:
        """(B, C, H, W): images whose first `known` rows stay. Some also take a `side` from which rows or columns
        are counted."""


@runtime_checkable
class CanEmbed(Protocol):
    """Gives each example a code of a few numbers."""

    def embed(self, batch: Batch) -> Tensor:
        """(B, D)."""


@runtime_checkable
class CanTranslate(Protocol):
    """Writes a sequence of its own for each one that it reads."""

    def translate(self, batch: Batch, *, num_beams: int = 1) -> Tensor:
        """(B, T) tokens up to <eos>, 0 behind: the likeliest each time, or the likeliest text that so many beams
        find."""


@runtime_checkable
class CanTagTokens(Protocol):
    """Gives each token of a sequence a label."""

    def tag(self, batch: Batch) -> Tensor:
        """Probabilities (B, T, K); all of them 0 at a token that nothing is asked about."""


@runtime_checkable
class CanFillMask(Protocol):
    """Says what stood where a token is hidden."""

    def fill(self, batch: Batch) -> Tensor:
        """Probabilities of the tokens, (B, T, V); all of them 0 where nothing is hidden."""

    def mask_inputs(self, batch: Batch) -> Tensor:
        """Texts as they are judged, (B, T): the mask where something is asked."""


@runtime_checkable
class CanForecast(Protocol):
    """Says how a time series goes on."""

    def forecast(self, batch: Batch) -> Tensor:
        """The next values behind each window, (B, horizon), in their own units."""


@runtime_checkable
class CanGenerateText(Protocol):
    """Continues a text, token by token."""

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
        """The next n tokens behind each prompt, (B, T) -> (B, n); `pace` is told how far it is."""


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
    """The names of what this objective can do: methods of its class, not submodules that happen to be called so."""
    method_names = {name for name in ABILITIES if callable(getattr(type(objective), name, None))}
    return tuple(
        name for name, protocol in ABILITIES.items() if name in method_names and isinstance(objective, protocol)
    )
