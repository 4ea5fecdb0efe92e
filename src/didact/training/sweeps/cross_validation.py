"""Cross-validation: several recipes and the baselines on the same folds of one dataset, as a leaderboard.

An interrupted comparison continues: each training is saved as soon as it is finished.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.charts.format import LOWER_IS_BETTER, MAIN_METRICS
from didact.data.core import SPLITS, Data, TensorSplit
from didact.data.folds import assign_folds
from didact.data.split import train_val_test_split
from didact.errors import UsageError, look_up
from didact.options import to_json_value
from didact.registry import RECIPES, Recipe
from didact.schema import parse_json
from didact.training.experiment import EventCallback, Settings, ignore_events
from didact.training.prepare import load_data
from didact.training.run_training import train

Row = dict[str, Any]                   # one model on one fold: "model", "kind", "fold", "test", …
RESULTS_FILE = "comparison.jsonl"
DEFAULT_RECIPES = {                    # by kind of data
    "table": ("tabular", "mlp"),
    "text": ("fasttext", "text_transformer"),
    "images": ("cnn", "transfer"),
}
# of Settings: what a fold is loaded by, or what the comparison sets itself
_DATA_OPTIONS = {
    "data", "target", "task", "text", "size", "tokens", "split_seed", "test", "validation", "drop", "features",
    "sample_weight", "baselines", "runs",
}  # fmt: skip
_TASKS = ("binary", "multiclass", "multilabel", "regression")
_VALIDATION_FRACTION = 0.15


@dataclass(frozen=True)
class Standing:
    """A model of the leaderboard: its mean over the folds, and how far behind the best it is."""

    model: str
    kind: str                          # recipe or baseline
    scores: tuple[float, ...]          # of each fold
    mean: float
    interval: float                    # half of the 95 % interval of the mean
    behind: float                      # mean difference from the best; 0 for the best
    behind_interval: float             # half of its 95 % interval
    seconds: float

    @property
    def is_level(self) -> bool:
        """Whether the folds cannot tell it from the best."""
        return self.behind <= self.behind_interval


@dataclass(frozen=True)
class Comparison:
    """The leaderboard of a dataset, the best first."""

    data: str
    metric: str
    folds: int
    rows: tuple[Row, ...]
    standings: tuple[Standing, ...]
    folder: Path

    @property
    def best_recipe(self) -> str:
        return next(s.model for s in self.standings if s.kind == "recipe")


def cross_validate(
    name: str,
    recipe_names: Sequence[str] = (),
    *,
    folds: int = 5,
    metric: str | None = None,
    on_event: EventCallback = ignore_events,
    on_row: Callable[[Row], None] = lambda row: None,
    **settings: Any,
) -> Comparison:
    """Train every recipe on every fold, fit the baselines on the same rows, and rank all by the mean test metric.

    Fold k is the test split of training k; 15 % of all examples validate it, and the others train. `settings` are those
    of every recipe (target, device, epochs, …).
    """
    for option in ("test", "validation"):
        if settings.get(option):
            raise UsageError(f"every fold is a test split once: leave out --{option} {settings[option]}")
    chosen = Settings(**{**settings, "data": name})
    on_event("load", {"data": name})
    first = look_up("recipe", recipe_names[0], RECIPES) if recipe_names else None
    data = load_data(chosen, name, first, on_event=on_event)
    recipes = _choose_recipes(data, recipe_names)
    indices_by_fold = split_folds(data, folds, seed=chosen.split_seed)
    request = [data.fingerprint, [r.name for r in recipes], folds, to_json_value(settings)]
    digest = hashlib.blake2b(json.dumps(request, sort_keys=True, default=str).encode(), digest_size=3).hexdigest()
    folder_name = re.sub(r"[^\w.-]", "_", data.name)         # a file's name need not be UTF-8
    folder = Path(chosen.runs) / "comparisons" / f"{folder_name}-{digest}"
    rows = _read_rows(folder / RESULTS_FILE)
    plan = [(fold, recipe) for fold in range(folds) for recipe in recipes]
    trained = {(row["fold"], row["model"]) for row in rows}
    options = {k: v for k, v in settings.items() if k in {f.name for f in fields(Settings)} - _DATA_OPTIONS}
    for number, (fold, recipe) in enumerate(plan, 1):
        if (fold, recipe.name) in trained:
            continue
        cell = {"recipe": recipe.name, "fold": f"{fold + 1}/{folds}"}
        on_event("cell", {"number": number, "of": len(plan), "cell": cell, "seed": chosen.seed})
        fold_data = load_data(chosen, name, recipe, indices=indices_by_fold[fold])
        run = train(
            recipe,
            data=fold_data,
            on_event=on_event,
            **{**options, "baselines": recipe is recipes[0], "runs": str(folder / "runs")},
        )
        facts = run.metadata
        row = {"model": recipe.name, "kind": "recipe", "fold": fold, "test": facts["test"], "run": str(run.folder)}
        row |= {"seconds": facts["seconds"], "rows": {part: len(fold_data.split(part)) for part in SPLITS}}
        rows += [row] + [
            {"model": b["name"], "kind": "baseline", "fold": fold, "test": b["metrics"], "seconds": b["seconds"]}
            | {"rows": row["rows"], "description": b["description"]}
            for b in facts["baselines"]
        ]
        lines = "".join(json.dumps(to_json_value(r), allow_nan=False) + "\n" for r in rows)
        files.write_text(folder / RESULTS_FILE, lines)
        on_row({"cell": cell, "seed": chosen.seed, "seconds": facts["seconds"], **_monitored(facts)})
    metric = _choose_metric(rows, data.task, metric)
    return Comparison(data.name, metric, folds, tuple(rows), rank_models(rows, metric), folder)


def split_folds(data: Data, folds: int, *, seed: int = 0) -> list[dict[str, Tensor]]:
    """The examples of each split, for every fold in turn as the test split; stratified by class."""
    n = sum(len(data.split(part)) for part in SPLITS)
    if n < 4 * folds:
        raise UsageError(f"{folds} folds need at least {4 * folds} examples, but {data.name!r} has {n}; lower --folds")
    strata = None
    if data.task in ("binary", "multiclass"):
        y = [s.columns["y"].cpu() for part in SPLITS if isinstance(s := data.split(part), TensorSplit)]
        if len(y) == len(SPLITS):
            strata = torch.cat(y)[torch.cat([data.indices[part] for part in SPLITS]).argsort()]
    assigned = assign_folds(n, strata, folds, seed=seed)
    fractions = _VALIDATION_FRACTION, 0.0
    return [
        train_val_test_split(n, strata, test_indices=(assigned == k).nonzero()[:, 0], fractions=fractions, seed=seed)
        for k in range(folds)
    ]


def rank_models(rows: Sequence[Row], metric: str) -> tuple[Standing, ...]:
    """Models by their mean over the folds, the best first, with intervals of means and of paired differences."""
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    by_model: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: int(r["fold"])):
        by_model.setdefault(row["model"], []).append(row)
    scores = {model: [float(r["test"][metric]) for r in group] for model, group in by_model.items()}
    order = sorted(scores, key=lambda model: -sign * fmean(scores[model]))
    best = scores[order[0]]
    sizes = by_model[order[0]][0]["rows"]
    ratio = sizes["test"] / (sizes["train"] + sizes["validation"])
    standings = []
    for model in order:
        values = scores[model]
        differences = [sign * (b - v) for b, v in zip(best, values, strict=False)]
        standings.append(
            Standing(
                model,
                by_model[model][0]["kind"],
                tuple(values),
                fmean(values),
                compute_interval(values, ratio),
                fmean(differences),
                compute_interval(differences, ratio),
                fmean(float(r["seconds"]) for r in by_model[model]),
            )
        )
    return tuple(standings)


def compute_interval(values: Sequence[float], test_ratio: float) -> float:
    """Half of the 95 % interval of a mean over K folds: t_{K−1} √((1/K + n_test/n_train) s²).

    Nadeau and Bengio 2003: the folds share training examples, so that the plain error 1/K s² is too small.
    """
    if len(values) < 2:
        return float("inf")
    from scipy.stats import t  # type: ignore[import-untyped]

    k = len(values)
    return float(t.ppf(0.975, k - 1)) * sqrt((1 / k + test_ratio) * stdev(values) ** 2)


def _choose_recipes(data: Data, recipe_names: Sequence[str]) -> list[Recipe]:
    if data.task not in _TASKS or data.kind == "series":
        raise UsageError(
            f"a comparison needs classes or numbers as targets and examples in any order, but {data.name!r} is "
            f"{data.kind}{'' if data.kind == 'series' else f' with the task {data.task}'}; train a recipe on it: its "
            "report has baselines"
        )
    names = recipe_names or DEFAULT_RECIPES.get(data.kind, ())
    if len(set(names)) < len(names):
        raise UsageError(f"--recipes names one twice: {','.join(names)}")
    recipes = [look_up("recipe", name, RECIPES) for name in names]
    if not recipes:
        raise UsageError(f"no recipes are compared by default on {data.kind}; name them: --recipes a,b")
    return recipes


def _choose_metric(rows: Sequence[Row], task: str, requested: str | None) -> str:
    shared: set[str] = set.intersection(*(set(row["test"]) for row in rows))
    if requested is not None:
        look_up("metric", requested, dict.fromkeys(sorted(shared)))
        return requested
    preferred = ("rmse", *MAIN_METRICS) if task == "regression" else MAIN_METRICS
    ranked: list[str] = [name for name in (*preferred, *sorted(shared)) if name in shared]
    return ranked[0]


def _monitored(facts: Mapping[str, Any]) -> Row:
    return {"validation": facts["validation"], "monitor": facts["monitor"]}


def _read_rows(path: Path) -> list[Row]:
    """Results of an interrupted comparison."""
    try:
        rows: list[Row] = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); delete it to compare anew") from error
    if not all(isinstance(r, dict) and {"model", "kind", "fold", "test", "seconds", "rows"} <= r.keys() for r in rows):
        raise UsageError(f"{path} is damaged; delete it to compare anew")
    return rows
