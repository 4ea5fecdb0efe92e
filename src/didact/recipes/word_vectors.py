"""Words as vectors, learned from what stands around them."""

from math import expm1
from typing import Annotated

from torch import Tensor, zeros

from didact.data.core import Data
from didact.data.neighbours import WIDEST, Neighbours, kept, neighbourhoods, thinning
from didact.errors import pick
from didact.models.word2vec import Word2Vec
from didact.objectives.word_vectors import NegativeSampling, Way
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.registry import recipe
from didact.train.experiment import Experiment

WORDS = 1_000_000   # of the text that are read in all, where no epochs are given: ten times over at most
LARGE = 1_000_000   # words from which batches are larger: the tables that each step moves are, too
PROBES = 24         # words that the report looks at, where none are named


@recipe(
    data="tales", accepts=("words",), chapter="recurrent networks", abilities=("embed",), kind="self-supervised", sources=("Lhotte 7.4",),
    grid={"model": ("skipgram", "cbow"), "window": (2, 5)},
)
def word2vec(
    data: Data, *,
    model: Annotated[Way, "skipgram: a word says which stand around it; cbow: those around say which stands between"] = "skipgram",
    width: Annotated[int, Range(1), "numbers of a word's vector"] = 100,
    window: Annotated[int, Range(1, WIDEST), "words on either side"] = 5,
    negatives: Annotated[int, Range(1), "noise words that weigh against each true one"] = 5,
    subsample: Annotated[float, Range(0, 1), "words that make up more than this share of a text are passed over at random; 0: none"] = 1e-3,
    vocabulary: Annotated[int, Range(1), "most common words that get a vector"] = 10_000,
    probe: Annotated[tuple[str, ...], "words whose neighbours the report shows (chosen if not given)"] = (),
    lr: a.Rate = 5e-3, schedule: a.ScheduleName = "warmup_cosine", epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """word2vec by negative sampling, skip-gram or CBOW, on any text: --data book.txt, tinyshakespeare, imdb.

    max of log σ(u_oᵀ v_w) + k E log σ(−u_nᵀ v_w), o near w and n drawn from P(n) ∝ count^¾. Then `didact search king --model RUN`
    names the nearest words, "king - man + woman" in its place solves analogies, and `didact search QUERY FILE --model RUN` finds lines.
    """
    data = neighbourhoods(data, window=window, vocabulary=vocabulary)
    counts, company = told(data)
    keep = kept(counts, subsample)
    share = float((counts * keep).sum() / counts.sum().clamp(min=1)) or 1.0      # of the words that are not passed over
    epochs = epochs or max(1, min(10, round(WORDS / len(data.train))))
    batch = batch or (512 if len(data.train) < LARGE else 2048)
    return Experiment(
        data=data,
        objective=NegativeSampling(
            Word2Vec(len(data.names), dim=width), counts, way=model, k=negatives, keep=keep, probes=probes(data, probe),
            pairs=share * (share * company if model == "skipgram" else -expm1(-share * company)),
        ),
        optimizer=make("adam", lr=lr),
        schedule=make_schedule(schedule),
        augment=thinning(keep),
        epochs=epochs, batch=batch,
    )


def told(data: Data) -> tuple[Tensor, float]:
    """How often each word stands in the training text, and how many a window finds; a run that is rebuilt holds what followed from it."""
    if isinstance(data.train, Neighbours):
        return data.train.counts(len(data.names) - 2), data.train.company()
    return zeros(len(data.names)), 1.0


def probes(data: Data, asked: tuple[str, ...]) -> list[int]:
    """The numbers of the words to look at: those asked for, or else common ones that are not the most common."""
    number = {word: i for i, word in enumerate(data.names)}
    if asked:
        return [pick("word in this text's vocabulary", word.lower(), number) for word in asked]
    common = [i for word, i in number.items() if len(word) > 2 and i > 1]
    return common[min(len(common) // 10, 50) :][:PROBES]
