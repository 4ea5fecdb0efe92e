"""What no folder can be called is refused as a run's name in one line, by every verb and every option that takes one."""

import importlib

import click
import pytest

from didact.cli.main import VERBS, main
from didact.registry import RECIPES

NAMES = {
    "long": "1" * 256, "very-long": "1" * 5000, "nested": "/".join(["r" * 200] * 40), "stranger": "~nobody-of-them/run", "zero": "a\0b",
}


def verbs_of_runs() -> list[str]:
    """The verbs with an argument that is a run, or several."""
    found = []
    for verb in VERBS:
        command = importlib.import_module(f"didact.cli.{verb}").command
        if any(isinstance(p, click.Argument) and (p.metavar or p.name).lower().startswith("run") for p in command.params):
            found.append(verb)
    return found


VERBS_OF_RUNS = verbs_of_runs()
MORE = {"predict": ["a=1"]}    # what a verb wants beside the run
OPTIONS = [(recipe.name, option.flag) for recipe in RECIPES.values() for option in recipe.options.values() if option.run is not None]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("didact: ") and err.count("\n") == 1 and len(err) < 1000, err[:500]


def test_the_verbs_are_found():
    assert {"resume", "evaluate", "predict", "sample", "explain", "report"} <= set(VERBS_OF_RUNS)
    assert {("transfer", "weights"), ("cnn", "weights"), ("gpt", "weights")} <= set(OPTIONS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verb", VERBS_OF_RUNS)
def test_verbs(verb, name, here, capsys):
    refused([verb, NAMES[name], *MORE.get(verb, ())], capsys)
    assert not list(here.iterdir())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("words", [["search", "king", "--model"], ["report", "x", "--runs"]])
def test_other_words_that_name_a_run(words, name, here, capsys):
    refused([*words, NAMES[name]], capsys)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("recipe", "flag"), OPTIONS)
def test_options_of_recipes(recipe, flag, name, here, capsys):
    refused(["train", recipe, f"--{flag}", NAMES[name]], capsys)
    assert not list(here.iterdir())
