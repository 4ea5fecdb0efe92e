"""Rows for parameters of recipes, from options.tsv: printed in the shape of the other tables."""

import inspect
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE)]

import didact.recipes  # noqa: E402, F401
from inventory import list_places  # noqa: E402

from didact.options import options  # noqa: E402
from didact.registry import RECIPES  # noqa: E402

rows = [line.split("\t") for line in (HERE / "options.tsv").read_text().splitlines() if line and not line.startswith("#")]
used = set()
for recipe in RECIPES.values():
    path = Path(inspect.getsourcefile(recipe.function))
    file = path.relative_to(HERE.parents[1] / "src/didact").as_posix()
    places = list_places(path.read_text())
    for option in options(recipe.function, skip=1).values():
        for n, row in enumerate(rows):
            old, begin, where, new = row[:4]
            if old == option.name and option.help.startswith(begin) and where in ("*", recipe.name):
                break
        else:
            print(f"# no row: {recipe.name} {option.name}: {option.help}")
            continue
        used.add(n)
        if new != old:
            for kind in ("param", "local"):
                if (kind, f"{recipe.function.__name__}.{old}") in places:
                    print(file, kind, f"{recipe.function.__name__}.{old}", new, sep="\t")
for n, row in enumerate(rows):
    if n not in used:
        print("# unused:", row)
