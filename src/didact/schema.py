"""The shape of the JSON in run folders and sweeps, checked when it is read.

    {"step": COUNT, "lr?": NUMBER}     an object with these keys, optional ones marked `?`; other keys are ignored
    [TEXT]                             a list
    MapOf(SCORE)                       an object with any keys
    Nullable(TEXT)                     a value or null
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Scalar:
    """A single value that passes a test."""

    description: str
    is_valid: Callable[[Any], bool]


@dataclass(frozen=True)
class MapOf:
    """An object whose keys are names: of metrics, layers, columns."""

    shape: "Shape"


@dataclass(frozen=True)
class Nullable:
    """A value or null."""

    shape: "Shape"


Shape = Scalar | MapOf | Nullable | list[Any] | dict[str, Any]


def _is_number(value: Any) -> bool:
    """A finite number that fits into 64 bits; JSON itself has no such bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _nested_sizes(value: Any) -> tuple[int, ...] | None:
    """The sizes of nested lists of numbers, equally long at each level; None for anything else."""
    if _is_number(value):
        return ()
    inner = {_nested_sizes(v) for v in value} if isinstance(value, list) else {None}
    first = next(iter(inner), ())
    return None if len(inner) > 1 or first is None else (len(value), *first)


ANY = Scalar("a value", lambda value: True)
TEXT = Scalar("a text", lambda value: isinstance(value, str))
FLAG = Scalar("true or false", lambda value: isinstance(value, bool))
COUNT = Scalar("a count", _is_count)
SIZE = Scalar("a size of 1 or more", lambda value: _is_count(value) and value > 0)
NUMBER = Scalar("a number", _is_number)
SECONDS = Scalar("seconds", lambda value: _is_number(value) and value >= 0)
TENSOR = Scalar("numbers", lambda value: _nested_sizes(value) is not None)
SCORE = Nullable(NUMBER)  # null: undefined
MONITOR = Scalar("a metric and min or max",
                 lambda v: isinstance(v, list) and len(v) == 2 and isinstance(v[0], str) and v[1] in ("min", "max"))

METRICS_LINE: Shape = {  # of metrics.jsonl
    "step": COUNT,
    "epoch": SECONDS,
    "lr?": NUMBER,
    "train?": MapOf(SCORE),
    "gradients?": MapOf(SCORE),
    "validation?": MapOf(SCORE),
    "seconds?": SECONDS,
}
SWEEP_ROW: Shape = {  # of sweep.jsonl
    "cell": MapOf(ANY),
    "seed": COUNT,
    "run": TEXT,
    "validation": MapOf(SCORE),
    "test": MapOf(SCORE),
    "seconds?": SECONDS,
    "monitor?": MONITOR,
    "diverged?": TEXT,
}
_DATA: Shape = {
    "name": TEXT,
    "kind": TEXT,
    "task": TEXT,
    "target?": TEXT,
    "target_mean?": NUMBER,
    "target_std?": NUMBER,
    "target_offset?": NUMBER,
    "fingerprint?": TEXT,
    "shape?": [COUNT],
    "class_names?": [TEXT],
    "feature_names?": [TEXT],
    "notes?": [TEXT],
    "mean?": TENSOR,
    "std?": TENSOR,
    "class_counts?": MapOf([COUNT]),
    "rows?": MapOf(COUNT),
    "bin_edges?": [[NUMBER]],
    "source?": {
        "path?": TEXT, "name?": TEXT, "seed?": COUNT, "size?": Nullable(SIZE), "target?": Nullable(TEXT),
        "task?": Nullable(TEXT), "text?": Nullable(TEXT), "kind?": TEXT, "fingerprint?": TEXT,
        "tokens?": Nullable(TEXT), "reading?": TEXT, "unlabeled?": FLAG, "validation?": TEXT, "test?": TEXT,
        "drop?": [TEXT], "features?": [TEXT], "sample_weight?": TEXT,
    },
    "encoder?": Nullable({"kind": TEXT}),
}
_HEALTH: Shape = {
    "name?": TEXT,
    "kind?": TEXT,
    "task?": TEXT,
    "target?": TEXT,
    "shape?": [COUNT],
    "splits?": MapOf(COUNT),
    "classes?": MapOf(COUNT),
    "counts?": MapOf([COUNT]),
    "imbalance?": NUMBER,
    "constant?": COUNT,
    "duplicates?": Nullable(MapOf(COUNT)),
    "fingerprint?": TEXT,
    "notes?": [TEXT],
}
_LAYERS: Shape = {
    "rows": [{
        "name": TEXT, "layer": TEXT, "shape": Nullable([COUNT]), "parameters": COUNT, "trainable?": COUNT,
        "field?": [NUMBER], "jump?": [NUMBER],
    }],
    "total": COUNT, "trainable": COUNT, "tied": COUNT,
}
RUN_METADATA: Shape = {  # run.json; keys that later versions added are optional
    "recipe": TEXT,
    "arguments": MapOf(ANY),
    "settings": MapOf(ANY),
    "data": _DATA,
    "summary?": TEXT,
    "chapter?": TEXT,
    "sources?": [TEXT],
    "abilities?": [TEXT],
    "command_to_repeat?": TEXT,
    "started?": TEXT,
    "status?": TEXT,
    "health?": _HEALTH,
    "notes?": [TEXT],
    "layers?": _LAYERS,
    "device?": TEXT,
    "precision?": TEXT,
    "processes?": SIZE,
    "trained_for?": TEXT,
    "propagation?": [{
        "layer": TEXT, "kind": TEXT, "variance": SCORE, "gradient_variance": SCORE, "mean?": SCORE,
        "gradient_mean?": SCORE,
    }],
    "plan?": {
        "batch_size": SIZE, "rounds_per_epoch": SIZE, "total_rounds": SIZE, "num_examples?": SIZE,
        "batches_per_round?": SIZE, "evaluate_every?": SIZE, "log_every?": SIZE, "min_batch_size?": SIZE,
    },
    "baselines?": [{"name": TEXT, "description": TEXT, "metrics": MapOf(SCORE), "seconds?": SECONDS}],
    "monitor?": MONITOR,
    "command?": TEXT,
    "versions?": MapOf(Nullable(TEXT)),
    "machine?": MapOf(ANY),
    "git?": Nullable({"commit": TEXT, "dirty": FLAG}),
    "stop_reason?": TEXT,
    "seconds?": SECONDS,
    "warmup_seconds?": SECONDS,
    "steps?": COUNT,
    "best_step?": Nullable(COUNT),
    "fingerprint?": MapOf(NUMBER),
    "validation?": Nullable(MapOf(SCORE)),
    "test?": Nullable(MapOf(SCORE)),
    "examples?": {"worst?": [TEXT], "best?": [TEXT]},
    "example_texts?": {"worst?": [TEXT], "best?": [TEXT]},
}


def find_mismatch(value: Any, shape: Shape, path: str = "") -> str:
    """The first difference between a value and a shape, in words; empty if there is none."""
    if isinstance(shape, Nullable):
        return "" if value is None else find_mismatch(value, shape.shape, path)
    if isinstance(shape, Scalar):
        return "" if shape.is_valid(value) else _describe(shape.description, value, path)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _describe("a list", value, path)
        return _first(find_mismatch(v, shape[0], f"{path}[{k}]") for k, v in enumerate(value))
    if not isinstance(value, dict):
        return _describe("an object", value, path)
    if isinstance(shape, MapOf):
        return _first(find_mismatch(v, shape.shape, f"{path}.{key}".lstrip(".")) for key, v in value.items())
    if missing := [key for key in shape if not key.endswith("?") and key not in value]:
        return f"{path} lacks {', '.join(missing)}".lstrip()
    inner_shapes = ((key.rstrip("?"), inner) for key, inner in shape.items())
    return _first(
        find_mismatch(value[key], inner, f"{path}.{key}".lstrip(".")) for key, inner in inner_shapes if key in value
    )


def _first(mismatches: Iterable[str]) -> str:
    return next(filter(None, mismatches), "")


def _describe(expected: str, value: Any, path: str) -> str:
    text = repr(value)
    return f"{path or 'it'} must be {expected}, got {text if len(text) <= 40 else text[:39] + '…'}"


def parse_json(text: str) -> Any:
    """Strict JSON, without NaN and not too deeply nested; ValueError otherwise."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_foreign_json(text: bytes | str) -> Any:
    """JSON as other programs write it, also with NaN; ValueError where it is none or too deeply nested.

    Half of a surrogate pair ("\\ud800"), which no file in UTF-8 can hold, becomes U+FFFD.
    """
    try:
        value = json.loads(text)
        if _SURROGATE_ESCAPE.search(text if isinstance(text, bytes) else text.encode(errors="replace")):
            value = json.loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
