"""Registry of claims: the statements of the courses, their checks, and the verdicts that follow from computing.

`stated.tsv` lists the statements. A check is a function that computes; the form in its decorator is what the course
states:

    @claim("C1.6", Exactly(235_146))
    def parameters_of_an_mlp() -> int:
        ...

No verdict is written down anywhere: it is the comparison of the two. Where the course asks, or prints nothing, there is
nothing to compare with:

    @answer("C9.8")
    def size_of_the_vae() -> int:
        ...

That is an answer and not a check: its verdict is "answered", and tests/claims/test_every_answer_is_right.py compares it
with a value computed another way.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any, Literal, TypeVar

import torch

from didact.claims.forms import (
    Approximately,
    ClaimForm,
    Conditional,
    CorrectedClaim,
    Display,
    Exactly,
    Printed,
    format_computed,
    format_number,
    to_comparable,
    to_float_array,
    to_python,
)
from didact.claims.measured_table import (
    CellVerdict,
    MeasuredTable,
    MeasurementRecord,
    judge_claim,
    judge_table,
    load_records,
)
from didact.claims.measured_tables import TABLES
from didact.errors import UsageError, look_up

Verdict = Literal["holds", "wrong", "conditional", "answered", "not checkable", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("holds", "wrong", "conditional", "answered", "not checkable", "not measured")
F = TypeVar("F", bound=Callable[[], Any])


@dataclass(frozen=True)
class Statement:
    """A row of stated.tsv: what a course states, where, and of which kind it is."""

    id: str
    course: str
    chapter: str
    where: str
    kind: str
    claim: str
    stated: str

    @property
    def has_value(self) -> bool:
        """Whether the page states a value besides the claim itself."""
        return self.stated != "—"


@dataclass(frozen=True)
class Answer:
    """A function that computes what a course asks for, or does not print."""

    id: str
    function: Callable[[], Any]

    @property
    def formula(self) -> str:
        return (inspect.getdoc(self.function) or "").replace("\n", " ")

    @property
    def decorator(self) -> str:
        return f'@answer("{self.id}")'

    @property
    def source(self) -> str:
        """The source of the function, with its decorator, and of the helpers in the claims' modules that it calls."""
        return "\n\n".join(
            [f"{self.decorator}\n{_get_definition(self.function)}", *_list_helper_sources(self.function)]
        )

    def compute(self) -> Any:
        """The value to compare."""
        return to_comparable(self.run())

    def run(self) -> Any:
        """The computed result, which may hold a `Display`."""
        with deterministic():
            return self.function()

    def get_verdict(self, result: Any) -> Verdict:
        return "answered"

    def get_note(self, verdict: Verdict) -> str:
        is_question = "question" in load_statements()[self.id].stated
        return (
            "the course asks and gives no value: this is the answer"
            if is_question
            else "the course prints no value: this is the one"
        )

    def format_answer(self, computed: Any) -> str:
        if isinstance(computed, Display):
            return computed.text
        return format_number(computed) if isinstance(computed, float) else format_computed(to_python(computed))

    def to_json_value(self, result: Any) -> Any:
        """Numbers, for programs that read the result."""
        return to_python(result)


@dataclass(frozen=True)
class Check(Answer):
    """A function that computes, and the form in which the course states the value."""

    form: ClaimForm
    correction: str   # where the course is wrong: what is right
    condition: str    # where the statement holds under a condition: which
    remark: str       # where it holds: what else on the page is wrong or missing

    @property
    def decorator(self) -> str:
        return f'@claim("{self.id}", {self.form})'

    def get_verdict(self, result: Any) -> Verdict:
        """The comparison of what was computed with what is stated."""
        if isinstance(result, Conditional):
            if not self.form.matches(result.under_condition):
                return "wrong"
            return "holds" if self.form.matches(result.otherwise) else "conditional"
        if isinstance(result, CorrectedClaim):
            assert self.form.matches(result.corrected), f"{self.id}: the corrected statement does not hold either"
            result = result.stated
        return "holds" if self.form.matches(result) else "wrong"

    def get_note(self, verdict: Verdict) -> str:
        return {"holds": self.remark, "wrong": self.correction, "conditional": self.condition}.get(verdict, "")

    def format_answer(self, computed: Any) -> str:
        return format_result(self.form, computed)

    def to_json_value(self, result: Any) -> Any:
        return _result_to_json(self.form, result)


def _get_definition(obj: Any) -> str:
    """The source of a function or class without decorators: a function may be the check of several claims."""
    lines = inspect.getsource(obj).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(("def ", "class ")))
    return "\n".join(lines[start:])


def _list_helper_sources(function: Callable[[], Any]) -> list[str]:
    """Sources of the helpers that a check uses from the claims' modules."""
    return [_get_definition(v) if callable(v) else f"{name} = {v!r}" for name, v in _find_helpers(function).items()]


def _find_helpers(function: Callable[[], Any]) -> dict[str, Any]:
    """Functions, classes and numbers of the claims' modules that a check uses, directly or not, each once."""
    queue, helpers = [inspect.unwrap(function)], dict[str, Any]()
    while queue:
        for name, value in list_globals_read(queue.pop(0)):
            if name in helpers or value is function:
                continue
            if isinstance(value, int | float | tuple) and name.isupper():
                helpers[name] = value
            elif callable(value) and _is_helper(getattr(value, "__module__", None) or ""):
                helpers[name] = value
                queue += list_functions(value)
    return helpers


def list_functions(value: Any) -> list[FunctionType]:
    """The function itself, unwrapped, or the methods of a class."""
    members = vars(value).values() if inspect.isclass(value) else [inspect.unwrap(value)]
    return [f for f in members if inspect.isfunction(f)]


def _is_helper(module: str) -> bool:
    """Whether a module holds checks and helpers; the forms of comparison are left out, since every check has one."""
    return module.startswith("didact.claims.") and module not in (__name__, "didact.claims.forms")


def list_globals_read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Global values that a function reads, by name or as gaba_9.name."""
    names = list(_list_names_read(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if inspect.ismodule(value) and value.__name__.startswith("didact."):
            yield from ((n, getattr(value, n)) for n in names if hasattr(value, n))
        else:
            yield name, value


def _list_names_read(code: CodeType) -> Iterator[str]:
    """Global names that a function reads, including those of its inner functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names_read(constant)


@dataclass(frozen=True)
class Outcome:
    """The result for one statement."""

    statement: Statement
    verdict: Verdict
    computed: str
    value: Any            # numbers, where the computed value is one or a few of them
    # correction, condition, remark, why there is no verdict, or the command that measures
    note: str
    seconds: float
    cells: Sequence[CellVerdict] = ()    # cells of a measured table, where the statement has several
    provenance: str = ""              # date, hardware and commit of the measurement

    def to_dict(self) -> dict[str, Any]:
        s = asdict(self.statement)
        return {
            **s,
            "computed": self.computed,
            "value": self.value,
            "verdict": self.verdict,
            "note": self.note,
            "seconds": self.seconds,
        }


CHECKS: dict[str, Check] = {}
ANSWERS: dict[str, Answer] = {}  # what a course asks or does not print: nothing to compare with
NOT_CHECKABLE_REASONS: dict[str, str] = {}  # why a statement cannot be checked


@cache
def load_statements() -> dict[str, Statement]:
    """All statements, in the order of the courses."""
    _, *lines = (files("didact.claims") / "stated.tsv").read_text(encoding="utf-8").splitlines()
    rows = (Statement(*line.split("\t")) for line in lines)
    return {row.id: row for row in rows}


def claim(id: str, form: ClaimForm, *, correction: str = "", condition: str = "", remark: str = "") -> Callable[[F], F]:
    """Decorator: register a function as the check of a statement."""

    def register_check(function: F) -> F:
        _assert_new_id(id)
        CHECKS[id] = Check(id, function, form, correction, condition, remark)
        return function

    return register_check


def answer(id: str) -> Callable[[F], F]:
    """Decorator: register a function as the answer to a statement that asks, or that prints no value."""

    def register_answer(function: F) -> F:
        _assert_new_id(id)
        ANSWERS[id] = Answer(id, function)
        return function

    return register_answer


def mark_not_checkable(id: str, reason: str) -> None:
    """Register the reason why a statement cannot be checked."""
    _assert_new_id(id)
    NOT_CHECKABLE_REASONS[id] = reason


def _assert_new_id(id: str) -> None:
    assert id in load_statements(), f"stated.tsv has no {id}"
    assert not any(id in ids for ids in (CHECKS, ANSWERS, NOT_CHECKABLE_REASONS)), f"{id} is checked twice"


def find_computation(id: str) -> Answer | None:
    """The check of a statement, or the answer to it."""
    return CHECKS.get(id) or ANSWERS.get(id)


@contextmanager
def deterministic() -> Iterator[None]:
    """In double precision and from seed 0, whatever ran before; the global state is restored afterwards."""
    default_dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(default_dtype)


def check_claim(id: str) -> Outcome:
    """Compute, compare, and give the verdict."""
    statement = load_statements()[id]
    computation = find_computation(id)
    if computation is None:
        return outcome_without_check(statement)
    start = perf_counter()
    computed = computation.run()
    seconds = perf_counter() - start
    result = to_comparable(computed)
    verdict = computation.get_verdict(result)
    return Outcome(
        statement,
        verdict,
        computation.format_answer(computed),
        computation.to_json_value(result),
        computation.get_note(verdict),
        seconds,
    )


def outcome_without_check(statement: Statement) -> Outcome:
    """The outcome from a saved measurement of the statement's table; otherwise why there is none."""
    if statement.id in NOT_CHECKABLE_REASONS:
        return _outcome_without_value(statement, "not checkable", NOT_CHECKABLE_REASONS[statement.id])
    if "literature" in statement.kind:
        return _outcome_without_value(
            statement, "not checkable", "a result of the literature, not of the course: nothing here can compute it"
        )
    table = next((t for t in TABLES.values() if statement.id in t.claims), None)
    if table is None:
        return _outcome_without_value(statement, "not measured", "no check has been written yet")
    if statement.id in table.uncovered_claims:
        return _outcome_without_value(statement, "not checkable", table.uncovered_claims[statement.id])
    record = load_records().get(table.name)
    return (
        _outcome_from_table(statement, table, record)
        if record
        else _outcome_without_value(statement, "not measured", table.command)
    )


def _outcome_without_value(statement: Statement, verdict: Verdict, reason: str) -> Outcome:
    return Outcome(statement, verdict, "", None, reason, 0.0)


def _outcome_from_table(statement: Statement, table: MeasuredTable, record: MeasurementRecord) -> Outcome:
    """The verdict that follows from the numbers saved by `didact reproduce --save`."""
    verdicts = judge_table(table, record)
    verdict, measured, reason = judge_claim(statement.id, verdicts, cells_are_conditions=table.cells_are_conditions)
    own_verdicts = [j for j in verdicts if j.claim == statement.id]
    means = [j.mean for j in own_verdicts if j.mean is not None]
    assert verdict in VERDICTS
    note = f"{reason}; {record.description}" if reason else record.description
    return Outcome(
        statement,
        verdict,
        measured,
        means or None,
        note,
        0.0,
        own_verdicts if len(own_verdicts) > 1 else (),
        record.description,
    )


def format_result(form: ClaimForm, computed: Any) -> str:
    if isinstance(computed, Conditional):
        return (
            f"{format_result(form, computed.under_condition)}; without the condition "
            f"{format_result(form, computed.otherwise)}"
        )
    if isinstance(computed, CorrectedClaim):
        return f"{format_result(form, computed.stated)}; corrected {format_result(form, computed.corrected)}"
    return computed.text if isinstance(computed, Display) else form.format(computed)


def _result_to_json(form: ClaimForm, result: Any) -> Any:
    """The number or few numbers of a numeric statement, for programs that read the result."""
    if isinstance(result, Conditional | CorrectedClaim):
        result = result.under_condition if isinstance(result, Conditional) else result.stated
    if isinstance(form, Exactly):
        return to_python(result)
    if isinstance(form, Printed | Approximately):
        numbers = to_float_array(result).tolist()
        return numbers[0] if len(numbers) == 1 else numbers
    return None


def select_statements(
    ids: Iterable[str] = (), *, course: str | None = None, chapter: str | None = None, kind: str | None = None
) -> list[Statement]:
    """The statements with these ids, or all; of one course, chapter or kind.

    An unknown name is refused with the nearest one.
    """
    by_id = load_statements()
    selected = [look_up("claim", id, by_id) for id in dict.fromkeys(id.upper() for id in ids)] or list(by_id.values())
    for field, query in (("course", course), ("chapter", chapter), ("kind", kind)):
        if query is not None:
            names = {getattr(s, field).lower(): getattr(s, field) for s in by_id.values()}
            allowed = _match_names(field, query.lower().replace("-", " "), names)
            selected = [s for s in selected if getattr(s, field) in allowed]
    return selected


def _match_names(field: str, query: str, names: Mapping[str, str]) -> list[str]:
    """Names that begin with the query: measured also finds measured table; but chapter 1 is not 10."""
    chapter, *section = query.split(".")
    if field == "chapter" and section and chapter in names:
        raise UsageError(f"--chapter expects the number of a chapter, got {query!r}; did you mean {chapter!r}?")
    return [name for word, name in names.items() if f"{word} ".startswith(f"{query} ")] or [
        look_up(field, query, names)
    ]


def count_verdicts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many statements got each verdict."""
    verdicts = [o.verdict for o in outcomes]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def format_summary(counts: Mapping[str, int]) -> str:
    """519 claims: 295 hold, 101 wrong, …; the line that docs/commands.md quotes."""
    return f"{sum(counts.values())} claim{'s' * (sum(counts.values()) != 1)}: {format_counts(counts)}"


def format_counts(counts: Mapping[str, int]) -> str:
    """14 hold, 1 wrong."""
    return ", ".join(
        f"{n} {'hold' if verdict == 'holds' and n != 1 else verdict}" for verdict, n in counts.items() if n
    )
