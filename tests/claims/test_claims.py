"""Every check runs, and every check can fail: turned around, what holds is wrong and what is wrong holds."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import didact.claims  # noqa: F401 (registers the checks)
from didact.claims.compare import (
    About,
    Cases,
    Corrected,
    Exactly,
    Inside,
    NeverMore,
    Printed,
    Rising,
    Same,
    Sampled,
    Stated,
    Told,
    bare,
    floats,
    plain,
)
from didact.claims.core import ANSWERS, CHECKS, REASONS, VERDICTS, in_words, run, show, statements, tally, without_check
from didact.claims.tables import TABLES
from didact.claims.typeset import typeset
from didact.report.markup import text


@cache
def answered(id: str) -> Any:
    return CHECKS[id].answer()


def computed(id: str) -> Any:
    return bare(answered(id))


def parts(result: Any) -> list[Any]:
    """The values of a result that agree with the statement, if any does."""
    if isinstance(result, Cases):
        return [result.under]
    return [result.mended] if isinstance(result, Corrected) else [result]


def made_to_agree(form: Stated, value: Any) -> tuple[Stated, Any]:
    """The statement and the value, one of them changed so that they agree: what the course would have had to state."""
    if form.agrees(value):
        return form, value
    if isinstance(form, Exactly | Printed | About):
        return form.as_if(value), value
    if isinstance(form, Inside):
        x = np.clip(floats(value), form.low, form.high)
        return form, x + (0.01 if form.open else 0.0)
    if isinstance(form, NeverMore):
        left, right = map(floats, value)
        return form, (np.minimum(left, right), right)
    if isinstance(form, Rising):
        return form, np.sort(floats(value))
    return form, (value[1], value[1])  # Same: the side that was computed otherwise


@pytest.mark.parametrize("id", sorted(CHECKS))
def test_the_verdict_follows_and_can_turn(id):
    check, result = CHECKS[id], computed(id)
    verdict = check.judge(result)
    assert verdict in VERDICTS
    assert bool(check.right) == (verdict == "wrong"), f"{verdict}, but what is right: {check.right!r}"
    assert bool(check.condition) == (verdict == "conditional"), f"{verdict}, but the condition is {check.condition!r}"
    assert not check.remark or verdict == "holds", f"{verdict}, but there is a remark: {check.remark!r}"
    assert check.formula, "a check says what it computes"
    assert not raw(show(check.form, answered(id)))
    for value in parts(result):
        form, agreeing = made_to_agree(check.form, value)
        assert form.agrees(agreeing)
        turned = list(form.turned())
        refused = list(form.refused(agreeing))
        assert refused, "nothing would be refused"
        assert turned or not form.numeric
        assert not any(other.agrees(agreeing) for other in turned), "two per cent off, or one, still holds"
        assert not any(form.agrees(other) for other in refused), "a broken formula still holds"


def raw(words: str) -> list[str]:
    """Marks that a reader of the page would see as they are typed, outside of code."""
    return re.findall(r"\S*(?:[_^\\`]|\de[-+−]?\d)\S*", re.sub("<code>.*?</code>", "", text(typeset(words))))


def test_no_formula_on_the_page_keeps_its_marks():
    assert raw("x_{t and 2e-3x") == ["x_{t", "2e-3x"]
    told = [word for s in statements().values() for word in (s.claim, s.stated, s.where)]
    told += [word for c in CHECKS.values() for word in (c.formula, c.right, c.condition)] + [a.formula for a in ANSWERS.values()]
    told += [cell for t in TABLES.values() for cell in (*(c.name for c in t.cells), *(c.why for c in t.cells), *t.absent.values())]
    assert {word: marks for word in [*told, *REASONS.values()] if (marks := raw(word))} == {}


# letters on the page, sizes of an example in the check; or a table of its own
OTHERWISE = {"CE58", "CF15", "CF40", "CF41", "CL40"}


@pytest.mark.parametrize("id", sorted(i for i in CHECKS if CHECKS[i].form.numeric and i not in OTHERWISE))
def test_the_number_compared_is_the_number_stated(id):
    """A number in a decorator must stand in the list of statements: neither may drift."""
    form, stated = CHECKS[id].form, statements()[id].stated
    text = stated.replace("−", "-")
    joined = re.sub(r"(?<=\d)[, ](?=\d{3}\b)", "", text)
    known = {float(n) for t in (text, joined) for pattern in (r"-?\d*\.?\d+(?:e-?\d+)?", r"\d*\.?\d+") for n in re.findall(pattern, t)}
    known |= {n * f for n in known for f in (1e6, 1e9) if "M" in text or "B" in text} | ({1 / 4} if "1/4" in text else set())
    wanted = [float(n) for n in (form.digits if isinstance(form, Printed) else numbers(plain(form.value)))]
    if re.search(r"\d", text) and "…" not in text:
        assert set(wanted) <= known, f"{sorted(set(wanted) - known)} not in {stated!r}"


def numbers(value: Any) -> list[float]:
    if isinstance(value, tuple):
        return [n for v in value for n in numbers(v)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_statement_is_known_once():
    assert len(statements()) == 519
    courses = [s.course for s in statements().values()]
    counts = {c: courses.count(c) for c in dict.fromkeys(courses)}
    assert counts == {"Gaba": 274, "Van Schependom": 50, "Groudiev": 96, "Fleuret": 52, "Lhotte": 47}
    assert all(s.claim and s.stated and s.where and s.chapter for s in statements().values())


def test_without_a_check_there_is_a_reason():
    for s in statements().values():
        if s.id not in CHECKS and s.id not in ANSWERS:
            outcome = without_check(s)
            assert outcome.note and outcome.note != "no check has been written yet", s.id
            assert outcome.computed or outcome.verdict in ("not checkable", "not measured")
    assert all(len(why) > 20 for why in REASONS.values())


# worked by hand or known from the pages themselves, and not read off the program
HAND = {
    "C1.6": "holds", "C1.14": "wrong", "C1.4": "wrong", "C2.6": "wrong", "C2.9": "wrong", "C2.11": "holds", "C3.24": "wrong",
    "C4.2": "holds", "C4.5": "conditional", "C4.8": "holds", "C4.13": "wrong", "C5.1": "holds", "C5.27": "wrong", "C6.12": "holds",
    "C8.3": "holds", "C10.2": "wrong", "C10.15": "wrong", "CV17": "wrong", "CV38": "wrong", "CE18": "holds", "CE43": "wrong",
    "CF14": "wrong", "CF15": "holds", "CL05": "holds", "CL10": "wrong", "CL24": "holds", "CL40": "holds",
}  # fmt: skip


@pytest.mark.parametrize("id", HAND)
def test_known_verdicts(id):
    assert run(id).verdict == HAND[id]


def test_the_readme_counts_what_is_so():
    """Of a check the verdict is known from its words: the test above holds them together for every one."""
    counts = dict.fromkeys(VERDICTS, 0)
    for s in statements().values():
        check = CHECKS.get(s.id)
        if s.id in ANSWERS:
            counts["answered"] += 1
        elif check is None:
            counts[without_check(s).verdict] += 1
        else:
            counts["wrong" if check.right else "conditional" if check.condition else "holds"] += 1
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert in_words(counts) in readme, f"README.md should say: {in_words(counts)}"
    assert in_words(tally([run("C1.6")])) == "1 claim: 1 holds"


def test_a_check_leaves_no_trace():
    torch.manual_seed(5)
    before = torch.rand(3)
    torch.manual_seed(5)
    first = run("C3.4")
    assert torch.equal(torch.rand(3), before) and torch.get_default_dtype() == torch.float32
    torch.manual_seed(6)
    assert run("C3.4").computed == first.computed, "a check depends on what ran before"


def test_broken_formulas_are_seen():
    """Identities with a deliberate mistake, judged by the forms that the checks use."""
    z = torch.linspace(-3, 3, 50, dtype=torch.float64)
    σ = z.sigmoid()
    assert Same().agrees((σ * (1 - σ), 1 / (2 + z.exp() + (-z).exp())))
    assert not Same().agrees((σ * (1 + σ), 1 / (2 + z.exp() + (-z).exp())))
    assert not Same().agrees((σ * (1 - σ) * 1.001, σ * (1 - σ)))


@pytest.mark.parametrize(("form", "good", "bad"), [
    (Printed("0.0689"), [0.06894, 0.06886], [0.06896, 0.0688]),
    (Printed("2.66e-5"), [2.656e-5, 2.664e-5], [2.67e-5]),
    (Printed("150e6"), [150.4e6], [150.6e6]),
    (About(70e9, 0.02, "in tens of billions"), [68.98e9, 71e9], [68e9, 72e9]),
    (About((340e6, 175e9), 0.009, "in round figures"), [(339e6, 174.6e9)], [(335e6, 174.6e9), (340e6, 177e9)]),
    (Exactly(1728), [1728], [1727, 1728.5]),
    (Exactly((2, 3)), [torch.tensor([2, 3])], [(2, 3, 4)]),
    (Inside(0, 1), [[0, 1]], [[0, 1.1], [-0.1]]),
    (Inside(0, 1, open=True), [0.5], [0.0, 1.0]),
    (Rising(), [[1, 2, 3]], [[1, 1], [2, 1]]),
    (NeverMore(), [([1, 2], [1, 3])], [([1, 4], [2, 3])]),
])
def test_forms_by_hand(form, good, bad):
    assert all(form.agrees(v) for v in good)
    assert not any(form.agrees(v) for v in bad)


@pytest.mark.parametrize(("form", "others"), [
    (Printed("0.0689"), [("0.0703",), ("0.0675",)]),
    (Printed("3"), [("4",), ("2",)]),                        # two per cent would not be seen in one digit
    (Printed("-1.25", "0"), [("-1.22", "0"), ("-1.28", "0"), ("-1.25", "1"), ("-1.25", "-1")]),
    (Exactly((3, 0.5)), [(4, 0.5), (2, 0.5), (3, 0.51), (3, 0.49)]),
    (About(100.0, 0.009, "rounded"), [(102.0,), (98.0,)]),
])
def test_a_statement_is_turned_in_its_own_digits(form, others):
    found = [tuple(map(float, t.digits)) if isinstance(t, Printed) else plain(t.value) for t in form.turned()]
    assert found == [tuple(map(float, o)) if isinstance(form, Printed) else o for o in others]


@pytest.mark.parametrize(("form", "computed", "shown"), [
    (Same(), (15, 7), "15 against 7"),
    (Same(), (7, 7), "7 on both sides"),
    (Same(), ([1, 2, 3], [4, 4, 4]), "1, 2, 3 against each 4"),
    (Same(), (1.0, 1.000001), "1 against 1, 1.0e-06 apart"),
    (Same(), (range(9), [0, 1, 2, 3, 4, 5, 16, 7, 8]), "6 against 16, the furthest apart of 9"),
    (Same(), (range(9), range(9)), "9 numbers on both sides, equal"),
    (Same(), ([1.0] * 9, [1.000001] * 9), "1 against 1, 1.0e-06 apart, the furthest apart of 9"),
    (Same(), ([[100.0] * 4, [1.0] * 4], [[101.0] * 4, [1.0, 1.0, 1.0, 2.0]]), "1 against 2, the furthest apart of 8"),
    (NeverMore(), ([1, 5, 2], [9, 6, 9]), "5 ≤ 6, the tightest of 3"),
    (NeverMore(), (3, 2), "3 > 2"),
    (NeverMore(), ([3, 9, 1], [2, 4, 9]), "9 > 4, the furthest apart of 3"),
    (Inside(0, 1), [1, 1], "1 in [0, 1]"),
    (Inside(high=1), [0.5, 2], "0.5 … 2 not in (−∞, 1]"),
    (Rising(), range(20), "0, 1, 2, 3, 4, 5, 6, 7, 8, …"),
    (Rising(), [*range(12), 3, 4], "…, 8, 9, 10, 11, 3, 4"),
    (Sampled(), ([1.0, 2.0], [0.1, 0.1], [1.0, 2.2]), "2 ± 0.1, expected 2.2, the furthest off of 2"),
])
def test_what_is_shown(form, computed, shown):
    assert form.show(computed) == shown


def test_what_is_told_in_place_of_what_is_compared():
    told = Told((0.5, 1.0), {"sigmoid": 0.25, "ReLU": True})
    assert show(Same(), Cases(told, Told((1, 1), {"kinks": [1, 2, 3], "seen": 4}))) == \
        "sigmoid 0.25, ReLU yes; without the condition kinks 1, 2, 3; seen 4"
    assert bare(Corrected(told, (1, 2))) == Corrected((0.5, 1.0), (1, 2)) and bare(3) == 3
    assert NeverMore().show(([12_800, 1_048_576], [81_920, 2_097_152])) == "1,048,576 ≤ 2,097,152, the tightest of 2"   # in its own units


def test_what_the_course_would_have_had_to_state_has_its_decimals():
    assert Printed("0.0689", "1e-3").as_if([-0.123456, 0.0087]) == Printed("-0.1235", "0.009")


def test_more_than_two_per_cent_where_a_figure_is_rougher_than_that():
    rough = About(1.5e9, 0.04, "about")
    assert not any(other.agrees(edge) for other in rough.turned() for edge in (1.5e9 * 0.96, 1.5e9 * 1.04))
