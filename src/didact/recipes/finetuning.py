"""BERT in its second life: pretrained on texts without labels, then taught to tell their kinds from a few that have one."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from didact.data.core import Data, Resident
from didact.data.sequences import FEWEST, running_text
from didact.data.text import BagEncoder, in_order
from didact.data.text_augment import augmenting
from didact.data.tokens import UNKNOWN, BytePairs, Tokenizer, Words
from didact.errors import UsageError, shorten
from didact.layers.lora import merge
from didact.models.bert import SentenceEncoder
from didact.models.minilm import MiniLM
from didact.objectives.supervised import likelihood_of, supervised
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import NamesRun, OnlyWith, Range
from didact.recipes import arguments as a
from didact.recipes.adapting import agree, arguments_of, thinned
from didact.recipes.attention import bert
from didact.recipes.common import budget
from didact.recipes.transfer import few
from didact.registry import recipe
from didact.run import Run
from didact.train.experiment import Experiment, Settings, Start
from didact.train.loop import Tell, Training
from didact.train.randomness import initialisation
from didact.train.session import restored

Learn = Annotated[
    Literal["full", "lora", "head", "scratch"],
    "what learns: all, thin matrices beside the pretrained ones (LoRA), the new head alone; or all of a network that was not pretrained",
]
Origin = Annotated[
    str | None, NamesRun(or_else=True),
    "run of `bert` (--tokens words or bpe), or minilm (all-MiniLM-L6-v2); its own training texts if not given",
]
Size = Annotated[int | None, Range(1), "as the pretrained network has it, if not given"]
SMALL = {"layers": 2, "heads": 4, "width": 64, "hidden": 256}
MINILM = {"layers": 6, "heads": 12, "width": 384, "hidden": 1536}
RATE = {"full": 5e-4, "scratch": 5e-4, "lora": 2e-3, "head": 2e-2}   # the less learns, the larger its steps may be; …
WIDE = 0.1                                                              # … and smaller ones where the network is wide
FIRST = "guessing hidden words of its own texts first"
CONTEXT = 32                                                            # words that are read at once while some are guessed
Shape = tuple[tuple[str, Any], ...]
Learned = tuple[dict[str, Tensor], Tokenizer, str]
KNOWN: dict[tuple[str, Shape, int, torch.device], Learned] = {}
Pieces = Callable[[str], list[int]]                                     # the rows that a word has in the pretrained table


@recipe(
    data="verdicts", accepts=("text",), tasks=("binary", "multiclass"), chapter="transformers", abilities=("classify", "draw"),
    sources=("Gaba 7.6", "Gaba 7.8", "Lhotte 9.1", "Lhotte 9.2", "Lhotte 9.3", "Fleuret 5.3"),
    grid={"learn": ("scratch", "head", "lora", "full")},
)
def fine_tune(
    data: Data, *,
    weights: Origin = None, learn: Learn = "full",
    rank: Annotated[int, Range(1), OnlyWith("learn", "lora"), "of LoRA's matrices"] = 8,
    labels: Annotated[int | None, Range(1), "training texts of each class (all if not given)"] = None,
    pretrain: Annotated[
        int, Range(1), OnlyWith("weights", None), OnlyWith("learn", "full", "lora", "head"),
        "steps in which it guesses hidden words of its own texts",
    ] = 400,
    layers: Size = None, heads: Size = None, width: Size = None, hidden: Size = None,
    vocabulary: Annotated[int, Range(1), "most common words that are told apart"] = 10_000,
    length: Annotated[int, Range(1, 512), "words that are read of each text"] = 64,
    dropout: a.Dropout = 0.1, smoothing: a.Smoothing = 0.0, augment: a.AugmentWords = (),
    lr: a.OptionalRate = None, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """BERT fine-tuned to classify texts: all of it, LoRA's thin matrices, or a head on a frozen one, against a network from scratch.

    softmax(W mean_t h_t + b), h from a run of `bert` (--weights RUN), from all-MiniLM-L6-v2 (--weights minilm), or learned first by
    guessing hidden words of the training texts, which needs no labels. `didact sweep fine_tune --labels 20` compares the four ways.
    """
    text = partial(joined, data)
    data = in_order(few(data, labels) if labels else data, vocabulary=vocabulary, length=length)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing)
    shape = settled(weights, {"layers": layers, "heads": heads, "width": width, "hidden": hidden})
    dim = shape["width"]
    reader = SentenceEncoder(
        len(data.names), context=length, dim=dim, layers=shape["layers"], heads=shape["heads"], hidden=shape["hidden"],
        dropout=0.0 if learn == "head" else dropout,                   # what does not learn should not be disturbed either
    )
    network = nn.Sequential(OrderedDict(bert=reader, dropout=nn.Dropout(dropout), head=nn.Linear(dim, likelihood.outputs)))
    own = dict(reader.named_parameters())                              # before LoRA stands around them
    begin = partial(start, own, data.names, weights, shape, text, pretrain) if learn != "scratch" else None
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr or RATE[learn] * (WIDE if dim > 256 and learn != "head" else 1.0), weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmenting(augment),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, begin=begin, settled=shape,
        notes=(*notes, *learning(network, learn, rank)),
    )


def learning(network: nn.Module, learn: str, rank: int) -> tuple[str, ...]:
    """Freeze what is not to learn; how many numbers do."""
    if learn == "lora":
        return thinned(network, rank, thaw=("head",))
    if learn == "head":
        network.get_submodule("bert").requires_grad_(False)
    learned, whole = (sum(p.numel() for p in network.parameters() if p.requires_grad or every) for every in (False, True))
    return (f"{learned:,} of {whole:,} numbers learn",)


def settled(weights: str | None, given: Mapping[str, int | None]) -> dict[str, int]:
    """The shape of the network: what is not given is that of the pretrained one."""
    known = {name: value for name, value in given.items() if value is not None}
    if len(known) == len(given):
        return known
    if weights is None:
        return SMALL | known
    theirs = MINILM if weights == "minilm" else arguments_of(pretraining(weights))
    return {name: known.get(name, theirs[name]) for name in given}


def pretraining(where: str) -> Run:
    if not os.path.isdir(os.path.expanduser(where)):
        raise UsageError(f"no weights at {shorten(where)}: give a run of bert, or minilm")
    run = Run.open(where)
    if run.facts["recipe"] != "bert":
        raise UsageError(f"--weights expects a run of bert, got {run.folder}, which trained {run.facts['recipe']}")
    return run


def start(
    own: Mapping[str, Tensor], words: tuple[str, ...], weights: str | None, shape: Mapping[str, int], text: Callable[[], str], steps: int,
    at: Start,
) -> tuple[str, ...]:
    """The pretrained matrices in place of drawn ones; what became of them."""
    if weights is None:
        theirs, tokenizer, note = learned(text(), tuple(shape.items()), steps, at.device, at.tell)
        pieces = rows_of(tokenizer, "its own texts")
    elif weights == "minilm":
        agree(weights, MINILM, shape)
        theirs, pieces, note = minilm()
    else:
        run = pretraining(weights)
        agree(str(run.folder), arguments_of(run), shape)
        objective, data = restored(run)
        merge(objective)
        theirs, note = objective.get_submodule("network.bert").state_dict(), f"weights of {run.folder}"
        pieces = rows_of(data.encoder.tokenizer, str(run.folder))  # type: ignore[union-attr]
    return note, *copied(own, theirs, words, pieces)


@torch.no_grad()
def copied(own: Mapping[str, Tensor], theirs: Mapping[str, Tensor], words: tuple[str, ...], pieces: Pieces) -> tuple[str, ...]:
    """Matrix by matrix; of positions as many as both have; of a word the row that it has there, or the mean of its pieces' rows."""
    for name, p in own.items():
        if name.endswith("word_embeddings.weight"):
            continue
        n = min(len(p), len(theirs[name])) if name.endswith("position_embeddings.weight") else len(p)
        p[:n] = theirs[name][:n].to(p)
    table, new = theirs["embeddings.word_embeddings.weight"], 0
    for row, word in enumerate(words[1:], 1):                               # 0 is padding
        found = pieces(word)
        new += not found
        if found:
            own["embeddings.word_embeddings.weight"][row] = table[found].mean(0).to(own["embeddings.word_embeddings.weight"])
    return (f"{new:,} of {len(words) - 1:,} words are new to it",)


def rows_of(tokenizer: Tokenizer, where: str) -> Pieces:
    """Rows of a network of the recipe `bert`, whose tokens are counted from 1."""
    if isinstance(tokenizer, Words):
        known = tokenizer.number | {"<unk>": UNKNOWN}
        return lambda word: [known[word] + 1] if word in known else []
    if isinstance(tokenizer, BytePairs):
        return lambda word: [i + 1 for i in tokenizer.encode(f" {word}")]
    raise UsageError(f"{where} was pretrained on characters, but words are read here; pretrain with --tokens words or bpe")


def minilm() -> tuple[dict[str, Tensor], Pieces, str]:
    """all-MiniLM-L6-v2 (Reimers & Gurevych 2019), and words as its vocabulary cuts them."""
    published = MiniLM()

    def pieces(word: str) -> list[int]:
        ids: list[int] = published.tokenizer.encode("[UNK]" if word == "<unk>" else word, add_special_tokens=False).ids
        return ids

    return published.network.state_dict(), pieces, "all-MiniLM-L6-v2"


def joined(data: Data) -> str:
    """The training texts one behind the other, a full stop between: words alone, as they are stored."""
    assert isinstance(data.train, Resident) and isinstance(data.encoder, BagEncoder)
    names = data.encoder.names
    return " . ".join(" ".join(names[i] for i in row if i < len(names)) for row in data.train.columns["x"].tolist())


def learned(text: str, shape: Shape, steps: int, device: torch.device, tell: Tell) -> Learned:
    """What such a text taught; a sweep asks for the same again and again."""
    key = text, shape, steps, device
    if key not in KNOWN:
        KNOWN[key] = pretrain_on(*key, tell)
    return KNOWN[key]


def pretrain_on(text: str, shape: Shape, steps: int, device: torch.device, tell: Tell) -> Learned:
    """A whole pretraining without a folder: its best weights, its words, and a line on how it went."""
    if (n := len(text.split())) <= FEWEST * CONTEXT / 0.9:
        raise UsageError(f"{n} words of training texts are too few to guess hidden ones; give --weights RUN or minilm, or --learn scratch")
    data = running_text("texts", text, kind="words", vocabulary=10_000, window=CONTEXT)
    with initialisation(0):
        experiment: Experiment = bert(data, **dict(shape), steps=steps, context=CONTEXT)
        training = Training(experiment, Settings(), device=device, tell=lambda _, facts: tell("begin", {"what": FIRST, **facts}))
        scores = training.train().validation
    state = {name.removeprefix("network.bert."): value.cpu() for name, value in training.best.items() if name.startswith("network.bert.")}
    told = f"it guessed hidden words of its training texts first: {100 * scores['accuracy']:.0f} % right after {steps} steps"
    return state, experiment.data.encoder.tokenizer, told  # type: ignore[union-attr]
