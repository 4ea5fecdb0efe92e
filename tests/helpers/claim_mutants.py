"""Which side of a check detects a broken formula."""

import inspect
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from didact.claims.forms import Conditional, CorrectedClaim, to_float_array
from didact.claims.registry import Answer, Check, list_functions, list_globals_read
from didact.registry import MODELS
from helpers.mutants import iterate_mutants, limit_resources, patch_code


def list_reached_functions(check: Answer) -> list[FunctionType]:
    """The check, then didact's functions that it reaches, the nearest first: they may hold the formula."""
    reached_functions = [inspect.unwrap(check.function)]
    for caller in reached_functions:
        models = [
            MODELS[word].model_class for word in caller.__code__.co_consts if isinstance(word, str) and word in MODELS
        ]
        values = [v for _, v in list_globals_read(caller)]
        # tables of functions, such as a step for each kind of cell
        tables = [v for table in values if isinstance(table, dict) for v in table.values()]
        for value in values + models + tables:
            if callable(value) and is_formula_module(getattr(value, "__module__", None) or ""):
                # dataclasses generate some
                reached_functions += [
                    f for f in list_functions(value) if f not in reached_functions and "<" not in f.__code__.co_filename
                ]
    return reached_functions


def is_formula_module(module: str) -> bool:
    """Whether a module may hold the formula of a check."""
    return module.startswith("didact.") and not module.endswith(
        (".claims.registry", ".claims.forms", ".registry", ".errors")
    )


def split_sides(result: Any) -> tuple[Any, Any]:
    """Of a result the value that agrees with the statement, if any does, and the other one that does not."""
    match result:
        case Conditional(under_condition=agreeing, otherwise=other) | CorrectedClaim(corrected=agreeing, stated=other):
            return agreeing, other
    return result, None


def is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(to_float_array(value)).all())
    except (ValueError, TypeError):  # texts
        return True


# by the agreeing side, by the other side; None where nothing was compared
Detection = tuple[bool | None, bool | None]


def try_mutants(
    check: Check, mutated_functions: list[FunctionType], *, include_numbers: bool = True
) -> Iterator[tuple[str, Detection]]:
    """Every mutant, and which side detected it.

    Where the course is wrong and nothing is corrected there is no agreement to break: the displayed value must change.
    """
    form = check.form
    reference, other_reference = split_sides(check.compute())
    reference_text, other_text = (
        form.format(reference),
        None if other_reference is None else form.format(other_reference),
    )
    reference_matches = form.matches(reference)
    cached_functions = [
        v for f in list_reached_functions(check) for _, v in list_globals_read(f) if hasattr(v, "cache_clear")
    ]

    def detect(function: FunctionType, code: CodeType) -> Detection:
        clear_caches(cached_functions)
        try:
            with warnings.catch_warnings(action="ignore"), limit_resources(seconds=10), patch_code(function, code):
                value, other_value = split_sides(check.compute())
            is_detected = (
                None
                if not is_finite(value)
                else not form.matches(value)
                if reference_matches
                else form.format(value) != reference_text
            )
            return is_detected, None if other_text is None or not is_finite(other_value) else form.format(
                other_value
            ) != other_text
        except Exception:
            return None, None
        finally:
            clear_caches(cached_functions)

    for function in mutated_functions:
        yield from (
            (f"{function.__name__}: {text}", detect(function, code))
            for text, code in iterate_mutants(function, include_numbers=include_numbers)
        )


def clear_caches(cached_functions: list[Any]) -> None:
    """Clear every @cache: a cached sound value would hide a mutant, and a broken one would outlive it."""
    for function in cached_functions:
        function.cache_clear()
