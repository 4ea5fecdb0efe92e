"""Did a rename make two names one, or hide one behind another? Each scope must hold as many names of each sort as before.

    python scopecheck.py ROOT OLD_REVISION
"""

import ast
import subprocess
import symtable
import sys
from collections import Counter
from pathlib import Path

from apply import Tables


def sorts(table: symtable.SymbolTable) -> Counter:
    return Counter((s.is_local(), s.is_global(), s.is_parameter(), s.is_free(), s.is_imported(), s.is_assigned(), s.is_namespace())
                   for s in table.get_symbols())


def compare(old: symtable.SymbolTable, new: symtable.SymbolTable, where: str) -> list[str]:
    wrong = []
    imported = (sum(s.is_imported() for s in old.get_symbols()), sum(s.is_imported() for s in new.get_symbols()))
    if sorts(old) != sorts(new):
        a, b = {s.get_name() for s in old.get_symbols()}, {s.get_name() for s in new.get_symbols()}
        wrong.append(f"{where}: scope {old.get_name()} line {old.get_lineno()}->{new.get_lineno()}: {len(a)} names, now {len(b)}; imported {imported}; gone {sorted(a - b)}, new {sorted(b - a)}; "
                     f"{dict(sorts(old) - sorts(new))} -> {dict(sorts(new) - sorts(old))}")
    children = (old.get_children(), new.get_children())
    if len(children[0]) != len(children[1]):
        return [*wrong, f"{where}: {old.get_name()} has other children"]
    for one, other in zip(*children, strict=True):
        wrong += compare(one, other, where)
    return wrong


def members(source: str) -> list[int]:
    counts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            names = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            names |= {p.attr for p in ast.walk(node) if isinstance(p, ast.Attribute) and isinstance(p.value, ast.Name) and p.value.id == "self"}
            names |= {t.id for n in node.body if isinstance(n, ast.AnnAssign | ast.Assign) for t in ast.walk(n) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}
            counts.append((node.lineno, len(names)))
    return [n for _, n in sorted(counts)]


def main() -> None:
    root, revision = Path(sys.argv[1]), sys.argv[2]
    tables = Tables()
    files = subprocess.run(["git", "ls-tree", "-r", "--name-only", revision], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for old in files:
        if not old.endswith(".py") or not old.startswith(("src/", "tests/", "benchmarks/", "tools/")) or old.startswith("tools/renames"):
            continue
        stem = old.removeprefix("src/didact/").removesuffix(".py")
        new = f"src/didact/{tables.modules[stem]}.py" if old.startswith("src/didact/") and stem in tables.modules else tables.tests.get(old, old)
        before = subprocess.run(["git", "show", f"{revision}:{old}"], cwd=root, capture_output=True, text=True, check=True).stdout
        path = root / new
        if not path.is_file():
            print(f"{old}: no {new}")
            continue
        after = path.read_text()
        wrong = compare(symtable.symtable(before, old, "exec"), symtable.symtable(after, new, "exec"), new)
        if members(before) != members(after):
            wrong.append(f"{new}: the number of a class's members changed: {members(before)} -> {members(after)}")
        bad += len(wrong)
        print("\n".join(wrong)) if wrong else None
    print(f"{bad} scopes differ")


main()
