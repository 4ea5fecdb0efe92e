"""The claims: every statement of the courses that a program can check, the checks, and the verdicts that follow from computing.

`stated.tsv` lists the statements. A check is a function that computes; the form beside it says what the course states:

    @claim("C1.6", Exactly(235_146))
    def parameters_of_an_mlp() -> int:
        ...

No verdict is written down anywhere: it is the comparison of the two. Where the course asks, or prints nothing, there is nothing to compare:

    @answer("C9.8")
    def size_of_the_vae() -> int:
        ...

That is an answer and no check: its verdict is "answered", and tests/claims/test_answers.py holds it against a value found otherwise.
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

from didact.claims.compare import About, Cases, Corrected, Exactly, Printed, Stated, Told, bare, floats, plain, short, words
from didact.claims.table import Judged, Record, Table, judge, kept, verdict_of
from didact.claims.tables import TABLES
from didact.errors import UsageError, pick

Verdict = Literal["holds", "wrong", "conditional", "answered", "not checkable", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("holds", "wrong", "conditional", "answered", "not checkable", "not measured")
F = TypeVar("F", bound=Callable[[], Any])


@dataclass(frozen=True)
class Statement:
    """One row of stated.tsv: what a course states, where, and of which kind it is."""

    id: str
    course: str
    chapter: str
    where: str
    kind: str
    claim: str
    stated: str

    @property
    def prints(self) -> bool:
        """Whether the page has a value of its own beside the claim."""
        return self.stated != "—"


@dataclass(frozen=True)
class Answer:
    """A function that computes what a course asks for, or what it leaves unprinted."""

    id: str
    function: Callable[[], Any]

    @property
    def formula(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def decorator(self) -> str:
        return f'@answer("{self.id}")'

    @property
    def source(self) -> str:
        """What is stated and how it is computed, with the helpers beside the checks that the function calls."""
        return "\n\n".join([f"{self.decorator}\n{definition(self.function)}", *helpers(self.function)])

    def compute(self) -> Any:
        """The value that is compared."""
        return bare(self.answer())

    def answer(self) -> Any:
        """The same, with what is shown in its place."""
        with repeatable():
            return self.function()

    def judge(self, result: Any) -> Verdict:
        return "answered"

    def note(self, verdict: Verdict) -> str:
        asks = "question" in statements()[self.id].stated
        return "the course asks and gives no value: this is the answer" if asks else "the course prints no value: this is the one"

    def show(self, answer: Any) -> str:
        if isinstance(answer, Told):
            return answer.words
        return short(answer) if isinstance(answer, float) else words(plain(answer))

    def value(self, result: Any) -> Any:
        """Numbers, for programs that read the answer."""
        return plain(result)


@dataclass(frozen=True)
class Check(Answer):
    """A function that computes, and the form in which the course states the value."""

    form: Stated
    right: str        # where the course is wrong: what is right
    condition: str    # where it holds under a condition: which
    remark: str       # where it holds: what the page says beside it that is not so, or is not said there

    @property
    def decorator(self) -> str:
        return f'@claim("{self.id}", {self.form})'

    def judge(self, result: Any) -> Verdict:
        """The comparison of what was computed with what is stated."""
        if isinstance(result, Cases):
            if not self.form.agrees(result.under):
                return "wrong"
            return "holds" if self.form.agrees(result.otherwise) else "conditional"
        if isinstance(result, Corrected):
            assert self.form.agrees(result.mended), f"{self.id}: what is said to be right does not come out either"
            result = result.stated
        return "holds" if self.form.agrees(result) else "wrong"

    def note(self, verdict: Verdict) -> str:
        return {"holds": self.remark, "wrong": self.right, "conditional": self.condition}.get(verdict, "")

    def show(self, answer: Any) -> str:
        return show(self.form, answer)

    def value(self, result: Any) -> Any:
        return value(self.form, result)


def definition(thing: Any) -> str:
    """The source of a function or class, without the decorators: a function may be the check of several claims."""
    lines = inspect.getsource(thing).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(("def ", "class ")))
    return "\n".join(lines[start:])


def helpers(function: Callable[[], Any]) -> list[str]:
    """What it reaches in the claims' modules, as it stands there."""
    return [definition(v) if callable(v) else f"{name} = {v!r}" for name, v in reached(function).items()]


def reached(function: Callable[[], Any]) -> dict[str, Any]:
    """Functions, classes and numbers of the claims' modules that it reads, and that those read, each once."""
    ahead, seen = [inspect.unwrap(function)], dict[str, Any]()
    while ahead:
        for name, value in named(ahead.pop(0)):
            if name in seen or value is function:
                continue
            if isinstance(value, int | float | tuple) and name.isupper():
                seen[name] = value
            elif callable(value) and is_helper(getattr(value, "__module__", None) or ""):
                seen[name] = value
                ahead += bodies(value)
    return seen


def bodies(value: Any) -> list[FunctionType]:
    """The function itself, without what is wrapped around it, or the methods of a class."""
    inside = vars(value).values() if inspect.isclass(value) else [inspect.unwrap(value)]
    return [f for f in inside if inspect.isfunction(f)]


def is_helper(module: str) -> bool:
    """Of the checks themselves; the forms of comparison stand in every one of them."""
    return module.startswith("didact.claims.") and module not in (__name__, "didact.claims.compare")


def named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Global values that a function reads, by name or as gaba_9.name."""
    names = list(read_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if inspect.ismodule(value) and value.__name__.startswith("didact."):
            yield from ((n, getattr(value, n)) for n in names if hasattr(value, n))
        else:
            yield name, value


def read_names(code: CodeType) -> Iterator[str]:
    """Global names that a function reads, those of the functions inside it too."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from read_names(const)


@dataclass(frozen=True)
class Outcome:
    """What became of one statement."""

    statement: Statement
    verdict: Verdict
    computed: str
    value: Any            # numbers, where the computed value is one or a few of them
    note: str             # what is right, the condition, a remark, why there is no verdict, or the command that measures
    seconds: float
    cells: Sequence[Judged] = ()    # of a measured table, where the statement has several
    measured: str = ""              # when and where

    def row(self) -> dict[str, Any]:
        s = asdict(self.statement)
        return {**s, "computed": self.computed, "value": self.value, "verdict": self.verdict, "note": self.note, "seconds": self.seconds}


CHECKS: dict[str, Check] = {}
ANSWERS: dict[str, Answer] = {}  # what a course asks, or does not print: there is nothing to compare with
REASONS: dict[str, str] = {}  # why a statement cannot be checked


@cache
def statements() -> dict[str, Statement]:
    """All statements, in the order of the courses."""
    _, *lines = (files("didact.claims") / "stated.tsv").read_text(encoding="utf-8").splitlines()
    rows = (Statement(*line.split("\t")) for line in lines)
    return {row.id: row for row in rows}


def claim(id: str, form: Stated, *, right: str = "", condition: str = "", remark: str = "") -> Callable[[F], F]:
    """Make a function the check of a statement."""

    def give(function: F) -> F:
        assert_new(id)
        CHECKS[id] = Check(id, function, form, right, condition, remark)
        return function

    return give


def answer(id: str) -> Callable[[F], F]:
    """Make a function the answer to a statement that asks, or that prints no value."""

    def give(function: F) -> F:
        assert_new(id)
        ANSWERS[id] = Answer(id, function)
        return function

    return give


def unable(id: str, why: str) -> None:
    """Say why a statement cannot be checked."""
    assert_new(id)
    REASONS[id] = why


def assert_new(id: str) -> None:
    assert id in statements(), f"stated.tsv has no {id}"
    assert not any(id in known for known in (CHECKS, ANSWERS, REASONS)), f"{id} is checked twice"


def computation(id: str) -> Answer | None:
    """The check of a statement, or the answer to it."""
    return CHECKS.get(id) or ANSWERS.get(id)


@contextmanager
def repeatable() -> Iterator[None]:
    """In double precision and from seed 0, whatever ran before; everything as it was afterwards."""
    kind = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(kind)


def run(id: str) -> Outcome:
    """Compute, compare, judge."""
    statement = statements()[id]
    made = computation(id)
    if made is None:
        return without_check(statement)
    start = perf_counter()
    answer = made.answer()
    seconds = perf_counter() - start
    result = bare(answer)
    verdict = made.judge(result)
    return Outcome(statement, verdict, made.show(answer), made.value(result), made.note(verdict), seconds)


def without_check(s: Statement) -> Outcome:
    """What a kept measurement of the statement's table says; else why there is nothing to say."""
    if s.id in REASONS:
        return unsaid(s, "not checkable", REASONS[s.id])
    if "literature" in s.kind:
        return unsaid(s, "not checkable", "a result of the literature, not of the course: nothing here can compute it")
    table = next((t for t in TABLES.values() if s.id in t.claims), None)
    if table is None:
        return unsaid(s, "not measured", "no check has been written yet")
    if s.id in table.absent:
        return unsaid(s, "not checkable", table.absent[s.id])
    record = kept().get(table.name)
    return from_table(s, table, record) if record else unsaid(s, "not measured", table.command)


def unsaid(s: Statement, verdict: Verdict, why: str) -> Outcome:
    return Outcome(s, verdict, "", None, why, 0.0)


def from_table(s: Statement, table: Table, record: Record) -> Outcome:
    """The verdict that follows from the numbers that `didact reproduce --keep` left."""
    judged = judge(table, record)
    verdict, measured, why = verdict_of(s.id, judged, cases=table.cases)
    own = [j for j in judged if j.claim == s.id]
    means = [j.mean for j in own if j.mean is not None]
    assert verdict in VERDICTS
    note = f"{why}; {record.about}" if why else record.about
    return Outcome(s, verdict, measured, means or None, note, 0.0, own if len(own) > 1 else (), record.about)


def show(form: Stated, answer: Any) -> str:
    if isinstance(answer, Cases):
        return f"{show(form, answer.under)}; without the condition {show(form, answer.otherwise)}"
    if isinstance(answer, Corrected):
        return f"{show(form, answer.stated)}; mended {show(form, answer.mended)}"
    return answer.words if isinstance(answer, Told) else form.show(answer)


def value(form: Stated, result: Any) -> Any:
    """The number or few numbers of a numeric statement, for programs that read the answer."""
    if isinstance(result, Cases | Corrected):
        result = result.under if isinstance(result, Cases) else result.stated
    if isinstance(form, Exactly):
        return plain(result)
    if isinstance(form, Printed | About):
        numbers = floats(result).tolist()
        return numbers[0] if len(numbers) == 1 else numbers
    return None


def choose(ids: Iterable[str] = (), *, course: str | None = None, chapter: str | None = None, kind: str | None = None) -> list[Statement]:
    """The statements of these ids, or all; of one course, chapter or kind; a name that is not known is refused with the nearest."""
    known = statements()
    named = [pick("claim", id, known) for id in dict.fromkeys(id.upper() for id in ids)] or list(known.values())
    for field, wanted in (("course", course), ("chapter", chapter), ("kind", kind)):
        if wanted is not None:
            names = {getattr(s, field).lower(): getattr(s, field) for s in known.values()}
            allowed = meant(field, wanted.lower().replace("-", " "), names)
            named = [s for s in named if getattr(s, field) in allowed]
    return named


def meant(field: str, wanted: str, names: Mapping[str, str]) -> list[str]:
    """Names that begin with the words: measured is also measured table; but chapter 1 is not 10."""
    chapter, *section = wanted.split(".")
    if field == "chapter" and section and chapter in names:
        raise UsageError(f"--chapter expects the number of a chapter, got {wanted!r}; did you mean {chapter!r}?")
    return [name for word, name in names.items() if f"{word} ".startswith(f"{wanted} ")] or [pick(field, wanted, names)]


def tally(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many statements got each verdict."""
    found = [o.verdict for o in outcomes]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def in_words(counts: Mapping[str, int]) -> str:
    """519 claims: 295 hold, 101 wrong, …; the line that README quotes."""
    return f"{sum(counts.values())} claim{'s' * (sum(counts.values()) != 1)}: {listed(counts)}"


def listed(counts: Mapping[str, int]) -> str:
    """14 hold, 1 wrong."""
    return ", ".join(f"{n} {'hold' if verdict == 'holds' and n != 1 else verdict}" for verdict, n in counts.items() if n)
