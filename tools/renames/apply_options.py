"""Write the help texts and aliases of options.tsv into the annotations of recipes.

    python apply_options.py [--write]
"""

import ast
import importlib
import inspect
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
sys.path[:0] = [str(SRC)]

import didact.recipes  # noqa: E402, F401
from didact.options import read_options  # noqa: E402
from didact.registry import RECIPES  # noqa: E402

ROWS = [(line.split("\t") + [""] * 6)[:6] for line in (HERE / "options.tsv").read_text().splitlines() if line and not line.startswith("#")]
TREES: dict[Path, tuple[str, ast.Module]] = {}


def parse(path: Path) -> tuple[str, ast.Module]:
    if path not in TREES:
        source = path.read_text()
        TREES[path] = source, ast.parse(source)
    return TREES[path]


def file_of(module: str) -> Path:
    return Path(inspect.getsourcefile(importlib.import_module(module)))


def resolve(node: ast.expr, path: Path) -> tuple[ast.expr, Path]:
    """What a name in an annotation stands for, and the file where it stands."""
    _, tree = parse(path)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        for part in tree.body:
            if isinstance(part, ast.ImportFrom):
                for alias in part.names:
                    if (alias.asname or alias.name) == node.value.id:
                        return resolve(ast.Name(node.attr), file_of(f"{part.module}.{alias.name}"))
    if isinstance(node, ast.Name):
        for part in tree.body:
            if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and part.targets[0].id == node.id:
                return resolve(part.value, path)
            if isinstance(part, ast.ImportFrom) and (part.module or "").startswith("didact"):
                for alias in part.names:
                    if (alias.asname or alias.name) == node.id:
                        return resolve(ast.Name(alias.name), file_of(part.module))
    return node, path


def layers(node: ast.expr, path: Path):
    node, path = resolve(node, path)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        yield node, path
        yield from layers(node.slice.elts[0], path)


def main() -> None:
    wanted: dict[tuple[Path, int, int], dict] = defaultdict(lambda: {"rows": set(), "users": [], "node": None})
    used = set()
    for recipe in RECIPES.values():
        path = file_of(recipe.function.__module__)
        _, tree = parse(path)
        function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == recipe.function.__name__)
        known = read_options(recipe.function, skip=1)
        annotations = {p.arg: p.annotation for p in [*function.args.args, *function.args.kwonlyargs]}
        for option in known.values():
            matching = [n for n, row in enumerate(ROWS)
                        if option.name == row[3] and option.help.startswith(row[1]) and row[2] in ("*", recipe.name)]
            if matching:
                n = max(matching, key=lambda m: (len(ROWS[m][1]), ROWS[m][2] != "*"))
                row = ROWS[n]
            else:
                print("no row:", recipe.name, option.name, "|", option.help)
                continue
            used.add(n)
            for node, file in layers(annotations[option.name], path):
                if any(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.slice.elts[1:]):
                    entry = wanted[file, node.lineno, node.col_offset]
                    entry["rows"].add((row[4], row[5]))
                    entry["users"].append(f"{recipe.name}.{option.name}")
                    entry["node"] = node
                    break
            else:
                print("no text:", recipe.name, option.name)
    for n, row in enumerate(ROWS):
        if n not in used:
            print("unused:", row[:4])
    edits: dict[Path, list] = defaultdict(list)
    for (file, line, _), entry in wanted.items():
        if len(entry["rows"]) > 1:
            print(f"CONFLICT {file.name}:{line}", entry["users"], entry["rows"])
            continue
        ((aliases, text),) = entry["rows"]
        (constant,) = [e for e in entry["node"].slice.elts[1:] if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        edits[file].append((constant, text, [a for a in aliases.split(",") if a]))
    for file, changes in edits.items():
        source, _ = parse(file)
        lines = source.splitlines(keepends=True)
        for constant, text, aliases in sorted(changes, key=lambda c: (-c[0].lineno, -c[0].col_offset)):
            first = lines[constant.lineno - 1].encode()[:constant.col_offset].decode()
            last = lines[constant.end_lineno - 1].encode()[constant.end_col_offset:].decode()
            new = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
            if aliases:
                new += f", Aliases({', '.join(f'{a!r}' for a in aliases)})".replace("'", '"')
            lines[constant.lineno - 1:constant.end_lineno] = [first + new + last]
        if "--write" in sys.argv:
            file.write_text("".join(lines))
    print(sum(map(len, edits.values())), "annotations in", len(edits), "files")


main()
