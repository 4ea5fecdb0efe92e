"""Wrap what is longer than 120 columns: statements by ruff's formatter, comments and docstrings at a space.

    python tools/wrap_lines.py src tests benchmarks
"""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

WIDTH = 120
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Assert, ast.Delete, ast.Import, ast.ImportFrom)


def long_lines(source: str) -> list[int]:
    return [n for n, line in enumerate(source.splitlines(), 1) if len(line) > WIDTH]


def strings_of(tree: ast.Module) -> set[int]:
    """Lines inside of docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                found.update(range(first.lineno, first.end_lineno + 1))
    return found


def wrap_text(path: Path) -> None:
    """Trailing comments move above their line, long comments and docstring lines break at a space."""
    source = path.read_text()
    docs = strings_of(ast.parse(source))
    comments = {t.start[0]: t.start[1] for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT}
    out: list[str] = []
    for n, line in enumerate(source.splitlines(), 1):
        if len(line) <= WIDTH:
            out.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        if n in comments:
            code, comment = line[: comments[n]].rstrip(), line[comments[n]:].lstrip("# ")
            if comment.startswith(("noqa", "type:", "fmt:")):
                out.append(line)
                continue
            special = ""
            for mark in ("  # noqa", "  # type:"):      # what tools read stays on its line
                if mark in line[comments[n]:]:
                    comment, _, rest = comment.partition(mark)
                    special = mark + rest
            if comment.startswith("…") or (out and out[-1].rstrip().endswith("…")):
                special = special or ""
            closing = code.strip() in (")", "]", "}", "", "):") and bool(code.strip())
            words = indent + ("    " if closing else "") + "# " + comment
            while len(words) > WIDTH:
                cut = words.rfind(" ", 0, WIDTH)
                out.append(words[:cut])
                words = indent + "# " + words[cut + 1:]
            out.append(words)
            if code.strip():
                out.append(code + special)
        elif n in docs:
            rest = line
            while len(rest) > WIDTH:
                cut = rest.rfind(" ", len(indent) + 20, WIDTH - 3)
                if cut < 0:
                    break
                out.append(rest[:cut])
                rest = indent + rest[cut + 1:]
            out.append(rest)
        else:
            out.append(line)
    new = "\n".join(out) + "\n"
    if docs_value(source) == docs_value(new):
        path.write_text(new)
    else:
        print(f"{path}: code would change")


def docs_value(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                first.value.value = ""
    return ast.dump(tree)


def statements(tree: ast.Module):
    """(first line, last line) of simple statements and of the heads of compound ones."""
    for node in ast.walk(tree):
        if isinstance(node, SIMPLE):
            yield node.lineno, node.end_lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If | ast.For | ast.While | ast.With):
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            yield start, node.body[0].lineno - 1 if node.body[0].lineno > node.lineno else node.lineno


def wrap_code(path: Path, ruff: str) -> None:
    for _ in range(400):
        source = path.read_text()
        docs = strings_of(ast.parse(source))
        spans = sorted(set(statements(ast.parse(source))), key=lambda s: s[1] - s[0])
        for n in reversed(long_lines(source)):
            span = next((s for s in spans if s[0] <= n <= s[1]), None)
            if n in docs or span is None or (path, "\n".join(source.splitlines()[span[0] - 1: span[1]])) in TRIED:
                continue
            TRIED.add((path, "\n".join(source.splitlines()[span[0] - 1: span[1]])))
            out = subprocess.run([ruff, "format", "-q", "--line-length", str(WIDTH), "--config", "format.skip-magic-trailing-comma=true",
                                  "--range", f"{span[0]}-{span[1] + 1}", "--stdin-filename", path.name, "-"], input=source, capture_output=True, text=True)
            if out.returncode == 0 and ast.dump(ast.parse(out.stdout)) == ast.dump(ast.parse(source)):
                path.write_text(out.stdout)
                break
        else:
            return


TRIED: set[tuple[Path, str]] = set()

if __name__ == "__main__":
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).rglob("*.py")) if Path(folder).is_dir() else [Path(folder)]:
            if long_lines(path.read_text()):
                wrap_text(path)
                wrap_code(path, str(Path(sys.executable).parent / "ruff"))
                wrap_text(path)
