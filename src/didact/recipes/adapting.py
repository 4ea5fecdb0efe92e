"""A language network that was trained before goes on with another text: all of it, or thin matrices beside its own (LoRA)."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor, nn

from didact.errors import UsageError, shorten
from didact.layers.forms import reach
from didact.layers.lora import adapt, merge, plain
from didact.models.weights import read_weights, size, without_prefix
from didact.options import NamesRun, Range
from didact.registry import RECIPES
from didact.run import Run
from didact.train.experiment import Start
from didact.train.session import restored

Weights = Annotated[
    str | None, NamesRun(or_else=True), "run of this recipe, or file of published weights (.safetensors, .bin), to begin from",
]
Rank = Annotated[int | None, Range(1), "freeze the network and learn matrices of this rank beside its own: W + B A (LoRA)"]
BLOCKS = ("h.", "blocks.", "layers.", "layer.")   # where the matrices are that LoRA stands beside: not embeddings, not heads
LAST = ("ln_2.weight", "post_attention_layernorm.weight", "norm2.weight")   # one in each layer
TABLES = ("wte.weight", "model.embed_tokens.weight", "embedding.weight")   # a row for each token


def thinned(network: nn.Module, rank: int | None, *, thaw: Sequence[str] = ()) -> tuple[str, ...]:
    """Freeze all but LoRA's matrices and what is to learn whole, where a rank is given; how many numbers learn.  Lhotte 9.3."""
    if rank is None:
        return ()
    whole = sum(p.numel() for p in network.parameters())
    adapt(network, rank=rank, within=BLOCKS)
    for name in thaw:
        network.get_submodule(name).requires_grad_(True)
    learned = sum(p.numel() for p in network.parameters() if p.requires_grad)
    return (f"LoRA of rank {rank}: {learned:,} numbers learn, {100 * learned / whole:.1f} % of the {whole:,} that full fine-tuning moves",)


def beginning(
    network: nn.Module, where: str | None, rank: int | None, recipe: str, shape: Mapping[str, Any], tokens: Sequence[str]
) -> Callable[[Start], tuple[str, ...]] | None:
    """What an experiment begins with; None where the weights are drawn."""
    if where is None and rank is not None:
        raise UsageError(f"--lora {rank} adapts what was learned before; add --weights RUN or FILE")
    return None if where is None else partial(go_on_from, network, where, recipe, shape, tokens)


def go_on_from(
    network: nn.Module, where: str, recipe: str, shape: Mapping[str, Any], tokens: Sequence[str], start: Start
) -> tuple[str, ...]:
    """The weights of a run in a network of the same shape, rows of its embedding by the token that they stand for; what became of them."""
    path = os.path.expanduser(where)
    if os.path.isfile(path):
        return from_file(network, Path(path))
    if not os.path.isdir(path):
        raise UsageError(f"no weights at {shorten(where)}: give a run of {recipe}")
    run = Run.open(where)
    if run.facts["recipe"] != recipe:
        raise UsageError(f"--weights expects a run of {recipe}, got {run.folder}, which trained {run.facts['recipe']}")
    agree(str(run.folder), arguments_of(run), shape)
    objective, data = restored(run)
    merge(objective)                                                   # what LoRA learned there is part of its matrices here
    learned = objective.get_submodule("network").state_dict()
    known = {token: row for row, token in enumerate(data.labels if data.task == "language" else data.names)}
    common = [(row, known[token]) for row, token in enumerate(tokens) if token in known]
    for name, own in network.state_dict().items():
        if not name.endswith((".a", ".b")):                            # LoRA's own, which begin anew
            copy(own, learned[plain(name)], common if name in TABLES else None)
    return (f"weights of {run.folder}; {len(tokens) - len(common)} of {len(tokens):,} tokens are new to it",)


def arguments_of(run: Run) -> dict[str, Any]:
    """As they count: options that are younger than the run by their defaults, a span by its form."""
    every = {name: option.default for name, option in RECIPES[run.facts["recipe"]].options.items()}
    every.update(run.facts["arguments"])
    return every | {"span": reach(every["attention"], every["span"])} if "span" in every else every


def agree(origin: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Weights fit a network of their own sizes alone; other heads would even fit, and be another network."""
    def word(name: str, value: Any) -> str:
        return f"no --{name}" if value is None else f"--{name} {value}"

    for name, given in ours.items():
        if theirs.get(name) != given:
            raise UsageError(f"{origin} was trained with {word(name, theirs.get(name))}, got {word(name, given)}; give the same")


def from_file(network: nn.Module, path: Path) -> tuple[str, ...]:
    """Published weights in a network of the same shape; of a longer table of positions the first rows. Nothing may be missing."""
    own = {plain(name): p for name, p in network.state_dict().items() if not name.endswith((".a", ".b"))}
    theirs = without_prefix(read_weights(path), own)
    if gone := [name for name in own if name not in theirs]:
        raise UsageError(f"{path} holds no {gone[0]}, which this network has; {addition(gone)}")
    deeper = sum(name.endswith(LAST) for name in theirs) - sum(name.endswith(LAST) for name in own)
    if deeper:
        raise UsageError(f"{path} has {deeper} layers more than this network; give --layers to match")
    for name, p in own.items():
        t = theirs[name]
        if name.endswith("wpe.weight") and t.ndim:
            t = t[: len(p)]
        if t.shape != p.shape:
            raise UsageError(f"{path} holds {name} of {size(t.shape)}, here it is {size(p.shape)}; {remedy(name)}")
        p.copy_(t)
    return (f"weights of {path.name}: {sum(p.numel() for p in own.values()):,} numbers",)


def addition(gone: Sequence[str]) -> str:
    """What to do about matrices that a file lacks: some belong to an option that no published network has."""
    for part, option in ((".lambdas", "--attention differential"), (".mlp.router.", "--experts")):
        if any(part in name for name in gone):
            return f"published weights know no {option}: leave it out"
    return "give the --model and as many --layers as it was made with"


def remedy(name: str) -> str:
    """What makes a shape fit."""
    if name in TABLES:
        return "give the --width, and text in the tokens that they were trained with: --tokens gpt2"
    return "choose a shorter --context" if name.endswith("wpe.weight") else "give the --width and --heads that they were trained with"


def copy(own: Tensor, theirs: Tensor, rows: Sequence[tuple[int, int]] | None) -> None:
    """In place: row by row where rows are tokens; else all, but a head of another number of classes stays new."""
    if rows:
        here, there = (list(numbers) for numbers in zip(*rows, strict=True))
        own[here] = theirs[there]
    elif rows is None and own.shape == theirs.shape:
        own.copy_(theirs)
