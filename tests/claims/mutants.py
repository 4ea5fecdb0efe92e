"""Broken formulas, made by rule: the source of a check with one place changed at a time.

    a + b → a − b     a * b → a / b     a ** n → a ** (n + 1)     −a → a     a < b → a ≥ b     a @ b → −a @ b
    sqrt(a) → a       f(a, b) → f(b, a)       min → max, mean → sum, …       x[:-1] → x[1:]     3 → 4, 0.5 → 0.65, True → False
    and, where a, b = … stands before, a → b

What stands in asserts, annotations, decorators and docstrings stays as it is.
"""

import ast
import inspect
import resource
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

OPPOSITE: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
OTHER_NAME = {a: b for a, b in [
    ("min", "max"), ("sin", "cos"), ("mean", "sum"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("floor", "ceil"), ("any", "all"),
    ("argmin", "argmax"), ("minimum", "maximum"), ("triu", "tril"),
] for a, b in ((a, b), (b, a))}  # fmt: skip
DROPPED = {
    "sqrt", "rsqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "square", "abs", "pow", "tanh", "sigmoid", "relu", "softmax",
    "log_softmax", "sin", "cos", "softplus", "cumsum", "cumprod", "logsumexp", "mean", "sum", "prod", "norm", "var", "std", "inv", "det",
    "trace", "flip", "roll", "sign", "reciprocal", "clamp", "round", "reversed",
}  # fmt: skip
MODULES = ("torch", "math", "np", "F")


def replacements(node: ast.AST, beside: dict[str, str]) -> Iterator[tuple[int, ast.AST]]:
    """What may stand in the place of a node, and how soon to try it: first what changes the formula, last its numbers."""
    match node:
        case ast.Name(name, ast.Load()) if name in beside:
            yield 2, ast.Name(beside[name], ast.Load())
        case ast.BinOp(left, ast.Pow(), right):
            yield 0, ast.BinOp(left, ast.Pow(), ast.BinOp(right, ast.Add(), ast.Constant(1)))
        case ast.BinOp(left, ast.MatMult(), right):
            yield 0, ast.UnaryOp(ast.USub(), node)
            yield 2, ast.BinOp(right, ast.MatMult(), left)
        case ast.BinOp(left, op, right) if type(op) in OPPOSITE:
            yield 0, ast.BinOp(left, OPPOSITE[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in OPPOSITE:
            yield 0, ast.AugAssign(target, OPPOSITE[type(op)](), value)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield 0, operand
        case ast.Compare(left, [op], right):
            yield 1, ast.Compare(left, [OPPOSITE[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield 1, ast.BoolOp(OPPOSITE[type(op)](), values)
        case ast.IfExp(test, body, orelse):
            yield 1, ast.IfExp(test, orelse, body)
        case ast.Call(function, args, keywords):
            yield from ((1, x) for x in dropped(function, args))
            pair = getattr(function, "id", "") in ("Cases", "Corrected")    # exchanged, both sides would always differ
            if len(args) > 1 and not pair and not any(isinstance(a, ast.Starred) for a in args[:2]):
                yield 2, ast.Call(function, [args[1], args[0], *args[2:]], keywords)
        case ast.Attribute(value, name, context) if name in OTHER_NAME:
            yield 2, ast.Attribute(value, OTHER_NAME[name], context)
        case ast.Attribute(value, "T" | "mT"):
            yield 1, value
        case ast.Slice(lower, upper, None) if lower or upper:
            yield 1, ast.Slice(*shifted(lower, upper))
        case ast.Name(name, context) if name in OTHER_NAME:
            yield 2, ast.Name(OTHER_NAME[name], context)
        case ast.Constant(bool(value)):
            yield 3, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield 3, ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield 3, ast.Constant(1.3 * value or 0.3)
            yield 3, ast.Constant(0.0)


def dropped(function: ast.expr, args: list[ast.expr]) -> Iterator[ast.expr]:
    """x of x.sqrt(), torch.sqrt(x) and sqrt(x)."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in DROPPED:
        method = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") not in MODULES
        yield from [function.value] if method else args[:1]


def shifted(lower: ast.expr | None, upper: ast.expr | None) -> tuple[ast.expr | None, ast.expr | None]:
    """As many numbers from one place further on; or one back, where the slice goes on to the end."""
    def moved(end: ast.expr | None, by: int) -> ast.expr:
        return ast.BinOp(end, ast.Add(), ast.Constant(by)) if end else ast.Constant(by)

    if upper is None:
        return moved(lower, -1), ast.Constant(-1)
    return moved(lower, 1), None if ast.unparse(upper) == "-1" else moved(upper, 1)


def neighbours(tree: ast.AST) -> dict[str, str]:
    """Of a, b = … the one for the other."""
    targets = [t for t in ast.walk(tree) if isinstance(t, ast.Tuple) and isinstance(t.ctx, ast.Store)]
    rows = [[n.id for n in t.elts if isinstance(n, ast.Name)] for t in targets]
    return {a: b for row in rows for a, b in zip(row, row[1:] + row[:1], strict=True) if a != b}


def places(node: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Where every node hangs: (holder, key, node), the holder a node or a list of them; in the order of the source."""
    for field, value in ast.iter_fields(node):
        if field in ("returns", "annotation", "decorator_list") or isinstance(node, ast.Assert):
            continue
        for holder, key, child in [(node, field, value)] if isinstance(value, ast.AST) else each(value):
            yield holder, key, child
            yield from places(child)


def each(value: Any) -> list[tuple[Any, int, ast.AST]]:
    return [(value, i, v) for i, v in enumerate(value) if isinstance(v, ast.AST)] if isinstance(value, list) else []


def put(holder: Any, key: Any, node: ast.AST) -> None:
    if isinstance(holder, list):
        holder[key] = node
    else:
        setattr(holder, key, node)


def changes(tree: ast.AST, *, numbers: bool = True) -> Iterator[str]:
    """One change at a time, made while its text is looked at; the end of the source first, where the formula stands."""
    beside, where = neighbours(tree), [p for p in places(tree) if numbers or not isinstance(p[2], ast.Constant)]
    found = [(rank, place, new) for place in reversed(where) for rank, new in replacements(place[2], beside)]
    for _, (holder, key, node), new in sorted(found, key=lambda change: change[0]):
        before, after = ast.unparse(node), ast.unparse(new)
        if after != before:
            put(holder, key, new)
            yield f"{before} → {after}"
            put(holder, key, node)


def mutants(function: FunctionType, *, numbers: bool = True) -> Iterator[tuple[str, CodeType]]:
    """Every broken version of a function: what was changed, and the code."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    if ast.get_docstring(definition):
        del definition.body[0]
    for text in changes(ast.Module(definition.body, []), numbers=numbers):  # defaults of arguments are no part of the code
        yield text, compiled(definition)


def compiled(definition: ast.FunctionDef) -> CodeType:
    """Inside a class, so that super() means what it does in a method."""
    tree: Any = ast.parse("class Broken: ...")
    tree.body[0].body = [deepcopy(definition)]
    code = compile(ast.fix_missing_locations(tree), f"<broken {definition.name}>", "exec")
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code


@contextmanager
def broken(function: FunctionType, code: CodeType) -> Iterator[None]:
    """The function itself with other code, so that whoever holds it meets the broken one."""
    whole = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = whole


@contextmanager
def limited(seconds: float, gigabytes: int = 8) -> Iterator[None]:
    """A broken formula may never end, or ask for all memory: then TimeoutError, or what the allocation raises."""
    def ring(*_: Any) -> None:
        raise TimeoutError

    limits, before, tells = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, ring), Path("/proc/self/statm")
    if tells.exists():
        used = int(tells.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + gigabytes * 2**30, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
