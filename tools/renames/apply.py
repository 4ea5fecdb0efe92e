"""Apply the tables of this folder: rename by pyright's definitions, move modules, rewrite imports and the texts that name them.

    python apply.py INDEX.pickle ROOT [--write]

Without --write it only reports. Everything that it could not decide is listed in REPORT, one line each.
"""

import ast
import pickle
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from inventory import list_places

HERE = Path(__file__).parent
REPORT = Path("/tmp/ren/report.txt")
Place = tuple[str, int, int]
TEXTS = (".md", ".toml", ".sh", ".yml", ".yaml", ".cfg", ".txt")


class Tables:
    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        self.modules: dict[str, str] = {}
        self.tests: dict[str, str] = {}
        for table in sorted(HERE.glob("*.tsv"), key=lambda t: (t.name == "override.tsv", t.name)):
            for line in table.read_text().splitlines():
                if not line.strip() or line.startswith("#"):
                    continue
                cells = line.split("\t")
                if table.name in ("options.tsv", "strings.tsv", "unresolved.tsv"):
                    continue
                if len(cells) == 2:
                    (self.tests if cells[0].startswith("tests/") else self.modules)[cells[0]] = cells[1]
                elif len(cells) == 4:
                    file, kind, old, new = cells
                    path = file if file.startswith(("tests/", "benchmarks/", "tools/")) else f"src/didact/{file}"
                    self.rows[path][kind, old] = new
        self.unresolved: dict[tuple[str, str, str], str] = {}
        if (HERE / "unresolved.tsv").exists():
            for line in (HERE / "unresolved.tsv").read_text().splitlines():
                if line.strip() and not line.startswith("#"):
                    role, name, file, new = line.split("\t")
                    self.unresolved[role, name, file] = new


class Renamer:
    def __init__(self, index: dict, root: Path):
        self.index, self.root, self.tables = index, root, Tables()
        self.log: list[str] = []
        self.places = {f: list_places((root / f).read_text()) for f in index}
        self.owner: dict[Place, tuple[str, str]] = {}       # place -> (kind, qualified)
        self.targets: dict[Place, str] = {}
        for file, places in self.places.items():
            for (kind, name), found in places.items():
                for line, column in found:
                    self.owner[file, line, column] = (kind, name)
        for file, rows in self.tables.rows.items():
            if file not in self.places:
                self.say("NOFILE", file, "")
                continue
            for (kind, old), new in rows.items():
                found = self.places[file].get(("function" if kind == "fixture" else kind, old))
                if not found:
                    self.say("MISSING", file, f"{kind} {old}")
                    continue
                for line, column in found:
                    self.targets[file, line, column] = new
        self.classes()
        self.propagate()
        self.fixtures()
        self.fallback = self.unambiguous()

    def say(self, what: str, file: str, text: str) -> None:
        self.log.append(f"{what}\t{file}\t{text}")

    # classes and their members -------------------------------------------------------------------------------------
    def classes(self) -> None:
        self.bases: dict[Place, set[Place]] = {}
        self.class_name: dict[Place, str] = {}
        for file, entry in self.index.items():
            for name, line, column, bases in entry["bases"]:
                key = (file, line, column)
                self.bases[key] = {d for b in bases for d in entry["answers"].get(b, [])}
                self.class_name[key] = self.owner.get(key, ("", name))[1]
        self.members: dict[Place, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
        by_name = {(f, self.class_name[f, line, c]): (f, line, c) for f, line, c in self.bases}
        for place, (kind, name) in self.owner.items():
            if kind in ("method", "attr"):
                owner, _, last = name.rpartition(".")
                if (place[0], owner) in by_name:
                    self.members[by_name[place[0], owner]][last].append(place)

    def ancestors(self, cls: Place) -> set[Place]:
        found, todo = set(), [cls]
        while todo:
            for base in self.bases.get(todo.pop(), ()):
                if base not in found:
                    found.add(base)
                    todo.append(base)
        return found

    def propagate(self) -> None:
        parent: dict[tuple[Place, str], tuple[Place, str]] = {}

        def root(key):
            while parent.setdefault(key, key) != key:
                key = parent[key]
            return key

        # a mixin's sibling counts too: where C(A, B), A.m and B.m are one name
        for cls in self.bases:
            family = [cls, *self.ancestors(cls)]
            names = {n for c in family for n in self.members.get(c, ())}
            for name in names:
                holders = [c for c in family if name in self.members.get(c, ())]
                for other in holders[1:]:
                    parent[root((other, name))] = root((holders[0], name))
        groups: dict = defaultdict(list)
        for cls in self.bases:
            for name in self.members.get(cls, ()):
                groups[root((cls, name))].append(cls)
        for (_, name), holders in groups.items():
            news = {self.targets[p] for c in holders for p in self.members[c][name] if p in self.targets}
            if not news or name.startswith("__"):
                continue
            if len(news) > 1:
                self.say("CONFLICT", holders[0][0], f"{name}: {sorted(news)} in " + ", ".join(f"{c[0]}:{self.class_name[c]}={self.targets.get(self.members[c][name][0])}" for c in holders))
                continue
            for c in holders:
                for p in self.members[c][name]:
                    if p not in self.targets:
                        self.say("INHERITED", c[0], f"{self.class_name[c]}.{name} -> {next(iter(news))}")
                    self.targets[p] = next(iter(news))
        # parameters of overriding methods follow
        for (_, name), holders in groups.items():
            params: dict[str, set[str]] = defaultdict(set)
            for c in holders:
                prefix = f"{self.class_name[c]}.{name}."
                for (kind, q), found in self.places[c[0]].items():
                    if kind == "param" and q.startswith(prefix) and q.count(".") == prefix.count("."):
                        for p in found:
                            if (c[0], *p) in self.targets:
                                params[q.rpartition(".")[2]].add(self.targets[c[0], *p])
            if name.startswith("__"):
                continue
            for old, news in params.items():
                if len(news) > 1:
                    self.say("PARAMS", holders[0][0], f"{name}({old}): {sorted(news)} in " + ", ".join(self.class_name[c] for c in holders))
                    continue
                for c in holders:
                    for p in self.places[c[0]].get(("param", f"{self.class_name[c]}.{name}.{old}"), []):
                        self.targets.setdefault((c[0], *p), next(iter(news)))

    # fixtures: a parameter of a test is the fixture of its name ---------------------------------------------------
    def fixtures(self) -> None:
        named: dict[str, dict[str, str]] = {}      # file -> old fixture -> new
        for file, rows in self.tables.rows.items():
            for (kind, old), new in rows.items():
                if kind == "fixture":
                    named.setdefault(file, {})[old] = new
        self.fixture_scope: dict[str, dict[str, str]] = {}
        for file in self.places:
            if not file.startswith("tests/"):
                continue
            seen = dict(named.get(file, {}))
            folder = Path(file).parent
            defined = {q for (kind, q) in self.places[file] if kind == "function"}
            while True:
                for old, new in named.get((folder / "conftest.py").as_posix(), {}).items():
                    if old not in seen and old not in defined:
                        seen[old] = new
                if folder.as_posix() in (".", "tests"):
                    break
                folder = folder.parent
            # fixtures that are imported by name
            for line, column, text, role, _ in self.index[file]["tokens"]:
                if role == "import":
                    for d in self.index[file]["answers"].get((line, column), []):
                        if self.owner.get(d, ("",))[0] == "function" and self.targets.get(d) and text in named.get(d[0], {}):
                            seen[text] = named[d[0]][text]
            self.fixture_scope[file] = seen
            for (kind, q), found in self.places[file].items():
                owner, _, last = q.rpartition(".")
                if kind == "param" and last in seen and self.takes_fixtures(file, owner):
                    for p in found:
                        if last not in self.parametrized(file, owner):
                            self.targets.setdefault((file, *p), seen[last])

    def parametrized(self, file: str, function: str) -> set[str]:
        """Parameters of a test that its decorators give: they are no fixtures, whatever their names."""
        cache = self.__dict__.setdefault("_parametrized", {})
        if file not in cache:
            cache[file] = {}
            for n in ast.walk(ast.parse((self.root / file).read_text())):
                if isinstance(n, ast.FunctionDef):
                    names = cache[file].setdefault(n.name, set())
                    for d in n.decorator_list:
                        if isinstance(d, ast.Call) and getattr(d.func, "attr", getattr(d.func, "id", "")) in ("parametrize", "given"):
                            names.update(k.arg for k in d.keywords)
                            for part in ast.walk(d.args[0]) if d.args else ():
                                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                                    names.update(re.findall(r"\w+", part.value))
        return cache[file].get(function.rpartition(".")[2], set())

    def takes_fixtures(self, file: str, function: str) -> bool:
        if function.rpartition(".")[2].startswith("test_"):
            return True
        cache = self.__dict__.setdefault("_fixtures", {})
        if file not in cache:
            cache[file] = {n.name for n in ast.walk(ast.parse((self.root / file).read_text()))
                           if isinstance(n, ast.FunctionDef) and any("fixture" in ast.unparse(d) for d in n.decorator_list)}
        return function in cache[file]

    # names that mean one thing wherever they stand ----------------------------------------------------------------
    def unambiguous(self) -> dict[str, str]:
        """Attributes that all have one new name: for what pyright could not resolve."""
        olds, stays = defaultdict(set), set()
        for place, (kind, name) in self.owner.items():
            if kind in ("method", "attr") and place[0].startswith("src/"):
                last = name.rpartition(".")[2]
                if place in self.targets:
                    olds[last].add(self.targets[place])
                else:
                    stays.add(last)
        return {old: next(iter(news)) for old, news in olds.items() if len(news) == 1 and old not in stays}

    def decide(self, file: str, token) -> str | None:
        line, column, text, role, extra = token
        place = (file, line, column)
        if place in self.targets:
            return self.targets[place]
        if role == "param" or (role == "def"):
            return None
        answers = self.index[file]["answers"].get((line, column))
        if answers is None:
            return None
        inside = [d for d in answers if not d[0].startswith("/") and not d[0].startswith(".venv")]
        if inside:
            modules = {d for d in inside if d[1:] == (1, 0) and d not in self.owner}
            if modules:
                return self.module_base(file, text, modules)
            news = {self.targets.get(d) for d in inside}
            if news == {None}:
                return None
            some = news - {None}
            if len(some) > 1:
                self.say("AMBIGUOUS", file, f"{line}:{column} {role} {text} -> {sorted(some)}")
                return None
            if None in news:
                self.say("PARTIAL", file, f"{line}:{column} {role} {text} -> {next(iter(some))}, not at " + ", ".join(f"{d[0]}:{d[1]}" for d in inside if d not in self.targets))
            return next(iter(some))
        if answers:
            return None     # torch's, the library's
        for key in ((role, text, file), (role, text, "")):
            if key in self.tables.unresolved:
                new = self.tables.unresolved[key]
                return None if new in ("", "-") else new
        if role == "kwarg" and extra:
            verdict, new = self.keyword(file, text, extra)
            if verdict:
                return new
        if role in ("attr", "kwarg") and text in self.fallback:
            self.say("GUESSED", file, f"{line}:{column} {role} {text} -> {self.fallback[text]}")
            return self.fallback[text]
        if role in ("attr", "kwarg") and any(name.rpartition(".")[2] == text and p in self.targets for p, (k, name) in self.by_last.get(text, [])):
            self.say("UNRESOLVED", file, f"{line}:{column} {role} {text}   {self.line(file, line)}")
        return None

    def line(self, file: str, line: int) -> str:
        return (self.root / file).read_text().splitlines()[line - 1].strip()[:140]

    @property
    def by_last(self):
        if not hasattr(self, "_by_last"):
            self._by_last = defaultdict(list)
            for p, (k, name) in self.owner.items():
                if k in ("method", "attr", "param"):
                    self._by_last[name.rpartition(".")[2]].append((p, (k, name)))
        return self._by_last

    def keyword(self, file: str, text: str, extra) -> tuple[bool, str | None]:
        """(known, new name) of a keyword whose callee pyright knows: partial(f, x=…), classes, functions."""
        func, name, first = extra
        spot = first if name == "partial" and first else func
        for d in self.index[file]["answers"].get(spot, []):
            if d not in self.owner:
                continue
            kind, qualified = self.owner[d]
            if kind == "class":
                for cls in [d, *self.ancestors(d)]:
                    base = self.class_name.get(cls)
                    for key in (("param", f"{base}.__init__.{text}"), ("attr", f"{base}.{text}")):
                        for p in self.places.get(cls[0], {}).get(key, []):
                            return True, self.targets.get((cls[0], *p))
            else:
                for p in self.places[d[0]].get(("param", f"{qualified}.{text}"), []):
                    return True, self.targets.get((d[0], *p))
        return False, None

    # keywords of registered models: @register(name, k=…), create(name, k=…), MODELS[name](k=…), keys of example() ----
    def params_of(self, cls: Place) -> dict[str, str]:
        news: dict[str, str] = {}
        for c in [*reversed(list(self.ancestors(cls))), cls]:
            prefix = f"{self.class_name.get(c)}.__init__."
            for (kind, q), found in self.places.get(c[0], {}).items():
                if kind == "param" and q.startswith(prefix):
                    old = q.rpartition(".")[2]
                    for p in found:
                        if (c[0], *p) in self.targets:
                            news[old] = self.targets[c[0], *p]
        return news

    def registered(self) -> dict[str, dict[str, str]]:
        if not hasattr(self, "_registered"):
            self._registered = {}
            for file in self.index:
                if file.startswith("src/didact/models/"):
                    for node in ast.parse((self.root / file).read_text()).body:
                        if isinstance(node, ast.ClassDef):
                            (place,) = self.places[file]["class", node.name]
                            for d in node.decorator_list:
                                if isinstance(d, ast.Call) and getattr(d.func, "id", "") == "register":
                                    self._registered[d.args[0].value] = self.params_of((file, *place))
        return self._registered

    def extra(self, file: str, source: str) -> list[tuple[int, int, int, str]]:
        """(line, column, length, new) of names that are keywords by way of the registry, or keys of an example."""
        lines = source.splitlines()
        edits: list[tuple[int, int, int, str]] = []

        def column(line: int, offset: int) -> int:
            return len(lines[line - 1].encode()[:offset].decode())

        def keywords(call: ast.Call, news: dict[str, str]) -> None:
            for k in call.keywords:
                if k.arg in news:
                    edits.append((k.lineno, column(k.lineno, k.col_offset), len(k.arg), news[k.arg]))

        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and file.startswith("src/didact/models/") and ("class", node.name) in self.places[file]:
                (place,) = self.places[file]["class", node.name]
                news = self.params_of((file, *place))
                for d in node.decorator_list:
                    if isinstance(d, ast.Call) and getattr(d.func, "id", "") == "register":
                        keywords(d, news)
                for f in node.body:
                    if isinstance(f, ast.FunctionDef) and f.name == "example":
                        for part in ast.walk(f):
                            if isinstance(part, ast.Dict):
                                for k in part.keys:
                                    if isinstance(k, ast.Constant) and k.value in news:
                                        edits.append((k.lineno, column(k.lineno, k.col_offset) + 1, len(k.value), news[k.value]))
            if isinstance(node, ast.FunctionDef) and file.startswith("tests/"):
                edits += [(e.lineno, column(e.lineno, offset), len(old), new) for e, offset, old, new in self.decorated(file, node, lines)]
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "getfixturevalue" and isinstance(node.args[0], ast.Constant):
                if new := self.fixture_scope.get(file, {}).get(node.args[0].value):
                    edits.append((node.lineno, column(node.args[0].lineno, node.args[0].col_offset) + 1, len(node.args[0].value), new))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("setattr", "getattr", "hasattr", "delattr", "attrgetter"):
                named = node.args[1] if len(node.args) > 1 else None
                if isinstance(named, ast.Constant) and isinstance(named.value, str) and (new := self.patched(file, node, named.value)):
                    edits.append((named.lineno, column(named.lineno, named.col_offset) + 1, len(named.value), new))
            if isinstance(node, ast.Call):
                name = None
                if getattr(node.func, "id", "") == "create" and node.args and isinstance(node.args[0], ast.Constant):
                    name = node.args[0].value
                elif isinstance(node.func, ast.Subscript) and getattr(node.func.value, "id", "") == "MODELS" and isinstance(node.func.slice, ast.Constant):
                    name = node.func.slice.value
                if name in self.registered():
                    keywords(node, self.registered()[name])
        return edits

    def decorated(self, file: str, function: ast.FunctionDef, lines: list[str]):
        """(node, column in bytes, old, new) of parameters that decorators name: parametrize("a, b", …), usefixtures("x"), given(x=…)."""
        news = {}
        for a in [*function.args.args, *function.args.kwonlyargs]:
            place = (file, a.lineno, len(lines[a.lineno - 1].encode()[:a.col_offset].decode()))
            if place in self.targets:
                news[a.arg] = self.targets[place]
        scope = self.fixture_scope.get(file, {})
        for d in function.decorator_list:
            if not isinstance(d, ast.Call):
                continue
            name = getattr(d.func, "attr", getattr(d.func, "id", ""))
            if name == "given":
                for k in d.keywords:
                    if k.arg in news:
                        yield k, k.col_offset, k.arg, news[k.arg]
            elif name in ("parametrize", "usefixtures"):
                parts = d.args if name == "usefixtures" else d.args[:1]
                for part in parts:
                    for e in part.elts if isinstance(part, ast.Tuple | ast.List) else [part]:
                        if isinstance(e, ast.Constant) and isinstance(e.value, str):
                            table = scope if name == "usefixtures" else news
                            for m in re.finditer(r"\w+", e.value):
                                if m.group() in table:
                                    yield e, e.col_offset + 1 + m.start(), m.group(), table[m.group()]

    def patched(self, file: str, node: ast.Call, old: str) -> str | None:
        """The new name of an attribute that is named by a string, as in setattr(Trainer, "advance", …)."""
        target = node.args[0]
        at = (target.end_lineno, target.end_col_offset - len(target.attr)) if isinstance(target, ast.Attribute) else (target.lineno, target.col_offset)
        for d in self.index[file]["answers"].get(at, []):
            kind, name = self.owner.get(d, ("", ""))
            if kind == "class":
                for cls in [d, *self.ancestors(d)]:
                    for p in self.members.get(cls, {}).get(old, []):
                        if p in self.targets:
                            return self.targets[p]
            if d[1:] == (1, 0) and d not in self.owner:
                for k in ("function", "class", "const"):
                    for line, column in self.places.get(d[0], {}).get((k, old), []):
                        if (d[0], line, column) in self.targets:
                            return self.targets[d[0], line, column]
        news = {self.targets.get(p) for p, (k, name) in self.owner.items()
                if p[0].startswith("src/") and name.rpartition(".")[2] == old and k in ("function", "class", "const", "method", "attr")}
        if len(news) == 1:
            return next(iter(news))
        if news - {None}:
            self.say("PATCHED", file, f"{node.lineno} {ast.unparse(node)[:100]}: {sorted(str(n) for n in news)}")
        return None

    def module_base(self, file: str, text: str, modules: set[Place]) -> str | None:
        news = set()
        for d in modules:
            old = d[0].removeprefix("src/didact/").removesuffix(".py")
            if old in self.tables.modules and old.rpartition("/")[2] == text:
                news.add(self.tables.modules[old].rpartition("/")[2])
        if len(news) == 1 and (new := next(iter(news))) != text:
            return new
        return None

    # texts ---------------------------------------------------------------------------------------------------------
    def new_module(self, dotted: str) -> str:
        """`didact.data.folder` -> where it is now; a longer path keeps what follows, with its names renamed."""
        parts = dotted.split(".")[1:]
        for n in range(len(parts), 1, -1):
            old = "/".join(parts[:n])
            path = f"src/didact/{old}.py"
            if path in self.places or old in self.tables.modules:
                rest = self.rename_path(path, parts[n:])
                return ".".join(["didact", *self.tables.modules.get(old, old).split("/"), *rest])
        return dotted

    def rename_path(self, path: str, names: list[str]) -> list[str]:
        out = []
        for i, name in enumerate(names):
            q = ".".join(names[: i + 1])
            new = name
            for kind in ("class", "function", "const", "method", "attr"):
                for p in self.places.get(path, {}).get((kind, q), []):
                    new = self.targets.get((path, *p), name)
            out.append(new)
        return out

    def rewrite_text(self, text: str, *, code: bool = False) -> str:
        done = r"(?<!from )" if code else ""      # imports of code are new already
        text = re.sub(done + r"\bdidact(?:\.[A-Za-z_]\w*){2,}", lambda m: self.new_module(m.group()), text)

        def path(m):
            old = m.group(1)
            return self.tables.modules.get(old, old) + ".py"

        text = re.sub(r"(?<![\w/])((?:data|layers|models|objectives|train|report|explain|samplers|cli|optim|recipes|theory|trust|scratch|metrics|claims)/[a-z_0-9/]+)\.py\b", path, text)
        text = re.sub(r"(?<=didact/)([a-z_0-9/]+)\.py\b", path, text)
        for old, new in self.tables.tests.items():
            if old in text:
                text = re.sub(rf"(?<![\w/]){re.escape(old)}(?![\w])", new, text)
        return text

    # one file --------------------------------------------------------------------------------------------------------
    def imports(self, file: str, source: str) -> tuple[list[tuple[int, int, str]], set[int]]:
        """(first line, last line, new text) of every `from didact… import`, and the lines they take."""
        edits, taken = [], set()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").split(".")[0] == "didact":
                continue
            groups: dict[str, list[str]] = {}
            for alias in node.names:
                module, name, bound = node.module, alias.name, alias.asname
                old = "/".join([*module.split(".")[1:], name])
                if old in self.tables.modules or f"src/didact/{old}.py" in self.places:
                    new = self.tables.modules.get(old, old)
                    home, new_name = ".".join(["didact", *new.split("/")[:-1]]), new.rpartition("/")[2]
                else:
                    home = self.home(module)
                    new_name = self.decide(file, (alias.lineno, alias.col_offset, name, "import", None)) or name
                if bound and (b := self.targets.get((file, alias.lineno, alias.end_col_offset - len(bound)))):
                    bound = b
                groups.setdefault(home, []).append(new_name + (f" as {bound}" if bound and bound != new_name or alias.asname == alias.name else ""))
            indent = " " * node.col_offset
            lines = []
            for home, names in groups.items():
                text = f"{indent}from {home} import {', '.join(names)}"
                if len(text) > 120:
                    text = f"{indent}from {home} import (\n" + "".join(f"{indent}    {n},\n" for n in names) + f"{indent})"
                lines.append(text)
            tail = source.splitlines()[node.end_lineno - 1][node.end_col_offset:]
            edits.append((node.lineno, node.end_lineno, "\n".join(lines) + tail))
            taken.update(range(node.lineno, node.end_lineno + 1))
        return edits, taken

    def home(self, module: str) -> str:
        old = "/".join(module.split(".")[1:])
        if old in self.tables.modules:
            return ".".join(["didact", *self.tables.modules[old].split("/")])
        if f"{old}/__init__" in self.tables.modules:
            return ".".join(["didact", *self.tables.modules[f"{old}/__init__"].split("/")[:-1]])
        if old == "train":
            return "didact.training"
        return module

    def helper_imports(self, file: str, source: str) -> list[tuple[int, int, str]]:
        """`from workshop import x`, `import small`: helpers of tests, which moved to tests/helpers."""
        moved = {Path(old).stem: new.removeprefix("tests/").removesuffix(".py").replace("/", ".") for old, new in self.tables.tests.items()
                 if new.startswith("tests/helpers/")}
        edits = []
        for node in ast.walk(ast.parse(source)):
            indent = " " * getattr(node, "col_offset", 0)
            if isinstance(node, ast.ImportFrom) and not node.level and node.module in moved:
                names = []
                for a in node.names:
                    new = self.decide(file, (a.lineno, a.col_offset, a.name, "import", None)) or a.name
                    names.append(new + (f" as {a.asname}" if a.asname else ""))
                edits.append((node.lineno, node.end_lineno, f"{indent}from {moved[node.module]} import {', '.join(names)}"))
            elif isinstance(node, ast.Import) and any(a.name in moved for a in node.names):
                assert len(node.names) == 1, (file, node.lineno)
                (a,) = node.names
                home, _, name = moved[a.name].rpartition(".")
                edits.append((node.lineno, node.end_lineno, f"{indent}from {home} import {name}" + (f" as {a.asname}" if a.asname else "")))
        return edits

    def rename_file(self, file: str) -> str:
        source = (self.root / file).read_text()
        lines = source.splitlines(keepends=True)
        edits, taken = self.imports(file, source)
        for first, last, text in self.helper_imports(file, source):
            tail = source.splitlines()[last - 1]
            comment = tail[tail.index("  #"):] if "  #" in tail else ""
            edits.append((first, last, text + comment))
            taken.update(range(first, last + 1))
        by_line: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for token in self.index[file]["tokens"]:
            line, column, text, role, _ = token
            if line in taken or role == "import":
                continue
            if role == "attr" and re.search(r"\bdidact(\.\w+)+\.$", lines[line - 1][:column]):
                continue
            new = self.decide(file, token)
            if new and new != text:
                assert lines[line - 1][column:column + len(text)] == text, (file, token, lines[line - 1])
                by_line[line].append((column, len(text), new))
        for line, column, length, new in self.extra(file, source):
            if line not in taken:
                by_line[line] = [c for c in by_line[line] if c[0] != column] + [(column, length, new)]
        for line, changes in by_line.items():
            raw = lines[line - 1]
            for column, length, new in sorted(set(changes), reverse=True):
                raw = raw[:column] + new + raw[column + length:]
            lines[line - 1] = raw
        for first, last, text in sorted(edits, reverse=True):
            end = "\n" if lines[last - 1].endswith("\n") else ""
            lines[first - 1:last] = [text + end]
        return self.rewrite_text("".join(lines), code=True)

    def run(self, write: bool) -> None:
        results = {file: self.rename_file(file) for file in self.index}
        changed = sum(results[f] != (self.root / f).read_text() for f in results)
        print(f"{changed} of {len(results)} files change, {len(self.targets)} places renamed")
        REPORT.write_text("\n".join(sorted(self.log)) + "\n")
        kinds = defaultdict(int)
        for entry in self.log:
            kinds[entry.split("\t")[0]] += 1
        print(dict(kinds))
        if not write:
            return
        for file, text in results.items():
            (self.root / file).write_text(text)
        tracked = subprocess.run(["git", "ls-files"], cwd=self.root, capture_output=True, text=True, check=True).stdout.split("\n")
        for name in tracked:
            path = self.root / name
            if path.suffix in TEXTS and path.is_file() and not name.startswith("tools/renames") and "results" not in name:
                old = path.read_text()
                if (new := self.rewrite_text(old)) != old:
                    path.write_text(new)
        self.move()

    def move(self) -> None:
        moves = [(f"src/didact/{o}.py", f"src/didact/{n}.py") for o, n in self.tables.modules.items()] + list(self.tables.tests.items())
        for n, (old, _) in enumerate(moves):       # two steps: a file may become a folder of its own name
            if (self.root / old).is_file():
                subprocess.run(["git", "mv", old, f"MOVING_{n}"], cwd=self.root, check=True)
        for n, (_, new) in enumerate(moves):
            if (self.root / f"MOVING_{n}").is_file():
                (self.root / new).parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["git", "mv", f"MOVING_{n}", new], cwd=self.root, check=True)
        for folder in sorted({p.parent for p in (self.root / "src/didact").rglob("*.py")}):
            for where in (folder, *folder.parents):
                if where == self.root / "src":
                    break
                if not (where / "__init__.py").exists():
                    (where / "__init__.py").write_text("")


if __name__ == "__main__":
    Renamer(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]).resolve()).run("--write" in sys.argv)
