"""Run a command line in the `workdir` of a test file."""

import shlex

import pytest

from didact.cli.main import main


@pytest.fixture
def run_cli(workdir, monkeypatch, capsys):
    monkeypatch.chdir(workdir)

    def run(words: str, code: int = 0) -> str:
        assert main(shlex.split(words)) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err
    return run
