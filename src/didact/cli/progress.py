"""Progress of a training on stderr: data, layers and plan, a progress bar, a line per evaluation."""

from functools import partial
from time import perf_counter
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status
from rich.table import Table

from didact.charts.format import format_duration
from didact.cli.console import make_console
from didact.cli.options import format_bytes, format_metric, format_short
from didact.errors import format_count

_QUIET_EVALUATION_S = 10.0      # before an evaluation shows its progress where the output is no terminal


def make_progress_bar(console: Console) -> Progress:
    """A progress bar with a status text, on the last line of the terminal until it is stopped."""
    status_column = TextColumn("{task.fields[status]}", markup=False)
    columns = (BarColumn(24), TextColumn("{task.percentage:3.0f}%"), status_column)
    bar = Progress(*columns, console=console, transient=True)
    bar.start()
    return bar


class TrainingProgress:
    """Shows the events of a training: on a terminal with a progress bar, elsewhere with a line per evaluation."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True)
        self.bar: Progress | None = None
        self.loading: Status | None = None
        self.is_estimated = False
        self.last_tenth: tuple[str, int] | None = None
        # sampling in between: steps done, and where they are shown
        self.sampling_progress: tuple[int, SlowTaskProgress] | None = None
        self.evaluation_progress: SlowTaskProgress | None = None
        self.next_evaluation_update = 0.0

    def __call__(self, event: str, payload: dict[str, Any]) -> None:
        getattr(self, f"on_{event}", lambda _: None)(payload)

    def on_load(self, payload: dict[str, Any]) -> None:
        """Only on a terminal, and erased when loaded: an error about the data is then the only line."""
        self._show_status(f"loading {escape(payload['data'])} …")

    def on_time(self, payload: dict[str, Any]) -> None:
        """A few steps are timed before the first one."""
        self._show_status("timing a few steps …")

    def on_baselines(self, payload: dict[str, Any]) -> None:
        """After training: some take a second or two."""
        self._show_status("fitting baselines …")

    def _show_status(self, text: str) -> None:
        self.close()
        if self.console.is_terminal:
            self.loading = self.console.status(text)
            self.loading.start()

    def on_download(self, payload: dict[str, Any]) -> None:
        """A line per tenth of the file."""
        tenth = payload["file"], 10 * payload["done"] // max(1, payload["total"])
        if tenth != self.last_tenth:
            self.last_tenth = tenth
            self.console.print(
                f"  {escape(payload['file'])}: {format_bytes(payload['done'])} of {format_bytes(payload['total'])}",
                soft_wrap=True,
            )

    def on_begin(self, payload: dict[str, Any]) -> None:
        """A training before the recipe's own (of a source run): in the status line, or with a line per evaluation."""
        text = (
            f"{payload['task']}: {payload['step']:,} of {format_count(payload['total'], 'step')}, "
            f"{format_duration(payload['seconds_left'])} left"
        )
        if self.loading is not None:
            self.loading.update(text)
        elif "scores" in payload:
            self.console.print(f"  {text}", soft_wrap=True)

    def on_start(self, payload: dict[str, Any]) -> None:
        self.close()
        data, health, layers, plan = payload["data"], payload["health"], payload["layers"], payload["plan"]
        print_line = partial(self.console.print, soft_wrap=True)
        print_line(f"[bold]{payload['recipe']}[/] on [bold]{escape(data['name'])}[/] ({data['kind']}, {data['task']})")
        for line in describe_health(health):
            print_line(f"  {escape(line)}")
        for line in payload.get("notes", ()):
            print_line(f"  {escape(line)}")
        print_line(make_layer_table(layers))
        print_line(f"  {layers['total']:,} parameters, {layers['trainable']:,} trainable, {layers['tied']:,} tied")
        print_line(
            f"  device {payload['device']}, precision {payload['precision']}, seed {payload['settings']['seed']}"
        )
        epochs_text = format_short(plan["total_rounds"] / plan["rounds_per_epoch"])
        epochs_text += " epoch" if epochs_text == "1" else " epochs"
        steps_text, examples_text = (
            format_count(plan["total_rounds"], "step"),
            format_count(min(plan["batch_size"], plan["num_examples"]), "example"),
        )
        print_line(f"  {steps_text} of {examples_text} ({epochs_text}); run: {escape(payload['run'])}")
        if "resumed" in payload:
            print_line(f"  resumed after step {payload['resumed']:,}")

    def on_step(self, payload: dict[str, Any]) -> None:
        self._show_estimate(payload)
        if not self.console.is_terminal:
            return
        if self.bar is None:
            self.bar = make_progress_bar(self.console)
            self.task = self.bar.add_task("train", total=payload["total"], status="")
        self.bar.update(self.task, completed=payload["step"], status=_format_status(payload))

    def on_evaluate(self, payload: dict[str, Any]) -> None:
        self.on_step(payload)
        mark = "[green]best[/]" if payload["best"] else ""
        main_scores = {"loss": payload["scores"]["loss"], payload["monitor"]: payload["scores"][payload["monitor"]]}
        scores = "  ".join(f"{name} {format_metric(value)}" for name, value in main_scores.items())
        losses = "  ".join(f"{name} {format_metric(value)}" for name, value in payload["loss"].items())
        self.console.print(
            f"  epoch {format_short(payload['epoch'], 4):>5}   train {losses}   validation {scores}  {mark}",
            soft_wrap=True,
        )

    def _show_estimate(self, payload: dict[str, Any]) -> None:
        """Once, after a few steps have been timed."""
        if not self.is_estimated and payload["timed"] >= 5:
            self.is_estimated = True
            self.console.print(
                f"  expected: {format_duration(payload['seconds_left'])} more, {format_bytes(payload['memory'])} of "
                "memory"
            )

    def show_sampling(self, done: int, total: int) -> None:
        """Progress of sampling in between: in the bar if there is one, else on a line of its own once it takes long."""
        if self.bar is not None:
            self.bar.update(self.task, status=f"{done:,} of {format_count(total, 'sampling step')}")
        elif self.loading is None:
            is_continued = self.sampling_progress is not None and self.sampling_progress[0] < done
            progress = (
                self.sampling_progress[1]
                if self.sampling_progress is not None and is_continued
                else SlowTaskProgress("sampling steps", self.console)
            )
            progress(done, total)
            self.sampling_progress = (done, progress) if done < total else None
            if self.sampling_progress is None:
                progress.close()

    def on_evaluate_batch(self, payload: dict[str, Any]) -> None:
        """Progress of an evaluation: in the bar if there is one, else on lines of its own once it takes long."""
        done, total, task_name = payload["done"], payload["total"], f"{payload['split']} examples evaluated"
        if self.bar is not None:
            if perf_counter() > self.next_evaluation_update:
                self.next_evaluation_update = perf_counter() + 0.2
                self.bar.update(self.task, status=f"{done:,} of {total:,} {task_name}")
            return
        if self.evaluation_progress is None:
            delay_s = None if self.console.is_terminal else _QUIET_EVALUATION_S
            self.evaluation_progress = SlowTaskProgress(task_name, self.console, delay_s=delay_s)
        self.evaluation_progress(done, total)
        if done == total:
            self.evaluation_progress.close()
            self.evaluation_progress = None

    def on_note(self, payload: dict[str, Any]) -> None:
        self.console.print(f"  {escape(payload['text'])}")

    def on_finish(self, payload: dict[str, Any]) -> None:
        self.close()

    def close(self) -> None:
        if self.loading is not None:
            self.loading.stop()
            self.loading = None
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _format_status(payload: dict[str, Any]) -> str:
    losses = " ".join(f"{name} {format_metric(value)}" for name, value in payload["loss"].items())
    monitored = payload["validation"].get(payload["monitor"])
    metric = f"{payload['monitor']} {format_metric(monitored)}  " if monitored is not None else ""
    return (
        f"{losses}  {metric}lr {payload['lr']:.2g}  {payload['rows_per_second']:,.0f}/s  "
        f"{format_duration(payload['seconds_left'])} left"
    )


def describe_health(health: dict[str, Any]) -> list[str]:
    """The data in a few lines: splits, classes, what was inferred, and warnings."""
    from didact.charts.format import COUNTED_ITEMS

    splits = ", ".join(f"{rows:,} {name}" for name, rows in health["splits"].items())
    lines = [f"{splits}; each input {'×'.join(map(str, health['shape']))}"]
    if health.get("classes"):
        counts = health["classes"]
        class_counts = ", ".join(f"{name} {count}" for name, count in list(counts.items())[:10]) + (
            ", …" if len(counts) > 10 else ""
        )
        counted_items = COUNTED_ITEMS.get(health.get("task", ""), "examples")
        lines.append(f"{len(counts)} class{'es' * (len(counts) > 1)} (training {counted_items}): {class_counts}")
    if health.get("imbalance") and health.get("classes"):
        lines.append(f"class imbalance {health['imbalance']:.3g} : 1, most to least frequent")
    if health.get("duplicates") is not None and not any(health["duplicates"].values()):  # else a note counts them
        lines.append("no duplicates across the splits")
    return lines + list(health["notes"])


def make_layer_table(layers: dict[str, Any], *, with_receptive_fields: bool = False) -> Table:
    """The model summary, a row per layer, with the trainable parameters where some are frozen.

    With `with_receptive_fields`, also the receptive field of an output and the stride between neighbors, in pixels.
    """
    from didact.charts.format import has_frozen_layers

    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    columns = [("  layer", "left"), ("", "left"), ("output", "left"), ("parameters", "right")]
    has_frozen = has_frozen_layers(layers)
    columns += [("trained", "right")] if has_frozen else []
    for name, justify in columns + ([("field", "left"), ("jump", "left")] if with_receptive_fields else []):
        # fold, not crop: a name that is cut off cannot be typed
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in layers["rows"]:
        trainable_cells = [_format_count(row["trainable"])] if has_frozen else []
        geometry_cells = (
            [_format_shape(row.get("field")), _format_shape(row.get("jump"))] if with_receptive_fields else []
        )
        table.add_row(
            f"  {escape(row['name'])}",
            escape(row["layer"]),
            _format_shape(row["shape"]),
            _format_count(row["parameters"]),
            *trainable_cells,
            *geometry_cells,
        )
    return table


def _format_count(count: int) -> str:
    return f"{count:,}" if count else ""


def _format_shape(sizes: list[float] | None) -> str:
    """3×32×32; empty without sizes."""
    return "×".join(f"{n:g}" if isinstance(n, float) else str(n) for n in sizes or ())


class SlowTaskProgress:
    """Progress and speed of a task that takes longer than two seconds: a status line, or without terminal a line per
    tenth."""

    DELAY_S = 2.0

    def __init__(self, task_name: str, console: Console | None = None, *, delay_s: float | None = None) -> None:
        self.task_name, self.console = task_name, console or make_console(stderr=True)
        self.status: Status | None = None
        self.last_tenth, self.next_update = -1, perf_counter() + (self.DELAY_S if delay_s is None else delay_s)
        # the clock starts at the first report: loading before it does not count
        self.first_report: tuple[int, float] | None = None

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        self.first_report = self.first_report or (done, now)
        if now < self.next_update:
            return
        rate = (done - self.first_report[0]) / (now - self.first_report[1]) if now > self.first_report[1] else 0.0
        text = f"  {done:,} of {total:,} {self.task_name}" + (f", {rate:,.0f} a second" if rate else "")
        if self.console.is_terminal:
            self.status = self.status or self.console.status(text)
            self.status.update(text)
            self.status.start()
            self.next_update = now + 0.2
        elif (tenth := 10 * done // total) != self.last_tenth:
            self.last_tenth = tenth
            self.console.print(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.status is not None:
            self.status.stop()
