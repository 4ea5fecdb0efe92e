"""Recurrent networks for text: language models, classifiers, sequence to sequence."""

from typing import Annotated, Literal

from didact.data.core import Data
from didact.data.text.augment_text import make_text_augmentations
from didact.data.text.classification import as_sequences
from didact.data.text.language_modeling import TextEncoder, with_context
from didact.data.text.parallel_texts import PairEncoder
from didact.layers.recurrent.recurrent import Init as InitWord
from didact.models.text.rnn import RecurrentClassifier, RecurrentLanguageModel
from didact.models.text.seq2seq import Seq2Seq
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.objectives.text.causal_lm import GenerativeLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import apply_balance, choose_budget
from didact.recipes._word_vectors import Embeddings, make_embedding_initializer
from didact.registry import recipe
from didact.training.experiment import Experiment

Cell = Annotated[Literal["lstm", "gru", "rnn"], "recurrent cell"]
_CellOrBlock = Annotated[
    Literal["lstm", "gru", "rnn", "mamba", "slstm", "mlstm"],
    "recurrent cell (RNN, LSTM, GRU), or a recurrent block: Mamba, mLSTM or sLSTM",
]
EmbedDim = Annotated[int, Range(1), "embedding dimension", Aliases("embedding_dim")]
HiddenSize = Annotated[int, Range(1), "hidden size of each recurrent layer"]
NumLayers = Annotated[int, Range(1, 16), "number of recurrent layers", Aliases("layers")]
RecurrentInit = Annotated[
    InitWord,
    "initialization of the recurrent weights: orthogonal preserves norms, random is PyTorch's default",
]


@recipe(
    data="python_topics",
    accepts=("text",),
    tasks=("language",),
    chapter="recurrent networks",
    abilities=("classify", "write"),
    kind="language",
    sources=(
        "Gaba 5.2",
        "Gaba 5.5",
        "Gaba 5.6",
        "Gaba 5.10",
        "Gaba Ex 5.1",
        "Groudiev 5.2.5",
        "Van Schependom 6",
        "Lhotte 7.3",
    ),
    grid={"cell": ("rnn", "lstm", "gru")},
)
def char_rnn(
    data: Data,
    *,
    cell: _CellOrBlock = "lstm",
    embed_dim: EmbedDim = 64,
    hidden_size: HiddenSize = 128,
    num_layers: NumLayers = 1,
    dropout: a.Dropout = 0.0,
    recurrent_init: RecurrentInit = "orthogonal",
    tie_weights: Annotated[bool, "weight tying: share the embedding with the output layer", Aliases("tied")] = False,
    context_length: Annotated[int, Range(1), "truncated BPTT length in tokens", Aliases("bptt")] = 64,
    lr: a.LearningRate = 5e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    steps: Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")] = 1000,
    batch_size: a.BatchSize = 64,
) -> Experiment:
    """Language model of characters: RNN, LSTM, GRU, Mamba or xLSTM.

    h_t = cell(x_t, h_{t−1}), p(x_{t+1} | x_≤t) = softmax(W h_t), on Tiny Shakespeare (--data tinyshakespeare) or your
    own text (--data book.txt); then `didact sample RUN --prompt "…"`. --cell mamba, slstm, mlstm: blocks u + mix(LN u)
    with a state (Gaba 5.10).
    """
    data = with_context(data, context_length, stride=max(1, context_length // 2))
    assert isinstance(data.encoder, TextEncoder)
    network = RecurrentLanguageModel(
        data.num_classes,
        cell=cell,
        embed_dim=embed_dim,
        hidden_size=hidden_size,
        num_layers=num_layers,
        dropout=dropout,
        tie_weights=tie_weights,
        init=recurrent_init,
    )
    return Experiment(
        data=data,
        objective=GenerativeLanguageModel(network, chars_per_token=data.encoder.chars_per_token),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, steps=steps, batch_size=batch_size,
    )


@recipe(
    data="verdicts",
    accepts=("text",),
    tasks=("binary", "multiclass", "regression"),
    chapter="recurrent networks",
    abilities=("classify", "regress", "draw"),
    sources=("Gaba 5.7", "Gaba 5.8", "Gaba 5.9", "Gaba Ex 5.5", "Lhotte 7.3"),
    grid={"cell": ("rnn", "lstm", "gru"), "num_layers": (1, 2)},
)
def text_rnn(
    data: Data,
    *,
    cell: _CellOrBlock = "lstm",
    embed_dim: EmbedDim = 128,
    hidden_size: HiddenSize = 128,
    num_layers: NumLayers = 1,
    recurrent_init: RecurrentInit = "orthogonal",
    bidirectional: Annotated[bool, "bidirectional: one recurrent layer from each end"] = True,
    pool: Annotated[Literal["last", "mean", "max"], "pooling over time: last state, mean or max"] = "max",
    vocab_size: Annotated[int, Range(1), "vocabulary size: the most common words"] = 10_000,
    max_length: Annotated[int, Range(1, 1000), "maximum sequence length in words", Aliases("max_seq_length")] = 256,
    dropout: a.Dropout = 0.4,
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: a.Balance = "none",
    head: Annotated[tuple[int, ...], Range(1), "units of the hidden layers of the classification head"] = (),
    embedding_std: a.EmbeddingStd = None,
    embedding_dropout: Annotated[
        float | None, Range(0, 0.95), "dropout probability of the word embedding (as --dropout if not given)"
    ] = None,
    augment: a.TextAugment = (),
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
    embeddings: Embeddings = None,
) -> Experiment:
    """Text classifier: RNN, LSTM, GRU, Mamba or xLSTM.

    h = [h→_T; h←_1], or the mean or maximum of all h_t, and softmax(W h): sentiment of reviews (--data rt_polarity,
    imdb), or your own CSV file with --text and --target.
    """
    data = as_sequences(data, vocab_size=vocab_size, max_length=max_length)
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing, weights=class_weights)
    network = RecurrentClassifier(
        len(data.feature_names),
        likelihood.num_outputs,
        cell=cell,
        embed_dim=embed_dim,
        hidden_size=hidden_size,
        num_layers=num_layers,
        bidirectional=bidirectional,
        pool=pool,
        dropout=dropout,
        init=recurrent_init,
        head=head,
        embedding_std=embedding_std,
        embedding_dropout=embedding_dropout,
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=make_text_augmentations(augment),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch_size=batch_size, notes=notes,
        initialize_weights=make_embedding_initializer(network.embedding, data.feature_names, embeddings),
    )


@recipe(
    data="number_words",
    accepts=("pairs",),
    tasks=("translation",),
    chapter="attention",
    abilities=("translate",),
    kind="translation",
    sources=("Gaba 6.1", "Gaba 6.2", "Gaba 6.3", "Gaba Ex 6.1", "Groudiev 6.1", "Van Schependom 6.4.1", "Lhotte 7.5"),
    grid={"attention": ("none", "bahdanau", "general")},
)
def seq2seq(
    data: Data,
    *,
    attention: Annotated[
        Literal["bahdanau", "dot", "general", "concat", "none"],
        "decoder's attention over the encoder's states: Bahdanau's additive or Luong's dot and general scores",
    ] = "bahdanau",
    cell: Cell = "gru",
    embed_dim: EmbedDim = 64,
    hidden_size: HiddenSize = 96,
    num_layers: NumLayers = 1,
    dropout: a.Dropout = 0.0,
    lr: a.LearningRate = 4e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.Epochs = 8,
    batch_size: a.BatchSize = 128,
) -> Experiment:
    """Sequence to sequence: a recurrent encoder and decoder with attention.

    c_t = Σ_j α_tj h_j, α_t = softmax_j score(s_{t−1}, h_j), s_t = cell(s_{t−1}, [y_{t−1}; c_t]), p(y_t) = softmax(W
    [s_t; c_t]): number words to digits, translations (--data multi30k_fr).
    """
    pair_encoder = data.encoder
    assert isinstance(pair_encoder, PairEncoder)
    network = Seq2Seq(
        len(pair_encoder.source.vocab),
        len(pair_encoder.target.vocab),
        cell=cell,
        attention=attention,
        embed_dim=embed_dim,
        hidden_size=hidden_size,
        num_layers=num_layers,
        dropout=dropout,
    )
    return Experiment(
        data=data,
        objective=Seq2SeqObjective(
            network,
            mean_length=pair_encoder.mean_target_length,
            max_length=pair_encoder.max_target_length,
            detokenize=pair_encoder.detokenize,
        ),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        epochs=epochs,
        batch_size=batch_size,
    )
