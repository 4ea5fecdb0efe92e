"""Transfer learning: a pretrained image classifier for a task with few labels."""

from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from didact.data.balance import resample_by_class
from didact.data.core import Data, MissingSplit
from didact.data.load import list_datasets
from didact.errors import UsageError
from didact.layers.conv.resize_pixels import ResizeAndStandardize
from didact.layers.standardize import Standardize
from didact.objectives.supervised import likelihood_for
from didact.objectives.transfer import TransferClassifier, group_layers
from didact.optim.factory import DEFAULT_LR, make_optimizer
from didact.optim.schedule import make_schedule
from didact.options import OnlyWith, Range, RunReference, to_json_value
from didact.recipes import _hyperparameters as a
from didact.recipes._defaults import make_image_augmentation
from didact.recipes.cnn import ModelName, StemOption, build_network, cnn, get_network_notes, infer_stem, load_pretrained
from didact.registry import recipe
from didact.run import Run
from didact.training.experiment import EventCallback, Experiment, InitContext, Settings
from didact.training.prepare import prepare
from didact.training.run_training import train

_TransferMode = Annotated[
    Literal["scratch", "features", "partial", "full"],
    "what is trained: a new network, the head alone, the last layers, or all layers of the pretrained one",
]
_DEFAULT_SETTINGS = Settings()
_DEFAULT_SOURCE = "glyphs"  # printed digits and letters: similar to digits, and generated in an instant
_MIN_STEPS = 300  # where no epochs are given: with few examples an epoch is short
# of the optimizer's default learning rate: there are few steps, and a head is easy to train
_LR_FACTORS = {"scratch": 3.0, "features": 10.0, "partial": 3.0, "full": 3.0}
_SourceWeights = Annotated[
    str,
    RunReference(allow_other=True),
    "pretrained weights: a run, a file, lite0 (ImageNet), or a dataset to pretrain on",
]


@recipe(
    data="digits",
    accepts=("images",),
    tasks=("binary", "multiclass"),
    chapter="convolutions",
    abilities=("classify", "draw"),
    sources=("Gaba 4.5", "Gaba 4.7", "Lhotte 7.6", "Van Schependom 3.3.3", "Fleuret 6.3"),
    grid={"mode": ("scratch", "features", "partial", "full")},
)
def transfer(
    data: Data,
    *,
    mode: _TransferMode = "full",
    weights: _SourceWeights = _DEFAULT_SOURCE,
    model: Annotated[
        ModelName | None, "architecture (cnn if not given; efficientnet_lite0 for --weights lite0)"
    ] = None,
    stem: StemOption = "auto",
    labels_per_class: Annotated[int | None, Range(1), "training examples per class (none: all of them)"] = 1,
    unfreeze: Annotated[
        float,
        Range(0, 1),
        OnlyWith("mode", "partial"),
        "fraction of the layers, from the last, that are trained in mode partial",
    ] = 0.5,
    lr_ratio: Annotated[
        float,
        Range(0, 1, open_low=True),
        OnlyWith("mode", "partial", "full"),
        "discriminative learning rates: first layer's rate as a fraction of the last layer's; 1 from scratch",
    ] = 0.1,
    image_size: Annotated[
        int | None, Range(8, 1024), "side that images are resized to (their own if not given; 224 for lite0)"
    ] = None,
    label_smoothing: a.LabelSmoothing = 0.0,
    augment: a.ImageAugment = (),
    optimizer: a.Optimizer = "adamw",
    lr: a.OptionalLearningRate = None,
    weight_decay: a.WeightDecay = 0.01,
    momentum: a.Momentum = 0.9,
    rho: a.SAMRadius = 0.05,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Transfer learning: a pretrained image classifier, fine-tuned on few labels.

    θ starts from the pretrained weights, the head is new; η_l = η ρ^(1 - l / L) for layer l of L, 0 for frozen layers.
    `didact sweep transfer --seeds 3` compares the modes with training from scratch. Measured with one label of each
    digit (seeds 0 to 2): scratch 0.62 ± 0.09, and after printed glyphs features 0.73 ± 0.02, partial 0.77 ± 0.03, full
    0.74 ± 0.04; each mode gains with each seed.
    """
    is_lite = weights == "lite0"
    model, image_size = model or ("efficientnet_lite0" if is_lite else "cnn"), image_size or (224 if is_lite else None)
    data = subsample_per_class(data, labels_per_class) if labels_per_class else data
    batch_size = batch_size or 32
    steps_per_epoch = ceil(len(data.train) / batch_size)
    epochs = epochs or max(10, ceil(_MIN_STEPS / steps_per_epoch))
    likelihood = likelihood_for(data, label_smoothing=label_smoothing)
    stem = infer_stem(weights, model, stem) if mode != "scratch" else stem
    size = (image_size, image_size) if image_size else data.shape[1:]
    network = build_network(model, data, likelihood.num_outputs, size=size, stem=stem)
    base_lr = lr or _LR_FACTORS[mode] * DEFAULT_LR[optimizer]
    initialize_weights = partial(_load_backbone, network, weights, model, max(size))
    if image_size:
        standardize = network.standardize
        assert isinstance(standardize, Standardize)
        network.standardize = ResizeAndStandardize.from_standardize((image_size, image_size), standardize)
    L = len(group_layers(network))
    num_trainable_layers = {"features": 1, "partial": max(1, ceil(unfreeze * L))}.get(mode, L)
    # lite0 also chooses the architecture, in mode scratch too
    is_ignored = mode == "scratch" and weights not in (_DEFAULT_SOURCE, "lite0")
    ignored_note = f"--weights {weights} does nothing: --mode scratch starts from random weights"
    ignored_notes = (ignored_note,) if is_ignored else ()
    return Experiment(
        data=data,
        objective=TransferClassifier(
            network,
            likelihood,
            num_trainable_layers=num_trainable_layers,
            lr=base_lr,
            lr_ratio=1.0 if mode == "scratch" else lr_ratio,
            cache_features=not augment,
        ),
        optimizer=make_optimizer(optimizer, lr=base_lr, weight_decay=weight_decay, momentum=momentum, rho=rho),
        schedule=make_schedule(schedule),
        augment=make_image_augmentation(data, augment),
        # an epoch of few examples takes no time, but the validation split is large
        evaluate_every=max(1, epochs * steps_per_epoch // 10),
        clip_norm=clip_norm,
        epochs=epochs,
        batch_size=batch_size,
        initialize_weights=initialize_weights if mode != "scratch" else None,
        resolved_arguments={"stem": stem, "model": model, "image_size": image_size},
        notes=(
            *get_network_notes(network),
            *ignored_notes,
            f"{num_trainable_layers} of {L} layers are trained; the last one is new",
        ),
    )


def subsample_per_class(data: Data, labels_per_class: int) -> Data:
    """n training examples per class, another sample for each seed of initialization; validation and test stay whole."""
    seed = int(torch.randint(2**31, ()))
    count, label = min(zip(data.class_counts["train"], data.class_names, strict=True))
    if count < labels_per_class and not isinstance(data.train, MissingSplit):
        raise UsageError(
            f"--labels-per-class {labels_per_class}: class {label!r} of {data.name!r} has only {count} "
            "training examples"
        )

    def sample_rows(rows: Tensor, generator: torch.Generator) -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:labels_per_class]]

    return resample_by_class(data, sample_rows, seed, f"{labels_per_class} labeled training examples per class")


def _load_backbone(
    network: nn.Module, location: str, model: str, image_size: int, context: InitContext
) -> tuple[str, ...]:
    """Load pretrained weights into all layers but the head, which stays new even if the numbers of classes agree."""
    head = group_layers(network)[-1][-1]
    new_head_state = {name: value.clone() for name, value in head.state_dict().items()}
    notes: tuple[str, ...] = ()
    if location in list_datasets():
        run = pretrain_cnn(
            location, model, image_size, replace(context.settings, device=str(context.device)), context.on_event
        )
        accuracy, seconds = run.metadata["validation"]["accuracy"], run.metadata["seconds"]
        notes = (
            f"{model} was pretrained on {location!r}: validation accuracy {accuracy:.3f} after {seconds:.0f} s; "
            f"{run.folder}",
        )
        location = str(run.folder)
    weight_notes = load_pretrained(network, location, model)
    head.load_state_dict(new_head_state)
    return *notes, *weight_notes


def pretrain_cnn(source: str, model: str, image_size: int, settings: Settings, on_event: EventCallback) -> Run:
    """The run of `cnn` that was trained on the source dataset at this image size: an existing one, or a new one.

    Each seed has a run of its own.
    """
    seed, common_settings = int(torch.randint(2**31, ())), {"precision": settings.precision, "runs": settings.runs}
    # `cnn` refuses data of other kinds by itself
    size_option = {"size": image_size} if list_datasets()[source].kind == "images" else {}
    # augmented data make features that transfer better
    cnn_options = {"model": model, "augment": ("affine",)}
    prepared = prepare(cnn, {"data": source, **size_option, **cnn_options})
    expected = {
        "arguments": to_json_value(prepared.arguments),
        "source": prepared.data.source,
        "seed": seed,
        **common_settings,
    }
    for file in Path(settings.runs).glob("cnn/*/run.json"):
        metadata = Run(file.parent).metadata
        actual = {"arguments": metadata["arguments"], "source": metadata["data"]["source"], **metadata["settings"]}
        if metadata.get("status") == "finished" and {name: actual[name] for name in expected} == expected:
            return Run(file.parent)
    return train(
        cnn,
        data=prepared.data,
        on_event=on_event,
        trained_for=transfer.name,
        seed=seed,
        device=settings.device,
        **cnn_options,
        **common_settings,
    )
