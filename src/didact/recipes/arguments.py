"""Hyperparameters that many recipes share: type, bounds and the line that `--help` shows, each written once."""

from typing import Annotated, Literal

from didact.optim.named import WITH_MOMENTUM
from didact.options import AsWritten, OnlyWith, Range

Widths = Annotated[tuple[int, ...], Range(1), "units of each hidden layer"]
Activation = Annotated[
    Literal["relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid", "arctan"], "non-linearity of the hidden layers"
]
Norm = Annotated[Literal["none", "batch", "layer"], "normalisation before each non-linearity"]
Init = Annotated[
    Literal["he_normal", "he_uniform", "xavier_normal", "xavier_uniform", "orthogonal", "pytorch"], "how the weights are drawn at first"
]
Dropout = Annotated[float, Range(0, 0.95), "share of hidden units dropped while training"]
Optimizer = Annotated[
    Literal["adamw", "adam", "amsgrad", "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "muon", "lion", "lars", "lamb", "sam"],
    "rule that moves the weights",
]
Rate = Annotated[float, Range(0, open_low=True), "learning rate"]
OptionalRate = Annotated[float | None, Range(0, open_low=True), "learning rate (a good one for optimizer and data if not given)"]
Decay = Annotated[float, Range(0), "weight decay"]
Momentum = Annotated[float, Range(0, 0.9999), OnlyWith("optimizer", *WITH_MOMENTUM), "momentum, or β1 of the Adam family"]
ScheduleName = Annotated[
    Literal["constant", "step_decay", "cosine", "warmup_cosine", "one_cycle"], "how the learning rate moves over the run"
]
Epochs = Annotated[int, Range(1), "passes over the training data"]
OptionalEpochs = Annotated[int | None, Range(1), "passes over the training data (chosen from its size if not given)"]
BatchSize = Annotated[int, Range(1), "examples in a batch"]
OptionalBatch = Annotated[int | None, Range(1), "examples in a batch (chosen from the data's size if not given)"]
Clip = Annotated[float | None, Range(0, open_low=True), "largest norm of the gradient"]
ClipValue = Annotated[float | None, Range(0, open_low=True), "largest size of any entry of the gradient"]
Patience = Annotated[int | None, Range(1), "evaluations without improvement before it stops"]
Smoothing = Annotated[float, Range(0, 0.9), "label smoothing: share of the target spread over all classes"]
Average = Annotated[float | None, Range(0, 0.99999), "decay of an average of the weights, which is judged and kept instead"]
EmbeddingStd = Annotated[
    float | None, Range(0, open_low=True), "deviation of a word's numbers at first (1/√width if not given; 1 is PyTorch's own)"
]
Balance = Annotated[Literal["none", "weights", "over", "under"], "rare classes: weigh their loss, repeat them, or thin the others"]
Reweigh = Annotated[str | None, AsWritten(), "column of a table: its training rows are drawn so that it says nothing of the class"]
Augment = Annotated[
    tuple[str, ...],
    "changes to image batches: flip, crop, crop_black (no mirror at the edges), rotate, affine, rigid (affine unscaled), "
    "jitter, light (jitter of brightness and contrast), noise, cutout, mixup, cutmix",
]
AugmentWords = Annotated[tuple[str, ...], "changes to the words of training texts: deletion, swap, insertion"]
