"""Initial weights of a language network: those of an earlier run or a published file; all are trained, or only LoRA."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor, nn

from didact.adaptation.lora import add_lora, merge_lora, original_name
from didact.errors import UsageError, format_count, shorten
from didact.layers.attention.variants import effective_window
from didact.models.pretrained.weights import format_shape, read_weights, strip_prefix
from didact.options import Aliases, Range, RunReference
from didact.registry import RECIPES
from didact.run import Run
from didact.training.experiment import InitContext
from didact.training.restore import load_model

InitialWeights = Annotated[
    str | None,
    RunReference(allow_other=True),
    "initial weights: a run of this recipe, or a file of published weights (.safetensors, .bin)",
]
LoRARank = Annotated[
    int | None, Range(1), "LoRA rank; the pretrained weights are frozen and W + B A is learned", Aliases("lora_r")
]
# modules whose matrices LoRA adapts: neither embeddings nor heads
_BLOCK_PREFIXES = ("h.", "blocks.", "layers.", "layer.")
_LAYER_MARKERS = ("ln_2.weight", "post_attention_layernorm.weight", "norm2.weight")   # one per layer
_EMBEDDING_NAMES = ("wte.weight", "model.embed_tokens.weight", "embedding.weight")   # one row per token


def apply_lora(network: nn.Module, rank: int | None, *, trainable_modules: Sequence[str] = ()) -> tuple[str, ...]:
    """Freeze all parameters but LoRA's matrices and the given modules, if a rank is given; a note counts them. Lhotte
    9.3.
    """
    if rank is None:
        return ()
    num_total = sum(p.numel() for p in network.parameters())
    add_lora(network, rank=rank, target_modules=_BLOCK_PREFIXES)
    for name in trainable_modules:
        network.get_submodule(name).requires_grad_(True)
    num_trainable = sum(p.numel() for p in network.parameters() if p.requires_grad)
    return (
        f"LoRA of rank {rank}: {num_trainable:,} trainable parameters, {100 * num_trainable / num_total:.1f} % of the "
        f"{num_total:,} of full fine-tuning",
    )


def make_weight_initializer(
    network: nn.Module,
    location: str | None,
    rank: int | None,
    recipe: str,
    arguments: Mapping[str, Any],
    vocab: Sequence[str],
) -> Callable[[InitContext], tuple[str, ...]] | None:
    """The weight initializer of an experiment; None if the network is trained from scratch."""
    if location is None and rank is not None:
        raise UsageError(f"--lora-rank {rank} adapts pretrained weights; add --weights RUN or FILE")
    return None if location is None else partial(_load_weights, network, location, recipe, arguments, vocab)


def _load_weights(
    network: nn.Module,
    location: str,
    recipe: str,
    arguments: Mapping[str, Any],
    vocab: Sequence[str],
    context: InitContext,
) -> tuple[str, ...]:
    """Load the weights of a run of the same shape; rows of the embedding are matched by token. Returns a note."""
    path = os.path.expanduser(location)
    if os.path.isfile(path):
        return load_published_weights(network, Path(path))
    if not os.path.isdir(path):
        raise UsageError(f"no weights at {shorten(location)}: give a run of {recipe}")
    run = Run.open(location)
    if run.metadata["recipe"] != recipe:
        raise UsageError(
            f"--weights expects a run of {recipe}, got {run.folder}, which trained {run.metadata['recipe']}"
        )
    check_arguments_match(str(run.folder), get_run_arguments(run), arguments)
    objective, data = load_model(run)
    # what LoRA learned in the source run becomes part of its weights
    merge_lora(objective)
    source_state = objective.get_submodule("network").state_dict()
    source_rows = {
        token: row for row, token in enumerate(data.class_names if data.task == "language" else data.feature_names)
    }
    row_pairs = [(row, source_rows[token]) for row, token in enumerate(vocab) if token in source_rows]
    for name, tensor in network.state_dict().items():
        if not name.endswith((".a", ".b")):                            # LoRA's matrices of this run start anew
            _copy_rows(tensor, source_state[original_name(name)], row_pairs if name in _EMBEDDING_NAMES else None)
    return (f"weights of {run.folder}; {len(vocab) - len(row_pairs)} of {len(vocab):,} tokens are new",)


def get_run_arguments(run: Run) -> dict[str, Any]:
    """A run's arguments, with defaults for options that are younger than the run, and the effective attention window.
    """
    arguments = {name: option.default for name, option in RECIPES[run.metadata["recipe"]].options.items()}
    arguments.update(run.metadata["arguments"])
    return (
        arguments | {"window": effective_window(arguments["attention"], arguments["window"])}
        if "window" in arguments
        else arguments
    )


def check_arguments_match(source: str, source_arguments: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse weights of another shape; with another number of heads they would even fit, but compute something else."""
    def format_option(name: str, value: Any) -> str:
        flag = f"--{name.replace('_', '-')}"
        return f"no {flag}" if value is None else f"{flag} {value}"

    for name, value in arguments.items():
        if source_arguments.get(name) != value:
            raise UsageError(
                f"{source} was trained with {format_option(name, source_arguments.get(name))}, got "
                f"{format_option(name, value)}; give the same"
            )


def load_published_weights(network: nn.Module, path: Path) -> tuple[str, ...]:
    """Load published weights of the same shape; of a longer position table the first rows. No tensor may be missing."""
    model_tensors = {
        original_name(name): p for name, p in network.state_dict().items() if not name.endswith((".a", ".b"))
    }
    file_tensors = strip_prefix(read_weights(path), model_tensors)
    if missing := [name for name in model_tensors if name not in file_tensors]:
        raise UsageError(f"{path} holds no {missing[0]}, which this network has; {_missing_hint(missing)}")
    num_extra_layers = sum(name.endswith(_LAYER_MARKERS) for name in file_tensors) - sum(
        name.endswith(_LAYER_MARKERS) for name in model_tensors
    )
    if num_extra_layers:
        difference = f"{format_count(abs(num_extra_layers), 'layer')} {'more' if num_extra_layers > 0 else 'fewer'}"
        raise UsageError(f"{path} has {difference} than this network; set --num-layers to match")
    for name, p in model_tensors.items():
        t = file_tensors[name]
        if name.endswith("wpe.weight") and t.ndim:
            t = t[: len(p)]
        if t.shape != p.shape:
            raise UsageError(
                f"{path} holds {name} of {format_shape(t.shape)}, here it is {format_shape(p.shape)}; "
                f"{_shape_hint(name)}"
            )
        p.copy_(t)
    return (f"weights of {path.name}: {sum(p.numel() for p in model_tensors.values()):,} parameters",)


def _missing_hint(missing: Sequence[str]) -> str:
    """Advice on tensors that a file lacks; some belong to an option that no published network has."""
    for name_part, option in ((".lambdas", "--attention differential"), (".mlp.router.", "--num-experts")):
        if any(name_part in name for name in missing):
            return f"published weights have no {option}: leave it out"
    return "give the --model and --num-layers that it was trained with"


def _shape_hint(name: str) -> str:
    """Advice on a tensor of another shape."""
    if name in _EMBEDDING_NAMES:
        return "give the --embed-dim and the tokenizer that they were trained with: --tokens gpt2"
    return (
        "choose a shorter --context-length"
        if name.endswith("wpe.weight")
        else "give the --embed-dim and --num-heads that they were trained with"
    )


def _copy_rows(target: Tensor, source: Tensor, row_pairs: Sequence[tuple[int, int]] | None) -> None:
    """Copy in place: rows matched by token; without pairs everything, unless the shapes differ (a new head)."""
    if row_pairs:
        target_rows, source_rows = (list(indices) for indices in zip(*row_pairs, strict=True))
        target[target_rows] = source[source_rows]
    elif row_pairs is None and target.shape == source.shape:
        target.copy_(source)
