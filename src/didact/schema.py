"""The shape of the JSON that runs and sweeps are kept in, checked where it is read: a damaged file is refused
before anyone trusts it.

    {"step": COUNT, "lr?": NUMBER}     an object with these keys, of which a `?` may be missing; others are not
    looked at
    [TEXT]                             a list
    Each(SCORE)                        an object with any keys
    Maybe(TEXT)                        or null
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A value by itself."""

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Each:
    """An object whose keys are names: of metrics, layers, columns."""

    shape: "Shape"


@dataclass(frozen=True)
class Maybe:
    """Or nothing."""

    shape: "Shape"


Shape = Kind | Each | Maybe | list[Any] | dict[str, Any]


def is_number(value: Any) -> bool:
    """A finite one that fits into 64 bits: JSON knows larger ones."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def is_count(value: Any) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 0


def is_nested(value: Any) -> bool:
    """A number or lists of numbers, each as long as the others beside it: what becomes a tensor."""
    return depth(value) is not None


def depth(value: Any) -> tuple[int, ...] | None:
    """The sizes of nested lists of numbers; None where it is anything else."""
    if is_number(value):
        return ()
    inner = {depth(v) for v in value} if isinstance(value, list) else {None}
    first = next(iter(inner), ())
    return None if len(inner) > 1 or first is None else (len(value), *first)


ANY = Kind("a value", lambda value: True)
TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a count", is_count)
SIZE = Kind("a size of 1 or more", lambda value: is_count(value) and value > 0)
NUMBER = Kind("a number", is_number)
SECONDS = Kind("seconds", lambda value: is_number(value) and value >= 0)
TENSOR = Kind("numbers", is_nested)
SCORE = Maybe(NUMBER)  # null: not defined

WATCH = Kind("a metric and min or max",
             lambda v: isinstance(v, list) and len(v) == 2 and isinstance(v[0], str) and v[1] in ("min", "max"))

LINE: Shape = {  # of metrics.jsonl
    "step": COUNT,
    "epoch": SECONDS,
    "lr?": NUMBER,
    "train?": Each(SCORE),
    "gradients?": Each(SCORE),
    "validation?": Each(SCORE),
    "seconds?": SECONDS,
}
ROW: Shape = {  # of sweep.jsonl
    "cell": Each(ANY),
    "seed": COUNT,
    "run": TEXT,
    "validation": Each(SCORE),
    "test": Each(SCORE),
    "seconds?": SECONDS,
    "monitor?": WATCH,
    "diverged?": TEXT,
}
DATA: Shape = {
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
    "class_counts?": Each([COUNT]),
    "rows?": Each(COUNT),
    "source?": {"path?": TEXT, "name?": TEXT, "seed?": COUNT, "size?": Maybe(SIZE)},
    "encoder?": Maybe({"kind": TEXT}),
}
HEALTH: Shape = {
    "kind?": TEXT,
    "task?": TEXT,
    "target?": TEXT,
    "shape?": [COUNT],
    "splits?": Each(COUNT),
    "classes?": Each(COUNT),
    "imbalance?": NUMBER,
    "duplicates?": Maybe(Each(COUNT)),
    "fingerprint?": TEXT,
    "notes?": [TEXT],
}
LAYERS: Shape = {
    "rows": [{
        "name": TEXT, "layer": TEXT, "shape": Maybe([COUNT]), "parameters": COUNT, "trainable?": COUNT,
        "field?": [NUMBER], "jump?": [NUMBER],
    }],
    "total": COUNT, "trainable": COUNT, "tied": COUNT,
}
FACTS: Shape = {  # run.json; what later versions added may be missing
    "recipe": TEXT,
    "arguments": Each(ANY),
    "settings": Each(ANY),
    "data": DATA,
    "summary?": TEXT,
    "chapter?": TEXT,
    "sources?": [TEXT],
    "abilities?": [TEXT],
    "command_to_repeat?": TEXT,
    "started?": TEXT,
    "status?": TEXT,
    "health?": HEALTH,
    "notes?": [TEXT],
    "layers?": LAYERS,
    "device?": TEXT,
    "precision?": TEXT,
    "processes?": SIZE,
    "trained_for?": TEXT,
    "propagation?": [{"layer": TEXT, "kind": TEXT, "variance": SCORE, "gradient_variance": SCORE}],
    "plan?": {"batch_size": SIZE, "rounds_per_epoch": SIZE, "total_rounds": SIZE},
    "monitor?": WATCH,
    "command?": TEXT,
    "versions?": Each(Maybe(TEXT)),
    "machine?": Each(ANY),
    "git?": Maybe({"commit": TEXT, "dirty": FLAG}),
    "stop_reason?": TEXT,
    "seconds?": SECONDS,
    "warmup_seconds?": SECONDS,
    "steps?": COUNT,
    "best_step?": Maybe(COUNT),
    "fingerprint?": Each(NUMBER),
    "validation?": Maybe(Each(SCORE)),
    "test?": Maybe(Each(SCORE)),
    "examples?": {"worst?": [TEXT], "best?": [TEXT]},
}


def complaint(value: Any, shape: Shape, where: str = "") -> str:
    """What is wrong with a value, in words; nothing where it has the shape."""
    if isinstance(shape, Maybe):
        return "" if value is None else complaint(value, shape.shape, where)
    if isinstance(shape, Kind):
        return "" if shape.fits(value) else expected(shape.words, value, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return expected("a list", value, where)
        return first(complaint(v, shape[0], f"{where}[{k}]") for k, v in enumerate(value))
    if not isinstance(value, dict):
        return expected("an object", value, where)
    if isinstance(shape, Each):
        return first(complaint(v, shape.shape, f"{where}.{key}".lstrip(".")) for key, v in value.items())
    if missing := [key for key in shape if not key.endswith("?") and key not in value]:
        return f"{where} lacks {', '.join(missing)}".lstrip()
    named = ((key.rstrip("?"), inner) for key, inner in shape.items())
    return first(complaint(value[key], inner, f"{where}.{key}".lstrip(".")) for key, inner in named if key in value)


def first(complaints: Iterable[str]) -> str:
    return next(filter(None, complaints), "")


def expected(what: str, value: Any, where: str) -> str:
    shown = repr(value)
    return f"{where or 'it'} must be {what}, got {shown if len(shown) <= 40 else shown[:39] + '…'}"


def parse(text: str) -> Any:
    """JSON as its standard has it, without NaN, nested no deeper than Python can follow; ValueError for all else."""
    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
