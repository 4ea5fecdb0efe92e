"""Every check runs, and every check can fail: with the statement or the value changed, its verdict flips."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import didact.claims  # noqa: F401 (registers the checks)
from didact.charts.html import to_html
from didact.claims.forms import (
    Approximately,
    ClaimForm,
    Conditional,
    CorrectedClaim,
    Display,
    Equal,
    Exactly,
    Increasing,
    InInterval,
    LessOrEqual,
    Printed,
    WithinStandardErrors,
    to_comparable,
    to_float_array,
    to_python,
)
from didact.claims.measured_tables import TABLES
from didact.claims.registry import (
    ANSWERS,
    CHECKS,
    NOT_CHECKABLE_REASONS,
    VERDICTS,
    check_claim,
    count_verdicts,
    format_result,
    format_summary,
    load_statements,
    outcome_without_check,
)
from didact.claims.typeset import typeset


@cache
def get_result(id: str) -> Any:
    return CHECKS[id].run()


def compute_value(id: str) -> Any:
    return to_comparable(get_result(id))


def list_matching_values(result: Any) -> list[Any]:
    """The values of a result that agree with the statement, if any does."""
    if isinstance(result, Conditional):
        return [result.under_condition]
    return [result.corrected] if isinstance(result, CorrectedClaim) else [result]


def make_matching(form: ClaimForm, value: Any) -> tuple[ClaimForm, Any]:
    """The statement and the value, one of them changed so that they agree."""
    if form.matches(value):
        return form, value
    if isinstance(form, Exactly | Printed | Approximately):
        return form.restate(value), value
    if isinstance(form, InInterval):
        x = np.clip(to_float_array(value), form.low, form.high)
        return form, x + (0.01 if form.is_open else 0.0)
    if isinstance(form, LessOrEqual):
        left, right = map(to_float_array, value)
        return form, (np.minimum(left, right), right)
    if isinstance(form, Increasing):
        return form, np.sort(to_float_array(value))
    return form, (value[1], value[1])  # Equal: both sides the same


@pytest.mark.parametrize("id", sorted(CHECKS))
def test_verdict_follows_from_the_result_and_can_flip(id):
    check, result = CHECKS[id], compute_value(id)
    verdict = check.get_verdict(result)
    assert verdict in VERDICTS
    assert bool(check.correction) == (verdict == "wrong"), f"{verdict}, but what is right: {check.correction!r}"
    assert bool(check.condition) == (verdict == "conditional"), f"{verdict}, but the condition is {check.condition!r}"
    assert not check.remark or verdict == "holds", f"{verdict}, but there is a remark: {check.remark!r}"
    assert check.formula, "a check says what it computes"
    assert not find_raw_marks(format_result(check.form, get_result(id)))
    for value in list_matching_values(result):
        form, matching_value = make_matching(check.form, value)
        assert form.matches(matching_value)
        perturbed_forms = list(form.perturbed_forms())
        near_misses = list(form.near_misses(matching_value))
        assert near_misses, "nothing would be refused"
        assert perturbed_forms or not form.is_numeric
        assert not any(candidate.matches(matching_value) for candidate in perturbed_forms), (
            "two per cent off, or one, still holds"
        )
        assert not any(form.matches(candidate) for candidate in near_misses), "a broken formula still holds"


def find_raw_marks(source: str) -> list[str]:
    """Marks that a reader of the page would see unformatted, outside of code."""
    return re.findall(r"\S*(?:[_^\\`]|\de[-+−]?\d)\S*", re.sub("<code>.*?</code>", "", to_html(typeset(source))))


def test_page_formulas_leave_no_raw_marks():
    assert find_raw_marks("x_{t and 2e-3x") == ["x_{t", "2e-3x"]
    texts = [formula for s in load_statements().values() for formula in (s.claim, s.stated, s.where)]
    texts += [formula for c in CHECKS.values() for formula in (c.formula, c.correction, c.condition)] + [
        a.formula for a in ANSWERS.values()
    ]
    texts += [
        cell
        for t in TABLES.values()
        for cell in (*(c.name for c in t.cells), *(c.reason for c in t.cells), *t.uncovered_claims.values())
    ]
    assert {
        formula: marks for formula in [*texts, *NOT_CHECKABLE_REASONS.values()] if (marks := find_raw_marks(formula))
    } == {}


# letters on the page and sizes of an example in the check, or a separate table
NOT_IN_STATEMENT = {"CE58", "CF15", "CF40", "CF41", "CL40"}


@pytest.mark.parametrize("id", sorted(i for i in CHECKS if CHECKS[i].form.is_numeric and i not in NOT_IN_STATEMENT))
def test_compared_number_is_the_stated_number(id):
    """A number in a decorator must be in the list of statements: neither may drift."""
    form, stated_text = CHECKS[id].form, load_statements()[id].stated
    ascii_text = stated_text.replace("−", "-")
    joined_text = re.sub(r"(?<=\d)[, ](?=\d{3}\b)", "", ascii_text)
    stated_numbers = {
        float(n)
        for t in (ascii_text, joined_text)
        for pattern in (r"-?\d*\.?\d+(?:e-?\d+)?", r"\d*\.?\d+")
        for n in re.findall(pattern, t)
    }
    stated_numbers |= {n * f for n in stated_numbers for f in (1e6, 1e9) if "M" in ascii_text or "B" in ascii_text} | (
        {1 / 4} if "1/4" in ascii_text else set()
    )
    compared_numbers = [
        float(n) for n in (form.digits if isinstance(form, Printed) else list_numbers(to_python(form.value)))
    ]
    if re.search(r"\d", ascii_text) and "…" not in ascii_text:
        assert set(compared_numbers) <= stated_numbers, (
            f"{sorted(set(compared_numbers) - stated_numbers)} not in {stated_text!r}"
        )


def list_numbers(value: Any) -> list[float]:
    if isinstance(value, tuple):
        return [n for v in value for n in list_numbers(v)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_load_statements_counts_by_course():
    assert len(load_statements()) == 519
    courses = [s.course for s in load_statements().values()]
    counts = {c: courses.count(c) for c in dict.fromkeys(courses)}
    assert counts == {"Gaba": 274, "Van Schependom": 50, "Groudiev": 96, "Fleuret": 52, "Lhotte": 47}
    assert all(s.claim and s.stated and s.where and s.chapter for s in load_statements().values())


def test_statement_without_a_check_has_a_reason():
    for s in load_statements().values():
        if s.id not in CHECKS and s.id not in ANSWERS:
            outcome = outcome_without_check(s)
            assert outcome.note and outcome.note != "no check has been written yet", s.id
            assert outcome.computed or outcome.verdict in ("not checkable", "not measured")
    assert all(len(why) > 20 for why in NOT_CHECKABLE_REASONS.values())


# worked out by hand or known from the pages themselves, not copied from the program
VERDICTS_BY_HAND = {
    "C1.6": "holds", "C1.14": "wrong", "C1.4": "wrong", "C2.6": "wrong", "C2.9": "wrong", "C2.11": "holds",
    "C3.24": "wrong",
    "C4.2": "holds", "C4.5": "conditional", "C4.8": "holds", "C4.13": "wrong", "C5.1": "holds", "C5.27": "wrong",
    "C6.12": "holds",
    "C8.3": "holds", "C10.2": "wrong", "C10.15": "wrong", "CV17": "wrong", "CV38": "wrong", "CE18": "holds",
    "CE43": "wrong",
    "CF14": "wrong", "CF15": "holds", "CL05": "holds", "CL10": "wrong", "CL24": "holds", "CL40": "holds",
}  # fmt: skip


@pytest.mark.parametrize("id", VERDICTS_BY_HAND)
def test_check_claim_gives_the_verdict_found_by_hand(id):
    assert check_claim(id).verdict == VERDICTS_BY_HAND[id]


def test_readme_and_docs_count_the_verdicts():
    """The verdict of a check is known from its texts: the test above holds them together for every one."""
    counts = dict.fromkeys(VERDICTS, 0)
    for s in load_statements().values():
        check = CHECKS.get(s.id)
        if s.id in ANSWERS:
            counts["answered"] += 1
        elif check is None:
            counts[outcome_without_check(s).verdict] += 1
        else:
            counts["wrong" if check.correction else "conditional" if check.condition else "holds"] += 1
    root = Path(__file__).parents[2]
    commands = (root / "docs" / "commands.md").read_text(encoding="utf-8")
    assert format_summary(counts) in commands, f"docs/commands.md should say: {format_summary(counts)}"
    readme = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    sentence = f"{counts['holds']} hold, {counts['wrong']} are wrong, {counts['conditional']} hold under a condition"
    assert f"state {sum(counts.values())} things" in readme and sentence in readme, f"README.md should say: {sentence}"
    assert format_summary(count_verdicts([check_claim("C1.6")])) == "1 claim: 1 holds"


def test_check_claim_leaves_global_state_unchanged():
    torch.manual_seed(5)
    expected_draw = torch.rand(3)
    torch.manual_seed(5)
    first_outcome = check_claim("C3.4")
    assert torch.equal(torch.rand(3), expected_draw) and torch.get_default_dtype() == torch.float32
    torch.manual_seed(6)
    assert check_claim("C3.4").computed == first_outcome.computed, "a check depends on what ran before"


def test_equal_rejects_broken_formulas():
    """Identities with a deliberate mistake, compared by the forms that the checks use."""
    z = torch.linspace(-3, 3, 50, dtype=torch.float64)
    σ = z.sigmoid()
    assert Equal().matches((σ * (1 - σ), 1 / (2 + z.exp() + (-z).exp())))
    assert not Equal().matches((σ * (1 + σ), 1 / (2 + z.exp() + (-z).exp())))
    assert not Equal().matches((σ * (1 - σ) * 1.001, σ * (1 - σ)))


@pytest.mark.parametrize(("form", "good", "bad"), [
    (Printed("0.0689"), [0.06894, 0.06886], [0.06896, 0.0688]),
    (Printed("2.66e-5"), [2.656e-5, 2.664e-5], [2.67e-5]),
    (Printed("150e6"), [150.4e6], [150.6e6]),
    (Approximately(70e9, 0.02, "in tens of billions"), [68.98e9, 71e9], [68e9, 72e9]),
    (Approximately((340e6, 175e9), 0.009, "in round figures"), [(339e6, 174.6e9)], [(335e6, 174.6e9), (340e6, 177e9)]),
    (Exactly(1728), [1728], [1727, 1728.5]),
    (Exactly((2, 3)), [torch.tensor([2, 3])], [(2, 3, 4)]),
    (InInterval(0, 1), [[0, 1]], [[0, 1.1], [-0.1]]),
    (InInterval(0, 1, is_open=True), [0.5], [0.0, 1.0]),
    (Increasing(), [[1, 2, 3]], [[1, 1], [2, 1]]),
    (LessOrEqual(), [([1, 2], [1, 3])], [([1, 4], [2, 3])]),
])
def test_claim_forms_match_by_hand(form, good, bad):
    assert all(form.matches(v) for v in good)
    assert not any(form.matches(v) for v in bad)


@pytest.mark.parametrize(("form", "expected"), [
    (Printed("0.0689"), [("0.0703",), ("0.0675",)]),
    (Printed("3"), [("4",), ("2",)]),                        # two percent would not change one digit
    (Printed("-1.25", "0"), [("-1.22", "0"), ("-1.28", "0"), ("-1.25", "1"), ("-1.25", "-1")]),
    (Exactly((3, 0.5)), [(4, 0.5), (2, 0.5), (3, 0.51), (3, 0.49)]),
    (Approximately(100.0, 0.009, "rounded"), [(102.0,), (98.0,)]),
])
def test_perturbed_forms_differ_in_the_stated_digits(form, expected):
    perturbed_values = [
        tuple(map(float, t.digits)) if isinstance(t, Printed) else to_python(t.value) for t in form.perturbed_forms()
    ]
    assert perturbed_values == [tuple(map(float, o)) if isinstance(form, Printed) else o for o in expected]


@pytest.mark.parametrize(("form", "computed", "expected"), [
    (Equal(), (15, 7), "15 against 7"),
    (Equal(), (7, 7), "7 on both sides"),
    (Equal(), ([1, 2, 3], [4, 4, 4]), "1, 2, 3 against each 4"),
    (Equal(), (1.0, 1.000001), "1 against 1, 1.0e-06 apart"),
    (Equal(), (range(9), [0, 1, 2, 3, 4, 5, 16, 7, 8]), "6 against 16, the furthest apart of 9"),
    (Equal(), (range(9), range(9)), "9 numbers on both sides, equal"),
    (Equal(), ([1.0] * 9, [1.000001] * 9), "1 against 1, 1.0e-06 apart, the furthest apart of 9"),
    (Equal(), ([[100.0] * 4, [1.0] * 4], [[101.0] * 4, [1.0, 1.0, 1.0, 2.0]]), "1 against 2, the furthest apart of 8"),
    (LessOrEqual(), ([1, 5, 2], [9, 6, 9]), "5 ≤ 6, the tightest of 3"),
    (LessOrEqual(), (3, 2), "3 > 2"),
    (LessOrEqual(), ([3, 9, 1], [2, 4, 9]), "9 > 4, the furthest apart of 3"),
    (InInterval(0, 1), [1, 1], "1 in [0, 1]"),
    (InInterval(high=1), [0.5, 2], "0.5 … 2 not in (−∞, 1]"),
    (Increasing(), range(20), "0, 1, 2, 3, 4, 5, 6, 7, 8, …"),
    (Increasing(), [*range(12), 3, 4], "…, 8, 9, 10, 11, 3, 4"),
    (WithinStandardErrors(), ([1.0, 2.0], [0.1, 0.1], [1.0, 2.2]), "2 ± 0.1, expected 2.2, the furthest off of 2"),
])
def test_claim_forms_format_computed_values(form, computed, expected):
    assert form.format(computed) == expected


def test_shown_as_replaces_the_compared_value():
    shown_value = Display((0.5, 1.0), {"sigmoid": 0.25, "ReLU": True})
    assert format_result(Equal(), Conditional(shown_value, Display((1, 1), {"kinks": [1, 2, 3], "seen": 4}))) == \
        "sigmoid 0.25, ReLU yes; without the condition kinks 1, 2, 3; seen 4"
    assert (
        to_comparable(CorrectedClaim(shown_value, (1, 2))) == CorrectedClaim((0.5, 1.0), (1, 2))
        and to_comparable(3) == 3
    )
    # relative to its own right side
    assert (
        LessOrEqual().format(([12_800, 1_048_576], [81_920, 2_097_152])) == "1,048,576 ≤ 2,097,152, the tightest of 2"
    )


def test_printed_restated_has_as_many_decimals():
    assert Printed("0.0689", "1e-3").restate([-0.123456, 0.0087]) == Printed("-0.1235", "0.009")


def test_approximately_is_perturbed_beyond_its_tolerance():
    form = Approximately(1.5e9, 0.04, "about")
    assert not any(
        perturbed.matches(edge) for perturbed in form.perturbed_forms() for edge in (1.5e9 * 0.96, 1.5e9 * 1.04)
    )
