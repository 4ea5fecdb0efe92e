"""Names that no folder can have are refused as names of runs, by every command and option that takes one."""

import importlib

import click
import pytest

from didact.cli.main import VERBS, main
from didact.registry import RECIPES

INVALID_NAMES = {
    "long": "1" * 256,
    "very-long": "1" * 5000,
    "nested": "/".join(["r" * 200] * 40),
    "stranger": "~nobody-of-them/run",
    "zero": "a\0b",
}


def list_run_verbs() -> list[str]:
    """The verbs with an argument that is a run, or several."""
    run_verbs = []
    for verb in VERBS:
        command = importlib.import_module(f"didact.cli.verbs.{verb}").command
        if any(
            isinstance(p, click.Argument) and (p.metavar or p.name).lower().startswith("run") for p in command.params
        ):
            run_verbs.append(verb)
    return run_verbs


RUN_VERBS = list_run_verbs()
EXTRA_ARGUMENTS = {"predict": ["a=1"]}    # what a verb wants beside the run
RUN_OPTIONS = [
    (recipe.name, option.flag)
    for recipe in RECIPES.values()
    for option in recipe.options.values()
    if option.run_reference is not None
]


def assert_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("didact: ") and err.count("\n") == 1 and len(err) < 1000, err[:500]


def test_run_verbs_and_run_options_are_found():
    assert {"resume", "evaluate", "predict", "sample", "explain", "report"} <= set(RUN_VERBS)
    assert {("transfer", "weights"), ("cnn", "weights"), ("gpt", "weights")} <= set(RUN_OPTIONS)


@pytest.mark.parametrize("name", INVALID_NAMES)
@pytest.mark.parametrize("verb", RUN_VERBS)
def test_verb_refuses_an_invalid_run_name(verb, name, workdir, capsys):
    assert_refused([verb, INVALID_NAMES[name], *EXTRA_ARGUMENTS.get(verb, ())], capsys)
    assert not list(workdir.iterdir())


@pytest.mark.parametrize("name", INVALID_NAMES)
@pytest.mark.parametrize("words", [["search", "king", "--model"], ["report", "x", "--runs"]])
def test_search_and_report_refuse_an_invalid_run_name(words, name, workdir, capsys):
    assert_refused([*words, INVALID_NAMES[name]], capsys)


@pytest.mark.parametrize("name", INVALID_NAMES)
@pytest.mark.parametrize(("recipe", "flag"), RUN_OPTIONS)
def test_recipe_option_refuses_an_invalid_run_name(recipe, flag, name, workdir, capsys):
    assert_refused(["train", recipe, f"--{flag}", INVALID_NAMES[name]], capsys)
    assert not list(workdir.iterdir())
