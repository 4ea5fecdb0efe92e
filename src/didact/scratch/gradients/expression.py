"""A safe parser of formulas: "(x + y) * z" computed with floats, tensors, dual numbers or symbols alike.

Python's own parser reads the text, and a list of what is allowed decides: + − * / **, numbers, variables and functions.
Nothing is executed; anything else in the text is refused by name.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from didact.scratch.autograd.tensor import ScratchError

FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu")
Functions = Mapping[str, Callable[[Any], Any]]
_MAX_CHARACTERS = 1000


def _power(a: Any, b: Any) -> Any:
    # math.pow, because (−2.0) ** 0.5 is a complex number in Python
    return math.pow(a, b) if isinstance(a, float) and isinstance(b, float) else a**b


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: _power,
}  # fmt: skip


def parse(text: str) -> ast.expr:
    if len(text) > _MAX_CHARACTERS:
        raise ScratchError(f"expression: at most {_MAX_CHARACTERS} characters, got {len(text)}")
    try:
        return ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ScratchError(f"expression: cannot read {text!r}") from None


def names(text: str) -> list[str]:
    """The variables of a formula, in order of appearance."""
    tree = parse(text)
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    used_names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    return list(dict.fromkeys(n.id for n in sorted(used_names, key=lambda n: n.col_offset)))


def evaluate(
    text: str, values: Mapping[str, Any], functions: Functions | None = None, number: Callable[[float], Any] = float
) -> Any:
    """The value of a formula; functions are methods of the values unless `functions` is given."""
    table = functions if functions is not None else {f: operator.methodcaller(f) for f in FUNCTIONS}
    unknown = [n for n in names(text) if n not in values]
    if unknown:
        raise ScratchError(f"expression: no value for {unknown[0]!r} in {text!r}; give {unknown[0]}=…")
    try:
        result = _compute(parse(text), values, table, number)
    except RecursionError:
        raise ScratchError("expression: nested too deeply") from None
    except ScratchError:
        raise
    except (ArithmeticError, ValueError) as e:
        raise ScratchError(f"expression: {e} in {text!r}") from None
    unused = [n for n in values if n not in names(text)]
    if unused:
        raise ScratchError(f"expression: {unused[0]!r} is given a value, but {text!r} does not use it")
    return result


def _compute(node: ast.expr, values: Mapping[str, Any], functions: Functions, number: Callable[[float], Any]) -> Any:
    def go(part: ast.expr) -> Any:
        return _compute(part, values, functions, number)

    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return number(float(value))
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](go(left), go(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -go(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return go(operand)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in functions:
            return functions[name](go(argument))
        case ast.Call(func=ast.Name(id=name)) if name in functions:
            raise ScratchError(f"expression: {name} takes one argument, in {ast.unparse(node)!r}")
        case ast.Call(func=ast.Name(id=name)):
            raise ScratchError(f"expression: no function {name!r}; there are {', '.join(functions)}")
    raise ScratchError(
        f"expression: {ast.unparse(node)!r} is not allowed, only + - * / **, numbers, names and functions"
    )
