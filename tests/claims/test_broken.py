"""Every check notices a broken formula: with one place of its source changed, what agreed with the course agrees no longer.

Where a check has a second side (the course's formula that is wrong, what comes out without the condition) no agreement can break there:
a change that reaches it must change the value that is shown. What raises, never ends or leads to numbers that are none is not noticed.
"""

import ast
import inspect
import warnings
from collections.abc import Iterator
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from mutants import broken, changes, limited, mutants

import didact.claims  # noqa: F401 (registers the checks)
from didact.claims.compare import Cases, Corrected, Same, floats
from didact.claims.core import CHECKS, Answer, Check, bodies, named
from didact.registry import MODELS

IDS = sorted(CHECKS)


def functions(check: Answer) -> list[FunctionType]:
    """The check, then what it reaches of didact, the nearest first: there the formula is where the check has none."""
    found = [inspect.unwrap(check.function)]
    for caller in found:
        models = [MODELS[word].make for word in caller.__code__.co_consts if isinstance(word, str) and word in MODELS]
        values = [v for _, v in named(caller)]
        tables = [v for table in values if isinstance(table, dict) for v in table.values()]      # a step for each kind of cell
        for value in values + models + tables:
            if callable(value) and is_formula(getattr(value, "__module__", None) or ""):
                found += [f for f in bodies(value) if f not in found and "<" not in f.__code__.co_filename]  # a dataclass writes some
    return found


def is_formula(module: str) -> bool:
    return module.startswith("didact.") and not module.endswith((".claims.core", ".claims.compare", ".registry", ".errors"))


def sides(result: Any) -> tuple[Any, Any]:
    """Of a result the value that agrees with the statement, if any does, and the one beside it that does not."""
    match result:
        case Cases(under=agreeing, otherwise=other) | Corrected(mended=agreeing, stated=other):
            return agreeing, other
    return result, None


def is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(floats(value)).all())
    except (ValueError, TypeError):  # texts
        return True


Seen = tuple[bool | None, bool | None]   # by what agreed, by what stands beside it; None where it did not come to a comparison


def tries(check: Check, among: list[FunctionType], *, numbers: bool = True) -> Iterator[tuple[str, Seen]]:
    """Every broken version, and which side noticed it.

    Where the course is wrong and nothing is mended, there is no agreement to break: the value that is shown must be another one.
    """
    form = check.form
    sound, beside = sides(check.compute())
    shown, other = form.show(sound), None if beside is None else form.show(beside)
    agreed = form.agrees(sound)
    kept = [v for f in functions(check) for _, v in named(f) if hasattr(v, "cache_clear")]

    def seen(function: FunctionType, code: CodeType) -> Seen:
        forget(kept)
        try:
            with warnings.catch_warnings(action="ignore"), limited(seconds=10), broken(function, code):
                value, second = sides(check.compute())
            first = None if not is_finite(value) else not form.agrees(value) if agreed else form.show(value) != shown
            return first, None if other is None or not is_finite(second) else form.show(second) != other
        except Exception:
            return None, None
        finally:
            forget(kept)

    for function in among:
        yield from ((f"{function.__name__}: {text}", seen(function, code)) for text, code in mutants(function, numbers=numbers))


def forget(kept: list[Any]) -> None:
    """What @cache holds, lest a sound value hide a broken formula or a broken one outlive it."""
    for function in kept:
        function.cache_clear()


# a second or more by themselves, unbroken
LONG = {"C1.11", "C5.7", "C7.5", "C7.6", "C11.16", "C11.17", "C11.18", "C11.19", "C11.20", "C12.6", "CE92", "CE95", "CF38", "CV12"}


@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.slow) if id in LONG else id for id in IDS])
def test_a_broken_formula_is_noticed(id):
    """On each side that the check has."""
    check, unseen = CHECKS[id], []
    wanted = {0} if sides(check.compute())[1] is None else {0, 1}
    for text, seen in tries(check, functions(check)):
        wanted -= {side for side in (0, 1) if seen[side]}
        if not wanted:
            return
        unseen += [text] * (seen[min(wanted)] is False)
    pytest.fail(f"no broken formula is noticed {'beside' if wanted == {1} else 'where it agrees'}, such as {unseen[:8]}")


def chapter(id: str) -> str:
    """The module of a check, where measured ones of a course go with the others."""
    return CHECKS[id].function.__module__.removesuffix("_measured")


ENOUGH = 6   # changes, of which a quarter says something


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(map(chapter, IDS))))
def test_most_broken_formulas_are_noticed(name):
    """All changes but of numbers, which mostly are sizes and ranges of an example: half of a chapter's, a quarter of each check's.

    Measured: five in six of all; least where a statement holds for whatever example one takes, so that another changes nothing.
    """
    came, weak = list[bool](), list[str]()
    for check in (CHECKS[id] for id in IDS if chapter(id) == name):
        until = perf_counter() + 20
        own = []
        for _, seen in tries(check, functions(check)[:1], numbers=False):
            own += [any(seen)] * (seen != (None, None))
            if perf_counter() > until:
                break
        came += own
        weak += [f"{check.id}: {sum(own)} of {len(own)}"] * (len(own) >= ENOUGH and sum(own) < len(own) / 4)
    assert not weak, f"less than a quarter is noticed by {weak}"
    assert sum(came) > 0.5 * len(came), f"{sum(came)} of {len(came)}"


def test_a_value_returned_twice_is_found_out():
    """What the tests here are for: two names of one number agree whatever the formula, two ways to it do not."""
    def twice() -> Any:
        y = (torch.linspace(1, 2, 5) ** 2 + 1).sqrt()
        return y, y

    def two_ways() -> Any:
        x = torch.linspace(1, 2, 5)
        return x**2, x * x

    assert not any(any(seen) for _, seen in tries(Check("", twice, Same(), "", "", ""), [twice]))
    found = dict(tries(Check("", two_ways, Same(), "", "", ""), [two_ways]))
    assert found["two_ways: x ** 2 → x ** (2 + 1)"] == found["two_ways: x * x → x / x"] == (True, None)


def test_what_stands_beside_must_be_seen_to_change():
    def mended() -> Any:
        x = torch.linspace(1, 2, 5)
        return Corrected((x + 1, x), (x - 1, x + -1))

    found = dict(tries(Check("", mended, Same(), "so", "", ""), [mended]))
    assert found["mended: x + 1 → x - 1"] == (False, True), "the course's side alone"
    assert found["mended: x - 1 → x + 1"] == (True, False), "the mended side alone"


def test_what_raises_or_is_no_number_is_not_noticed():
    def root() -> Any:
        x = torch.full((3,), 5.0)
        return (x - 1).sqrt(), torch.tensor([2.0, 2.0, 2.0])

    found = dict(tries(Check("", root, Same(), "", "", ""), [root]))
    assert found["root: x - 1 → x + 1"] == (True, None)
    assert found["root: 3 → 4"] == (None, None), "three numbers against four"
    assert found["root: 5.0 → 0.0"] == (None, None), "the root of -1"


@pytest.mark.parametrize(("source", "broken"), [
    ("a + b", {"a - b"}),
    ("-a", {"a"}),
    ("a @ b", {"-(a @ b)", "b @ a"}),
    ("a < b", {"a >= b"}),
    ("math.log(a)", {"a"}),
    ("a.square()", {"a"}),
    ("f(a, b)", {"f(b, a)"}),
    ("Corrected(a, b)", set()),
    ("a.min()", {"a.max()"}),
    ("a[1:]", {"a[1 + -1:-1]", "a[2:]"}),
    ("a[:-1]", {"a[1:]", "a[:1]", "a[:-2]"}),
    ("0.5", {"0.65", "0.0"}),
    ("True", {"False"}),
])
def test_rules(source, broken):
    tree = ast.parse(source)
    assert {ast.unparse(tree) for _ in changes(tree)} == broken
