"""The layers of the package: imports go down and never up, nothing but the command line prints, heavy libraries wait
to be needed."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import didact

LAYERS = (  # from the ground up; packages of one layer may import each other
    ("scratch",),
    ("errors", "schema", "progress", "lazy"),
    ("options",),
    ("registry",),
    ("files",),
    ("metrics", "optim", "data"),
    ("charts", "kernels", "samplers"),
    ("layers", "analysis"),
    ("adaptation",),
    ("models",),
    ("objectives",),
    ("baselines",),
    ("training", "run"),
    ("inference", "report", "serve", "explain"),
    ("claims",),
    ("recipes", "api"),
    ("doctor", "studio", "cli", "__main__"),
)
LAYER_OF_PACKAGE = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
MAY_PRINT = {"cli", "studio"}
HEAVY_LIBRARIES = {"pandas", "sklearn", "scipy", "matplotlib", "PIL", "tensorboardX", "rich", "statsmodels"}


def find_violations(root: Path) -> Iterator[str]:
    """What is wrong in the package that lies in `root`."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts == ("__init__",):   # the front door: it leads everywhere, lazily
            continue
        top_package, location = parts[0], path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if top_package not in LAYER_OF_PACKAGE:
            yield f"{location}: the package {top_package!r} is in no layer"
            continue
        package_parts = [root.name, *parts[:-1]]
        for node, name in iter_imports(tree, package_parts):
            imported_package = name.removeprefix(f"{root.name}.").split(".")[0]
            if (
                name.startswith(f"{root.name}.")
                and LAYER_OF_PACKAGE.get(imported_package, -1) > LAYER_OF_PACKAGE[top_package]
            ):
                yield f"{location}:{node.lineno}: {top_package} imports {imported_package}, which is above it"
        if top_package not in MAY_PRINT:
            yield from (f"{location}:{n.lineno}: {top_package} prints" for n in ast.walk(tree) if is_print(n))
        for node, name in iter_imports(ast.Module(list(iter_import_time_statements(tree.body)), []), package_parts):
            library = name.split(".")[0]
            if library in HEAVY_LIBRARIES and not (library == "rich" and top_package in MAY_PRINT):
                yield f"{location}:{node.lineno}: {library} is imported at once, not where it is used"


def iter_imports(tree: ast.AST, package_parts: list[str]) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """The full name of everything that is imported, inside functions and for types alone too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package_parts[: len(package_parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node, f"{module}.{alias.name}") for alias in node.names)


def is_print(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "print"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr")


def iter_import_time_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported: not the bodies of functions, nor what is there for types
    alone."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from iter_import_time_statements(node.orelse)
        elif isinstance(node, ast.ClassDef | ast.If | ast.With):
            yield from iter_import_time_statements([*node.body, *getattr(node, "orelse", [])])
        elif isinstance(node, ast.Try):
            yield from iter_import_time_statements(
                [
                    *node.body,
                    *(statement for handler in node.handlers for statement in handler.body),
                    *node.orelse,
                    *node.finalbody,
                ]
            )
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_package_layers_are_respected():
    root = Path(didact.__file__).parent
    assert len(list(root.rglob("*.py"))) > 50, "the package was not found"
    assert list(find_violations(root)) == []


VALID_SOURCES = {
    "__init__.py": "from didact.cli import main",
    "errors.py": "import sys\nfrom difflib import get_close_matches",
    "layers/norm.py": "import torch\nfrom didact.errors import UsageError",
    "models/net.py": "from didact.layers.norm import Norm\nfrom ..layers import norm\nfrom . import other",
    "models/other.py": "def f():\n    import pandas as pd\n    from matplotlib import pyplot",
    "data/tables/table.py": "from didact.metrics import accuracy\nif TYPE_CHECKING:\n    from pandas import DataFrame",
    "cli/main.py": "from rich.console import Console\nfrom didact import recipes, __version__\nprint('hello')",
    "recipes/mlp.py": "from didact.models import net\nprinted = 'print(1)'",
}


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            "layers/norm.py",
            "from didact.models.net import Net",
            "layers/norm.py:1: layers imports models, which is above it",
        ),
        ("layers/norm.py", "import didact.models.net", "layers imports models"),
        ("layers/norm.py", "from didact import training", "layers imports training"),
        ("layers/norm.py", "from ..models import net", "layers imports models"),
        ("layers/norm.py", "from .. import models", "layers imports models"),
        (
            "layers/norm.py",
            "def f():\n    from didact.training.loop import Trainer",
            "layers/norm.py:2: layers imports training",
        ),
        (
            "data/core.py",
            "if TYPE_CHECKING:\n    from didact.objectives import core",
            "data/core.py:2: data imports objectives",
        ),
        ("errors.py", "from didact.options import Option", "errors imports options"),
        ("scratch/autograd/engine.py", "from didact.errors import UsageError", "scratch imports errors"),
        ("training/loop.py", "from didact.recipes import mlp", "training imports recipes"),
        ("run.py", "from didact import cli", "run imports cli"),
        ("recipes/mlp.py", "import didact.cli.main", "recipes imports cli"),
        ("training/loop.py", "def f():\n    print(1)", "training/loop.py:2: training prints"),
        ("training/loop.py", "import sys\nsys.stderr.write('x')", "training prints"),
        ("data/tables/table.py", "import pandas as pd", "data/tables/table.py:1: pandas is imported at once"),
        (
            "data/tables/table.py",
            "try:\n    from PIL import Image\nexcept ImportError:\n    pass",
            "PIL is imported at once",
        ),
        ("report/page.py", "class A:\n    from matplotlib import pyplot", "matplotlib is imported at once"),
        ("training/fit.py", "from rich.progress import track", "rich is imported at once"),
        ("cli/main.py", "import sklearn.datasets", "sklearn is imported at once"),
        ("attic/box.py", "x = 1", "the package 'attic' is in no layer"),
    ],
)
def test_violations_are_reported(tmp_path, file, text, expected):
    root = tmp_path / "didact"
    for name, content in VALID_SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    assert list(find_violations(root)) == []
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)
    (violation,) = find_violations(root)
    assert expected in violation


def test_no_two_test_modules_are_taken_for_each_other(pytestconfig):
    """pytest imports test files by their paths; helpers, and all files in another import mode, by their base names."""
    paths = [path for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py"]
    if pytestconfig.getoption("importmode") == "importlib":
        paths = [path for path in paths if path.parent.name == "helpers"]
    assert len(paths) > 10, "the helpers were not found"
    names = Counter(path.name for path in paths)
    assert not [name for name, count in names.items() if count > 1]
