"""Options that many recipes share: type, bounds, aliases and help text, each defined once."""

from typing import Annotated, Literal

from didact.optim.factory import WITH_MOMENTUM
from didact.options import Aliases, OnlyWith, Range, VerbatimText

HiddenSizes = Annotated[tuple[int, ...], Range(1), "units of each hidden layer", Aliases("hidden_sizes")]
Activation = Annotated[
    Literal["relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid", "arctan"],
    "activation function of the hidden layers",
]
Norm = Annotated[Literal["none", "batch", "layer"], "normalization before each activation"]
Init = Annotated[
    Literal["he_normal", "he_uniform", "xavier_normal", "xavier_uniform", "orthogonal", "pytorch"],
    "weight initialization",
]
Dropout = Annotated[float, Range(0, 0.95), "dropout probability"]
Optimizer = Annotated[
    Literal[
        "adamw",
        "adam",
        "amsgrad",
        "sgd",
        "momentum",
        "nesterov",
        "adagrad",
        "rmsprop",
        "muon",
        "lion",
        "lars",
        "lamb",
        "sam",
    ],
    "optimizer",
]
LearningRate = Annotated[float, Range(0, open_low=True), "learning rate", Aliases("learning_rate")]
OptionalLearningRate = Annotated[
    float | None,
    Range(0, open_low=True),
    "learning rate (chosen for the optimizer and the data if not given)",
    Aliases("learning_rate"),
]
WeightDecay = Annotated[float, Range(0), "weight decay"]
Momentum = Annotated[
    float, Range(0, 0.9999), OnlyWith("optimizer", *WITH_MOMENTUM), "momentum, or β1 of the Adam family"
]
SAMRadius = Annotated[float, Range(0), OnlyWith("optimizer", "sam"), "SAM: neighborhood radius ρ"]
Schedule = Annotated[
    Literal["constant", "step_decay", "cosine", "warmup_cosine", "one_cycle"],
    "learning-rate schedule",
    Aliases("lr_schedule"),
]
Epochs = Annotated[int, Range(1), "epochs: passes over the training data", Aliases("num_epochs")]
OptionalEpochs = Annotated[
    int | None,
    Range(1),
    "epochs: passes over the training data (chosen from its size if not given)",
    Aliases("num_epochs"),
]
BatchSize = Annotated[int, Range(1), "batch size", Aliases("batch")]
OptionalBatchSize = Annotated[
    int | None, Range(1), "batch size (chosen from the data's size if not given)", Aliases("batch")
]
ClipNorm = Annotated[
    float | None,
    Range(0, open_low=True),
    "gradient clipping by norm: the largest norm of the gradient",
    Aliases("max_grad_norm"),
]
ClipValue = Annotated[
    float | None, Range(0, open_low=True), "gradient clipping by value: the largest absolute entry of the gradient"
]
Patience = Annotated[int | None, Range(1), "early-stopping patience: evaluations without improvement"]
LabelSmoothing = Annotated[float, Range(0, 0.9), "label smoothing ε", Aliases("smoothing")]
EMADecay = Annotated[
    float | None,
    Range(0, 0.99999),
    "decay of the exponential moving average (EMA) of the weights, which is evaluated and saved",
]
EmbeddingStd = Annotated[
    float | None,
    Range(0, open_low=True),
    "standard deviation of the embedding at initialization (1/√dim if not given; PyTorch's own is 1)",
]
Balance = Annotated[
    Literal["none", "weights", "over", "under"], "class imbalance: loss weights, oversampling or undersampling"
]
Reweigh = Annotated[
    str | None,
    VerbatimText(),
    "column of a table: resample so that it and the class are independent (Kamiran & Calders)",
]
ImageAugment = Annotated[
    tuple[str, ...],
    "image augmentations: flip, crop, crop_black (no reflection at the edges), rotate, affine, rigid (affine without "
    "scaling), jitter, light (brightness and contrast jitter), noise, cutout, mixup, cutmix",
]
TextAugment = Annotated[tuple[str, ...], "text augmentations: random deletion, swap or insertion of words"]
