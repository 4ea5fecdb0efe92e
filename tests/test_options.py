"""A signature is the command line: what is written reads back the same, and what is wrong is said."""

import math
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didact.errors import UsageError
from didact.options import AsWritten, Option, Range, bind, options, plain, written


def recipe(
    data: object, *, lr: Annotated[float, Range(0, open_low=True), "learning rate"] = 1e-3, hidden: tuple[int, ...] = (256, 128),
    norm: Literal["none", "batch"] = "none", quick: bool = False, clip: float | None = None,
) -> None: ...


KNOWN = options(recipe, skip=1)


def test_the_signature_says_it_all():
    assert list(KNOWN) == ["lr", "hidden", "norm", "quick", "clip"]
    assert KNOWN["lr"].describe == "float more than 0" and KNOWN["lr"].help == "learning rate"
    assert KNOWN["hidden"].many and KNOWN["hidden"].shown == "256,128"
    assert KNOWN["norm"].describe == "none|batch" and KNOWN["clip"].optional


@given(st.floats(min_value=1e-300, max_value=1e18))
def test_a_number_reads_back_as_it_was_written(value):
    assert KNOWN["lr"].parse(written(value)) == value


@given(st.lists(st.integers(1, 10**6), min_size=1))
def test_a_list_reads_back_as_it_was_written(values):
    assert KNOWN["hidden"].parse(written(tuple(values))) == tuple(values)


@pytest.mark.parametrize(("text", "values"), [("256-128", (256, 128)), ("8x4", (8, 4)), ("5", (5,)), (" 3, 4 ", (3, 4))])
def test_many_ways_to_write_widths(text, values):
    assert KNOWN["hidden"].parse(text) == values


def test_every_digit_is_kept():
    assert written(0.1 + 0.2) == "0.30000000000000004" and written(3.0) == "3" and written(True) == "yes"


@pytest.mark.parametrize(("name", "text", "words"), [
    ("lr", "0", "expects float more than 0, got 0"), ("lr", "nan", "expects float"), ("lr", "inf", "expects float"),
    ("lr", "fast", "got 'fast'"), ("hidden", "a,b", "got 'a'"),
    ("norm", "batsh", "did you mean 'batch'"), ("quick", "maybe", "got 'maybe'"),
])
def test_mistakes_are_named(name, text, words):
    with pytest.raises(UsageError, match=words):
        KNOWN[name].parse(text)


def test_python_callers_are_checked_by_the_same_options():
    assert bind(KNOWN, {"lr": 1}, owner="r")["lr"] == 1.0
    assert bind(KNOWN, {"hidden": 8}, owner="r")["hidden"] == (8,)
    for wrong in ({"lr": "0.1"}, {"hidden": (1.5,)}, {"quick": 1}, {"lr": True}):
        with pytest.raises(UsageError, match="expects"):
            bind(KNOWN, wrong, owner="r")
    with pytest.raises(UsageError, match="has no option --hiden; did you mean 'hidden'"):
        bind(KNOWN, {"hiden": 8}, owner="recipe 'r'")


def test_none_is_a_value_only_where_it_may_be():
    assert KNOWN["clip"].parse("none") is None
    with pytest.raises(UsageError):
        KNOWN["lr"].parse("none")


def test_a_name_of_ones_own_may_be_none():
    def read(*, data: Annotated[str | None, AsWritten(), "a file"] = None, weights: str | None = None) -> None: ...

    known = options(read)
    assert known["data"].parse("none") == "none" and known["weights"].parse("none") is None


@pytest.mark.parametrize("value", [1e30, 2.0**63, float("inf")])
def test_the_upper_limit_is_named(value):
    with pytest.raises(UsageError, match=r"--lr expects float more than 0, in size below 2\^63 = 9.22e\+18, got"):
        KNOWN["lr"].check(value)
    assert KNOWN["lr"].check(1e18) == 1e18


def test_json_holds_no_number_that_is_not_finite():
    assert plain({"a": math.nan, "b": [math.inf, 1.0], "c": (2,)}) == {"a": None, "b": [None, 1.0], "c": [2]}


def test_an_option_must_be_one_type():
    def wrong(data: object, *, x: int | str = 1) -> None: ...

    with pytest.raises(AssertionError, match="not one type"):
        options(wrong, skip=1)
    assert Option("a", int, 1).flag == "a"
