"""fastText: a classifier of texts from hashed n-grams of characters and words, strong on short texts."""

from typing import Annotated

import torch
from torch import Tensor

from didact.data.core import Data, TensorSplit
from didact.data.text.characters import as_characters
from didact.data.text.classification import MAX_STORED_WORDS, BagEncoder, as_sequences
from didact.errors import format_count
from didact.layers.hashed_ngrams import HashedNgrams, count_texts
from didact.models.text.fasttext import FastText
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import apply_balance, choose_budget
from didact.registry import recipe
from didact.training.experiment import Experiment

_NUM_BUCKETS = 2**20       # of the hash; 65,536 n-grams in as many share a bucket with another in 6 of 100 cases
_MAX_NGRAMS = 65_536
_COUNT_BATCH_SIZE = 256


@recipe(
    data="verdicts",
    accepts=("text",),
    tasks=("binary", "multiclass", "regression"),
    chapter="recurrent networks",
    abilities=("classify", "regress", "draw"),
    sources=("Lhotte 7.4", "Joulin et al. 2017", "Bojanowski et al. 2017"),
    grid={"embed_dim": (8, 32), "word_ngrams": ((1,), (1, 2))},
)
def fasttext(
    data: Data,
    *,
    character_ngrams: Annotated[
        tuple[int, ...], Range(1, 8), "sizes of the n-grams of characters, of texts that are short enough for them"
    ] = (1, 2, 3, 4, 5),
    word_ngrams: Annotated[tuple[int, ...], Range(1, 4), "sizes of the n-grams of words"] = (1, 2),
    num_ngrams: Annotated[
        int | None,
        Range(1),
        "n-grams with an embedding, the most frequent first (if not given: those of two or more training texts, up to "
        f"{_MAX_NGRAMS:,})",
        Aliases("bucket"),
    ] = None,
    embed_dim: Annotated[int, Range(1), "embedding dimension of an n-gram", Aliases("embedding_dim")] = 32,
    hidden_size: Annotated[int, Range(1), "hidden units beside the linear path"] = 64,
    vocab_size: Annotated[int, Range(1), "vocabulary size of texts that are read as tokens"] = 10_000,
    dropout: a.Dropout = 0.5,
    ngram_dropout: Annotated[float, Range(0, 0.95), "dropout probability of an n-gram"] = 0.2,
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: a.Balance = "none",
    lr: a.LearningRate = 1e-3,
    weight_decay: a.WeightDecay = 0.5,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = None,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """fastText: texts as bags of hashed n-grams of characters and words.

    y = b + s Σ_j a_j u_j + W2 relu(W1 Σ_j a_j v_j), a the TF-IDF weights of the n-grams: names, words, formulas,
    tweets and sentences by their characters and words (--data names.csv --text name), long texts by their words. The
    first sum is logistic regression, or ridge, on TF-IDF.
    """
    data, ngrams, notes = _prepare_ngrams(data, character_ngrams, word_ngrams, vocab_size)
    text_counts, num_texts = _count_texts(ngrams, data)
    if num_ngrams is None:
        num_ngrams = max(1, min(_MAX_NGRAMS, int((text_counts > 1).sum())))
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, budget_notes = choose_budget(data, epochs, batch_size, large_batch_size=64)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing, weights=class_weights)
    network = FastText(
        likelihood.num_outputs,
        ngrams=ngrams,
        num_ngrams=num_ngrams,
        embed_dim=embed_dim,
        hidden_size=hidden_size,
        dropout=dropout,
        ngram_dropout=ngram_dropout,
    )
    if num_texts:
        network.choose_ngrams(text_counts, num_texts)
        notes += (f"{int((network.rows > 0).sum()):,} of {int((text_counts > 0).sum()):,} n-grams have an embedding",)
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch_size=batch_size, notes=(*notes, *budget_notes),
        resolved_arguments={"num_ngrams": num_ngrams},
    )


def _prepare_ngrams(
    data: Data, character_ngrams: tuple[int, ...], word_ngrams: tuple[int, ...], vocab_size: int
) -> tuple[Data, HashedNgrams, tuple[str, ...]]:
    """The data with what n-grams are made of, the n-grams, and a note.

    Of short texts characters and the words that they form, unless --tokens says otherwise; of long ones their tokens.
    """
    bag, tokens = data.encoder, data.source.get("tokens")
    if isinstance(bag, BagEncoder) and bag.ngram_length and tokens is None:
        note = f"n-grams of the first {format_count(bag.ngram_length, 'character')} and their words"
        ngrams = HashedNgrams(_NUM_BUCKETS, character_sizes=character_ngrams, word_sizes=word_ngrams)
        return as_characters(data), ngrams, (note,)
    data = as_sequences(data, vocab_size=vocab_size, max_length=MAX_STORED_WORDS)
    encoder = data.encoder
    assert isinstance(encoder, BagEncoder)
    sizes = word_ngrams if encoder.tokens == "words" else character_ngrams
    note = f"n-grams of {'byte pairs' if encoder.tokens == 'bpe' else encoder.tokens}"
    return data, HashedNgrams(_NUM_BUCKETS, token_sizes=sizes), (note,)


def _count_texts(ngrams: HashedNgrams, data: Data) -> tuple[Tensor, int]:
    """In how many training texts each n-gram occurs, and how many texts there are; 0 of a run without its examples."""
    train, counts = data.train, torch.zeros(_NUM_BUCKETS, dtype=torch.long)
    if not isinstance(train, TensorSplit):
        return counts, 0
    for stored in train.batches(torch.arange(len(train)).split(_COUNT_BATCH_SIZE)):
        counts += count_texts(ngrams(train.decode(stored)["x"]), _NUM_BUCKETS).cpu()
    return counts, len(train)
