"""Experiment and Settings: what a recipe returns, and what a user sets for every recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

import torch
from torch.optim import Optimizer

from didact.data.core import Batch, Data
from didact.objectives.base import Objective
from didact.optim.schedule import Constant, Schedule
from didact.options import Aliases, Duration, Range, VerbatimText

OptimizerFactory = Callable[[Any], Optimizer]
Augment = Callable[[Batch, torch.Generator], Batch]
# "start", "step", "evaluate", … with their data
EventCallback = Callable[[str, dict[str, Any]], None]


def ignore_events(event: str, payload: dict[str, Any]) -> None:
    """The callback that does nothing."""


def forward_steps(on_event: EventCallback, task: str) -> EventCallback:
    """Steps and evaluations of a training that comes before the recipe's own, as the event "begin" of this task."""

    def forward(event: str, payload: dict[str, Any]) -> None:
        if event in ("step", "evaluate"):
            on_event("begin", {"task": task, **payload})

    return forward


class BudgetNote(str):
    """A note that names the budget chosen by a recipe, and its text where the user sets another budget (`--steps`)."""

    without_budget: str

    def __new__(cls, text: str, without_budget: str = "") -> Self:
        note = super().__new__(cls, text)
        note.without_budget = without_budget
        return note


@dataclass(frozen=True)
class Experiment:
    """Data, objective, optimizer, schedule, budget, evaluation: everything that the training loop needs."""

    data: Data
    objective: Objective
    optimizer: OptimizerFactory | Mapping[str, OptimizerFactory]   # one for all players, or one for each player
    batch_size: int = 128
    epochs: int | None = None        # the budget: epochs …
    steps: int | None = None         # … or optimizer steps
    schedule: Schedule = field(default_factory=Constant)
    augment: Augment | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    # gradient accumulation: micro-batches per batch; the gradient of a mean over examples is the same
    accumulate: int = 1
    ema: float | None = None         # decay of the EMA of the weights, which is evaluated and saved
    patience: int | None = None      # early stopping: evaluations without improvement
    min_delta: float = 0.0
    evaluate_every: int | None = None  # steps between evaluations (an epoch, or a tenth of the steps, if not given)
    compile: bool = False
    # called once, before the first step: loads pretrained weights
    initialize_weights: Callable[["InitContext"], tuple[str, ...]] | None = None
    # arguments that were read from a source run: saved, so that this run is rebuilt without it
    resolved_arguments: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()      # what the recipe chose for the data, printed before the first step

    def with_budget(self, epochs: int | None, steps: int | None) -> "Experiment":
        """The same experiment under another budget, without notes about the budget that the recipe chose."""
        notes = (note.without_budget if isinstance(note, BudgetNote) else note for note in self.notes)
        return replace(self, epochs=epochs, steps=steps, notes=tuple(filter(None, notes)))

    @property
    def has_chosen_budget(self) -> bool:
        """Whether the recipe chose the budget from the data."""
        return any(isinstance(note, BudgetNote) and note.without_budget != note for note in self.notes)


@dataclass(frozen=True)
class Settings:
    """Options of every recipe: data, device, precision, seed, folder of the run."""

    data: Annotated[
        str | None,
        VerbatimText(),
        "dataset: a name, a table (.csv, .xlsx, .json, .parquet, …; - is standard input), a .txt file, or a folder of "
        "images or texts (the recipe's own if not given)",
    ] = None
    target: Annotated[
        str | None,
        VerbatimText(),
        "target column of a table, or several yes/no columns: a,b,c (the last one if not given)",
    ] = None
    task: Annotated[
        Literal["classes", "number"] | None,
        "what numbers in the target column are (a few different integers are classes, if not given)",
    ] = None
    text: Annotated[str | None, VerbatimText(), "text column of a table"] = None
    validation: Annotated[
        str | None, VerbatimText(), "table of the validation split (a part of --data if not given)"
    ] = None
    test: Annotated[str | None, VerbatimText(), "table of the test split (a part of --data if not given)"] = None
    features: Annotated[
        tuple[str, ...] | None,
        VerbatimText(),
        "columns of a table that are inputs: a,b (all but the target if not given)",
    ] = None
    drop: Annotated[tuple[str, ...] | None, VerbatimText(), "columns of a table that are no inputs: a,b"] = None
    sample_weight: Annotated[
        str | None, VerbatimText(), "column of a table with the weight of each row in the training loss"
    ] = None
    tokens: Annotated[
        Literal["characters", "words", "bpe", "gpt2"] | None,
        "tokenizer of running text, sentence pairs and labeled texts; gpt2 is that of the published weights (if not "
        "given: characters for running text, what suits their look for labeled texts)",
    ] = None
    size: Annotated[int | None, Range(1, 4096), "side in pixels that images are resized to when loaded"] = None
    seed: Annotated[int, Range(0), "random seed of initialization, order of examples, augmentation and sampling"] = 0
    split_seed: Annotated[int, Range(0), "random seed of the split into training, validation and test"] = 0
    epochs: Annotated[
        int | None,
        Range(1),
        "epochs: passes over the training data, instead of the recipe's budget",
        Aliases("num_epochs"),
    ] = None
    steps: Annotated[
        int | None, Range(1), "optimizer steps, instead of the recipe's budget", Aliases("max_steps")
    ] = None
    budget: Annotated[
        float | None,
        Duration(),
        Range(0, open_low=True),
        "time to train, instead of the recipe's budget: a few steps are timed, and as many are planned as fit",
        Aliases("time_limit", "max_time"),
    ] = None
    evaluate_every: Annotated[
        int | None,
        Range(1),
        "steps between evaluations of the validation split (the recipe's own if not given)",
        Aliases("eval_every", "eval_steps"),
    ] = None
    device: Annotated[str, "device: auto, cpu, cuda, cuda:1 or mps"] = "auto"
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], "numerical precision: fp32, bf16 or fp16 (mixed precision)"
    ] = "auto"
    accumulate: Annotated[int | None, Range(1), "gradient accumulation: micro-batches per batch"] = None
    compile: Annotated[bool | None, "torch.compile the loss (takes half a minute at the start)"] = None
    graph: Annotated[bool, "capture training steps of a fixed shape as a CUDA graph"] = True
    deterministic: Annotated[
        bool, "deterministic kernels on a GPU: the same bytes on the same GPU, a little slower"
    ] = False
    baselines: Annotated[
        bool, "baselines: fit simple models to the same rows and show what they reach on the test split"
    ] = True
    save_every: Annotated[float, Range(0, open_low=True), "seconds between checkpoints within an epoch"] = 60.0
    log_every: Annotated[
        int | None, Range(1), "steps between lines of metrics.jsonl (a tenth of an epoch if not given)"
    ] = None
    runs: Annotated[str, "folder of the runs"] = "runs"


@dataclass(frozen=True)
class InitContext:
    """What `initialize_weights` receives: device, settings and the event callback."""

    device: torch.device
    settings: Settings = field(default_factory=Settings)
    on_event: EventCallback = ignore_events
