"""List every definition of a Python file: kind and qualified name, for the tables of renames in this folder.

    python tools/renames/inventory.py src/didact/data/*.py
"""

import ast
import re
import sys
from pathlib import Path

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def list_definitions(source: str) -> list[tuple[str, str, int]]:
    """(kind, qualified name, line) of all classes, functions, methods, attributes, constants, parameters and locals."""
    return [(kind, name, places[0][0]) for (kind, name), places in list_places(source).items()]


def list_places(source: str) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """(kind, qualified name) -> every (line, column) where it is defined or assigned; lines from 1, columns in characters from 0."""
    lines = source.splitlines()
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def add(kind: str, name: str, line: int, column: int) -> None:
        place = (line, len(lines[line - 1].encode()[:column].decode()))
        places = found.setdefault((kind, name), [])
        if place not in places:
            places.append(place)

    def add_def(kind: str, owner: str, node) -> None:
        at = re.compile(rf"(?:def|class)\s+{node.name}\b").search(lines[node.lineno - 1])
        column = at.end() - len(node.name)
        add(kind, owner + node.name, node.lineno, len(lines[node.lineno - 1][:column].encode()))

    def targets(node: ast.AST):
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id, part.lineno, part.col_offset

    def walk(body, owner: str, where: str) -> None:
        for node in body:
            visit(node, owner, where)

    def visit(node: ast.AST, owner: str, where: str) -> None:
        if isinstance(node, ast.ClassDef):
            add_def("class", owner, node)
            walk(node.body, f"{owner}{node.name}.", "class")
        elif isinstance(node, FUNCTIONS):
            add_def("method" if where == "class" else "function", owner, node)
            inside = f"{owner}{node.name}."
            a = node.args
            for p in [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]:
                if p and p.arg not in ("self", "cls", "_"):
                    add("param", inside + p.arg, p.lineno, p.col_offset)
            if where == "class":
                for part in ast.walk(node):
                    if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name) and part.value.id == "self":
                        add("attr", owner + part.attr, part.end_lineno, part.end_col_offset - len(part.attr.encode()))
            walk(node.body, inside, "function")
        elif isinstance(node, ast.Lambda):
            pass
        else:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With, ast.NamedExpr, ast.comprehension)):
                parts = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if isinstance(node, ast.With):
                    parts = [item.optional_vars for item in node.items]
                for part in filter(None, parts):
                    for name, line, column in targets(part):
                        kind = {"class": "attr", "module": "const", "function": "local"}[where]
                        if name != "_":
                            add(kind, owner + name, line, column)
            for child in ast.iter_child_nodes(node):
                visit(child, owner, where)

    walk(ast.parse(source).body, "", "module")
    return found


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        print(f"## {path}")
        for kind, name, line in list_definitions(path.read_text()):
            print(f"{kind}\t{name}\t{line}")
