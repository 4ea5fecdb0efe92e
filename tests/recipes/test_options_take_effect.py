"""No option is silently ignored: it changes what a run of a few steps keeps, or it is refused, or a note says that it does nothing."""

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
from didact.data.core import Data, Resident
from didact.data.load import load
from didact.errors import UsageError
from didact.optim.named import OPTIMIZERS, WITH_MOMENTUM
from didact.options import Option
from didact.registry import RECIPES
from didact.run import Run
from smallest import SMALLEST

STEPS = 3
ROWS = {"train": 192, "validation": 48, "test": 24}   # of the recipe's data: some of every class, soon judged
KEPT = ("notes", "layers", "plan", "health", "watch", "stopped", "validation", "test")   # of run.json; not clocks, nor what was set

# Without these an option has nothing to do in the smallest training, which must then be refused or said.
NEEDS: dict[Any, dict[str, Any]] = {
    "drop": {"conditional": True}, "guidance": {"conditional": True},
    ("cnn", "stem"): {"model": "cifar_resnet8"}, ("cnn", "shortcut"): {"model": "cifar_resnet8"},
    ("dcgan", "condition"): {"conditional": True},
    ("diffusion", "variance"): {"eta": 1.0},
    ("fine_tune", "rank"): {"learn": "lora"},
    ("forecast", "teach"): {"horizon": 3},
    ("gpt", "balance"): {"experts": 2}, ("gpt", "lora"): {"weights": "RUN gpt"}, ("gpt", "thaw"): {"weights": "RUN gpt", "lora": 2},
    ("gpt", "span"): {"attention": "local"}, ("text_transformer", "span"): {"attention": "local"},
    ("mlp", "loss"): {"data": "diabetes", "augment": ()}, ("mlp", "reweigh"): {"data": "FILE", "augment": ()},
    ("realnvp", "joint"): {"data": "iris"}, ("realnvp", "network"): {"data": "digits"},
    ("realnvp", "scales"): {"data": "digits"}, ("realnvp", "levels"): {"data": "digits"},
    ("text_transformer", "lora"): {"weights": "RUN text_transformer"},
    ("transfer", "stem"): {"model": "cifar_resnet8"}, ("transfer", "weights"): {"mode": "full", "weights": "RUN cnn"},
    ("transfer", "thaw"): {"mode": "partial", "weights": "RUN cnn"}, ("transfer", "ratio"): {"mode": "full", "weights": "RUN cnn"},
    ("vae", "levels"): {"likelihood": "categorical"}, ("vae", "samples"): {"warmup": 0},
    ("wgan", "bound"): {"lipschitz": "clip"},
}
# What lets three steps show a difference; without it the option would do something, later.
SHOWN: dict[Any, dict[str, Any]] = {
    "epochs": {"epochs": 1},
    "steps": {"steps": STEPS},
    "patience": {"lr": 1e-12, "steps": 12},
    ("denoising", "patience"): {"lr": 1e-12, "epochs": 12},      # judged once an epoch
    ("segmentation", "patience"): {"lr": 1e-12, "epochs": 6},
    ("gpt", "model"): {"dropout": 0.0},
    ("transfer", "mode"): {"weights": "RUN cnn"},
    ("pixelcnn", "kernel"): {"depth": 2}, ("vqvae_prior", "kernel"): {"depth": 2},   # the first kernel is never smaller than 5
}
# Other values that no rule finds.
OTHER: dict[Any, list[Any]] = {
    "augment": [("noise",), ("deletion",), ()],
    "clip_norm": [1e-3],
    "ema": [0.05],     # an average of few steps begins with a smaller decay than is asked for
    "kernel": [5],
    "patience": [1],
    "embeddings": ["VECTORS"],
    ("cnn", "weights"): ["RUN cnn"], ("transfer", "weights"): ["RUN cnn with seed"],
    ("gpt", "weights"): ["RUN gpt"], ("text_transformer", "weights"): ["RUN text_transformer"], ("fine_tune", "weights"): ["RUN bert"],
    ("consistency", "from_"): ["RUN diffusion"], ("latent_diffusion", "from_"): ["RUN vqvae"], ("vqvae_prior", "from_"): ["RUN vqvae"],
    ("consistency", "teacher"): ["diffusion widths=8,16 time=16 epochs=1"],
    ("latent_diffusion", "coder"): ["vqvae widths=8,8 codes=8 dim=2 epochs=1"],
    ("vqvae_prior", "coder"): ["vqvae widths=8,8 codes=4 dim=4 epochs=1"],
    ("mlp", "reweigh"): ["group"],
    ("word2vec", "probe"): [("sing",)],
}
EVERY = [(name, option.name) for name in sorted(SMALLEST) for option in RECIPES[name].options.values()]


def values(recipe: str, option: Option, now: Any) -> list[Any]:
    """Other legal values, the likeliest to be possible in a tiny training first."""
    if (listed := OTHER.get((recipe, option.name), OTHER.get(option.name))) is not None:
        return [value for value in listed if value != now]
    if option.choices:
        tried: list[Any] = list(option.choices)
    elif option.kind is bool:
        tried = [not now]
    elif option.many:
        tried = [tuple(2 * each for each in now)] if now else [(4, 8), (4,)]
    elif option.kind is int:
        tried = [2 * now, now + 1, now - 1, 1] if now else [2, 3, 4, 8]
    elif option.kind is float:
        tried = [now / 2, now / 3 + 0.1] if now else [0.5, 0.01, 0.1]
    else:
        raise AssertionError(f"give other values of {recipe}.{option.name} in OTHER")
    return [value for value in tried if value != now and is_legal(option, value)]


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
    parts = {part: data.split(part) for part in ROWS}
    if not all(isinstance(split, Resident) for split in parts.values()):
        return data
    kept = {part: torch.arange(min(ROWS[part], len(split))) for part, split in parts.items()}
    splits = {part: split.pick(kept[part]) for part, split in parts.items()}
    return replace(data, **splits, indices={part: data.indices[part][rows] for part, rows in kept.items() if part in data.indices})


def train_small(recipe: str, given: dict[str, Any]) -> Run:
    given = {name: real(value) for name, value in given.items()}
    name, tokens = given.pop("data", RECIPES[recipe].data), given.pop("tokens", None)
    budget = {} if "steps" in given or given.get("epochs") else {"steps": STEPS}
    return didact.train(RECIPES[recipe], data=small_data(name, RECIPES[recipe].accepts, tokens), log_every=1, **budget, **given)


def real(value: Any) -> Any:
    """A run or a file, where one is asked for."""
    if not isinstance(value, str):
        return value
    if value.startswith("RUN "):
        return run_of(value.removeprefix("RUN "))
    return {"VECTORS": vectors, "FILE": table}[value]() if value in ("VECTORS", "FILE") else value


@cache
def run_of(words: str) -> str:
    recipe, *others = words.split()
    more = {"model": SMALLEST["cnn"].get("model", "cnn")} if recipe == "cnn" else {"tokens": "words"} if recipe == "bert" else {}
    run = train_small(recipe, {**SMALLEST[recipe], **more, "seed": 5 + len(others)})
    return str(run.folder.absolute())


@cache
def vectors() -> str:
    names = small_data("verdicts", ("text",)).names
    rows = {word: " ".join(str((i * j) % 7 - 3) for j in range(1, 17)) for i, word in enumerate(names[2:100])}
    Path("vectors.txt").write_text("".join(f"{word} {row}\n" for word, row in rows.items()))
    return str(Path("vectors.txt").absolute())


@cache
def table() -> str:
    rows = "".join(f"{i % 7},{'ab'[i % 3 == 0]},{'xy'[i % 5 > 2]}\n" for i in range(90))
    Path("table.csv").write_text("size,group,kind\n" + rows)
    return str(Path("table.csv").absolute())


def parts_of(run: Run) -> Iterator[str]:
    facts = {name: value for name, value in run.facts.items() if name in KEPT}
    facts["notes"] = [note for note in facts["notes"] if "does nothing" not in note]
    yield json.dumps(facts, sort_keys=True)
    for row in run.metrics:
        yield json.dumps({name: value for name, value in row.items() if name != "seconds"}, sort_keys=True)
    for file in sorted(run.folder.glob("*.safetensors")):
        if file.stem not in ("state", "indices"):
            for name, value in sorted(run.load(file.stem).items()):
                yield f"{file.stem} {name} {tuple(value.shape)} " + hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()


def fingerprint(recipe: str, given: dict[str, Any]) -> tuple[str, list[str]]:
    """A hash of all that a run keeps, and the notes that something does nothing."""
    run = train_small(recipe, given)
    return hashlib.sha256("\n".join(parts_of(run)).encode()).hexdigest(), [n for n in run.facts["notes"] if "does nothing" in n]


@cache
def before(recipe: str, given: str) -> str:
    return fingerprint(recipe, json_read(given))[0]


def json_read(given: str) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(given).items()}


def try_others(recipe: str, option: Option, given: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether some other value of the option makes another run; and what was said of those that do not."""
    told: list[str] = []
    was = before(recipe, json.dumps(given))
    for value in values(recipe, option, given.get(option.name, option.default)):
        try:
            now, notes = fingerprint(recipe, {**given, option.name: value})
        except UsageError as error:
            told.append(str(error))
            continue
        told += [note for note in notes if f"--{option.flag} " in note]
        if now != was:
            return True, told
    return False, told


@pytest.fixture(autouse=True, scope="module")
def one_folder(tmp_path_factory):
    """Runs that others begin with are trained once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        yield
    for kept in (run_of, vectors, table, before):
        kept.cache_clear()


def added(table: dict[Any, dict[str, Any]], recipe: str, name: str) -> dict[str, Any]:
    return table.get((recipe, name), table.get(name, {}))


def is_quick(recipe: str, name: str) -> bool:
    """`make test` takes those that need another option, and one in six of the rest; `make test-slow` takes all (two minutes)."""
    return (recipe, name) in NEEDS or name in NEEDS or EVERY.index((recipe, name)) % 6 == 0


@pytest.mark.parametrize(("recipe", "name"), [
    pytest.param(*each, id="-".join(each), marks=() if is_quick(*each) else pytest.mark.slow) for each in EVERY
])
def test_option_takes_effect(recipe, name):
    option, given = RECIPES[recipe].options[name], {**SMALLEST[recipe], **added(SHOWN, recipe, name)}
    changed, told = try_others(recipe, option, {**given, **added(NEEDS, recipe, name)})
    assert changed, f"--{option.flag} of {recipe} changes nothing; {told}"
    if added(NEEDS, recipe, name):
        changed, told = try_others(recipe, option, given)
        assert changed or told, f"--{option.flag} of {recipe} changes nothing in the smallest training, and nothing is said"


@pytest.mark.parametrize("name", ["weight_decay", "momentum", "lr"])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_options_of_every_optimizer(optimizer, name):
    changed, told = try_others("optimizers", RECIPES["optimizers"].options[name], {**SMALLEST["optimizers"], "optimizer": optimizer})
    assert changed != bool(told), f"--{name} changes {changed} with {optimizer}, and is said to do nothing: {told}"
    assert changed or (name, optimizer in WITH_MOMENTUM) == ("momentum", False)


def test_a_note_says_what_has_nothing_to_do(one_folder):
    run = train_small("optimizers", {**SMALLEST["optimizers"], "optimizer": "sgd", "momentum": 0.5})
    said = f"--momentum 0.5 does nothing: it is for --optimizer {' or '.join(WITH_MOMENTUM)}, and --optimizer is sgd"
    assert said in run.facts["notes"]
    alone = train_small("optimizers", {**SMALLEST["optimizers"], "optimizer": "sgd"})
    assert not [note for note in alone.facts["notes"] if "does nothing" in note]      # its default is not told
