"""Control characters in names and texts reach the terminal written out: they cannot color it, or set its title."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.table import Table

from didact.cli import console as console_module
from didact.cli.console import SafeConsole, make_console
from didact.cli.main import main
from didact.cli.terminal import echo, escape_control

EVIL = "\x1b[31mcat\x07"
ESCAPED = "\\x1b[31mcat\\x07"


@pytest.fixture
def evil_folder(workdir: Path) -> Path:
    """Images of two classes, one of which is named with an ESC sequence."""
    for k in range(24):
        folder = workdir / "pics" / (EVIL, "dog")[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 10 * k).save(folder / f"{k}.png")
    return workdir


def run_on_a_terminal(*arguments: str) -> str:
    """What a command writes to a pseudo-terminal."""
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "didact", *arguments], stdout=follower, stderr=follower) as process:
        os.close(follower)
        chunks = []
        try:
            while chunk := os.read(leader, 4096):
                chunks.append(chunk)
        except OSError:  # Linux: the other end is closed
            pass
    os.close(leader)
    assert process.returncode == 0, b"".join(chunks)
    return b"".join(chunks).decode()


def test_escape_control_keeps_text_tabs_and_line_ends():
    assert escape_control("é 日本\ta\nb\r\nc") == "é 日本\ta\nb\r\nc"
    assert escape_control(EVIL) == ESCAPED
    assert escape_control("a\rb\x9b1m\x7f\x00") == "a\\x0db\\x9b1m\\x7f\\x00"


def test_class_names_cannot_color_the_terminal(evil_folder):
    options = ["--data", "pics", "--hidden", "4", "--steps", "3", "--device", "cpu"]
    output = run_on_a_terminal("train", "mlp", *options)
    assert "\x1b" in output and EVIL not in output and ESCAPED in output, "its own colors alone"
    output = run_on_a_terminal("predict", "mlp/latest", f"pics/{EVIL}/0.png", "pics/dog/1.png")
    assert EVIL not in output and ESCAPED in output
    output = run_on_a_terminal("show", "mlp", *options)
    assert EVIL not in output and ESCAPED in output


def test_error_messages_are_escaped(evil_folder, capsys):
    assert main(["train", "mlp", "--data", f"{EVIL}.csv"]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err and ESCAPED in err and err.count("\n") == 1


def test_console_escapes_lines_cells_and_status(monkeypatch):
    output = io.StringIO()
    console = SafeConsole(file=output, width=80, highlight=False)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    console.print(table)
    console.print(f"[bold]{EVIL}[/]", soft_wrap=True)
    assert "\x1b" not in output.getvalue() and output.getvalue().count(ESCAPED) == 4
    terminal = SafeConsole(file=io.StringIO(), force_terminal=True, width=80)
    with terminal.status(f"loading {EVIL}"):
        pass
    assert EVIL not in terminal.file.getvalue()
    assert isinstance(make_console(stderr=True), SafeConsole) and console_module.PIPE_WIDTH > console_module.TEXT_WIDTH


def test_echo_styles_after_escaping(capsys):
    echo(EVIL, bold=True)
    assert capsys.readouterr().out == f"{ESCAPED}\n"


def test_json_escapes_control_characters(evil_folder, capsys):
    options = ["--data", "pics", "--hidden", "4", "--steps", "3", "--device", "cpu"]
    assert main(["train", "mlp", *options, "--json"]) == 0
    capsys.readouterr()
    Path("pics/\x9b1m.png").write_bytes(Path("pics/dog/1.png").read_bytes())
    assert main(["predict", "mlp/latest", f"pics/{EVIL}/0.png", "pics/\x9b1m.png", "--json"]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(out)
    assert [row["input"] for row in json.loads(out)] == [f"pics/{EVIL}/0.png", "pics/\x9b1m.png"]
