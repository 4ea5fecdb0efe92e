"""Check tables of renames: every row names a definition that exists, every new name is a fresh identifier in its scope.

    python tools/renames/check.py tools/renames/data.tsv …
"""

import keyword
import sys
from pathlib import Path

from inventory import list_definitions

ROOT = Path(__file__).parents[2]


def locate(file: str) -> Path:
    return ROOT / file if file.startswith(("tests/", "benchmarks/", "tools/")) else ROOT / "src/didact" / file


def check(table: Path) -> int:
    wrong, scopes, renamed = 0, {}, {}
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split("\t")
        said = f"{table.name}:{number}: "
        if len(cells) != 4:
            print(said + f"{len(cells)} columns, 4 expected"); wrong += 1; continue
        file, kind, old, new = cells
        if file not in scopes:
            path = locate(file)
            if not path.is_file():
                print(said + f"no file {file}"); wrong += 1; continue
            scopes[file] = {(k if k != "fixture" else "function", n) for k, n, _ in list_definitions(path.read_text())}
        if ("function" if kind == "fixture" else kind, old) not in scopes[file]:
            print(said + f"no {kind} {old} in {file}"); wrong += 1
        if not new.isidentifier() or keyword.iskeyword(new):
            print(said + f"{new!r} is no identifier"); wrong += 1
        if renamed.setdefault((file, old, kind), new) != new:
            print(said + f"{old} is renamed twice"); wrong += 1
    # names of one scope after the renames: two definitions of different names must not become one
    for file, known in scopes.items():
        after: dict[str, set[str]] = {}
        for kind, name in known:
            scope, _, last = name.rpartition(".")
            new = renamed.get((file, name, kind), renamed.get((file, name, "fixture"), last))
            after.setdefault(f"{scope}.{new}", set()).add(last)
        for name, olds in after.items():
            if len(olds) > 1:
                print(f"{table.name}: {file}: {name.lstrip('.')} would stand for {sorted(olds)}"); wrong += 1
    return wrong


if __name__ == "__main__":
    total = sum(check(Path(path)) for path in sys.argv[1:])
    print(f"{total} mistakes")
    sys.exit(bool(total))
