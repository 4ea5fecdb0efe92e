"""--budget: as many steps as fit into the time, decided before the first one; the run is the one of --steps."""

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import didact
from didact.errors import UsageError
from didact.options import parse_duration, read_options
from didact.registry import RECIPES
from didact.run import Run
from didact.training import time_budget
from didact.training.experiment import Settings
from didact.training.loop import Trainer
from didact.training.resume import resume
from didact.training.run_training import train
from didact.training.time_budget import Timing
from helpers.smallest_runs import SMALLEST_RUNS


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read_files(run: Run) -> dict[str, bytes]:
    return {name: (run.folder / f"{name}.safetensors").read_bytes() for name in ("model", "test", "examples")}


@pytest.mark.parametrize("recipe", sorted(SMALLEST_RUNS))
def test_every_recipe_has_a_time_budget_and_timing_leaves_no_trace(recipe, monkeypatch):
    """What is decided are steps: the same bytes as with --steps, whatever was timed before."""
    monkeypatch.setattr(time_budget, "_fit_rounds", lambda timing, limit, evaluate_every: (4, 2))
    monkeypatch.setattr(time_budget, "_MAX_TIMED_ROUNDS", 3)
    options = {**SMALLEST_RUNS[recipe], "device": "cpu"}
    timed = train(RECIPES[recipe], **options, budget="8s")
    assert timed.metadata["steps"] == 4 and timed.metadata["plan"]["evaluate_every"] == 2
    assert timed.metadata["settings"]["budget"] is None and timed.metadata["settings"]["steps"] == 4
    assert any(note.startswith("--budget 8s: 4 steps") for note in timed.metadata["notes"])
    assert all(f" {option}" in timed.metadata["command_to_repeat"] for option in ("--steps 4", "--evaluate-every 2"))
    repeated = train(RECIPES[recipe], **options, steps=4, evaluate_every=2)
    assert read_files(timed) == read_files(repeated)


def test_resuming_keeps_the_plan(monkeypatch):
    options = {**SMALLEST_RUNS["mlp"], "device": "cpu"}
    monkeypatch.setattr(Trainer, "is_save_due", lambda self, gap: self.run is not None and self.state.step % 25 == 0)
    train_round = Trainer.train_round

    def die_at_step(self, *args):
        if self.run is not None and self.state.step == 40:
            raise KeyboardInterrupt
        train_round(self, *args)

    monkeypatch.setattr(Trainer, "train_round", die_at_step)
    with pytest.raises(KeyboardInterrupt):
        train(RECIPES["mlp"], **options, budget="0.5s")
    monkeypatch.setattr(Trainer, "train_round", train_round)
    stopped = Run.open("mlp/latest")
    steps, every = stopped.metadata["plan"]["total_rounds"], stopped.metadata["plan"]["evaluate_every"]
    monkeypatch.setattr(time_budget, "_time_experiment", None)      # nothing is timed again
    resumed = resume(stopped)
    assert resumed.metadata["steps"] == steps > 40
    assert read_files(resumed) == read_files(train(RECIPES["mlp"], **options, steps=steps, evaluate_every=every))


def test_a_training_takes_about_the_time_given():
    start = time.perf_counter()
    run = train(RECIPES["mlp"], budget=2)
    assert time.perf_counter() - start < 8                        # a machine that gets busy meanwhile is not told
    assert 0.5 < run.metadata["seconds"] < 6
    assert run.metadata["steps"] > 100


@given(
    st.floats(1e-6, 10.0), st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.floats(0.1, 1e5),
    st.none() | st.integers(1, 1000),
)
def test_what_fits_ends_within_the_limit(seconds, evaluation, test, samples, limit, evaluate_every):
    timing = Timing(seconds, evaluation, test, samples)
    rounds, evaluations = time_budget._fit_rounds(timing, limit, evaluate_every)
    if rounds >= 1:
        every = evaluate_every or math.ceil(rounds / evaluations)
        assert timing.estimate_seconds(rounds, rounds // every) <= limit + 1e-6
        assert evaluate_every or -(-rounds // every) <= time_budget.MAX_EVALUATIONS
    if rounds < 0:
        assert timing.estimate_seconds(1, 1) > 0.9 * limit


@pytest.mark.parametrize(
    "text, seconds",
    [("90", 90), ("90s", 90), ("5m", 300), ("5 min", 300), ("1.5h", 5400), ("1h30m", 5400), ("2 hours", 7200)],
)
def test_a_time_is_written_as_people_write_it(text, seconds):
    assert parse_duration(text) == seconds
    assert read_options(Settings)["budget"].check(text) == seconds


@pytest.mark.parametrize("text", ["soon", "5x", "m", "", "-5m", "1..2s", "5m soon", "0"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="--budget expects time as 90s, 5m or 1h, got"):
        read_options(Settings)["budget"].parse(text)


@pytest.mark.parametrize("seconds", [0.0123, 0.3, 7.25, 42, 90, 150, 300, 3600, 5400, 7260])
def test_times_are_printed_as_they_are_typed(seconds):
    text = time_budget.format_seconds(seconds)
    if seconds >= 0.1:
        assert parse_duration(text) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("other", ["epochs", "steps"])
def test_two_budgets_are_refused(other):
    with pytest.raises(UsageError, match=f"the budget is one of --epochs, --steps, --budget, got --{other} 3 and"):
        train(RECIPES["mlp"], budget="5m", **{other: 3})
    assert not Path("runs").exists()


def test_a_time_that_is_too_short_is_refused_with_one_that_is_not():
    with pytest.raises(UsageError, match=r"--budget 10ms is too short: one step takes .*; give at least \d"):
        train(RECIPES["mlp"], budget=0.01)
    assert not Path("runs").exists()


def write_images(folder: Path, *, images_per_class: int = 12) -> None:
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for i in range(images_per_class):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / label / f"{i}.png")


def test_epochs_of_ones_own_files_are_cut_where_they_take_minutes(monkeypatch):
    write_images(Path("photos"))
    monkeypatch.setattr(time_budget, "DEFAULT_LIMIT_S", 0.5)
    monkeypatch.setattr(time_budget, "_time_experiment", lambda *args, **options: Timing(0.05, 0.001, 0.001))
    cut = train(RECIPES["cnn"], data="photos")
    assert cut.metadata["steps"] == 9                               # (0.94 · 0.5 − evaluations) / 0.05
    note = next(note for note in cut.metadata["notes"] if "would take about" in note)
    assert "60 epochs would take about 3" in note and "--epochs 60 trains them all, --budget 10m for longer" in note
    assert not any("60 epochs" in note and "chosen from" in note for note in cut.metadata["notes"])
    assert read_files(cut) == read_files(
        train(RECIPES["cnn"], data="photos", steps=9, evaluate_every=cut.metadata["settings"]["evaluate_every"])
    )
    whole = train(RECIPES["cnn"], data="photos", epochs=20)         # what is asked for is done
    assert whole.metadata["steps"] == 20


def test_known_datasets_keep_the_budget_of_the_recipe(monkeypatch):
    monkeypatch.setattr(time_budget, "_time_experiment", None)
    prepared = time_budget.plan_within_time(
        didact.training.prepare.prepare("mlp", {}), didact.training.distributed.process_group.Group(), 0.0
    )
    assert prepared.settings.steps is None


def test_short_trainings_on_ones_own_files_are_left_as_they_are():
    write_images(Path("photos"))
    run = train(RECIPES["cnn"], data="photos")
    assert run.metadata["steps"] == 60 and run.metadata["settings"]["steps"] is None
    assert not any("would take" in note for note in run.metadata["notes"])


def test_few_images_of_ones_own_are_told_of_transfer():
    write_images(Path("photos"))
    run = train(RECIPES["cnn"], data="photos", steps=1)
    note = next(note for note in run.metadata["notes"] if "didact train transfer --data" in note)
    assert "training images of 2 classes are few" in note
    assert not any("transfer" in note for note in train(RECIPES["cnn"], steps=1).metadata["notes"])


def test_a_measured_step_is_a_step(monkeypatch):
    """A step that sleeps takes at least as long as it sleeps; warm-up rounds are left out."""
    real_step, calls = time_budget.Trainer, []

    class SlowTrainer(real_step):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            step = self.train_step

            class Slow:
                def __call__(self, *a):
                    calls.append(1)
                    time.sleep(0.3 if len(calls) <= 2 else 0.02)
                    return step(*a)

                def __getattr__(self, name):
                    return getattr(step, name)

            self.train_step = Slow()

    monkeypatch.setattr(time_budget, "Trainer", SlowTrainer)
    prepared = didact.training.prepare.prepare("mlp", {**SMALLEST_RUNS["mlp"], "budget": 60.0})
    torch.manual_seed(3)
    before = torch.get_rng_state()
    timing = time_budget._time_experiment(
        prepared, didact.training.distributed.process_group.Group(), 60.0, enough_rounds=0
    )
    assert 0.02 <= timing.round < 0.15 and len(calls) > 5
    assert torch.equal(torch.get_rng_state(), before)
