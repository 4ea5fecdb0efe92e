"""Transformers for text: classifier, masked language model, translator."""

from functools import partial
from typing import Annotated

from torch.optim import AdamW

from didact.data.core import Data
from didact.data.text.augment_text import make_text_augmentations
from didact.data.text.classification import as_sequences
from didact.data.text.language_modeling import with_context
from didact.data.text.masked_lm import for_masked_lm
from didact.data.text.parallel_texts import MAX_TOKENS, PairEncoder
from didact.errors import UsageError
from didact.layers.attention.variants import DEFAULT_WINDOW, effective_window
from didact.models.text.bert import MaskedBERT
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.transformer_classifier import NormPlacement, TransformerClassifier
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.objectives.text.masked_lm import MaskedLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import apply_balance, choose_budget
from didact.recipes._initial_weights import InitialWeights, LoRARank, apply_lora, make_weight_initializer
from didact.recipes._word_vectors import Embeddings, make_embedding_initializer
from didact.recipes.gpt import (
    AttentionVariant,
    ContextLength,
    EmbedDim,
    NumHeads,
    NumLayers,
    TrainingSteps,
    Window,
    note_ignored_options,
)
from didact.registry import recipe
from didact.training.experiment import Experiment

_FFNDim = Annotated[int, Range(1), "feed-forward dimension of each block", Aliases("d_ff")]


class _LossMonitoredSeq2Seq(Seq2SeqObjective):
    """The best model by validation loss: of long sentences hardly any is translated exactly."""

    monitor, mode = "loss", "min"  # type: ignore[assignment]


@recipe(
    data="verdicts",
    accepts=("text",),
    tasks=("binary", "multiclass", "regression"),
    chapter="transformers",
    abilities=("classify", "regress", "draw"),
    sources=("Gaba 6.12", "Gaba 7.8", "Gaba 7.9", "Fleuret 5.3", "Lhotte 8.2"),
    grid={"norm": ("pre", "post"), "num_layers": (2, 4), "num_heads": (2, 4)},
)
def text_transformer(
    data: Data,
    *,
    num_layers: NumLayers = 4,
    num_heads: NumHeads = 4,
    embed_dim: EmbedDim = 128,
    ffn_dim: _FFNDim = 512,
    norm: Annotated[
        NormPlacement, "pre-norm or post-norm: LayerNorm before each sublayer or after each residual sum"
    ] = "pre",
    attention: AttentionVariant = "full",
    window: Window = None,
    vocab_size: Annotated[int, Range(1), "vocabulary size: the most common words"] = 10_000,
    max_length: Annotated[int, Range(1, 1000), "maximum sequence length in words", Aliases("max_seq_length")] = 256,
    dropout: a.Dropout = 0.1,
    label_smoothing: a.LabelSmoothing = 0.0,
    balance: a.Balance = "none",
    augment: a.TextAugment = (),
    lr: a.LearningRate = 5e-4,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
    weights: InitialWeights = None,
    lora_rank: LoRARank = None,
    embeddings: Embeddings = None,
    embedding_std: a.EmbeddingStd = None,
) -> Experiment:
    """Text classifier: a Transformer encoder with seven kinds of attention.

    x = √D E[words] + PE, layers × [x + attention(LN x), x + MLP(LN x)], and softmax(W mean_t LN(x_t)): reviews (--data
    rt_polarity, imdb), or your own CSV file with --text and --target. `didact sweep text_transformer
    attention=full,local,linear,differential` compares kinds of attention.
    """
    data = as_sequences(data, vocab_size=vocab_size, max_length=max_length)
    data, class_weights = apply_balance(data, balance)
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing, weights=class_weights)
    network = TransformerClassifier(
        len(data.feature_names),
        likelihood.num_outputs,
        embed_dim=embed_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        ffn_dim=ffn_dim,
        context_length=max_length,
        norm=norm,
        dropout=dropout,
        embedding_std=embedding_std,
        attention=attention,
        window=window or DEFAULT_WINDOW,
    )
    shape = {
        "num_layers": num_layers,
        "num_heads": num_heads,
        "embed_dim": embed_dim,
        "ffn_dim": ffn_dim,
        "max_length": max_length,
        "norm": norm,
        "attention": attention,
        "window": effective_window(attention, window),
    }
    if weights is not None and embeddings is not None:
        raise UsageError(f"--weights {weights} contains an embedding; leave out --embeddings {embeddings}")
    initialize_weights = make_weight_initializer(
        network, weights, lora_rank, "text_transformer", shape, data.feature_names
    ) or make_embedding_initializer(network.embedding, data.feature_names, embeddings)
    notes += note_ignored_options(attention, window, dropout) + apply_lora(
        network, lora_rank, trainable_modules=("head",)
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=make_text_augmentations(augment),
        clip_norm=clip_norm,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        initialize_weights=initialize_weights,
        notes=notes,
    )


@recipe(
    data="python_topics",
    accepts=("text",),
    tasks=("language",),
    chapter="transformers",
    abilities=("fill",),
    kind="language",
    sources=("Gaba 7.6", "Groudiev 6.6", "Van Schependom 7.6.2", "Fleuret 5.3"),
)
def bert(
    data: Data,
    *,
    num_layers: NumLayers = 4,
    num_heads: NumHeads = 4,
    embed_dim: EmbedDim = 128,
    ffn_dim: _FFNDim = 512,
    context_length: ContextLength = 64,
    dropout: a.Dropout = 0.0,
    mlm_probability: Annotated[
        float,
        Range(0.01, 0.9),
        "probability that a token is masked (masked language modeling)",
        Aliases("mask_probability"),
    ] = 0.15,
    short_seq_probability: Annotated[
        float,
        Range(0, 1),
        "probability that a window is cut into short sequences, so that short texts can be filled in too",
        Aliases("short_seq_prob"),
    ] = 0.5,
    lr: a.LearningRate = 2e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    steps: TrainingSteps = 2000,
    batch_size: a.BatchSize = 32,
) -> Experiment:
    """BERT: masked language modeling.

    min −Σ_{i ∈ M} log p(x_i | x without M); of M, 15 % of the tokens, 80 % become the mask, 10 % another token, 10 %
    stay. On your own text (--data book.txt); then `didact predict RUN "the cat <mask> on"` (best with --tokens words or
    bpe), and `didact explain RUN` for its attention.
    """
    data = for_masked_lm(with_context(data, context_length, stride=max(1, context_length // 8)))
    network = MaskedBERT(
        data.num_classes + 2,
        context_length=context_length,
        embed_dim=embed_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        ffn_dim=ffn_dim,
        dropout=dropout,
    )
    return Experiment(
        data=data,
        objective=MaskedLanguageModel(
            network, data.num_classes, mlm_probability=mlm_probability, short_seq_probability=short_seq_probability
        ),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        steps=steps,
        batch_size=batch_size,
    )


@recipe(
    data="number_words",
    accepts=("pairs",),
    tasks=("translation",),
    chapter="transformers",
    abilities=("translate",),
    kind="translation",
    sources=("Gaba 7.3", "Gaba 7.4", "Groudiev 6.6", "Van Schependom 7.6.4", "Fleuret 5.3", "Lhotte 8.2"),
    grid={"num_layers": (1, 2), "num_heads": (2, 4)},
)
def translate(
    data: Data,
    *,
    num_layers: NumLayers = 2,
    num_heads: NumHeads = 4,
    embed_dim: EmbedDim = 128,
    ffn_dim: _FFNDim = 512,
    dropout: a.Dropout = 0.1,
    label_smoothing: a.LabelSmoothing = 0.0,
    lr: a.LearningRate = 1e-3,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.Epochs = 8,
    batch_size: a.BatchSize = 128,
) -> Experiment:
    """Translation with an encoder-decoder Transformer (Vaswani et al. 2017).

    encoder: layers × [attention, MLP]; decoder: layers × [causal attention, cross-attention, MLP]. Number words to
    digits, or translations (--data multi30k_fr, multi30k_de, pairs.tsv).
    """
    pair_encoder = data.encoder
    assert isinstance(pair_encoder, PairEncoder)
    network = Transformer(
        len(pair_encoder.source.vocab),
        len(pair_encoder.target.vocab),
        embed_dim=embed_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        ffn_dim=ffn_dim,
        dropout=dropout,
        context_length=MAX_TOKENS,
    )
    return Experiment(
        data=data,
        objective=_LossMonitoredSeq2Seq(
            network,
            mean_length=pair_encoder.mean_target_length,
            max_length=pair_encoder.max_target_length,
            detokenize=pair_encoder.detokenize,
            label_smoothing=label_smoothing,
        ),
        optimizer=partial(AdamW, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.98)),  # as in the paper
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        epochs=epochs,
        batch_size=batch_size,
    )
