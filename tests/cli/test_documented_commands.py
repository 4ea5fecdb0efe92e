"""Every `didact` command line of README.md, docs/ and CONTRIBUTING.md parses: command, recipe, options and values."""

import re
import shlex
from pathlib import Path

import click
import pytest

from didact.cli.main import VERBS, didact
from didact.recipes import _choose_recipe
from didact.recipes._choose_recipe import RecipeChoice

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# parsed by their recipe's options; the functions behind them, which are not to run
RECIPE_VERBS = {
    "train": "didact.training.run_training.train",
    "show": "didact.training.prepare.describe_recipe",
    "sweep": "didact.training.sweeps.sweep.sweep",
    "compare": "didact.training.sweeps.cross_validation.cross_validate",
    "engines": "didact.training.compare_engines.compare_engines",
}
PLACEHOLDERS = {"COMMAND", "RECIPE", "…"}    # of syntax, where there is nothing more to parse


class ParsedError(Exception):
    """Raised in place of the work: the command line was parsed."""


def find_commands(text: str) -> list[str]:
    """The command lines of code blocks and of back-quoted text, without comments."""
    code_lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif is_code:
            code_lines.append(line)
        else:
            code_lines += re.findall(r"`([^`]+)`", line)
    return [command for line in code_lines for command in split_commands(line)]


def split_commands(line: str) -> list[str]:
    """The `didact` commands of a line: before a comment, on both sides of && and |."""
    line = re.split(r"\s#", line, maxsplit=1)[0]
    parts = re.split(r"&&|\|\||\||;", line)
    commands = (re.search(r"(?:^|/|-m |\s)didact (.+)$", part.strip()) for part in parts)
    return [command[1].strip() for command in commands if command]


COMMANDS = sorted({(page.name, command) for page in PAGES for command in find_commands(page.read_text("utf-8"))})


def test_commands_are_found():
    text = """
        Text with `didact doctor`, `make test` and `torchrun -m didact train mlp`.
        ```
        .venv/bin/didact train vae --data x.csv && didact sample latest -n 3   # didact no command
        python -m didact list | head
        ```
        """
    assert find_commands(text) == [
        "doctor", "train mlp", "train vae --data x.csv", "sample latest -n 3", "list",
    ]  # fmt: skip
    assert len(COMMANDS) > 80
    assert {command.split()[0] for _, command in COMMANDS} >= {"train", "sample", "sweep", "reproduce", "explain"}


def parse_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse a command line as `didact` does, and stop where the work would begin."""
    verb, *arguments = words = shlex.split(command)
    assert verb in (*VERBS, "COMMAND", "--help"), f"no command {verb}"
    if not arguments or PLACEHOLDERS & set(words):  # the command is mentioned
        return
    if verb not in RECIPE_VERBS:
        context = click.Context(didact, info_name="didact")
        click_command = didact.get_command(context, verb)
        assert click_command is not None
        click_command.make_context(verb, arguments, parent=context)
        return

    def stop(*_: object, **__: object) -> None:
        raise ParsedError

    monkeypatch.setattr(RECIPE_VERBS[verb], stop)
    # for a file that is named in place of a recipe, and is not there
    monkeypatch.setattr(_choose_recipe, "choose_recipe", lambda data, **_: RecipeChoice("tabular", data))
    with pytest.raises(ParsedError):
        didact.main(words, standalone_mode=False)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_documented_command_parses(page, command, monkeypatch, workdir):
    """Values too: `--optimizer lion` is one of the choices, `lr=1e-4,1e-3` are numbers."""
    parse_command(command, monkeypatch)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train mlp --hiden 3", "--hiden"),
        ("train mpl", "mpl"),
        ("train mlp --optimizer adm", "adm"),
        ("trian mlp", "trian"),
        ("sample latest --complete x.png", "--complete"),
        ("sweep mlp lrr=1,2", "lrr"),
        ("predict --runs runs", "run"),
    ],
)
def test_wrong_commands_do_not_parse(command, message, monkeypatch, workdir):
    with pytest.raises((click.UsageError, ValueError, AssertionError), match=message):
        parse_command(command, monkeypatch)
