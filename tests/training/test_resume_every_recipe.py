"""Killed between two steps and inside the writing of a checkpoint: every recipe, optimizer and precision ends with
the same bytes."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import didact
from didact import files
from didact.api import resume
from didact.optim.factory import OPTIMIZERS
from didact.registry import RECIPES
from didact.run import Run
from didact.training.checkpoint import restore_checkpoint
from didact.training.loop import Trainer
from helpers.smallest_runs import SMALLEST_RUNS

STEPS = 9
SLOW_SEEDS = range(1, 1 + int(os.environ.get("DIDACT_KILL_SEEDS", "3")))  # other moments of death, by `make test-slow`


class ProcessKilled(BaseException):
    """Not an Exception: nothing in didact may clean up after it, as nothing does after SIGKILL."""


@pytest.fixture(autouse=True)
def checkpoint_every_third_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "is_save_due", lambda self, gap: self.run is not None and self.state.step % 3 == 0)


def kill_at_step(patch: pytest.MonkeyPatch, step: int) -> None:
    train_round = Trainer.train_round

    def die_at_step(self: Trainer, *args: Any) -> None:
        if self.run is not None and self.state.step == step:
            raise ProcessKilled
        train_round(self, *args)

    patch.setattr(Trainer, "train_round", die_at_step)


def kill_in_write(patch: pytest.MonkeyPatch, step: int, share: float) -> None:
    """Dies inside the first write of the state after `step`, with a share of the file on the disk."""
    save = Trainer.save

    def save_and_die(self: Trainer) -> None:
        if self.state.step < step:
            save(self)
            return
        replace_with = files.atomic_write

        def write_torn(path: Path, write: Callable[[Path], object]) -> None:
            def write_part_and_die(temporary: Path) -> None:
                write(temporary)
                os.truncate(temporary, int(share * temporary.stat().st_size))
                raise ProcessKilled

            replace_with(path, write_part_and_die if path.name == "state.safetensors" else write)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(files, "atomic_write", write_torn)
            save(self)

    patch.setattr(Trainer, "save", save_and_die)


def run_until_killed(kill: Callable[[pytest.MonkeyPatch], None], work: Callable[[], Run]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill(patch)
        with pytest.raises(ProcessKilled):
            work()


def train_killed(recipe: str, rng: random.Random, **options: Any) -> Run:
    """Trained in three lives."""
    first, second = sorted(rng.sample(range(1, STEPS), 2))
    if rng.random() < 0.5:
        first_kill: Callable[[pytest.MonkeyPatch], None] = lambda patch: kill_at_step(patch, first)  # noqa: E731
        second_kill: Callable[[pytest.MonkeyPatch], None] = lambda patch: kill_in_write(patch, second, rng.random())  # noqa: E731
    else:
        first_kill, second_kill = lambda p: kill_in_write(p, first, rng.random()), lambda p: kill_at_step(p, second)
    run_until_killed(first_kill, lambda: didact.train(RECIPES[recipe], **options))
    run = open_latest_run(recipe)
    run_until_killed(second_kill, lambda: resume(run))
    return resume(run)


def open_latest_run(recipe: str) -> Run:
    return Run.open(f"{recipe}/latest")


def read_log(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics]


def assert_same_run(resumed_run: Run, uninterrupted_run: Run) -> None:
    assert resumed_run.folder != uninterrupted_run.folder
    for name in ("model", "test", "examples"):
        is_same = (resumed_run.folder / f"{name}.safetensors").read_bytes() == (
            uninterrupted_run.folder / f"{name}.safetensors"
        ).read_bytes()
        assert is_same, f"{name} differs: {compute_differences(resumed_run, uninterrupted_run, name)}"
    assert read_log(resumed_run) == read_log(uninterrupted_run)
    assert resumed_run.metadata["test"] == uninterrupted_run.metadata["test"]
    # no stray file
    assert {p.name for p in resumed_run.folder.iterdir()} == {p.name for p in uninterrupted_run.folder.iterdir()}


def compute_differences(a: Run, b: Run, name: str) -> dict[str, float]:
    reference = b.load(name)
    differences = {
        key: float((value.double() - reference[key].double()).abs().max())
        for key, value in a.load(name).items()
        if value.numel()
    }
    return {key: distance for key, distance in differences.items() if distance}


def check_resume(recipe: str, seed: int = 0, **options: Any) -> None:
    options = {**SMALLEST_RUNS[recipe], "steps": STEPS, "log_every": 2, "seed": seed, "device": "cpu", **options}
    uninterrupted_run = didact.train(RECIPES[recipe], **options)
    assert_same_run(train_killed(recipe, random.Random(f"{recipe} {seed}"), **options), uninterrupted_run)


def test_every_recipe_has_smallest_options():
    assert set(SMALLEST_RUNS) == set(didact.recipes.__all__)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)])
@pytest.mark.parametrize("recipe", sorted(SMALLEST_RUNS))
def test_recipe_resumes_byte_identical(recipe, seed, workdir):
    check_resume(recipe, seed)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", [name for name in sorted(SMALLEST_RUNS) if not name.startswith("scratch")])
def test_recipe_resumes_byte_identical_on_cuda(recipe, workdir):
    """In the same bytes with deterministic kernels; without them a GPU sums gradients of convolutions in an order
    of the moment."""
    check_resume(recipe, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer_resumes_byte_identical_on_cuda(optimizer, workdir):
    check_resume("cnn", optimizer=optimizer, ema=0.9, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("recipe", ["cnn", "gpt", "gan", "char_rnn"])
def test_precision_resumes_byte_identical_on_cuda(recipe, precision, workdir):
    check_resume(recipe, precision=precision, device="cuda", deterministic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", ["mlp", "cnn", "gpt", "diffusion", "segmentation", "detection"])
def test_recipe_resumes_on_cuda_without_deterministic_kernels(recipe, workdir):
    """Not in the same bytes then, but it goes on."""
    options = {**SMALLEST_RUNS[recipe], "steps": STEPS, "device": "cuda"}
    assert train_killed(recipe, random.Random(recipe), **options).metadata["status"] == "finished"


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer_resumes_byte_identical(optimizer, ema, workdir):
    """On a network in channels_last, whose moments have to come back in its layout."""
    check_resume("cnn", optimizer=optimizer, ema=ema)


@pytest.mark.parametrize("recipe", ["cnn", "gpt", "gan"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precision_resumes_byte_identical(recipe, precision, workdir):
    check_resume(recipe, precision=precision)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_optimizer_state_is_restored_in_the_layout_of_its_weights(optimizer, workdir):
    """The numbers alone are not enough: a fused kernel walks a weight and its moments by their memory."""
    options = {**SMALLEST_RUNS["cnn"], "steps": STEPS, "optimizer": optimizer, "device": "cpu"}
    run_until_killed(lambda patch: kill_at_step(patch, 5), lambda: didact.train(RECIPES["cnn"], **options))
    layouts = []

    def restore(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        restore_checkpoint(trainer, checkpoint)
        for weight, state in next(iter(trainer.train_step.optimizers.values())).state.items():
            layouts.extend((weight.stride(), value.stride()) for value in state.values() if has_shape_of(value, weight))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("didact.training.resume.restore_checkpoint", restore)
        resume(open_latest_run("cnn"))
    assert all(weight == state for weight, state in layouts)
    assert bool(layouts) == (optimizer != "sgd")  # sgd keeps nothing


def has_shape_of(value: object, weight: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == weight.shape and value.ndim > 1

