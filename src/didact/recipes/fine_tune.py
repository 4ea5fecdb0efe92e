"""Fine-tuning: a BERT pretrained on texts without labels, then trained to classify texts, of which few have labels."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from didact.adaptation.lora import merge_lora
from didact.data.core import Data, TensorSplit
from didact.data.text.augment_text import make_text_augmentations
from didact.data.text.classification import BagEncoder, as_sequences
from didact.data.text.language_modeling import MIN_WINDOWS, build_language_modeling_data
from didact.data.text.tokenizers import UNK_ID, BPETokenizer, Tokenizer, WordTokenizer
from didact.errors import UsageError, shorten
from didact.models.pretrained.minilm import MiniLM
from didact.models.text.bert import SentenceEncoder
from didact.objectives.supervised import likelihood_for, make_supervised
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, OnlyWith, Range, RunReference
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import choose_budget
from didact.recipes._initial_weights import apply_lora, check_arguments_match, get_run_arguments
from didact.recipes.transfer import subsample_per_class
from didact.recipes.transformers import bert
from didact.registry import recipe
from didact.run import Run
from didact.training.experiment import EventCallback, Experiment, InitContext, Settings, forward_steps
from didact.training.loop import Trainer
from didact.training.restore import load_model
from didact.training.seeding import init_rng

_FineTuneMode = Annotated[
    Literal["full", "lora", "head", "scratch"],
    "what is fine-tuned: all weights, LoRA matrices, or the new head alone; or all of a network without pretraining",
]
_PretrainedWeights = Annotated[
    str | None,
    RunReference(allow_other=True),
    "pretrained weights: a run of `bert` (--tokens words or bpe), or minilm (all-MiniLM-L6-v2); pretrained on its own "
    "texts if not given",
]
_OptionalLayers = Annotated[
    int | None, Range(1), "number of Transformer blocks (the pretrained network's if not given)", Aliases("layers"),
]
_OptionalHeads = Annotated[
    int | None, Range(1), "number of attention heads (the pretrained network's if not given)", Aliases("heads"),
]
_OptionalDim = Annotated[
    int | None, Range(1), "embedding dimension (the pretrained network's if not given)", Aliases("width", "d_model"),
]
_OptionalFFN = Annotated[
    int | None, Range(1), "feed-forward dimension (the pretrained network's if not given)", Aliases("d_ff"),
]
_SMALL_SHAPE = {"num_layers": 2, "num_heads": 4, "embed_dim": 64, "ffn_dim": 256}
_MINILM_SHAPE = {"num_layers": 6, "num_heads": 12, "embed_dim": 384, "ffn_dim": 1536}
# the fewer parameters are trained, the larger the steps may be …
_LEARNING_RATES = {"full": 5e-4, "scratch": 5e-4, "lora": 2e-3, "head": 2e-2}
# … and a wide network takes smaller ones
_WIDE_LR_FACTOR = 0.1
_PRETRAINING_MESSAGE = "pretraining on its own texts first"
_PRETRAINING_CONTEXT_LENGTH = 32   # words
_ShapeItems = tuple[tuple[str, Any], ...]
_PretrainedEncoder = tuple[dict[str, Tensor], Tokenizer, str]
_PRETRAINED_CACHE: dict[tuple[str, _ShapeItems, int, torch.device], _PretrainedEncoder] = {}
_WordToRows = Callable[[str], list[int]]   # rows of a word in the pretrained embedding


@recipe(
    data="verdicts",
    accepts=("text",),
    tasks=("binary", "multiclass"),
    chapter="transformers",
    abilities=("classify", "draw"),
    sources=("Gaba 7.6", "Gaba 7.8", "Lhotte 9.1", "Lhotte 9.2", "Lhotte 9.3", "Fleuret 5.3"),
    grid={"mode": ("scratch", "head", "lora", "full")},
)
def fine_tune(
    data: Data,
    *,
    weights: _PretrainedWeights = None,
    mode: _FineTuneMode = "full",
    lora_rank: Annotated[int, Range(1), OnlyWith("mode", "lora"), "LoRA rank", Aliases("lora_r")] = 8,
    labels_per_class: Annotated[int | None, Range(1), "training texts per class (all if not given)"] = None,
    pretrain_steps: Annotated[
        int,
        Range(1),
        OnlyWith("weights", None),
        OnlyWith("mode", "full", "lora", "head"),
        "masked-LM pretraining steps on its own texts, where no weights are given",
    ] = 400,
    num_layers: _OptionalLayers = None,
    num_heads: _OptionalHeads = None,
    embed_dim: _OptionalDim = None,
    ffn_dim: _OptionalFFN = None,
    vocab_size: Annotated[int, Range(1), "vocabulary size: the most common words"] = 10_000,
    max_length: Annotated[int, Range(1, 512), "maximum sequence length in words", Aliases("max_seq_length")] = 64,
    dropout: a.Dropout = 0.1,
    label_smoothing: a.LabelSmoothing = 0.0,
    augment: a.TextAugment = (),
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 0.01,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    patience: a.Patience = None,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Fine-tuning a BERT to classify texts: full, LoRA or the head alone.

    softmax(W mean_t h_t + b), h from a run of `bert` (--weights RUN), from all-MiniLM-L6-v2 (--weights minilm), or
    pretrained first by masked language modeling on the training texts, which needs no labels. `didact sweep fine_tune
    --labels-per-class 20` compares the modes with training from scratch.
    """
    if weights == "minilm" and isinstance(data.encoder, BagEncoder) and data.encoder.tokens != "words":
        raise UsageError(
            f"--weights minilm reads words, but these texts are read as {data.encoder.tokens}; give --tokens words"
        )
    make_text = partial(_concat_training_texts, data)
    data = as_sequences(
        subsample_per_class(data, labels_per_class) if labels_per_class else data,
        vocab_size=vocab_size,
        max_length=max_length,
    )
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    likelihood = likelihood_for(data, label_smoothing=label_smoothing)
    shape = _resolve_shape(
        weights, {"num_layers": num_layers, "num_heads": num_heads, "embed_dim": embed_dim, "ffn_dim": ffn_dim}
    )
    dim = shape["embed_dim"]
    encoder = SentenceEncoder(
        len(data.feature_names),
        context_length=max_length,
        embed_dim=dim,
        num_layers=shape["num_layers"],
        num_heads=shape["num_heads"],
        ffn_dim=shape["ffn_dim"],
        # a frozen encoder gives the same features in each epoch
        dropout=0.0 if mode == "head" else dropout,
    )
    network = nn.Sequential(
        OrderedDict(bert=encoder, dropout=nn.Dropout(dropout), head=nn.Linear(dim, likelihood.num_outputs))
    )
    encoder_parameters = dict(encoder.named_parameters())  # before LoRA wraps them
    initialize_weights = (
        partial(_load_pretrained, encoder_parameters, data.feature_names, weights, shape, make_text, pretrain_steps)
        if mode != "scratch"
        else None
    )
    return Experiment(
        data=data,
        objective=make_supervised(network, likelihood),
        optimizer=make_optimizer(
            "adamw",
            lr=lr or _LEARNING_RATES[mode] * (_WIDE_LR_FACTOR if dim > 256 and mode != "head" else 1.0),
            weight_decay=weight_decay,
        ),
        schedule=make_schedule(schedule),
        augment=make_text_augmentations(augment),
        clip_norm=clip_norm,
        patience=patience,
        epochs=epochs,
        batch_size=batch_size,
        initialize_weights=initialize_weights,
        resolved_arguments=shape,
        notes=(*notes, *_freeze_parameters(network, mode, lora_rank)),
    )


def _freeze_parameters(network: nn.Module, mode: str, rank: int) -> tuple[str, ...]:
    """Freeze the parameters that the mode does not train; a note counts the others."""
    if mode == "lora":
        return apply_lora(network, rank, trainable_modules=("head",))
    if mode == "head":
        network.get_submodule("bert").requires_grad_(False)
    num_trainable, num_total = (
        sum(p.numel() for p in network.parameters() if p.requires_grad or count_all) for count_all in (False, True)
    )
    return (f"{num_trainable:,} of {num_total:,} parameters are trained",)


def _resolve_shape(weights: str | None, sizes: Mapping[str, int | None]) -> dict[str, int]:
    """The shape of the network: where not given, that of the pretrained one."""
    given_sizes = {name: value for name, value in sizes.items() if value is not None}
    if len(given_sizes) == len(sizes):
        return given_sizes
    if weights is None:
        return _SMALL_SHAPE | given_sizes
    pretrained_shape = _MINILM_SHAPE if weights == "minilm" else get_run_arguments(_open_pretraining_run(weights))
    return {name: given_sizes.get(name, pretrained_shape[name]) for name in sizes}


def _open_pretraining_run(location: str) -> Run:
    if not os.path.isdir(os.path.expanduser(location)):
        raise UsageError(f"no weights at {shorten(location)}: give a run of bert, or minilm")
    run = Run.open(location)
    if run.metadata["recipe"] != "bert":
        raise UsageError(f"--weights expects a run of bert, got {run.folder}, which trained {run.metadata['recipe']}")
    return run


def _load_pretrained(
    parameters: Mapping[str, Tensor],
    vocab: tuple[str, ...],
    weights: str | None,
    shape: Mapping[str, int],
    make_text: Callable[[], str],
    pretrain_steps: int,
    context: InitContext,
) -> tuple[str, ...]:
    """Load or pretrain the encoder; notes on what was loaded."""
    if weights is None:
        source_state, tokenizer, note = _pretrain_cached(
            make_text(), tuple(shape.items()), pretrain_steps, context.device, context.on_event
        )
        word_to_rows = make_word_to_rows(tokenizer, "its own texts")
    elif weights == "minilm":
        check_arguments_match(weights, _MINILM_SHAPE, shape)
        source_state, word_to_rows, note = load_minilm()
    else:
        run = _open_pretraining_run(weights)
        check_arguments_match(str(run.folder), get_run_arguments(run), shape)
        objective, data = load_model(run)
        merge_lora(objective)
        source_state, note = objective.get_submodule("network.bert").state_dict(), f"weights of {run.folder}"
        word_to_rows = make_word_to_rows(data.encoder.tokenizer, str(run.folder))  # type: ignore[union-attr]
    return note, *copy_matching_tensors(parameters, source_state, vocab, word_to_rows)


@torch.no_grad()
def copy_matching_tensors(
    parameters: Mapping[str, Tensor],
    source_state: Mapping[str, Tensor],
    vocab: tuple[str, ...],
    word_to_rows: _WordToRows,
) -> tuple[str, ...]:
    """Copy tensors by name: as many positions as both have; for a word its row, or the mean of its subwords' rows."""
    for name, p in parameters.items():
        if name.endswith("word_embeddings.weight"):
            continue
        n = min(len(p), len(source_state[name])) if name.endswith("position_embeddings.weight") else len(p)
        p[:n] = source_state[name][:n].to(p)
    source_embedding, num_new = source_state["embeddings.word_embeddings.weight"], 0
    for row, word in enumerate(vocab[1:], 1):                               # 0 is padding
        source_rows = word_to_rows(word)
        num_new += not source_rows
        if source_rows:
            parameters["embeddings.word_embeddings.weight"][row] = (
                source_embedding[source_rows].mean(0).to(parameters["embeddings.word_embeddings.weight"])
            )
    return (f"{num_new:,} of {len(vocab) - 1:,} words are new",)


def make_word_to_rows(tokenizer: Tokenizer, source_name: str) -> _WordToRows:
    """Rows of the embedding of a `bert` run, whose tokens are counted from 1."""
    if isinstance(tokenizer, WordTokenizer):
        token_ids = tokenizer.token_to_id | {"<unk>": UNK_ID}
        return lambda word: [token_ids[word] + 1] if word in token_ids else []
    if isinstance(tokenizer, BPETokenizer):
        return lambda word: [i + 1 for i in tokenizer.encode(f" {word}")]
    raise UsageError(
        f"{source_name} was pretrained on characters, but this recipe reads words; pretrain with --tokens words or bpe"
    )


def load_minilm() -> tuple[dict[str, Tensor], _WordToRows, str]:
    """all-MiniLM-L6-v2 (Reimers & Gurevych 2019), and the subwords of its vocabulary for each word."""
    sentence_model = MiniLM()

    def word_to_rows(word: str) -> list[int]:
        ids: list[int] = sentence_model.tokenizer.encode(
            "[UNK]" if word == "<unk>" else word, add_special_tokens=False
        ).ids
        return ids

    return sentence_model.network.state_dict(), word_to_rows, "all-MiniLM-L6-v2"


def _concat_training_texts(data: Data) -> str:
    """The training texts, one after another with a full stop between; only words, as they are stored."""
    assert isinstance(data.train, TensorSplit) and isinstance(data.encoder, BagEncoder)
    vocab = data.encoder.vocab
    return " . ".join(" ".join(vocab[i] for i in row if i < len(vocab)) for row in data.train.columns["x"].tolist())


def _pretrain_cached(
    text: str, shape: _ShapeItems, steps: int, device: torch.device, on_event: EventCallback
) -> _PretrainedEncoder:
    """Pretrained weights; a sweep asks for the same ones again and again."""
    key = text, shape, steps, device
    if key not in _PRETRAINED_CACHE:
        _PRETRAINED_CACHE[key] = _pretrain(*key, on_event)
    return _PRETRAINED_CACHE[key]


def _pretrain(
    text: str, shape: _ShapeItems, steps: int, device: torch.device, on_event: EventCallback
) -> _PretrainedEncoder:
    """Pretrain without a run folder: the best weights, their tokenizer, and a note with the accuracy."""
    if (num_words := len(text.split())) <= MIN_WINDOWS * _PRETRAINING_CONTEXT_LENGTH / 0.9:
        raise UsageError(
            f"{num_words} words of training texts are too few for pretraining; give --weights RUN or minilm, or --mode "
            "scratch"
        )
    data = build_language_modeling_data(
        "texts", text, kind="words", vocab_size=10_000, context_length=_PRETRAINING_CONTEXT_LENGTH
    )
    with init_rng(0):
        experiment: Experiment = bert(data, **dict(shape), steps=steps, context_length=_PRETRAINING_CONTEXT_LENGTH)
        trainer = Trainer(
            experiment,
            Settings(),
            device=device,
            on_event=forward_steps(on_event, _PRETRAINING_MESSAGE),
        )
        scores = trainer.train().validation
    state = {
        name.removeprefix("network.bert."): value.cpu()
        for name, value in trainer.best_weights.items()
        if name.startswith("network.bert.")
    }
    note = (
        f"pretrained on its training texts for {steps} steps: {100 * scores['accuracy']:.0f} % of the masked words "
        "predicted"
    )
    return state, experiment.data.encoder.tokenizer, note  # type: ignore[union-attr]
