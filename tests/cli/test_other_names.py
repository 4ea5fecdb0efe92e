"""Verbs that people try first: answered in one line with the command to type, exit code 2."""

import shlex

import pytest

import didact.recipes  # noqa: F401 (registers them)
from didact.cli.main import VERBS, main
from didact.cli.other_names import OTHER_NAMES
from didact.registry import RECIPES


def refuse(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that answers a command line."""
    assert main(shlex.split(words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.strip()


@pytest.mark.parametrize("name", sorted(OTHER_NAMES))
def test_each_other_name_is_answered_with_a_command_that_exists(name, capsys):
    line = refuse(name, capsys)
    assert line.startswith(f"didact: no command named {name!r}; ")
    verb = line.rsplit(": didact ", 1)[1].split()[0]
    assert verb in VERBS or verb in ("--help", "--version")


def test_no_other_name_hides_a_verb_or_a_recipe():
    assert not OTHER_NAMES.keys() & (VERBS.keys() | RECIPES.keys())


@pytest.mark.parametrize(
    "words, command",
    [
        ("fit my.csv --target price", "didact train my.csv --target price"),
        ("run 'my table.csv' --target 'net price'", "didact train 'my table.csv' --target 'net price'"),
        ("tune mlp lr=1e-3,1e-2", "didact sweep mlp lr=1e-3,1e-2"),
        ("eval latest", "didact evaluate latest"),
        ("test latest --json", "didact evaluate latest --json"),
        ("infer latest a.png", "didact predict latest a.png"),
        ("generate latest", "didact sample latest"),
        ("data my.csv", "didact show my.csv"),
        ("grid_search mlp lr=1,2", "didact sweep mlp lr=1,2"),
        ("export latest", "didact predict RUN FILE --json"),
        ("cnn --epochs 3", "didact train cnn --epochs 3"),
    ],
)
def test_the_arguments_are_typed_again(words, command, capsys):
    assert refuse(words, capsys).endswith(f": {command}")


def test_a_file_in_place_of_a_verb_is_to_be_trained_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.csv").write_text("a,b\n1,2\n")
    assert refuse("my.csv --target b", capsys).endswith("to train on it: didact train my.csv --target b")


def test_a_mistyped_verb_has_the_nearest(capsys):
    assert refuse("trian mlp", capsys) == "didact: no command named 'trian'; did you mean 'train'?"
