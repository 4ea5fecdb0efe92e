"""No option is silently ignored: it changes a run of a few steps, is refused, or a note says that it does nothing."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import didact
from didact.data.core import Data, TensorSplit
from didact.data.load import load
from didact.errors import UsageError
from didact.optim.factory import OPTIMIZERS, WITH_MOMENTUM
from didact.options import Option
from didact.registry import RECIPES
from didact.run import Run
from helpers.smallest_runs import SMALLEST_RUNS

STEPS = 3
MAX_ROWS = {"train": 192, "validation": 48, "test": 24}   # of the recipe's data: some of every class, quickly evaluated
# of run.json; not clocks, nor what was set
COMPARED_KEYS = ("notes", "layers", "plan", "health", "monitor", "stop_reason", "validation", "test")

# Without these an option has no effect in the smallest training, and is refused or noted.
REQUIRED_OPTIONS: dict[Any, dict[str, Any]] = {
    "label_dropout": {"conditional": True},
    "guidance": {"conditional": True},
    "rho": {"optimizer": "sam"},
    ("cnn", "stem"): {"model": "cifar_resnet8"},
    ("cnn", "shortcut"): {"model": "cifar_resnet8"},
    ("dcgan", "conditioning"): {"conditional": True},
    ("diffusion", "variance"): {"eta": 1.0},
    ("fine_tune", "lora_rank"): {"mode": "lora"},
    ("forecast", "teacher_forcing"): {"horizon": 3, "model": "lstm"},
    ("forecast", "linear_path"): {"model": "lstm"},
    ("forecast", "recurrent_init"): {"model": "lstm"},
    ("forecast", "kernel_size"): {"model": "dlinear"},
    ("forecast", "log_transform"): {"data": "SERIES"},
    ("forecast", "covariates"): {"data": "SERIES"},
    ("gpt", "balance_weight"): {"num_experts": 2},
    ("gpt", "lora_rank"): {"weights": "RUN gpt"},
    ("gpt", "train_embedding"): {"weights": "RUN gpt", "lora_rank": 2},
    ("gpt", "window"): {"attention": "local"},
    ("text_transformer", "window"): {"attention": "local"},
    ("mlp", "loss"): {"data": "diabetes", "augment": ()},
    ("mlp", "reweigh"): {"data": "FILE", "augment": ()},
    ("realnvp", "joint"): {"data": "iris"},
    ("realnvp", "network"): {"data": "digits"},
    ("realnvp", "num_scales"): {"data": "digits"},
    ("realnvp", "levels"): {"data": "digits"},
    ("text_transformer", "lora_rank"): {"weights": "RUN text_transformer"},
    ("transfer", "stem"): {"model": "cifar_resnet8"},
    ("transfer", "weights"): {"mode": "full", "weights": "RUN cnn"},
    ("transfer", "unfreeze"): {"mode": "partial", "weights": "RUN cnn"},
    ("transfer", "lr_ratio"): {"mode": "full", "weights": "RUN cnn"},
    ("vae", "levels"): {"likelihood": "categorical"},
    ("vae", "num_samples"): {"kl_warmup": 0},
    ("wgan", "weight_clip"): {"lipschitz": "clip"},
}
# What lets three steps show a difference; without it the option would do something, later.
REVEALING_OPTIONS: dict[Any, dict[str, Any]] = {
    "epochs": {"epochs": 1},
    "steps": {"steps": STEPS},
    "patience": {"lr": 1e-12, "steps": 12},
    ("denoising", "patience"): {"lr": 1e-12, "epochs": 12},      # evaluated once an epoch
    ("segmentation", "patience"): {"lr": 1e-12, "epochs": 6},
    ("forecast", "period"): {"normalization": "seasonal", "period": 6},
    ("gpt", "model"): {"dropout": 0.0},
    ("transfer", "mode"): {"weights": "RUN cnn"},
    # the first kernel is never smaller than 5
    ("pixelcnn", "kernel_size"): {"num_layers": 2}, ("vqvae_prior", "kernel_size"): {"num_layers": 2},
}
# Other values that no rule finds.
OTHER_VALUES: dict[Any, list[Any]] = {
    "augment": [("noise",), ("deletion",), ()],
    "clip_norm": [1e-3],
    "ema": [0.05],  # the average of the first steps has a smaller decay
    "image_size": [16],
    "kernel_size": [5],
    "patience": [1],
    "embeddings": ["VECTORS"],
    ("cnn", "weights"): ["RUN cnn"],
    ("transfer", "weights"): ["RUN cnn with seed"],
    ("gpt", "weights"): ["RUN gpt"],
    ("text_transformer", "weights"): ["RUN text_transformer"],
    ("fine_tune", "weights"): ["RUN bert"],
    ("consistency", "from_"): ["RUN diffusion"],
    ("latent_diffusion", "from_"): ["RUN vqvae"],
    ("vqvae_prior", "from_"): ["RUN vqvae"],
    ("consistency", "teacher"): ["diffusion channels=8,16 time_dim=16 epochs=1"],
    ("latent_diffusion", "autoencoder"): ["vqvae channels=8,8 codebook_size=8 code_dim=2 epochs=1"],
    ("vqvae_prior", "autoencoder"): ["vqvae channels=8,8 codebook_size=4 code_dim=4 epochs=1"],
    ("mlp", "reweigh"): ["group"],
    ("forecast", "covariates"): [("load",)],
    ("forecast", "linear_members"): [("6:last", "12:none")],
    ("word2vec", "probe"): [("sing",)],
}
ALL_OPTIONS = [(name, option.name) for name in sorted(SMALLEST_RUNS) for option in RECIPES[name].options.values()]


def list_other_values(recipe: str, option: Option, current: Any) -> list[Any]:
    """Other legal values, the likeliest to be possible in a tiny training first."""
    if (explicit_values := OTHER_VALUES.get((recipe, option.name), OTHER_VALUES.get(option.name))) is not None:
        return [value for value in explicit_values if value != current]
    if option.choices:
        candidates: list[Any] = list(option.choices)
    elif option.kind is bool:
        candidates = [not current]
    elif option.is_list:
        candidates = [tuple(2 * each for each in current)] if current else [(4, 8), (4,)]
    elif option.kind is int:
        candidates = [2 * current, current + 1, current - 1, 1] if current else [2, 3, 4, 8]
    elif option.kind is float:
        candidates = [current / 2, current / 3 + 0.1] if current else [0.5, 0.01, 0.1]
    else:
        raise AssertionError(f"give other values of {recipe}.{option.name} in OTHER")
    return [value for value in candidates if value != current and is_legal(option, value)]


def is_legal(option: Option, value: Any) -> bool:
    try:
        option.check(value)
    except UsageError:
        return False
    return True


@cache
def small_data(name: str, accepts: tuple[str, ...], tokens: str | None = None) -> Data:
    """A set cut to a few rows."""
    data = load(name, seed=0, accepts=accepts, tokens=tokens)
    parts = {part: data.split(part) for part in MAX_ROWS}
    if not all(isinstance(split, TensorSplit) for split in parts.values()):
        return data
    kept_rows = {part: torch.arange(min(MAX_ROWS[part], len(split))) for part, split in parts.items()}
    splits = {part: split.subset(kept_rows[part]) for part, split in parts.items()}
    return replace(
        data,
        **splits,
        indices={part: data.indices[part][rows] for part, rows in kept_rows.items() if part in data.indices},
    )


def train_small(recipe: str, options: dict[str, Any]) -> Run:
    options = {name: resolve_value(value) for name, value in options.items()}
    name, tokens = options.pop("data", RECIPES[recipe].data), options.pop("tokens", None)
    budget = {} if "steps" in options or options.get("epochs") else {"steps": STEPS}
    return didact.train(
        RECIPES[recipe], data=small_data(name, RECIPES[recipe].accepts, tokens), log_every=1, **budget, **options
    )


def resolve_value(value: Any) -> Any:
    """A run or a file, for values that name one."""
    if not isinstance(value, str):
        return value
    if value.startswith("RUN "):
        return train_source_run(value.removeprefix("RUN "))
    writers = {"VECTORS": write_vectors, "FILE": write_table, "SERIES": write_series}
    return writers[value]() if value in writers else value


@cache
def train_source_run(words: str) -> str:
    recipe, *suffixes = words.split()
    extra_options = (
        {"model": SMALLEST_RUNS["cnn"].get("model", "cnn")}
        if recipe == "cnn"
        else {"tokens": "words"}
        if recipe == "bert"
        else {}
    )
    run = train_small(recipe, {**SMALLEST_RUNS[recipe], **extra_options, "seed": 5 + len(suffixes)})
    return str(run.folder.absolute())


@cache
def write_vectors() -> str:
    names = small_data("verdicts", ("text",)).feature_names
    rows = {word: " ".join(str((i * j) % 7 - 3) for j in range(1, 17)) for i, word in enumerate(names[2:100])}
    Path("vectors.txt").write_text("".join(f"{word} {row}\n" for word, row in rows.items()))
    return str(Path("vectors.txt").absolute())


@cache
def write_table() -> str:
    rows = "".join(f"{i % 7},{'ab'[i % 3 == 0]},{'xy'[i % 5 > 2]}\n" for i in range(90))
    Path("table.csv").write_text("size,group,kind\n" + rows)
    return str(Path("table.csv").absolute())


def iterate_run_contents(run: Run) -> Iterator[str]:
    metadata = {name: value for name, value in run.metadata.items() if name in COMPARED_KEYS}
    metadata["notes"] = [note for note in metadata["notes"] if "does nothing" not in note]
    yield json.dumps(metadata, sort_keys=True)
    for row in run.metrics:
        yield json.dumps({name: value for name, value in row.items() if name != "seconds"}, sort_keys=True)
    for file in sorted(run.folder.glob("*.safetensors")):
        if file.stem not in ("state", "indices"):
            for name, value in sorted(run.load(file.stem).items()):
                yield (
                    f"{file.stem} {name} {tuple(value.shape)} "
                    + hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
                )


def fingerprint_run(recipe: str, options: dict[str, Any]) -> tuple[str, list[str]]:
    """A hash of all that a run keeps, and the notes that something does nothing."""
    run = train_small(recipe, options)
    return hashlib.sha256("\n".join(iterate_run_contents(run)).encode()).hexdigest(), [
        n for n in run.metadata["notes"] if "does nothing" in n
    ]


@cache
def fingerprint_default(recipe: str, options: str) -> str:
    return fingerprint_run(recipe, parse_options(options))[0]


def parse_options(options: str) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(options).items()}


def try_others(recipe: str, option: Option, options: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether another value of the option changes the run; and the messages of those that do not."""
    messages: list[str] = []
    default_hash = fingerprint_default(recipe, json.dumps(options))
    for value in list_other_values(recipe, option, options.get(option.name, option.default)):
        try:
            new_hash, notes = fingerprint_run(recipe, {**options, option.name: value})
        except UsageError as error:
            messages.append(str(error))
            continue
        messages += [note for note in notes if f"--{option.flag} " in note]
        if new_hash != default_hash:
            return True, messages
    return False, messages


@cache
def write_series() -> str:
    rows = "".join(f"{i % 5},{10 + (i * 7) % 12 + i / 50}\n" for i in range(150))
    Path("series.csv").write_text("load,warmth\n" + rows)
    return str(Path("series.csv").absolute())


@pytest.fixture(autouse=True, scope="module")
def shared_workdir(tmp_path_factory):
    """Runs that others begin with are trained once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        yield
    for cached_function in (train_source_run, write_vectors, write_table, write_series, fingerprint_default):
        cached_function.cache_clear()


def get_extra_options(table: dict[Any, dict[str, Any]], recipe: str, name: str) -> dict[str, Any]:
    return table.get((recipe, name), table.get(name, {}))


def is_quick(recipe: str, name: str) -> bool:
    """`make test` takes those that need another option, and one in six of the rest; `make test-slow` takes all (two
    minutes)."""
    return (recipe, name) in REQUIRED_OPTIONS or name in REQUIRED_OPTIONS or ALL_OPTIONS.index((recipe, name)) % 6 == 0


@pytest.mark.parametrize(("recipe", "name"), [
    pytest.param(*each, id="-".join(each), marks=() if is_quick(*each) else pytest.mark.slow) for each in ALL_OPTIONS
])
def test_option_changes_the_run_or_is_refused(recipe, name):
    option, options = (
        RECIPES[recipe].options[name],
        {**SMALLEST_RUNS[recipe], **get_extra_options(REVEALING_OPTIONS, recipe, name)},
    )
    has_effect, messages = try_others(recipe, option, {**options, **get_extra_options(REQUIRED_OPTIONS, recipe, name)})
    assert has_effect, f"--{option.flag} of {recipe} changes nothing; {messages}"
    if get_extra_options(REQUIRED_OPTIONS, recipe, name):
        has_effect, messages = try_others(recipe, option, options)
        assert has_effect or messages, (
            f"--{option.flag} of {recipe} changes nothing in the smallest training, and nothing is said"
        )


@pytest.mark.parametrize("name", ["weight_decay", "momentum", "lr"])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer_option_changes_the_run_or_is_noted(optimizer, name):
    has_effect, messages = try_others(
        "optimizers", RECIPES["optimizers"].options[name], {**SMALLEST_RUNS["optimizers"], "optimizer": optimizer}
    )
    assert has_effect != bool(messages), (
        f"--{name} changes {has_effect} with {optimizer}, and is said to do nothing: {messages}"
    )
    assert has_effect or (name, optimizer in WITH_MOMENTUM) == ("momentum", False)


def test_option_without_effect_is_noted(shared_workdir):
    run = train_small("optimizers", {**SMALLEST_RUNS["optimizers"], "optimizer": "sgd", "momentum": 0.5})
    expected_note = (
        f"--momentum 0.5 does nothing: it is used only with --optimizer {', '.join(WITH_MOMENTUM[:-1])} or "
        f"{WITH_MOMENTUM[-1]}, and --optimizer is sgd"
    )
    assert expected_note in run.metadata["notes"]
    default_run = train_small("optimizers", {**SMALLEST_RUNS["optimizers"], "optimizer": "sgd"})
    assert not [note for note in default_run.metadata["notes"] if "does nothing" in note]
