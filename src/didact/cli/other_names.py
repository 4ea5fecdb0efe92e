"""Verbs that people try first, as other tools name them, and the command to type instead."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from didact.errors import suggest_nearest


@dataclass(frozen=True)
class _Replacement:
    """The command for a verb that didact does not have.

    `usage` completes the command where nothing else was typed. `advice` takes the place of the command typed again,
    where the arguments of that verb mean something else here.
    """

    command: str
    purpose: str
    usage: str = ""
    advice: str = ""


_TRAIN = _Replacement("train", "to train a model", "FILE --target COLUMN")
_SWEEP = _Replacement("sweep", "to train over a grid of options", "RECIPE lr=1e-4,1e-3")
_EVALUATE = _Replacement("evaluate", "to compute a run's metrics", "latest")
_PREDICT = _Replacement("predict", "to predict with a run", "latest FILE")
_SAMPLE = _Replacement("sample", "to sample from a run", "latest")
_DATASETS = _Replacement("list --data", "for the datasets", advice="didact list --data")
_SHOW = _Replacement("show", "to see data, and the recipe and layers for them", "FILE")
_EXPORT = _Replacement(
    "predict",
    "a run's folder holds the weights (model.safetensors) and what reads new inputs (run.json); to use it",
    advice="didact predict RUN FILE --json",
)
_SERVE = _Replacement("predict", "there is no server; to answer from a script", advice="didact predict RUN FILE --json")

OTHER_NAMES = {
    **dict.fromkeys(("fit", "run", "learn", "start", "classify", "regress", "automl"), _TRAIN),
    **dict.fromkeys(("tune", "hpo", "gridsearch", "grid", "optimize"), _SWEEP),
    **dict.fromkeys(("test", "eval", "score", "validate", "metrics"), _EVALUATE),
    **dict.fromkeys(("infer", "inference", "apply"), _PREDICT),
    **dict.fromkeys(("generate", "gen", "complete"), _SAMPLE),
    **dict.fromkeys(("continue", "restart"), _Replacement("resume", "to continue a run", "latest")),
    **dict.fromkeys(("data", "describe", "info", "inspect", "summary"), _SHOW),
    **dict.fromkeys(("plot", "visualize"), _Replacement("report", "to write a run's report", "latest")),
    **dict.fromkeys(("interpret", "saliency"), _Replacement("explain", "to explain predictions", "latest FILE")),
    **dict.fromkeys(("export", "save", "load", "convert"), _EXPORT),
    **dict.fromkeys(("serve", "deploy", "api"), _SERVE),
    "datasets": _DATASETS,
    "download": _Replacement("train", "datasets are loaded by name", advice="didact list --data"),
    "recipes": _Replacement("list", "for the recipes", advice="didact list"),
    "models": _Replacement("list", "for the recipes and their models", advice="didact list"),
    "ls": _Replacement("list", "for the recipes; --runs: your runs", advice="didact list"),
    "runs": _Replacement("list --runs", "for your runs", advice="didact list --runs"),
    "help": _Replacement("--help", "for the commands", advice="didact --help"),
    "version": _Replacement("--version", "for the version", advice="didact --version"),
}


def explain_unknown_verb(name: str, arguments: Sequence[str], verbs: Sequence[str]) -> str:
    """Why there is no such command, and what to type."""
    replacement = OTHER_NAMES.get(name.lower().replace("_", "").replace("-", ""))
    if replacement is not None:
        typed = shlex.join(arguments) if arguments else replacement.usage
        command = replacement.advice or f"didact {replacement.command} {typed}".strip()
        return f"no command named {name!r}; {replacement.purpose}: {command}"
    if _is_recipe(name):
        return f"{name!r} is a recipe, not a command; to train it: {shlex.join(['didact', 'train', name, *arguments])}"
    if os.path.exists(os.path.expanduser(name)):
        return f"{name!r} is a file or folder; to train on it: {shlex.join(['didact', 'train', name, *arguments])}"
    return f"no command named {name!r}; {suggest_nearest(name, verbs)}"


def _is_recipe(name: str) -> bool:
    """Whether a recipe has this name; the recipes are only loaded where it could be one."""
    if not name.isidentifier():
        return False
    from didact.cli.recipes import load_recipes

    return name in load_recipes()
