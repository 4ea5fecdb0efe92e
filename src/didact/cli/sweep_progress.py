"""Progress of many trainings on stderr: a line for each start and end; on a terminal also a progress bar."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from didact.charts.format import format_duration
from didact.cli.console import make_console
from didact.cli.options import format_cell, format_metric, format_short
from didact.cli.progress import make_progress_bar
from didact.errors import format_count


class SweepProgress:
    """Shows the events of a sweep. Parallel trainings are counted; a training in this process shows its steps."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True)
        self.job_numbers: dict[str, str] = {}      # "3/8" by job
        self.num_done, self.num_jobs, self.num_running = 0, 0, 0
        self.prefix = ""                      # names a source run while it is trained
        self.bar: Progress | None = None

    def __call__(self, event: str, payload: dict[str, Any]) -> None:
        getattr(self, f"on_{event}", lambda _: None)(payload)

    def on_cell(self, payload: dict[str, Any]) -> None:
        if not self.job_numbers:
            self.num_done, self.num_jobs = payload["number"] - 1, payload["of"]    # trained by an earlier call
        self.on_measure(payload)
        self.num_running += 1
        self._show_counts()

    def on_measure(self, payload: dict[str, Any]) -> None:
        """Without a progress bar: redrawing it would disturb a benchmark."""
        name, job_number = _format_job(payload), f"{payload['number']}/{payload['of']}"
        self.job_numbers.pop(name, None)
        self.job_numbers[name] = job_number
        self.console.print(f"{job_number}  {escape(name)}")

    def on_round(self, payload: dict[str, Any]) -> None:
        self.console.print(f"     round {payload['number']} of {payload['of']}, seed {payload['seed']}")

    def on_timing(self, payload: dict[str, Any]) -> None:
        self.console.print(f"timing a few steps of {payload['recipe']}, {format_count(payload['cells'], 'setting')} …")

    def on_start(self, payload: dict[str, Any]) -> None:
        self.prefix = f"{payload['recipe']} first: " if "trained_for" in payload else ""

    def on_begin(self, payload: dict[str, Any]) -> None:
        self._update_bar(payload["step"], payload["total"], f"{payload['task']}: {_format_position(payload)}")

    def on_step(self, payload: dict[str, Any]) -> None:
        self._update_bar(payload["step"], payload["total"], self.prefix + _format_position(payload))

    on_evaluate = on_step

    def show_sampling(self, done: int, total: int) -> None:
        """Progress of sampling inside the training of this process."""
        if self.bar is not None:
            self.bar.update(self.task, status=f"{done:,} of {format_count(total, 'sampling step')}")

    def report_row(self, row: dict[str, Any], metrics: tuple[str, ...] = ()) -> None:
        name, last = _format_job(row), next(reversed(self.job_numbers))
        # others may have started since
        job_prefix = "" if name == last else f"{self.job_numbers[name]}  {escape(name)}: "
        self.num_done, self.num_running = self.num_done + 1, self.num_running - 1
        if "diverged" in row:
            self.console.print(f"     {job_prefix}diverged: {escape(row['diverged'])}", soft_wrap=True)
        else:
            metric_names = [name for name in metrics if name in row["validation"]] or [row["monitor"][0]]
            scores = "  ".join(f"{name} {format_metric(row['validation'][name])}" for name in metric_names)
            self.console.print(f"     {job_prefix}validation {scores}  ({format_duration(row['seconds'])})")
        self._show_counts()

    def _show_counts(self) -> None:
        self._update_bar(
            self.num_done, self.num_jobs, f"{self.num_done} of {self.num_jobs} done, {self.num_running} running"
        )

    def _update_bar(self, done: int, total: int, text: str) -> None:
        """Only on a terminal, where a line can be redrawn."""
        if not self.console.is_terminal:
            return
        if self.bar is None:
            self.bar = make_progress_bar(self.console)
            self.task = self.bar.add_task("sweep", status="")
        self.bar.update(self.task, completed=done, total=total, status=text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _format_position(payload: dict[str, Any]) -> str:
    """Progress of one training: epoch 2.5 of 60, step 10 of 240, 3.0 s left."""
    num_epochs = payload["epoch"] * payload["total"] / payload["step"]
    text = (
        f"epoch {format_short(payload['epoch'])} of {format_short(num_epochs)}, step {payload['step']:,} of "
        f"{payload['total']:,}"
    )
    return f"{text}, {format_duration(payload['seconds_left'])} left"


def _format_job(payload: dict[str, Any]) -> str:
    """Cell and seed of a training: lr=0.001  seed 0."""
    return f"{format_cell(payload['cell'])}  seed {payload['seed']}"
