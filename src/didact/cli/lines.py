"""What a person sees of many trainings: a line for each that begins and ends; on a terminal also how far they are. All of it on stderr."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from didact.cli.progress import moving, paper
from didact.cli.words import duration, figure, number, show_cell
from didact.errors import counted


class Lines:
    """Listens to a sweep. Trainings in processes of their own are counted; the one in this process says how far it is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or paper(stderr=True)
        self.begun: dict[str, str] = {}      # which of how many each is
        self.done, self.of, self.under_way = 0, 0, 0
        self.first = ""                      # what is trained before the recipe's own training, while it is
        self.bar: Progress | None = None

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        getattr(self, f"on_{event}", lambda _: None)(facts)

    def on_cell(self, facts: dict[str, Any]) -> None:
        if not self.begun:
            self.done, self.of = facts["number"] - 1, facts["of"]    # what an earlier call trained
        self.on_measure(facts)
        self.under_way += 1
        self.count()

    def on_measure(self, facts: dict[str, Any]) -> None:
        """Its line alone: what moves on a terminal would disturb a clock."""
        name, number_of = named(facts), f"{facts['number']}/{facts['of']}"
        self.begun.pop(name, None)
        self.begun[name] = number_of
        self.console.print(f"{number_of}  {escape(name)}")

    def on_round(self, facts: dict[str, Any]) -> None:
        self.console.print(f"     round {facts['number']} of {facts['of']}, seed {facts['seed']}")

    def on_timing(self, facts: dict[str, Any]) -> None:
        self.console.print(f"timing a few steps of {facts['recipe']}, {counted(facts['cells'], 'setting')} …")

    def on_start(self, facts: dict[str, Any]) -> None:
        self.first = f"{facts['recipe']} first: " if "serves" in facts else ""

    def on_begin(self, facts: dict[str, Any]) -> None:
        self.show(facts["step"], facts["total"], f"{facts['what']}: {far(facts)}")

    def on_step(self, facts: dict[str, Any]) -> None:
        self.show(facts["step"], facts["total"], self.first + far(facts))

    on_evaluate = on_step

    def drawing(self, done: int, total: int) -> None:
        """What the training in this process draws along the way: its bar stays where it is."""
        if self.bar is not None:
            self.bar.update(self.task, facts=f"{done:,} of {counted(total, 'step')} of drawing")

    def row(self, row: dict[str, Any], compare: tuple[str, ...] = ()) -> None:
        name, last = named(row), next(reversed(self.begun))
        which = "" if name == last else f"{self.begun[name]}  {escape(name)}: "     # others may have begun since
        self.done, self.under_way = self.done + 1, self.under_way - 1
        if "diverged" in row:
            self.console.print(f"     {which}diverged: {escape(row['diverged'])}", soft_wrap=True)
        else:
            shown = [name for name in compare if name in row["validation"]] or [row["watch"][0]]
            scores = "  ".join(f"{name} {number(row['validation'][name])}" for name in shown)
            self.console.print(f"     {which}validation {scores}  ({duration(row['seconds'])})")
        self.count()

    def count(self) -> None:
        self.show(self.done, self.of, f"{self.done} of {self.of} done, {self.under_way} under way")

    def show(self, done: int, total: int, words: str) -> None:
        """On a terminal alone, where a line can be written over."""
        if not self.console.is_terminal:
            return
        if self.bar is None:
            self.bar = moving(self.console)
            self.task = self.bar.add_task("sweep", facts="")
        self.bar.update(self.task, completed=done, total=total, facts=words)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def far(facts: dict[str, Any]) -> str:
    """Where one training is: epoch 2.5 of 60, step 10 of 240, 3.0 s left."""
    epochs = facts["epoch"] * facts["total"] / facts["step"]
    told = f"epoch {figure(facts['epoch'])} of {figure(epochs)}, step {facts['step']:,} of {facts['total']:,}"
    return f"{told}, {duration(facts['seconds_left'])} left"


def named(facts: dict[str, Any]) -> str:
    """A training of a sweep: lr=0.001  seed 0."""
    return f"{show_cell(facts['cell'])}  seed {facts['seed']}"
