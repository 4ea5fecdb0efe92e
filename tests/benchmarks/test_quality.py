"""benchmarks/quality.py: a part that is measured anew leaves the rest of the table as it was."""

import argparse
import importlib.util
import json
from pathlib import Path

import pytest

from didact.data.load import load
from didact.training.restore import load_model

FILE = Path(__file__).parents[2] / "benchmarks" / "quality.py"


@pytest.fixture
def run_quality(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("quality", FILE)
    quality = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quality)
    values = iter(range(1, 100))
    fake_train = lambda row, seed, words: {"test": {row.metric: next(values) / 100}, "seconds": 2.0}  # noqa: E731
    quality.train_for_real = quality.train_row
    monkeypatch.setattr(quality, "train_row", fake_train)

    def run(*words, table="vision"):
        monkeypatch.setattr(
            "sys.argv", ["quality.py", table, "--device", "cpu", "--output", str(tmp_path / "t.md"), *words]
        )
        quality.main()
        return [line for line in (tmp_path / "t.md").read_text().splitlines() if line.startswith("| `didact")]

    run.module = quality
    return run


def test_measuring_a_part_keeps_the_rest_of_the_table(run_quality, tmp_path):
    full_rows = run_quality("--seeds", "2")
    assert len(full_rows) == 14 and "0.0150 ± 0.0071 | 0.0100 | ≥ 0.995 | 2 | 2.0" in full_rows[0]
    partial_rows = run_quality("--only", "bccd", "--seeds", "2")
    changed_rows = [i for i, (a, b) in enumerate(zip(full_rows, partial_rows, strict=True)) if a != b]
    assert (
        len(partial_rows) == 14
        and len(changed_rows) == 1
        and "bccd" in partial_rows[changed_rows[0]]
        and "0.2950" in partial_rows[changed_rows[0]]
    )
    last_rows = run_quality("--only", "bccd", "--seeds", "3")
    assert "| 3 |" in last_rows[changed_rows[0]] and "--seed 0…2`" in last_rows[changed_rows[0]]
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(lines) == 14 * 2 + 2 + 3 and {"command", "seed", "test", "seconds", "where"} == set(lines[0])


def test_unmeasured_rows_of_the_table_stay(run_quality, tmp_path):
    saved_table = FILE.parent / "results" / "vision_quality.md"
    (tmp_path / "t.md").write_text(saved_table.read_text())
    rows = [line for line in saved_table.read_text().splitlines() if line.startswith("| `didact")]
    new_rows = run_quality("--only", "denoising --data shapes", "--seeds", "1")
    assert set(rows) - set(new_rows) == {row for row in rows if "denoising --data shapes" in row} and len(
        new_rows
    ) == len(rows)
    # and what is said below
    assert (tmp_path / "t.md").read_text().rstrip().endswith(saved_table.read_text().rstrip().splitlines()[-1])


def test_short_trial_is_not_saved(run_quality, tmp_path):
    run_quality("--seeds", "1")
    before = (tmp_path / "t.md").read_text()
    run_quality("--seeds", "1", "--epochs", "1")
    assert (tmp_path / "t.md").read_text() == before


def test_rows_of_one_command_share_a_training(run_quality, monkeypatch):
    """MNIST's diffusion is judged by confidence and by evenness, and drawn from in several ways: each a row, the
    training one."""
    trained_rows = []
    scores = {
        "confidence": 0.97,
        "confidence_in_real": 0.99,
        "evenness": 0.6,
        "frechet": 3.0,
        "ratio": 1.1,
        "seconds_of_drawing": 0.2,
    }
    monkeypatch.setattr(
        run_quality.module,
        "train_row",
        lambda row, seed, words: trained_rows.append(row) or {"test": scores, "seconds": 2.0},
    )
    rows = run_quality("--only", "diffusion --data mnist", "--seeds", "1", table="generative")
    assert len(rows) == 20 and len(trained_rows) == 12
    assert [row.split(" | ")[1:3] for row in rows[:2]] == [["confidence", "0.9700"], ["confidence_in_real", "0.9900"]]
    guided, second, noisy, plain, *_ = (row for row in rows if "| ratio |" in row)
    assert (
        "-n 2000 --steps 50 --eta 0.0 --solver-order 1 --classifier CNN, against --steps 1000 --eta 1.0 --seed"
        in guided
        and "≤ 1.2" in guided
    )
    assert "--conditional --guidance 0.5;" in guided, "a flag is said by its name alone"
    assert (
        "--eta 0.0 --solver-order 2 --classifier" in second
        and "--steps 50 --eta 1.0 --classifier" in noisy
        and "≤" not in second + noisy
    )
    assert plain.startswith("| `didact train diffusion --data mnist; ")
    assert "--solver-order 1 --classifier CNN, against" in plain
    jobs = run_quality.module.group_jobs(
        run_quality.module.GENERATIVE, argparse.Namespace(only="diffusion --data mnist", seeds=2, jobs=1)
    )
    assert [len(numbers) for numbers, _ in jobs] == [4, 4, 1, 1, 6, 6, 1, 1], (
        "one training for most, one for each trained otherwise"
    )
    parallel_jobs = run_quality.module.group_jobs(
        run_quality.module.GENERATIVE, argparse.Namespace(only="diffusion --data mnist", seeds=2, jobs=8)
    )
    assert [len(numbers) for numbers, _ in parallel_jobs] == [4, 4, 1, 1, 4, 4, 1, 1], "and none whose seconds count"
    early = [row for row in rows if "--epochs 2;" in row]
    assert len(early) == 2 and all("| frechet |" in row for row in early)


def test_sampling_is_evaluated_and_timed_with_one_model(run_quality, tmp_path):
    quality = run_quality.module
    words = argparse.Namespace(epochs=1, device="cpu", runs=str(tmp_path / "runs"), compile=None)
    diffusion = quality.recipes.diffusion
    rows = [quality.make_quick(row) for row in quality.GENERATIVE if row.sampling and row.recipe is diffusion]
    rows = [row for row in rows if "guidance" not in row.options]
    small_options = {"channels": (4, 8), "time_dim": 8, "timesteps": 10}
    rows = [
        row._replace(
            options=row.options | small_options,
            sampling=row.sampling._replace(
                sampler_options=row.sampling.sampler_options | {"steps": 4},
                baseline_options=row.sampling.baseline_options and {"steps": 10, "eta": 1.0},
            ),
        )
        for row in rows
    ]
    rows = [
        next(row for row in rows if row.metric == metric)
        for metric in ("ratio", "confidence_in_real", "seconds_of_drawing")
    ]
    results = [quality.train_for_real(row, 0, words) for row in rows]
    assert not [row_result for row_result in results if "left out" in row_result]
    # the diffusion and its judge: epochs are one here
    assert len(quality.TRAINED_RUNS) == 2
    for row, row_result in zip(rows, results, strict=True):
        assert row_result["test"][row.metric] > 0 and all(
            isinstance(value, int | float) for value in row_result["test"].values()
        )
    judge, _ = load_model(next(run for what, run in quality.TRAINED_RUNS.items() if what.startswith("cnn")))
    real = judge.classify({"x": load("digits").test.columns["x"].float() / 255}).max(1).values.mean().item()
    assert results[1]["test"]["confidence_in_real"] == pytest.approx(real, abs=1e-5)
