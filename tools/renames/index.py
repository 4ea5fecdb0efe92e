"""Ask pyright where every name that may be renamed is defined; the answers are kept for apply.py.

    python index.py ROOT PYTHON PYRIGHT OUT.pickle src/didact/data src/didact/cli …
"""

import ast
import pickle
import sys
import time
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from lsp import Server

HERE = Path(__file__).parent


def wanted_names() -> set[str]:
    names = set()
    for table in HERE.glob("*.tsv"):
        for line in table.read_text().splitlines():
            cells = line.split("\t")
            if line.startswith("#"):
                continue
            if len(cells) == 4:
                names.add(cells[2].rpartition(".")[2])
            elif len(cells) == 2:
                old, new = cells[0].rpartition("/")[2], cells[1].rpartition("/")[2]
                if old != new:
                    names.add(old)
                names.update(cells[0].split("/")[:-1])
    for test in (HERE.parents[1] / "tests").rglob("*.py"):     # every fixture, so that their table may come later
        for node in ast.walk(ast.parse(test.read_text())):
            if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(d) for d in node.decorator_list):
                names.add(node.name)
    return names


class Tokens(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, ParentNodeProvider)

    def __init__(self) -> None:
        self.tokens: list[tuple[int, int, str, str, tuple | None]] = []   # line, column, text, role, callee's place of a keyword
        self.bases: list[tuple[str, int, int, list[tuple[int, int]]]] = []  # class, line, column, places of its bases

    def place(self, node) -> tuple[int, int]:
        p = self.get_metadata(PositionProvider, node).start
        return p.line, p.column

    def visit_Name(self, node: cst.Name) -> None:
        parent = self.get_metadata(ParentNodeProvider, node)
        role, extra = "name", None
        if isinstance(parent, cst.Attribute):
            role = "attr" if parent.attr is node else "name"
            if inside_import(self, parent):
                return
        elif isinstance(parent, cst.Arg) and parent.keyword is node:
            role = "kwarg"
            call = self.get_metadata(ParentNodeProvider, parent)
            if isinstance(call, cst.Call):
                func = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
                first = None
                if call.args and call.args[0].keyword is None and isinstance(call.args[0].value, cst.Name | cst.Attribute):
                    a = call.args[0].value
                    first = self.place(a.attr if isinstance(a, cst.Attribute) else a)
                extra = (self.place(func), func.value if isinstance(func, cst.Name) else "", first)
        elif isinstance(parent, cst.Param) and parent.name is node:
            role = "param"
        elif isinstance(parent, cst.FunctionDef | cst.ClassDef) and parent.name is node:
            role = "def"
        elif isinstance(parent, cst.ImportAlias):
            role = "import" if inside_from(self, parent) else "module"
            if role == "module":
                return
        elif isinstance(parent, cst.AsName):
            role = "asname"
        elif isinstance(parent, cst.ImportFrom):
            return
        self.tokens.append((*self.place(node), node.value, role, extra))

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        places = []
        for arg in node.bases:
            base = arg.value
            while isinstance(base, cst.Subscript):
                base = base.value
            if isinstance(base, cst.Attribute):
                base = base.attr
            if isinstance(base, cst.Name):
                places.append(self.place(base))
        self.bases.append((node.name.value, *self.place(node.name), places))


def inside_import(self, node) -> bool:
    while isinstance(node, cst.Attribute | cst.ImportAlias):
        if isinstance(node, cst.ImportAlias):
            return True
        node = self.get_metadata(ParentNodeProvider, node)
    return isinstance(node, cst.ImportFrom)


def inside_from(self, alias) -> bool:
    return isinstance(self.get_metadata(ParentNodeProvider, alias), cst.ImportFrom)


def main() -> None:
    root, python, pyright, out, *prefixes = sys.argv[1:]
    root = Path(root).resolve()
    wanted = wanted_names()
    files = sorted(f for p in prefixes for f in ([root / p] if (root / p).is_file() else (root / p).rglob("*.py")))
    server = Server(root, python, pyright)
    index: dict[str, dict] = {}
    start = time.time()
    for n, path in enumerate(files):
        visitor = Tokens()
        MetadataWrapper(cst.parse_module(path.read_text())).visit(visitor)
        asked = [i for i, t in enumerate(visitor.tokens) if t[2] in wanted and t[3] not in ("param",)]
        lines = path.read_text().splitlines()

        def unit(line: int, column: int) -> tuple[int, int]:   # columns of the protocol count UTF-16 units
            return line, len(lines[line - 1][:column].encode("utf-16-le")) // 2

        base_places = [p for _, _, _, places in visitor.bases for p in places]
        callee = {t[4][0] for i in asked if (t := visitor.tokens[i])[4]} | {t[4][2] for i in asked if (t := visitor.tokens[i])[4] and t[4][2]}
        places = [(visitor.tokens[i][0], visitor.tokens[i][1]) for i in asked] + base_places + sorted(callee)
        if places:
            server.open(path)
            if n == 0:
                time.sleep(2)
            answers = dict(zip(places, server.definitions(path, [unit(*p) for p in places]), strict=True))
            server.close(path)
        else:
            answers = {}
        index[path.relative_to(root).as_posix()] = {
            "tokens": visitor.tokens, "bases": visitor.bases,
            "answers": {p: [(Path(f).relative_to(root).as_posix(), line, column) if Path(f).is_relative_to(root) else (f, line, column)
                            for f, line, column in found] for p, found in answers.items()},
        }
        print(f"{n + 1}/{len(files)} {time.time() - start:.0f} s {path.relative_to(root)} {len(places)}", flush=True)
        Path(out).write_bytes(pickle.dumps(index))


main()
