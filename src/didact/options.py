"""Options from a function's signature: its typed keywords are command line, sweep axes and checked Python arguments.

An annotation holds all of an option: `Annotated[int, Range(1), "number of layers", Aliases("layers")]`.
"""

import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from didact.errors import UsageError, suggest_nearest

_SECONDS_PER_UNIT = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_MAX_ABS_VALUE = 2**63  # larger than any size, rate or seed, and than torch could hold


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both inclusive unless `open_low`."""

    low: float = float("-inf")
    high: float = float("inf")
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.open_low else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        if self.high == float("inf"):
            return f"{'more than' if self.open_low else 'at least'} {self.low:g}"
        return f"{'above' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class RunReference:
    """The text names a run; the recipe receives its folder.

    With `allow_other`, it may also be another word or a file. With `reuse_data`, the default of --data is the run's.
    """

    allow_other: bool = False
    reuse_data: bool = False


@dataclass(frozen=True)
class Duration:
    """A number of seconds, also written 90s, 5m, 1.5h or 1h30m."""


@dataclass(frozen=True)
class VerbatimText:
    """The text is taken as it is: "none" may be the name of a file or a column."""


@dataclass(frozen=True)
class RequiresLabels:
    """Where the option is set, the model needs class labels."""


@dataclass(frozen=True, init=False)
class Aliases:
    """Other names of the option that are common in the field, accepted like its own; "-j" is a short flag."""

    names: tuple[str, ...]

    def __init__(self, *names: str):
        object.__setattr__(self, "names", names)


@dataclass(frozen=True, init=False)
class OnlyWith:
    """The option has an effect only where another one has one of these values, or is above a number.

    `OnlyWith("weights", None)` means: only without --weights. Given without effect, the option leads to a note, not to
    an error: in a sweep it may be meant for another cell.
    """

    option: str
    values: tuple[Any, ...]
    above: float | None

    def __init__(self, option: str, *values: Any, above: float | None = None):
        object.__setattr__(self, "option", option)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "above", above)

    def allows(self, value: Any) -> bool:
        if self.above is not None:
            return value is not None and value > self.above
        return value in self.values if self.values else bool(value)

    def __str__(self) -> str:
        flag = f"--{self.option.rstrip('_').replace('_', '-')}"
        if self.above is not None:
            return f"with {flag} above {self.above:g}"
        if self.values in ((), (True,)):
            return f"with {flag}"
        if self.values == (None,):
            return f"without {flag}"
        *others, last = map(format_value, self.values)
        return f"with {flag} {', '.join(others)} or {last}" if others else f"with {flag} {last}"


@dataclass(frozen=True)
class Option:
    """One keyword of a recipe: name, type, default, bounds and help text."""

    name: str
    kind: type            # int, float, bool or str; of a list, that of its elements
    default: Any
    help: str = ""
    is_list: bool = False    # a tuple, written 256,128 (or 256-128 in a sweep, where commas separate values)
    is_optional: bool = False
    choices: tuple[Any, ...] = ()
    range: Range | None = None
    run_reference: RunReference | None = None
    is_verbatim: bool = False
    is_duration: bool = False
    requires_labels: bool = False
    only_with: tuple[OnlyWith, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def value_syntax(self) -> str:
        """The values that may be written, in a word or two: "int at least 1"."""
        if self.choices:
            return "|".join(map(str, self.choices))
        if self.is_duration:
            return "time as 90s, 5m or 1h"
        word = {int: "int", float: "float", bool: "yes/no", str: "text"}[self.kind]
        return (f"{word},…" if self.is_list else word) + (f" {self.range}" if self.range else "")

    @property
    def default_text(self) -> str:
        """The default as it is typed."""
        return format_value(self.default)

    def parse(self, text: str) -> Any:
        """Parse a text; a UsageError says what was expected."""
        if self.is_optional and text.lower() == "none" and not self.is_verbatim:
            return None
        if self.is_list:
            parts = re.sub(r"(?<=\d)[-x](?=\d)", ",", text) if self.kind is int else text
            return self.check(tuple(self._one(part.strip()) for part in parts.split(",") if part.strip()))
        return self.check(self._one(text))

    def _one(self, text: str) -> Any:
        if self.kind is bool:
            truth_values = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
            if text.lower() in truth_values:
                return truth_values[text.lower()]
        elif self.is_duration:
            if (seconds := parse_duration(text)) is not None:
                return seconds
        elif self.kind is str and text:
            return text
        elif self.kind is not str:
            try:
                return self.kind(text)
            except ValueError:
                pass
        raise UsageError(f"--{self.flag} expects {self.value_syntax}, got {text!r}")

    @property
    def flag(self) -> str:
        return self.name.rstrip("_").replace("_", "-")  # from_: `from` is a keyword of Python

    def check(self, value: Any) -> Any:
        """Check type and bounds; an error shows the value as the caller wrote it."""
        if value is None and (self.is_optional or self.default is None):
            return None
        if self.is_list:
            if isinstance(value, self.kind):
                value = (value,)
            if not isinstance(value, tuple | list):
                raise UsageError(f"--{self.flag} expects {self.value_syntax}, got {value!r}")
            return tuple(self._check_one(v) for v in value)
        return self._check_one(value)

    def _check_one(self, value: Any) -> Any:
        if self.is_duration and isinstance(value, str):
            value = self._one(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            raise UsageError(f"--{self.flag} expects {self.value_syntax}, got {value!r}")
        if self.choices and value not in self.choices:
            raise UsageError(
                f"--{self.flag} cannot be {value!r}; {suggest_nearest(str(value), map(str, self.choices))}"
            )
        if isinstance(value, int | float):
            if value != value or (self.range is not None and value not in self.range):
                raise UsageError(f"--{self.flag} expects {self.value_syntax}, got {format_value(value)}")
            if abs(value) >= _MAX_ABS_VALUE:
                raise UsageError(
                    f"--{self.flag} expects {self.value_syntax}, in size below 2^63 = {_MAX_ABS_VALUE:.3g}, got "
                    f"{format_value(value)}"
                )
        return value


def parse_duration(text: str) -> float | None:
    """Seconds of a time as people write it: 90, 90s, 5m, 5 min, 1.5h, 1h30m; None where it is not one."""
    parts = re.findall(r"([\d.]+)\s*([a-z]*)\s*", text.strip().lower())
    if not parts or not re.fullmatch(r"(?:[\d.]+\s*[a-z]*\s*)+", text.strip().lower()):
        return None
    try:
        return sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)
    except (KeyError, ValueError):
        return None


def format_value(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(format_value, value))
    # repr: all digits, so that it reads back the same
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def to_json_value(value: Any) -> Any:
    """The same value with None in place of NaN and infinities, which JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: to_json_value(v) for key, v in value.items()}
    return [to_json_value(v) for v in value] if isinstance(value, list | tuple) else value


def read_options(function: Callable[..., Any], *, skip: int = 0) -> dict[str, Option]:
    """The options of a function's signature, without its first `skip` parameters."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    return {p.name: _read_option(p.name, hints[p.name], p.default) for p in parameters}


def _read_option(name: str, hint: Any, default: Any) -> Option:
    """One option from its annotation, which may nest Annotated, Optional, tuple and Literal."""
    help_parts: list[str] = []
    bounds: Range | None = None
    run_reference: RunReference | None = None
    is_list = is_optional = is_verbatim = is_duration = requires_labels = False
    only_with: list[OnlyWith] = []
    aliases: list[str] = []
    while True:
        origin = get_origin(hint)
        if origin is typing.Annotated:
            hint, *extra = get_args(hint)
            help_parts += [e for e in extra if isinstance(e, str)]
            bounds = bounds or next((e for e in extra if isinstance(e, Range)), None)
            run_reference = run_reference or next((e for e in extra if isinstance(e, RunReference)), None)
            is_verbatim = is_verbatim or any(isinstance(e, VerbatimText) for e in extra)
            is_duration = is_duration or any(isinstance(e, Duration) for e in extra)
            requires_labels = requires_labels or any(isinstance(e, RequiresLabels) for e in extra)
            only_with += [e for e in extra if isinstance(e, OnlyWith)]
            aliases += [name for e in extra if isinstance(e, Aliases) for name in e.names]
        elif origin in (typing.Union, types.UnionType):
            inner = [a for a in get_args(hint) if a is not type(None)]
            assert len(inner) == 1, f"{name}: {hint} is not one type or None"
            hint, is_optional = inner[0], True
        elif origin is tuple:
            hint, is_list = get_args(hint)[0], True
        else:
            break
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind = type(choices[0]) if choices else hint
    assert kind in (int, float, bool, str), f"{name}: an option cannot be {hint}"
    if only_with:
        help_parts.append(f"(only {' and '.join(map(str, only_with))})")
    return Option(
        name,
        kind,
        default,
        help=" ".join(help_parts),
        is_list=is_list,
        is_optional=is_optional,
        choices=choices,
        range=bounds,
        run_reference=run_reference,
        is_verbatim=is_verbatim,
        is_duration=is_duration,
        requires_labels=requires_labels,
        only_with=tuple(only_with),
        aliases=tuple(aliases),
    )


def note_unused_options(
    options_by_name: Mapping[str, Option], given_names: Iterable[str], values: Mapping[str, Any]
) -> tuple[str, ...]:
    """A note for each given option that has no effect because of another option's value."""
    notes = []
    for o in (options_by_name[name] for name in given_names if name in options_by_name):
        for condition in o.only_with:
            if not condition.allows(actual := values[condition.option]):
                flag = options_by_name[condition.option].flag
                notes.append(
                    f"--{o.flag} {format_value(values[o.name])} does nothing: it is used only {condition}, and "
                    f"--{flag} is {format_value(actual)}"
                )
    return tuple(notes)


def resolve_alias(name: str, options_by_name: Mapping[str, Option], *, owner: str) -> str:
    """The option's name for a name or an alias; an unknown one is an error that suggests the nearest."""
    if name in options_by_name:
        return name
    for option in options_by_name.values():
        if name in option.aliases:
            return option.name
    flags = {o.flag for o in options_by_name.values()}
    raise UsageError(
        f"{owner} has no option --{name.replace('_', '-')}; {suggest_nearest(name.replace('_', '-'), flags)}"
    )


def resolve_aliases(
    options_by_name: Mapping[str, Option], arguments: Mapping[str, Any], *, owner: str
) -> dict[str, Any]:
    """The given arguments, with aliases replaced by the options' names."""
    given: dict[str, Any] = {}
    for alias, value in arguments.items():
        name = resolve_alias(alias, options_by_name, owner=owner)
        if name in given:
            raise UsageError(f"--{options_by_name[name].flag} is given twice, also as {alias}; give it once")
        given[name] = value
    return given


def bind_arguments(
    options_by_name: Mapping[str, Option], arguments: Mapping[str, Any], *, owner: str
) -> dict[str, Any]:
    """All arguments: the given ones, checked, and defaults for the rest."""
    given = resolve_aliases(options_by_name, arguments, owner=owner)
    return {n: o.check(given[n]) if n in given else o.default for n, o in options_by_name.items()}
