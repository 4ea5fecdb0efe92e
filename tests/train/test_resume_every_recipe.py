"""Killed between two steps and inside the writing of a checkpoint: every recipe, optimizer and precision ends with the same bytes."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import didact
from didact import files
from didact.optim.named import OPTIMIZERS
from didact.registry import RECIPES
from didact.run import Run
from didact.train.loop import Training
from didact.train.session import resume
from smallest import SMALLEST

STEPS = 9
SLOW_SEEDS = range(1, 1 + int(os.environ.get("DIDACT_KILL_SEEDS", "3")))  # other moments of death, by `make test-slow`


class Killed(BaseException):
    """Not an Exception: nothing in didact may clean up after it, as nothing does after SIGKILL."""


@pytest.fixture(autouse=True)
def checkpoint_every_third_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "save_due", lambda self, gap: self.run is not None and self.state.step % 3 == 0)


def kill_at_step(patch: pytest.MonkeyPatch, step: int) -> None:
    advance = Training.advance

    def dying(self: Training, *args: Any) -> None:
        if self.run is not None and self.state.step == step:
            raise Killed
        advance(self, *args)

    patch.setattr(Training, "advance", dying)


def kill_in_write(patch: pytest.MonkeyPatch, step: int, share: float) -> None:
    """Dies inside the first write of the state after `step`, with a share of the file on the disk."""
    save = Training.save

    def dying_save(self: Training) -> None:
        if self.state.step < step:
            save(self)
            return
        replace_with = files.replace_with

        def tear(path: Path, write: Callable[[Path], object]) -> None:
            def torn(beside: Path) -> None:
                write(beside)
                os.truncate(beside, int(share * beside.stat().st_size))
                raise Killed

            replace_with(path, torn if path.name == "state.safetensors" else write)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(files, "replace_with", tear)
            save(self)

    patch.setattr(Training, "save", dying_save)


def run_until_killed(kill: Callable[[pytest.MonkeyPatch], None], work: Callable[[], Run]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill(patch)
        with pytest.raises(Killed):
            work()


def train_killed(recipe: str, random_: random.Random, **given: Any) -> Run:
    """Trained in three lives."""
    first, second = sorted(random_.sample(range(1, STEPS), 2))
    if random_.random() < 0.5:
        first_kill: Callable[[pytest.MonkeyPatch], None] = lambda patch: kill_at_step(patch, first)  # noqa: E731
        second_kill: Callable[[pytest.MonkeyPatch], None] = lambda patch: kill_in_write(patch, second, random_.random())  # noqa: E731
    else:
        first_kill, second_kill = lambda p: kill_in_write(p, first, random_.random()), lambda p: kill_at_step(p, second)
    run_until_killed(first_kill, lambda: didact.train(RECIPES[recipe], **given))
    run = latest(recipe)
    run_until_killed(second_kill, lambda: resume(run))
    return resume(run)


def latest(recipe: str) -> Run:
    return Run.open(f"{recipe}/latest")


def log_of(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics]


def assert_same(resumed: Run, whole: Run) -> None:
    assert resumed.folder != whole.folder
    for name in ("model", "test", "examples"):
        same = (resumed.folder / f"{name}.safetensors").read_bytes() == (whole.folder / f"{name}.safetensors").read_bytes()
        assert same, f"{name} differs: {difference(resumed, whole, name)}"
    assert log_of(resumed) == log_of(whole)
    assert resumed.facts["test"] == whole.facts["test"]
    assert {p.name for p in resumed.folder.iterdir()} == {p.name for p in whole.folder.iterdir()}  # no stray file


def difference(a: Run, b: Run, name: str) -> dict[str, float]:
    theirs = b.load(name)
    apart = {key: float((value.double() - theirs[key].double()).abs().max()) for key, value in a.load(name).items() if value.numel()}
    return {key: by for key, by in apart.items() if by}


def check(recipe: str, seed: int = 0, **given: Any) -> None:
    given = {**SMALLEST[recipe], "steps": STEPS, "log_every": 2, "seed": seed, "device": "cpu", **given}
    whole = didact.train(RECIPES[recipe], **given)
    assert_same(train_killed(recipe, random.Random(f"{recipe} {seed}"), **given), whole)


def test_every_recipe_has_a_smallest_training():
    assert set(SMALLEST) == set(didact.recipes.__all__)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)])
@pytest.mark.parametrize("recipe", sorted(SMALLEST))
def test_recipe(recipe, seed, here):
    check(recipe, seed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", [name for name in sorted(SMALLEST) if not name.startswith("scratch")])
def test_recipe_on_cuda(recipe, here):
    """In the same bytes with deterministic kernels; without them a GPU sums gradients of convolutions in an order of the moment."""
    check(recipe, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer_on_cuda(optimizer, here):
    check("cnn", optimizer=optimizer, ema=0.9, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("recipe", ["cnn", "gpt", "gan", "char_rnn"])
def test_precision_on_cuda(recipe, precision, here):
    check(recipe, precision=precision, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", ["mlp", "cnn", "gpt", "diffusion", "segmentation", "detection"])
def test_resuming_on_cuda_without_deterministic_kernels(recipe, here):
    """Not in the same bytes then, but it goes on."""
    given = {**SMALLEST[recipe], "steps": STEPS, "device": "cuda"}
    assert train_killed(recipe, random.Random(recipe), **given).facts["status"] == "finished"


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer(optimizer, ema, here):
    """On a network in channels_last, whose moments have to come back in its layout."""
    check("cnn", optimizer=optimizer, ema=ema)


@pytest.mark.parametrize("recipe", ["cnn", "gpt", "gan"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision(recipe, precision, here):
    check(recipe, precision=precision)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_state_comes_back_in_the_layout_of_its_weights(optimizer, here):
    """The numbers alone are not enough: a fused kernel walks a weight and its moments by their memory."""
    given = {**SMALLEST["cnn"], "steps": STEPS, "optimizer": optimizer, "device": "cpu"}
    run_until_killed(lambda patch: kill_at_step(patch, 5), lambda: didact.train(RECIPES["cnn"], **given))
    layouts = []
    original = Training.restore

    def restore(self: Training, checkpoint: dict[str, Any]) -> None:
        original(self, checkpoint)
        for weight, state in next(iter(self.step.optimizers.values())).state.items():
            layouts.extend((weight.stride(), value.stride()) for value in state.values() if has_shape_of(value, weight))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "restore", restore)
        resume(latest("cnn"))
    assert all(weight == state for weight, state in layouts)
    assert bool(layouts) == (optimizer != "sgd")  # sgd keeps nothing


def has_shape_of(value: object, weight: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == weight.shape and value.ndim > 1

