"""Consoles for tables and progress bars, in which control characters are escaped as `terminal.echo` escapes them."""

from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from didact.cli.terminal import escape_control

TEXT_WIDTH = 100       # columns of tables that hold text, where the output is no terminal
PIPE_WIDTH = 1000      # of anything else there: rows of numbers and lines of a log stay whole


class SafeConsole(Console):
    """A rich console that escapes control characters in every string it is given, cells of tables included."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_control(text), **options)

    def status(self, status: Any, **options: Any) -> Status:
        return super().status(escape_control(status) if isinstance(status, str) else status, **options)


def make_console(*, stderr: bool = False, pipe_width: int = PIPE_WIDTH) -> SafeConsole:
    """A console as wide as the terminal, or of a fixed width where there is none."""
    console = SafeConsole(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = pipe_width
    return console
