"""Word vectors, learned from the context of each word."""

from math import expm1
from typing import Annotated

from torch import Tensor, zeros

from didact.data.core import Data
from didact.data.text.skipgram import MAX_WINDOW, ContextWindows, compute_keep_probability, make_subsampler, with_window
from didact.errors import look_up
from didact.models.text.word2vec import Word2Vec
from didact.objectives.text.word2vec import NegativeSamplingObjective, Word2VecArchitecture
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.registry import recipe
from didact.training.experiment import Experiment

_TARGET_WORDS = 1_000_000   # words read in all, where no epochs are given; at most ten epochs
_LARGE_TEXT_WORDS = 1_000_000   # with more words batches are larger, since each step updates larger tables
_NUM_PROBES = 24         # query words of the report, where none are given


@recipe(
    data="tales",
    accepts=("words",),
    chapter="recurrent networks",
    abilities=("embed",),
    kind="self-supervised",
    sources=("Lhotte 7.4",),
    grid={"model": ("skipgram", "cbow"), "window": (2, 5)},
)
def word2vec(
    data: Data,
    *,
    model: Annotated[
        Word2VecArchitecture, "skipgram predicts the context from a word, cbow a word from its context"
    ] = "skipgram",
    embed_dim: Annotated[int, Range(1), "dimension of a word vector", Aliases("vector_size")] = 100,
    window: Annotated[int, Range(1, MAX_WINDOW), "context window: words on either side"] = 5,
    num_negatives: Annotated[int, Range(1), "negative samples per positive pair", Aliases("negative")] = 5,
    subsample: Annotated[
        float, Range(0, 1), "subsampling threshold of frequent words, as a fraction of the text; 0: none"
    ] = 1e-3,
    vocab_size: Annotated[int, Range(1), "vocabulary size: the most common words get a vector"] = 10_000,
    probe: Annotated[
        tuple[str, ...], "query words whose nearest neighbors the report shows (chosen if not given)"
    ] = (),
    lr: a.LearningRate = 5e-3,
    schedule: a.Schedule = "warmup_cosine",
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """word2vec: skip-gram or CBOW with negative sampling.

    max of log σ(u_oᵀ v_w) + k E log σ(−u_nᵀ v_w), o near w and n sampled from P(n) ∝ count^¾, on any text: --data
    book.txt, tinyshakespeare, imdb. Then `didact search king --model RUN` names the nearest words, "king - man + woman"
    in its place solves analogies, and `didact search QUERY FILE --model RUN` finds lines.
    """
    data = with_window(data, window=window, vocab_size=vocab_size)
    counts, context_size = _corpus_statistics(data)
    keep_probability = compute_keep_probability(counts, subsample)
    # of the words, after subsampling
    kept_share = float((counts * keep_probability).sum() / counts.sum().clamp(min=1)) or 1.0
    epochs = epochs or max(1, min(10, round(_TARGET_WORDS / len(data.train))))
    batch_size = batch_size or (512 if len(data.train) < _LARGE_TEXT_WORDS else 2048)
    return Experiment(
        data=data,
        objective=NegativeSamplingObjective(
            Word2Vec(len(data.feature_names), embed_dim=embed_dim),
            counts,
            architecture=model,
            num_negatives=num_negatives,
            keep=keep_probability,
            probes=_choose_probes(data, probe),
            expected_pairs=kept_share
            * (kept_share * context_size if model == "skipgram" else -expm1(-kept_share * context_size)),
        ),
        optimizer=make_optimizer("adam", lr=lr),
        schedule=make_schedule(schedule),
        augment=make_subsampler(keep_probability),
        epochs=epochs,
        batch_size=batch_size,
    )


def _corpus_statistics(data: Data) -> tuple[Tensor, float]:
    """Word counts of the training text and the expected number of context words per window.

    A run that is rebuilt without data has their results in its state instead.
    """
    if isinstance(data.train, ContextWindows):
        return data.train.count_words(len(data.feature_names) - 2), data.train.expected_context_size()
    return zeros(len(data.feature_names)), 1.0


def _choose_probes(data: Data, words: tuple[str, ...]) -> list[int]:
    """Indices of the query words of the report: the given ones, or common ones, but not the most common."""
    word_to_index = {word: i for i, word in enumerate(data.feature_names)}
    if words:
        return [look_up("word in this text's vocabulary", word.lower(), word_to_index) for word in words]
    candidates = [i for word, i in word_to_index.items() if len(word) > 2 and i > 1]
    return candidates[min(len(candidates) // 10, 50) :][:_NUM_PROBES]
