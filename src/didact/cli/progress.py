"""What a person sees while a run trains: the plan, a bar, the result. All of it on stderr."""

from functools import partial
from time import perf_counter
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status
from rich.table import Table

from didact.cli.words import duration, figure, number, size
from didact.errors import counted

WIDE = 1000     # columns of a pipe or a file: more than any table needs


def paper(*, stderr: bool = False) -> Console:
    """What is written on: as wide as the terminal; without one, as wide as what is written."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = WIDE
    return console


def moving(console: Console) -> Progress:
    """A bar with words behind it, at the foot of a terminal until it is stopped."""
    columns = (BarColumn(24), TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[facts]}"))
    bar = Progress(*columns, console=console, transient=True)
    bar.start()
    return bar


class Screen:
    """Listens to a training and shows it; on a terminal with a bar that moves, elsewhere with a line an evaluation."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or paper(stderr=True)
        self.bar: Progress | None = None
        self.loading: Status | None = None
        self.estimated = False
        self.tenth: tuple[str, int] | None = None
        self.waiting: tuple[int, Waiting] | None = None      # how far what is being drawn is, and who tells it

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        getattr(self, f"on_{event}", lambda _: None)(facts)

    def on_load(self, facts: dict[str, Any]) -> None:
        """On a terminal alone, and gone when it is done: a mistake in the data then stands on the only line."""
        self.close()
        if self.console.is_terminal:
            self.loading = self.console.status(f"loading {escape(facts['data'])} …")
            self.loading.start()

    def on_download(self, facts: dict[str, Any]) -> None:
        """A line whenever another tenth has come."""
        tenth = facts["file"], 10 * facts["done"] // max(1, facts["total"])
        if tenth != self.tenth:
            self.tenth = tenth
            self.console.print(f"  {escape(facts['file'])}: {size(facts['done'])} of {size(facts['total'])}", soft_wrap=True)

    def on_begin(self, facts: dict[str, Any]) -> None:
        """What is learned before the recipe's own training: on the line of loading, or with a line an evaluation."""
        words = f"{facts['what']}: {facts['step']:,} of {counted(facts['total'], 'step')}, {duration(facts['seconds_left'])} left"
        if self.loading is not None:
            self.loading.update(words)
        elif "scores" in facts:
            self.console.print(f"  {words}", soft_wrap=True)

    def on_start(self, facts: dict[str, Any]) -> None:
        self.close()
        data, health, layers, plan = facts["data"], facts["health"], facts["layers"], facts["plan"]
        say = partial(self.console.print, soft_wrap=True)
        say(f"[bold]{facts['recipe']}[/] on [bold]{escape(data['name'])}[/] ({data['kind']}, {data['task']})")
        for line in describe_health(health):
            say(f"  {escape(line)}")
        for line in facts.get("notes", ()):
            say(f"  {escape(line)}")
        say(layer_table(layers))
        say(f"  {layers['total']:,} parameters, {layers['trainable']:,} trainable, {layers['tied']:,} tied")
        say(f"  device {facts['device']}, precision {facts['precision']}, seed {facts['settings']['seed']}")
        passes = figure(plan["total"] / plan["epoch"])
        passes += " epoch" if passes == "1" else " epochs"
        steps, rows = counted(plan["total"], "step"), counted(min(plan["batch"], plan["rows"]), "example")
        say(f"  {steps} of {rows} ({passes}); run: {escape(facts['run'])}")
        if "resumed" in facts:
            say(f"  resumed after step {facts['resumed']:,}")

    def on_step(self, facts: dict[str, Any]) -> None:
        self.estimate(facts)
        if not self.console.is_terminal:
            return
        if self.bar is None:
            self.bar = moving(self.console)
            self.task = self.bar.add_task("train", total=facts["total"], facts="")
        self.bar.update(self.task, completed=facts["step"], facts=one_line(facts))

    def on_evaluate(self, facts: dict[str, Any]) -> None:
        self.on_step(facts)
        mark = "[green]best[/]" if facts["best"] else ""
        shown = {"loss": facts["scores"]["loss"], facts["watch"]: facts["scores"][facts["watch"]]}
        scores = "  ".join(f"{name} {number(value)}" for name, value in shown.items())
        losses = "  ".join(f"{name} {number(value)}" for name, value in facts["loss"].items())
        self.console.print(f"  epoch {figure(facts['epoch'], 4):>5}   train {losses}   validation {scores}  {mark}", soft_wrap=True)

    def estimate(self, facts: dict[str, Any]) -> None:
        """Once, when a few steps have been timed."""
        if not self.estimated and facts["timed"] >= 5:
            self.estimated = True
            self.console.print(f"  expected: {duration(facts['seconds_left'])} more, {size(facts['memory'])} of memory")

    def drawing(self, done: int, total: int) -> None:
        """What is drawn along the way: on the bar where there is one, else on a line of its own once it takes long."""
        if self.bar is not None:
            self.bar.update(self.task, facts=f"{done:,} of {counted(total, 'step')} of drawing")
        elif self.loading is None:
            begun = self.waiting is not None and self.waiting[0] < done
            waiting = self.waiting[1] if self.waiting is not None and begun else Waiting("steps of drawing", self.console)
            waiting(done, total)
            self.waiting = (done, waiting) if done < total else None
            if self.waiting is None:
                waiting.close()

    def on_note(self, facts: dict[str, Any]) -> None:
        self.console.print(f"  {escape(facts['text'])}")

    def on_finish(self, facts: dict[str, Any]) -> None:
        self.close()

    def close(self) -> None:
        if self.loading is not None:
            self.loading.stop()
            self.loading = None
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def one_line(facts: dict[str, Any]) -> str:
    losses = " ".join(f"{name} {number(value)}" for name, value in facts["loss"].items())
    watched = facts["validation"].get(facts["watch"])
    metric = f"{facts['watch']} {number(watched)}  " if watched is not None else ""
    return f"{losses}  {metric}lr {facts['lr']:.2g}  {facts['rows_per_second']:,.0f}/s  {duration(facts['seconds_left'])} left"


def describe_health(health: dict[str, Any]) -> list[str]:
    """The data in a few lines: splits, classes, what was inferred and what looks unhealthy."""
    from didact.report.words import COUNTS

    splits = ", ".join(f"{rows:,} {name}" for name, rows in health["splits"].items())
    lines = [f"{splits}; each input {'×'.join(map(str, health['shape']))}"]
    if health.get("classes"):
        counts = health["classes"]
        shown = ", ".join(f"{name} {count}" for name, count in list(counts.items())[:10]) + (", …" if len(counts) > 10 else "")
        what = COUNTS.get(health.get("task", ""), "examples")
        lines.append(f"{len(counts)} class{'es' * (len(counts) > 1)} (training {what}): {shown}")
    if health.get("imbalance") and health.get("classes"):
        lines.append(f"imbalance {health['imbalance']:.3g} : 1, the most frequent class to the least")
    if health.get("duplicates") is not None and not any(health["duplicates"].values()):  # else a note tells how many
        lines.append("no duplicates across the splits")
    return lines + list(health["notes"])


def layer_table(layers: dict[str, Any], *, sights: bool = False) -> Table:
    """A row a layer, and how many of its numbers learn where not all do; with `sights` also how many pixels of the image one output sees,
    and how many lie between two neighbours."""
    from didact.report.words import some_stay

    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    columns = [("  layer", "left"), ("", "left"), ("output", "left"), ("parameters", "right")]
    partly = some_stay(layers)
    columns += [("trained", "right")] if partly else []
    for name, justify in columns + ([("sees", "left"), ("jump", "left")] if sights else []):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]  # a name that is cut cannot be typed
    for row in layers["rows"]:
        learned = [count(row["trainable"])] if partly else []
        seen = [by(row.get("field")), by(row.get("jump"))] if sights else []
        table.add_row(f"  {row['name']}", row["layer"], by(row["shape"]), count(row["parameters"]), *learned, *seen)
    return table


def count(numbers: int) -> str:
    return f"{numbers:,}" if numbers else ""


def by(sizes: list[float] | None) -> str:
    """3×32×32; nothing where there is none."""
    return "×".join(f"{n:g}" if isinstance(n, float) else str(n) for n in sizes or ())


class Waiting:
    """How far and how fast a work is that takes longer than two seconds: on a terminal a line, elsewhere one a tenth; on stderr."""

    PATIENCE = 2.0

    def __init__(self, what: str, console: Console | None = None) -> None:
        self.what, self.console = what, console or Console(stderr=True, highlight=False)
        self.status: Status | None = None
        self.tenth, self.next = -1, perf_counter() + self.PATIENCE
        self.first: tuple[int, float] | None = None          # from when on it is timed: what was loaded before is not slow work

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        self.first = self.first or (done, now)
        if now < self.next:
            return
        rate = (done - self.first[0]) / (now - self.first[1]) if now > self.first[1] else 0.0
        told = f"  {done:,} of {total:,} {self.what}" + (f", {rate:,.0f} a second" if rate else "")
        if self.console.is_terminal:
            self.status = self.status or self.console.status(told)
            self.status.update(told)
            self.status.start()
            self.next = now + 0.2
        elif (tenth := 10 * done // total) != self.tenth:
            self.tenth = tenth
            self.console.print(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.status is not None:
            self.status.stop()
