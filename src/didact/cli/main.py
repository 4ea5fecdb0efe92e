"""didact, the command: finds the verb, runs it, and turns mistakes into one line. Answers in a blink: no torch up
here."""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from didact import __version__
from didact.cli.terminal import echo
from didact.errors import UsageError, suggest_nearest

VERBS = {  # in the order of --help: the verb's module and what it is for
    "list": "the catalogue of recipes, or of data sets",
    "show": "one recipe: what it is, where from, its options, its layers",
    "train": "train a recipe: report, checkpoint and model in one folder",
    "resume": "go on with a run that was stopped or killed",
    "evaluate": "the metrics of a run, computed anew",
    "predict": "use a run's model on inputs of one's own",
    "sample": "draw new images from a run's model, or let it write",
    "search": "the lines of a text nearest in meaning to a question, or the words nearest to a word",
    "explain": "why a classifier answers as it does: maps over images, shares of features",
    "report": "write a run's report, or compare several runs",
    "sweep": "train a recipe over a grid of arguments: a table and a heat map",
    "compare": "one network in two engines, NumPy's and PyTorch's: how far apart are they?",
    "graph": "draw the graph of a formula, with values and gradients",
    "gradcheck": "a gradient in several ways: of a formula, or of a recipe on the NumPy engine",
    "check": "every number that the courses state: stated, computed, verdict",
    "reproduce": "measure the tables of the courses anew, cell by cell beside what is stated",
    "doctor": "what this machine can and cannot do, and why",
}


class LazyGroup(click.Group):
    """The verbs, each imported only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            raise UsageError(f"no verb named {name!r}; {suggest_nearest(name, VERBS)}")
        command: click.Command = importlib.import_module(f"didact.cli.verbs.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="didact %(version)s")
def didact() -> None:
    """The deep-learning syllabus as software that runs.

    \b
    The first minute:
      didact train mlp                               digits, in seconds; then open the report it names
      didact train mlp --data my.csv --target price  the same on your own table
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. 0: done; 2: the caller's mistake, in one line; 1: our bug, with its traceback."""
    try:
        code = didact.main(args=arguments, prog_name="didact", standalone_mode=False)
        code = code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        code = 0
    except click.UsageError as error:
        code = _print_error(
            f"{error.format_message().rstrip('.')}; see {error.ctx.command_path if error.ctx else 'didact'} --help"
        )
    except click.ClickException as error:
        code = _print_error(error.format_message())
    except UsageError as error:
        code = _print_error(str(error))
    except (KeyboardInterrupt, click.Abort):
        code = _print_error("stopped")
    except (BrokenPipeError, SystemExit) as gone:  # the reader of our output has gone: nothing is wrong
        # click's, of a broken pipe
        if isinstance(gone, SystemExit) and not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    return code


def _print_error(message: str) -> int:
    """One line on stderr, and the exit code of a caller's mistake."""
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of the processes that torchrun starts, the first speaks
        echo("didact: " + " ".join(message.split()), err=True)
    return 2


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
