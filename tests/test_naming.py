"""The language of the house: names are the field's words, folders hold what can be looked over, lines are short."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import didact

PACKAGE = Path(didact.__file__).parent
ROOT = Path(__file__).parents[1]
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_FILES = 25
MAX_COLUMNS = 120

# Words that end as a participle does and are none.
NOT_PARTICIPLES = {"embed", "unembed", "feed", "seed", "need", "proceed", "exceed", "red", "speed"}
IRREGULAR_PARTICIPLES = {
    "begun", "built", "chosen", "drawn", "fed", "found", "given", "held", "hidden", "kept", "known", "left", "made",
    "said", "seen", "sent", "shown", "spoken", "spent", "taken", "thought", "told", "understood", "written",
}  # fmt: skip
# The private dialect of earlier versions: none of these words is part of a name.
FORBIDDEN_WORDS = {
    "told", "said", "asked", "whence", "beside", "glimpse", "breathe", "breath", "swift", "surprise", "exhibit",
    "exhibited", "heed", "heeded", "begun", "parted",
}  # fmt: skip


def is_participle(name: str) -> bool:
    """Whether a function is called by what was done (`told`, `swapped_in`), not by what it does.

    With a noun a participle is an adjective: `fused_attention`.
    """
    word, *rest = name.split("_")
    is_bare = not set(rest) - {"in", "out", "off", "up", "with", "by"}
    return is_bare and (word in IRREGULAR_PARTICIPLES or (word.endswith("ed") and word not in NOT_PARTICIPLES))


def list_functions(path: Path) -> list[tuple[str, ast.FunctionDef]]:
    """Every function and method of a file with its qualified name; those inside of functions are nobody's interface."""
    tree = ast.parse(path.read_text())
    functions = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            methods = (child for child in node.body if isinstance(child, ast.FunctionDef))
            functions += [(f"{node.name}.{child.name}", child) for child in methods]
    return functions


def is_value(node: ast.FunctionDef) -> bool:
    """Properties and cached properties are values: nouns and adjectives name them well."""
    names = {ast.unparse(d).split("(")[0].rsplit(".", 1)[-1] for d in node.decorator_list}
    return bool(names & {"property", "cached_property", "recipe", "claim", "answer", "fixture", "setter"})


def find_bare_participles(path: Path) -> list[str]:
    return [
        name
        for name, node in list_functions(path)
        if not node.name.startswith("_") and is_participle(node.name) and not is_value(node)
    ]


def find_forbidden_words(path: Path) -> list[str]:
    """Names of functions, classes, parameters and attributes that hold a word of the dialect."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return sorted(name for name in names if FORBIDDEN_WORDS & set(split_words(name)))


def split_words(name: str) -> list[str]:
    """open_fileHandle -> open, file, handle."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def test_participles_are_found():
    names = ("told", "swapped_in", "joined", "load", "embed", "read", "fused_attention", "is_joined")
    assert [name for name in names if is_participle(name)] == ["told", "swapped_in", "joined"]
    assert split_words("_open_fileHandle2") == ["open", "file", "handle"]


def test_no_public_function_is_named_by_a_bare_participle():
    found = {str(path.relative_to(PACKAGE)): names for path in MODULES if (names := find_bare_participles(path))}
    assert not found


def test_no_name_holds_a_word_of_the_dialect():
    found = {str(path.relative_to(PACKAGE)): names for path in MODULES if (names := find_forbidden_words(path))}
    assert not found


@pytest.mark.parametrize("root", ["src", "tests", "benchmarks"])
def test_no_folder_has_more_files_than_can_be_looked_over(root):
    counts = Counter(path.parent for path in (ROOT / root).rglob("*.py"))
    assert not {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > MAX_FILES and f.name != "recipes"}


@pytest.mark.parametrize("root", ["src", "tests", "benchmarks"])
def test_no_line_is_longer_than_120_columns(root):
    long_lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / root).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_COLUMNS and "# noqa" not in line and "# type:" not in line
    ]
    assert not long_lines


def test_every_package_says_what_is_where():
    """An __init__ with a docstring, and what it exports in __all__."""
    silent = []
    for path in PACKAGE.rglob("__init__.py"):
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            silent.append(str(path.relative_to(PACKAGE)))
    assert not silent
