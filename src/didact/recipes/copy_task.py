"""The copy task: which recurrent networks remember over a long delay?"""

from typing import Annotated

from didact.data.core import Data
from didact.data.datasets.synthetic.copy_memory import MAX_SYMBOLS, QUERY, TOKENS, with_delay
from didact.layers.recurrent.recurrent import Recurrent, chrono_init_
from didact.models.text.rnn import RecurrentTagger
from didact.objectives.text.tagging import TaggingObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes.rnn import Cell, EmbedDim, HiddenSize, NumLayers, RecurrentInit
from didact.registry import recipe
from didact.training.experiment import Experiment


@recipe(
    data="copies",
    accepts=("tags",),
    tasks=("tagging",),
    chapter="recurrent networks",
    abilities=("tag",),
    kind="tagging",
    sources=("Gaba 5.4", "Gaba 5.5", "Gaba 5.6", "Gaba Ex 5.2", "Gaba Ex 5.4"),
    grid={"cell": ("rnn", "lstm", "gru"), "delay": (10, 50, 100)},
)
def copy_task(
    data: Data,
    *,
    cell: Cell = "lstm",
    embed_dim: EmbedDim = 16,
    hidden_size: HiddenSize = 64,
    num_layers: NumLayers = 1,
    recurrent_init: RecurrentInit = "orthogonal",
    sequence_length: Annotated[int, Range(1, MAX_SYMBOLS), "number of symbols to recall"] = 4,
    delay: Annotated[int, Range(0, 10_000), "delay in steps between reading and recalling"] = 50,
    chrono_init: Annotated[
        bool, "chrono initialization: gate biases of LSTM and GRU sampled for memories as long as the delay"
    ] = True,
    lr: a.LearningRate = 1e-2,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    steps: Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")] = 2000,
    batch_size: a.BatchSize = 64,
) -> Experiment:
    """Copy task: LSTM and GRU recall symbols after a delay, a plain RNN cannot.

    y_t = softmax(W h_t), h_t = cell(x_t, h_{t−1}). `didact explain RUN` draws the gates, and with --method memory
    --compare RUN ‖∂h_t/∂h_k‖ of several runs over the distance. Words without a mistake, one seed each: GRU 1.000, LSTM
    0.9997, RNN 0.08 (with --lr 2e-3 --steps 1500).
    """
    data = with_delay(data, sequence_length=sequence_length, delay=delay)
    network = RecurrentTagger(
        len(TOKENS),
        data.num_classes,
        cell=cell,
        embed_dim=embed_dim,
        hidden_size=hidden_size,
        num_layers=num_layers,
        bidirectional=False,
        dropout=0.0,
        init=recurrent_init,
    )
    assert isinstance(network.reader, Recurrent)
    if chrono_init:
        chrono_init_(network.reader.rnn, delay + 2 * sequence_length)
    return Experiment(
        data=data,
        objective=TaggingObjective(network, mean_length=sequence_length, query_token=QUERY),
        optimizer=make_optimizer("adamw", lr=lr, weight_decay=0.0),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, steps=steps, batch_size=batch_size,
    )
