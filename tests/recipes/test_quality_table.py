"""benchmarks/quality.py: a part that is measured anew leaves the rest of the table as it was."""

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "quality.py"


@pytest.fixture
def measure(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("quality", FILE)
    quality = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quality)
    values = iter(range(1, 100))
    facts = lambda row, seed, words: {"test": {row.metric: next(values) / 100}, "seconds": 2.0}  # noqa: E731
    monkeypatch.setattr(quality, "train", facts)

    def run(*words):
        monkeypatch.setattr("sys.argv", ["quality.py", "vision", "--device", "cpu", "--to", str(tmp_path / "t.md"), *words])
        quality.main()
        return [line for line in (tmp_path / "t.md").read_text().splitlines() if line.startswith("| `didact")]

    return run


def test_a_part_leaves_the_rest_as_it_was(measure, tmp_path):
    whole = measure("--seeds", "2")
    assert len(whole) == 8 and "0.0150 ± 0.0071 | 0.0100 | ≥ 0.995 | 2 | 2.0" in whole[0]
    again = measure("--only", "bccd", "--seeds", "2")
    changed = [i for i, (a, b) in enumerate(zip(whole, again, strict=True)) if a != b]
    assert len(again) == 8 and len(changed) == 1 and "bccd" in again[changed[0]] and "0.1750" in again[changed[0]]
    third = measure("--only", "bccd", "--seeds", "3")
    assert "| 3 |" in third[changed[0]] and "--seed 0…2`" in third[changed[0]]
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(lines) == 8 * 2 + 2 + 3 and {"command", "seed", "test", "seconds", "where"} == set(lines[0])


def test_rows_that_only_the_table_knows_stay(measure, tmp_path):
    kept = FILE.parent / "results" / "vision_quality.md"
    (tmp_path / "t.md").write_text(kept.read_text())
    rows = [line for line in kept.read_text().splitlines() if line.startswith("| `didact")]
    found = measure("--only", "denoising --data shapes", "--seeds", "1")
    assert set(rows) - set(found) == {row for row in rows if "denoising --data shapes" in row} and len(found) == len(rows)
    assert (tmp_path / "t.md").read_text().rstrip().endswith(kept.read_text().rstrip().splitlines()[-1])     # and what is said below


def test_a_short_trial_is_not_kept(measure, tmp_path):
    measure("--seeds", "1")
    before = (tmp_path / "t.md").read_text()
    measure("--seeds", "1", "--epochs", "1")
    assert (tmp_path / "t.md").read_text() == before
