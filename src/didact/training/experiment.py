"""What a recipe returns, and what a person sets beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

import torch
from torch.optim import Optimizer

from didact.data.core import Batch, Data
from didact.objectives.base import Objective
from didact.optim.schedule import Constant, Schedule
from didact.options import Range, VerbatimText

OptimizerFactory = Callable[[Any], Optimizer]
Augment = Callable[[Batch, torch.Generator], Batch]
# events for whoever shows progress: "start", "step", "evaluate", …
EventCallback = Callable[[str, dict[str, Any]], None]


def ignore_events(event: str, payload: dict[str, Any]) -> None:
    """Tell nobody."""


class BudgetNote(str):
    """A note that names the budget which a recipe chose, and what of it still holds where a person sets another
    (`--steps`)."""

    without_budget: str

    def __new__(cls, text: str, without_budget: str = "") -> Self:
        note = super().__new__(cls, text)
        note.without_budget = without_budget
        return note


@dataclass(frozen=True)
class Experiment:
    """Data, objective, optimizer, schedule, budget, what to judge: everything that the loop is handed."""

    data: Data
    objective: Objective
    optimizer: OptimizerFactory | Mapping[str, OptimizerFactory]   # one for all players, or one for each by name
    batch_size: int = 128
    epochs: int | None = None        # the budget: passes over the training data …
    steps: int | None = None         # … or optimizer steps
    schedule: Schedule = field(default_factory=Constant)
    augment: Augment | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    # micro-batches that one batch is computed in; the gradient of a mean over rows is the same
    accumulate: int = 1
    ema: float | None = None         # decay of an average of the weights, which is then judged and kept
    patience: int | None = None      # evaluations without improvement before it stops
    min_delta: float = 0.0
    evaluate_every: int | None = None  # steps; an epoch, or a tenth of the steps, where not given
    compile: bool = False
    # once, before the first step: brings weights learned elsewhere
    initialize_weights: Callable[["InitContext"], tuple[str, ...]] | None = None
    # arguments read from elsewhere: kept, so that the run is rebuilt without
    resolved_arguments: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()      # what the recipe chose from the data, told before the first step

    def with_budget(self, epochs: int | None, steps: int | None) -> "Experiment":
        """The same under another budget; nothing is said any more of the one that was chosen."""
        notes = (note.without_budget if isinstance(note, BudgetNote) else note for note in self.notes)
        return replace(self, epochs=epochs, steps=steps, notes=tuple(filter(None, notes)))


@dataclass(frozen=True)
class Settings:
    """Options of every recipe: where the data is, what it runs on, where the run lies."""

    data: Annotated[
        str | None,
        VerbatimText(),
        "name of a set, a file (CSV, TSV, TXT), a folder of images or texts (the recipe's own if not given)",
    ] = None
    target: Annotated[
        str | None,
        VerbatimText(),
        "column of the CSV to predict, or several of yes and no: a,b,c (the last one if not given)",
    ] = None
    task: Annotated[
        Literal["classes", "number"] | None,
        "what numbers in the target mean (few different whole ones are classes, if not given)",
    ] = None
    text: Annotated[str | None, VerbatimText(), "column of the CSV that holds texts"] = None
    tokens: Annotated[
        Literal["characters", "words", "bpe", "gpt2"] | None,
        "what running text and pairs are cut into; gpt2: as the published weights were (running text: characters if "
        "not given)",
    ] = None
    size: Annotated[int | None, Range(1, 4096), "pixels on a side that images are resized to"] = None
    seed: Annotated[int, Range(0), "fixes initialisation, order, augmentation and sampling"] = 0
    split_seed: Annotated[int, Range(0), "fixes which examples are for validation and test"] = 0
    epochs: Annotated[int | None, Range(1), "passes over the training data, instead of the recipe's"] = None
    steps: Annotated[int | None, Range(1), "optimizer steps, instead of the recipe's budget"] = None
    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps"] = "auto"
    precision: Annotated[Literal["auto", "fp32", "bf16", "fp16"], "arithmetic of the network"] = "auto"
    accumulate: Annotated[int | None, Range(1), "micro-batches that one batch is computed in"] = None
    compile: Annotated[bool | None, "torch.compile the loss (costs half a minute at first)"] = None
    graph: Annotated[bool, "capture steps of fixed shape as a CUDA graph"] = True
    deterministic: Annotated[
        bool, "deterministic kernels on a GPU too: the same bytes again on the same GPU, at some speed"
    ] = False
    save_every: Annotated[float, Range(0, open_low=True), "seconds between checkpoints inside an epoch"] = 60.0
    log_every: Annotated[
        int | None, Range(1), "steps between two lines of metrics.jsonl (a tenth of an epoch if not given)"
    ] = None
    runs: Annotated[str, "folder that the run's folder is made in"] = "runs"


@dataclass(frozen=True)
class InitContext:
    """What is known when an experiment begins with something learned elsewhere, or to be learned first: where, how,
    and who watches."""

    device: torch.device
    settings: Settings = field(default_factory=Settings)
    on_event: EventCallback = ignore_events
