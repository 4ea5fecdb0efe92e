"""Recipes on the NumPy engine: `didact.scratch` computes every gradient from the equations."""

from functools import partial
from typing import Annotated, Any, Literal

import torch

from didact.data.core import Data
from didact.models.scratch_twins import TwinCharacterRNN, TwinGPT, TwinLeNet, TwinMLP
from didact.objectives.numpy_engine import NumpyEngineClassifier, NumpyEngineObjective
from didact.optim.factory import make_optimizer
from didact.optim.schedule import Constant, Cosine
from didact.options import Aliases, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import CLASSIFICATION_TASKS, choose_budget
from didact.registry import recipe
from didact.scratch import networks
from didact.training.experiment import Experiment

_EngineDType = Annotated[Literal["float32", "float64"], "floating-point type of the NumPy engine"]


def _sample_seed() -> int:
    """A seed for NumPy from torch's generator, which the run's seed has set."""
    return int(torch.randint(2**31, ()))


@recipe(
    data="separable",
    accepts=("table",),
    tasks=CLASSIFICATION_TASKS,
    chapter="automatic differentiation",
    abilities=("classify",),
    sources=("Gaba 2.7", "Groudiev 2.2"),
)
def scratch_manual(
    data: Data,
    *,
    hidden: Annotated[int, Range(1), "units of the hidden layer", Aliases("hidden_size")] = 64,
    lr: a.LearningRate = 0.1,
    epochs: a.Epochs = 100,
    dtype: _EngineDType = "float64",
) -> Experiment:
    """The two-layer network of Gaba 2.7 on the NumPy engine.

    20 - 64 ReLU - 2, softmax cross-entropy, full-batch gradient descent with lr 0.1; the label of a point is whether x0
    + x1 > 0.
    """
    network = networks.MLP(data.num_features, (hidden,), data.num_classes, rng=_sample_seed(), dtype=dtype)
    objective = NumpyEngineClassifier(
        network, make_twin=lambda: TwinMLP(data.num_features, (hidden,), data.num_classes), num_classes=data.num_classes
    )
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make_optimizer("sgd", lr=lr),
        schedule=Constant(),
        epochs=epochs,
        batch_size=max(1, len(data.train)),
        evaluate_every=5,
    )


@recipe(
    data="digits",
    accepts=("table", "images"),
    tasks=CLASSIFICATION_TASKS,
    chapter="automatic differentiation",
    abilities=("classify",),
    sources=("Gaba 1.6", "Groudiev 2.3", "Lhotte 3.3.1"),
)
def scratch_mlp(
    data: Data,
    *,
    hidden: a.HiddenSizes = (256, 128),
    lr: a.LearningRate = 1e-3,
    dtype: _EngineDType = "float32",
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """The MLP of Gaba 1.6 on the NumPy engine.

    `didact engines scratch_mlp` compares it with PyTorch.
    """
    epochs, batch_size, notes = choose_budget(data, epochs, batch_size)
    network = networks.MLP(data.num_features, hidden, data.num_classes, rng=_sample_seed(), dtype=dtype)
    objective = NumpyEngineClassifier(
        network, make_twin=lambda: TwinMLP(data.num_features, hidden, data.num_classes), num_classes=data.num_classes
    )
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make_optimizer("adam", lr=lr),
        schedule=Cosine(),
        epochs=epochs,
        batch_size=batch_size,
        notes=notes,
    )


@recipe(
    data="digits",
    accepts=("images",),
    tasks=CLASSIFICATION_TASKS,
    chapter="automatic differentiation",
    abilities=("classify",),
    sources=("Fleuret 5.2", "Gaba 4.4.1", "Groudiev 4.4"),
)
def scratch_lenet(
    data: Data,
    *,
    lr: a.LearningRate = 3e-3,
    epochs: a.Epochs = 20,
    batch_size: a.BatchSize = 64,
    dtype: _EngineDType = "float32",
) -> Experiment:
    """LeNet on the NumPy engine.

    Convolutions as matrix products, pooling, and their derived gradients.
    """
    channels, size = data.shape[0], data.shape[-1]
    network = networks.LeNet(channels, size, data.num_classes, rng=_sample_seed(), dtype=dtype)
    objective = NumpyEngineClassifier(
        network, make_twin=lambda: TwinLeNet(channels, size, data.num_classes), num_classes=data.num_classes
    )
    return Experiment(
        data=data,
        objective=objective,
        optimizer=make_optimizer("adam", lr=lr),
        schedule=Cosine(),
        epochs=epochs,
        batch_size=batch_size,
    )


def _make_language_experiment(
    data: Data, network: Any, make_twin: Any, *, lr: float, steps: int, batch_size: int
) -> Experiment:
    """Next-character prediction, evaluated by loss, accuracy and perplexity."""
    return Experiment(
        data=data,
        objective=NumpyEngineObjective(network, make_twin=make_twin, num_classes=data.num_classes),
        optimizer=make_optimizer("adam", lr=lr),
        schedule=Cosine(),
        steps=steps,
        batch_size=batch_size,
        clip_norm=1.0,
    )


@recipe(
    data="python_topics",
    accepts=("text",),
    tasks=("language",),
    chapter="automatic differentiation",
    abilities=(),
    sources=("Gaba 5.2", "Gaba 5.5", "Groudiev 5", "Van Schependom 6"),
    kind="language",
)
def scratch_rnn(
    data: Data,
    *,
    cell: Annotated[Literal["lstm", "gru", "rnn"], "recurrent cell"] = "lstm",
    embed_dim: Annotated[int, Range(1), "embedding dimension of a character", Aliases("embedding_dim")] = 32,
    hidden_size: Annotated[int, Range(1), "hidden size of the recurrent layer"] = 128,
    lr: a.LearningRate = 5e-3,
    steps: Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")] = 300,
    batch_size: a.BatchSize = 32,
    dtype: _EngineDType = "float32",
) -> Experiment:
    """A character-level RNN, LSTM or GRU on the NumPy engine.

    Backpropagation through time by hand-derived gradients.
    """
    network = networks.CharacterRNN(
        data.num_classes, embed_dim, hidden_size, cell=cell, rng=_sample_seed(), dtype=dtype
    )
    make_twin = lambda: TwinCharacterRNN(data.num_classes, embed_dim, hidden_size, cell=cell)  # noqa: E731
    return _make_language_experiment(data, network, make_twin, lr=lr, steps=steps, batch_size=batch_size)


@recipe(
    data="python_topics",
    accepts=("text",),
    tasks=("language",),
    chapter="automatic differentiation",
    abilities=(),
    sources=("Fleuret 5.3", "Gaba 7.7", "Lhotte 9.1", "Groudiev 6.6"),
    kind="language",
)
def scratch_gpt(
    data: Data,
    *,
    embed_dim: Annotated[int, Range(1), "embedding dimension", Aliases("width", "d_model")] = 64,
    num_heads: Annotated[int, Range(1), "number of attention heads", Aliases("heads")] = 4,
    num_layers: Annotated[int, Range(1), "number of Transformer blocks", Aliases("layers")] = 2,
    lr: a.LearningRate = 3e-3,
    steps: Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")] = 300,
    batch_size: a.BatchSize = 32,
    dtype: _EngineDType = "float32",
) -> Experiment:
    """A GPT of two layers on the NumPy engine.

    Attention, layer norm and GELU from their equations.
    """
    context = data.shape[0]
    network = networks.GPT(
        data.num_classes,
        context_length=context,
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_layers=num_layers,
        rng=_sample_seed(),
        dtype=dtype,
    )
    make_twin = partial(
        TwinGPT,
        data.num_classes,
        context_length=context,
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_layers=num_layers,
    )
    return _make_language_experiment(data, network, make_twin, lr=lr, steps=steps, batch_size=batch_size)
