"""The copy task: who still knows, after a long pause, what came before it?"""

from typing import Annotated

from didact.data.copying import ASKED, LONGEST, NAMES, after
from didact.data.core import Data
from didact.layers.recurrent import Recurrent, patient
from didact.models.recurrent import RecurrentTagger
from didact.objectives.tagging import Tag
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.recurrent import Cell, Hidden, Init, Layers, Width
from didact.registry import recipe
from didact.train.experiment import Experiment


@recipe(
    data="copies", accepts=("tags",), tasks=("tagging",), chapter="recurrent networks", abilities=("tag",), kind="tagging",
    sources=("Gaba 5.4", "Gaba 5.5", "Gaba 5.6", "Gaba Ex 5.2", "Gaba Ex 5.4"),
    grid={"cell": ("rnn", "lstm", "gru"), "delay": (10, 50, 100)},
)
def copy_task(
    data: Data, *,
    cell: Cell = "lstm", width: Width = 16, hidden: Hidden = 64, layers: Layers = 1, init: Init = "orthogonal",
    remember: Annotated[int, Range(1, LONGEST), "symbols to be repeated"] = 4,
    delay: Annotated[int, Range(0, 10_000), "blanks between reading and repeating"] = 50,
    chrono: Annotated[bool, "gates of LSTM and GRU begin by keeping what they hold for as long as the delay"] = True,
    lr: a.Rate = 1e-2, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    steps: Annotated[int, Range(1), "optimizer steps"] = 2000, batch: a.BatchSize = 64,
) -> Experiment:
    """Remember symbols over a long blank, then repeat them: LSTM and GRU can, a plain RNN (--cell rnn) cannot.

    y_t = softmax(W h_t), h_t = cell(x_t, h_{t−1}). `didact explain RUN` draws the gates, and with --method memory --beside RUN
    ‖∂h_t/∂h_k‖ of several runs over the distance. Words without a mistake, one seed
    each: GRU 1.000, LSTM 0.9997, RNN 0.08 (with --lr 2e-3 --steps 1500).
    """
    data = after(data, remember=remember, delay=delay)
    network = RecurrentTagger(
        len(NAMES), data.classes, cell=cell, width=width, hidden=hidden, layers=layers, bidirectional=False, dropout=0.0, init=init
    )
    assert isinstance(network.reader, Recurrent)
    if chrono:
        patient(network.reader.rnn, delay + 2 * remember)
    return Experiment(
        data=data,
        objective=Tag(network, length=remember, asks=ASKED),
        optimizer=make("adamw", lr=lr, weight_decay=0.0),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, steps=steps, batch=batch,
    )
