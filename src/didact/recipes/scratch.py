"""The same kinds of network on the NumPy engine: every gradient is computed by `didact.scratch`, from the equations."""

from typing import Annotated, Any, Literal

import torch

from didact.data.core import Data
from didact.models.twins import TwinCharacterRNN, TwinGPT, TwinLeNet, TwinMLP
from didact.objectives.from_scratch import FromScratch, ScratchClassify
from didact.optim.named import make
from didact.optim.schedule import constant, cosine
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.common import CLASSES, budget
from didact.registry import recipe
from didact.scratch import networks
from didact.train.experiment import Experiment

Float = Annotated[Literal["float32", "float64"], "precision of the engine's numbers"]


def seed() -> int:
    """A seed for NumPy from torch's generator, which the run's seed has set."""
    return int(torch.randint(2**31, ()))


@recipe(
    data="separable", accepts=("table",), tasks=CLASSES, chapter="automatic differentiation", abilities=("classify",),
    sources=("Gaba 2.7", "Groudiev 2.2"),
)
def scratch_manual(
    data: Data, *,
    hidden: Annotated[int, Range(1), "units of the hidden layer"] = 64, lr: a.Rate = 0.1, epochs: a.Epochs = 100, dtype: Float = "float64",
) -> Experiment:
    """The two-layer network of Gaba 2.7 by full-batch gradient descent, on the NumPy engine.

    20 - 64 ReLU - 2, softmax cross-entropy, lr 0.1; the label of a point is whether x0 + x1 > 0.
    """
    network = networks.MLP(data.features, (hidden,), data.classes, rng=seed(), dtype=dtype)
    objective = ScratchClassify(network, twin=lambda: TwinMLP(data.features, (hidden,), data.classes), classes=data.classes)
    return Experiment(
        data=data, objective=objective, optimizer=make("sgd", lr=lr), schedule=constant(), epochs=epochs, batch=max(1, len(data.train)),
        evaluate_every=5,
    )


@recipe(
    data="digits", accepts=("table", "images"), tasks=CLASSES, chapter="automatic differentiation", abilities=("classify",),
    sources=("Gaba 1.6", "Groudiev 2.3", "Lhotte 3.3.1"),
)
def scratch_mlp(
    data: Data, *,
    hidden: a.Widths = (256, 128), lr: a.Rate = 1e-3, dtype: Float = "float32",
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """The perceptron of Gaba 1.6 on the NumPy engine; `didact compare scratch_mlp` sets it beside PyTorch."""
    epochs, batch, notes = budget(data, epochs, batch)
    network = networks.MLP(data.features, hidden, data.classes, rng=seed(), dtype=dtype)
    objective = ScratchClassify(network, twin=lambda: TwinMLP(data.features, hidden, data.classes), classes=data.classes)
    return Experiment(
        data=data, objective=objective, optimizer=make("adam", lr=lr), schedule=cosine(), epochs=epochs, batch=batch, notes=notes
    )


@recipe(
    data="digits", accepts=("images",), tasks=CLASSES, chapter="automatic differentiation", abilities=("classify",),
    sources=("Fleuret 5.2", "Gaba 4.4.1", "Groudiev 4.4"),
)
def scratch_lenet(data: Data, *, lr: a.Rate = 3e-3, epochs: a.Epochs = 20, batch: a.BatchSize = 64, dtype: Float = "float32") -> Experiment:
    """LeNet on the NumPy engine: convolutions as matrix products, pooling, and their derived gradients."""
    channels, size = data.shape[0], data.shape[-1]
    network = networks.LeNet(channels, size, data.classes, rng=seed(), dtype=dtype)
    objective = ScratchClassify(network, twin=lambda: TwinLeNet(channels, size, data.classes), classes=data.classes)
    return Experiment(data=data, objective=objective, optimizer=make("adam", lr=lr), schedule=cosine(), epochs=epochs, batch=batch)


def language(data: Data, network: Any, twin: Any, *, lr: float, steps: int, batch: int) -> Experiment:
    """Next-character prediction, judged by loss, accuracy and perplexity."""
    return Experiment(
        data=data, objective=FromScratch(network, twin=twin, classes=data.classes), optimizer=make("adam", lr=lr), schedule=cosine(),
        steps=steps, batch=batch, clip_norm=1.0,
    )


@recipe(
    data="python_topics", accepts=("text",), tasks=("language",), chapter="automatic differentiation", abilities=(),
    sources=("Gaba 5.2", "Gaba 5.5", "Groudiev 5", "Van Schependom 6"), kind="language",
)
def scratch_rnn(
    data: Data, *,
    cell: Annotated[Literal["lstm", "gru", "rnn"], "recurrent unit"] = "lstm",
    width: Annotated[int, Range(1), "numbers a character is embedded in"] = 32,
    hidden: Annotated[int, Range(1), "units of the recurrent layer"] = 128,
    lr: a.Rate = 5e-3, steps: Annotated[int, Range(1), "optimizer steps"] = 300, batch: a.BatchSize = 32, dtype: Float = "float32",
) -> Experiment:
    """A character RNN, LSTM or GRU on the NumPy engine, back-propagated through time by hand-derived gradients."""
    network = networks.CharacterRNN(data.classes, width, hidden, cell=cell, rng=seed(), dtype=dtype)
    twin = lambda: TwinCharacterRNN(data.classes, width, hidden, cell=cell)  # noqa: E731
    return language(data, network, twin, lr=lr, steps=steps, batch=batch)


@recipe(
    data="python_topics", accepts=("text",), tasks=("language",), chapter="automatic differentiation", abilities=(),
    sources=("Fleuret 5.3", "Gaba 7.7", "Lhotte 9.1", "Groudiev 6.6"), kind="language",
)
def scratch_gpt(
    data: Data, *,
    width: Annotated[int, Range(1), "numbers a token is represented by"] = 64,
    heads: Annotated[int, Range(1), "attention heads"] = 4,
    depth: Annotated[int, Range(1), "blocks"] = 2,
    lr: a.Rate = 3e-3, steps: Annotated[int, Range(1), "optimizer steps"] = 300, batch: a.BatchSize = 32, dtype: Float = "float32",
) -> Experiment:
    """A GPT of two layers on the NumPy engine: attention, layer norm and GELU from their equations."""
    context = data.shape[0]
    network = networks.GPT(data.classes, context=context, width=width, heads=heads, depth=depth, rng=seed(), dtype=dtype)
    twin = lambda: TwinGPT(data.classes, context=context, width=width, heads=heads, depth=depth)  # noqa: E731
    return language(data, network, twin, lr=lr, steps=steps, batch=batch)
