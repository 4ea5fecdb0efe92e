"""Recurrent networks on text: continue it character by character, or say what kind of text it is."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.pairs import PairEncoder
from didact.data.sequences import StreamEncoder, windows
from didact.data.text import in_order
from didact.data.text_augment import augmenting
from didact.layers.recurrent import Init as InitWord
from didact.models.recurrent import RecurrentClassifier, RecurrentLanguageModel
from didact.models.seq2seq import Seq2Seq
from didact.objectives.autoregressive import Writer
from didact.objectives.supervised import likelihood_of, supervised
from didact.objectives.translation import Translate
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import balanced, budget
from didact.recipes.embeddings import Embeddings, embedding
from didact.registry import recipe
from didact.train.experiment import Experiment

Cell = Annotated[Literal["lstm", "gru", "rnn"], "recurrent unit"]
Carrier = Annotated[
    Literal["lstm", "gru", "rnn", "mamba", "slstm", "mlstm"], "recurrent unit, or a block that carries a state: Mamba, xLSTM's two",
]
Width = Annotated[int, Range(1), "numbers that a token is embedded in"]
Hidden = Annotated[int, Range(1), "units of each recurrent layer"]
Layers = Annotated[int, Range(1, 16), "recurrent layers upon each other"]
Init = Annotated[InitWord, "recurrent weights at first: orthogonal keeps lengths, random is PyTorch's own"]


@recipe(
    data="python_topics", accepts=("text",), tasks=("language",), chapter="recurrent networks",
    abilities=("classify", "write"), kind="language",
    sources=("Gaba 5.2", "Gaba 5.5", "Gaba 5.6", "Gaba 5.10", "Gaba Ex 5.1", "Groudiev 5.2.5", "Van Schependom 6", "Lhotte 7.3"),
    grid={"cell": ("rnn", "lstm", "gru")},
)
def char_rnn(
    data: Data, *,
    cell: Carrier = "lstm", width: Width = 64, hidden: Hidden = 128, layers: Layers = 1, dropout: a.Dropout = 0.0,
    init: Init = "orthogonal",
    tie: Annotated[bool, "use the embedding as output matrix too"] = False,
    context: Annotated[int, Range(1), "tokens through which the gradient flows"] = 64,
    lr: a.Rate = 5e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    steps: Annotated[int, Range(1), "optimizer steps"] = 1000, batch: a.BatchSize = 64,
) -> Experiment:
    """An RNN, LSTM or GRU that continues a text character by character; then `didact sample RUN --prompt "…"` writes one.

    h_t = cell(x_t, h_{t−1}), p(x_{t+1} | x_≤t) = softmax(W h_t): trained on Tiny Shakespeare (--data tinyshakespeare) or --data book.txt.
    --cell mamba, slstm, mlstm: blocks u + mix(LN u) that carry a state as well (Gaba 5.10).
    """
    data = windows(data, context, stride=max(1, context // 2))
    assert isinstance(data.encoder, StreamEncoder)
    network = RecurrentLanguageModel(
        data.classes, cell=cell, width=width, hidden=hidden, layers=layers, dropout=dropout, tie=tie, init=init
    )
    return Experiment(
        data=data,
        objective=Writer(network, rate=data.encoder.rate),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, steps=steps, batch=batch,
    )


@recipe(
    data="verdicts", accepts=("text",), tasks=("binary", "multiclass", "regression"), chapter="recurrent networks",
    abilities=("classify", "regress", "draw"),
    sources=("Gaba 5.7", "Gaba 5.8", "Gaba 5.9", "Gaba Ex 5.5", "Lhotte 7.3"), grid={"cell": ("rnn", "lstm", "gru"), "layers": (1, 2)},
)
def text_rnn(
    data: Data, *,
    cell: Carrier = "lstm", width: Width = 128, hidden: Hidden = 128, layers: Layers = 1, init: Init = "orthogonal",
    bidirectional: Annotated[bool, "read from both ends"] = True,
    pool: Annotated[Literal["last", "mean", "max"], "what is made of the states: the last ones, their mean, their maximum"] = "max",
    vocabulary: Annotated[int, Range(1), "most common words that are told apart"] = 10_000,
    length: Annotated[int, Range(1, 1000), "words that are read of each text"] = 256,
    dropout: a.Dropout = 0.4, smoothing: a.Smoothing = 0.0, balance: a.Balance = "none",
    head: Annotated[tuple[int, ...], Range(1), "units of layers between the states and the answer"] = (),
    embedding_std: a.EmbeddingStd = None,
    embedding_dropout: Annotated[float | None, Range(0, 0.95), "share of a word's numbers dropped (as --dropout if not given)"] = None,
    augment: a.AugmentWords = (),
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None, embeddings: Embeddings = None,
) -> Experiment:
    """A recurrent classifier of texts: sentiment of reviews (--data rt_polarity, imdb), or one's own CSV with --text and --target.

    h = [h→_T; h←_1] or the mean or maximum of all h_t, and softmax(W h).
    """
    data = in_order(data, vocabulary=vocabulary, length=length)
    data, weights = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing, weights=weights)
    network = RecurrentClassifier(
        len(data.names), likelihood.outputs, cell=cell, width=width, hidden=hidden, layers=layers, bidirectional=bidirectional,
        pool=pool, dropout=dropout, init=init, head=head, embedding_std=embedding_std, embedding_dropout=embedding_dropout,
    )
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmenting(augment),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, notes=notes,
        begin=embedding(network.embedding, data.names, embeddings),
    )


@recipe(
    data="number_words", accepts=("pairs",), tasks=("translation",), chapter="attention", abilities=("translate",), kind="translation",
    sources=("Gaba 6.1", "Gaba 6.2", "Gaba 6.3", "Gaba Ex 6.1", "Groudiev 6.1", "Van Schependom 6.4.1", "Lhotte 7.5"),
    grid={"attention": ("none", "bahdanau", "general")},
)
def seq2seq(
    data: Data, *,
    attention: Annotated[Literal["bahdanau", "dot", "general", "concat", "none"], "how the writer looks at what was read"] = "bahdanau",
    cell: Cell = "gru", width: Width = 64, hidden: Hidden = 96, layers: Layers = 1, dropout: a.Dropout = 0.0,
    lr: a.Rate = 4e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    epochs: a.Epochs = 8, batch: a.BatchSize = 128,
) -> Experiment:
    """Read one sequence, write another: number words to digits, translations (--data multi30k_fr), with attention or without.

    c_t = Σ_j α_tj h_j, α_t = softmax_j score(s_{t−1}, h_j), s_t = cell(s_{t−1}, [y_{t−1}; c_t]), p(y_t) = softmax(W [s_t; c_t]).
    """
    pairs = data.encoder
    assert isinstance(pairs, PairEncoder)
    network = Seq2Seq(
        len(pairs.source.names), len(pairs.target.names), cell=cell, attention=attention, width=width, hidden=hidden, layers=layers,
        dropout=dropout,
    )
    return Experiment(
        data=data,
        objective=Translate(network, length=pairs.mean, longest=pairs.longest, spell=pairs.spell),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, epochs=epochs, batch=batch,
    )
