"""Mutants: the source of a check with one place changed at a time, by rule.

    a + b → a − b     a * b → a / b     a ** n → a ** (n + 1)     −a → a     a < b → a ≥ b     a @ b → −a @ b
    sqrt(a) → a       f(a, b) → f(b, a)       min → max, mean → sum, …       x[:-1] → x[1:]     3 → 4, 0.5 → 0.65
    True → False      and, after a, b = …, a → b

Asserts, annotations, decorators and docstrings stay as they are.
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

OPPOSITE_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SWAPPED_NAMES = {a: b for a, b in [
    ("min", "max"), ("sin", "cos"), ("mean", "sum"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("floor", "ceil"),
    ("any", "all"),
    ("argmin", "argmax"), ("minimum", "maximum"), ("triu", "tril"),
] for a, b in ((a, b), (b, a))}  # fmt: skip
DROPPABLE_CALLS = {
    "sqrt", "rsqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "square", "abs", "pow", "tanh", "sigmoid", "relu",
    "softmax",
    "log_softmax", "sin", "cos", "softplus", "cumsum", "cumprod", "logsumexp", "mean", "sum", "prod", "norm", "var",
    "std", "inv", "det",
    "trace", "flip", "roll", "sign", "reciprocal", "clamp", "round", "reversed",
}  # fmt: skip
MODULE_ALIASES = ("torch", "math", "np", "F")


def iterate_replacements(node: ast.AST, tuple_neighbors: dict[str, str]) -> Iterator[tuple[int, ast.AST]]:
    """Replacements of a node with their rank: first those of the formula, last those of its numbers."""
    match node:
        case ast.Name(name, ast.Load()) if name in tuple_neighbors:
            yield 2, ast.Name(tuple_neighbors[name], ast.Load())
        case ast.BinOp(left, ast.Pow(), right):
            yield 0, ast.BinOp(left, ast.Pow(), ast.BinOp(right, ast.Add(), ast.Constant(1)))
        case ast.BinOp(left, ast.MatMult(), right):
            yield 0, ast.UnaryOp(ast.USub(), node)
            yield 2, ast.BinOp(right, ast.MatMult(), left)
        case ast.BinOp(left, op, right) if type(op) in OPPOSITE_OPERATORS:
            yield 0, ast.BinOp(left, OPPOSITE_OPERATORS[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in OPPOSITE_OPERATORS:
            yield 0, ast.AugAssign(target, OPPOSITE_OPERATORS[type(op)](), value)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield 0, operand
        case ast.Compare(left, [op], right):
            yield 1, ast.Compare(left, [OPPOSITE_OPERATORS[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield 1, ast.BoolOp(OPPOSITE_OPERATORS[type(op)](), values)
        case ast.IfExp(test, body, orelse):
            yield 1, ast.IfExp(test, orelse, body)
        case ast.Call(function, args, keywords):
            yield from ((1, x) for x in drop_call(function, args))
            # swapped, both sides would always differ
            is_pair = getattr(function, "id", "") in ("Conditional", "CorrectedClaim")
            if len(args) > 1 and not is_pair and not any(isinstance(a, ast.Starred) for a in args[:2]):
                yield 2, ast.Call(function, [args[1], args[0], *args[2:]], keywords)
        case ast.Attribute(value, name, context) if name in SWAPPED_NAMES:
            yield 2, ast.Attribute(value, SWAPPED_NAMES[name], context)
        case ast.Attribute(value, "T" | "mT"):
            yield 1, value
        case ast.Slice(lower, upper, None) if lower or upper:
            yield 1, ast.Slice(*shift_slice(lower, upper))
        case ast.Name(name, context) if name in SWAPPED_NAMES:
            yield 2, ast.Name(SWAPPED_NAMES[name], context)
        case ast.Constant(bool(value)):
            yield 3, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield 3, ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield 3, ast.Constant(1.3 * value or 0.3)
            yield 3, ast.Constant(0.0)


def drop_call(function: ast.expr, args: list[ast.expr]) -> Iterator[ast.expr]:
    """x of x.sqrt(), torch.sqrt(x) and sqrt(x)."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in DROPPABLE_CALLS:
        method = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") not in MODULE_ALIASES
        yield from [function.value] if method else args[:1]


def shift_slice(lower: ast.expr | None, upper: ast.expr | None) -> tuple[ast.expr | None, ast.expr | None]:
    """As many entries, starting one later; or one earlier where the slice runs to the end."""
    def add_offset(end: ast.expr | None, offset: int) -> ast.expr:
        return ast.BinOp(end, ast.Add(), ast.Constant(offset)) if end else ast.Constant(offset)

    if upper is None:
        return add_offset(lower, -1), ast.Constant(-1)
    return add_offset(lower, 1), None if ast.unparse(upper) == "-1" else add_offset(upper, 1)


def find_tuple_neighbors(tree: ast.AST) -> dict[str, str]:
    """For a, b = … the name to replace each name by."""
    targets = [t for t in ast.walk(tree) if isinstance(t, ast.Tuple) and isinstance(t.ctx, ast.Store)]
    target_names = [[n.id for n in t.elts if isinstance(n, ast.Name)] for t in targets]
    return {a: b for names in target_names for a, b in zip(names, names[1:] + names[:1], strict=True) if a != b}


def iterate_positions(node: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Position of every node, (holder, key, node), in the order of the source; the holder is a node or a list."""
    for field, value in ast.iter_fields(node):
        if field in ("returns", "annotation", "decorator_list") or isinstance(node, ast.Assert):
            continue
        for holder, key, child in [(node, field, value)] if isinstance(value, ast.AST) else list_child_nodes(value):
            yield holder, key, child
            yield from iterate_positions(child)


def list_child_nodes(value: Any) -> list[tuple[Any, int, ast.AST]]:
    return [(value, i, v) for i, v in enumerate(value) if isinstance(v, ast.AST)] if isinstance(value, list) else []


def set_node(holder: Any, key: Any, node: ast.AST) -> None:
    if isinstance(holder, list):
        holder[key] = node
    else:
        setattr(holder, key, node)


def apply_changes(tree: ast.AST, *, include_numbers: bool = True) -> Iterator[str]:
    """One change at a time, in place while its text is yielded; the end of the source first, where the formula is."""
    tuple_neighbors, positions = (
        find_tuple_neighbors(tree),
        [p for p in iterate_positions(tree) if include_numbers or not isinstance(p[2], ast.Constant)],
    )
    candidates = [
        (rank, position, new)
        for position in reversed(positions)
        for rank, new in iterate_replacements(position[2], tuple_neighbors)
    ]
    for _, (holder, key, node), new in sorted(candidates, key=lambda change: change[0]):
        before, after = ast.unparse(node), ast.unparse(new)
        if after != before:
            set_node(holder, key, new)
            yield f"{before} → {after}"
            set_node(holder, key, node)


def iterate_mutants(function: FunctionType, *, include_numbers: bool = True) -> Iterator[tuple[str, CodeType]]:
    """Every mutant of a function: what was changed, and the code."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    if ast.get_docstring(definition):
        del definition.body[0]
    # defaults of arguments are not part of the code
    for text in apply_changes(ast.Module(definition.body, []), include_numbers=include_numbers):
        yield text, compile_definition(definition)


def compile_definition(definition: ast.FunctionDef) -> CodeType:
    """Compiled inside a class, so that super() works as in a method."""
    tree: Any = ast.parse("class Broken: ...")
    tree.body[0].body = [deepcopy(definition)]
    code = compile(ast.fix_missing_locations(tree), f"<broken {definition.name}>", "exec")
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code


@contextmanager
def patch_code(function: FunctionType, code: CodeType) -> Iterator[None]:
    """Give the function other code: every reference to it then runs the mutant."""
    original_code = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = original_code


@contextmanager
def limit_resources(seconds: float, gigabytes: int = 8) -> Iterator[None]:
    """A mutant may never end or allocate all memory: then TimeoutError, or what the allocation raises."""
    def raise_timeout(*_: Any) -> None:
        raise TimeoutError

    old_limits, old_handler, statm = (
        resource.getrlimit(resource.RLIMIT_AS),
        signal.signal(signal.SIGALRM, raise_timeout),
        Path("/proc/self/statm"),
    )
    if statm.exists():
        used_bytes = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + gigabytes * 2**30, old_limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, old_limits)
