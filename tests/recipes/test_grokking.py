"""New sums are guessed no better than by chance when the training sums are known, and right much later."""

import pytest

import didact
from didact import recipes


@pytest.mark.parametrize(("decay", "end"), [(1.0, 0.98), (0.0, 0.0)])
def test_heart_first_understanding_later(tmp_path, decay, end):
    run = didact.train(recipes.grokking, weight_decay=decay, runs=str(tmp_path), steps=2000 if decay else 500)
    lines = run.metrics
    known = next(row["step"] for row in lines if row.get("train", {}).get("accuracy", 0) >= 1)
    early = next(row["validation"]["accuracy"] for row in lines if "validation" in row and row["step"] >= known)
    assert known <= 100 and early < 0.1                                  # chance is 1/31
    last = [row["validation"]["accuracy"] for row in lines if "validation" in row][-1]
    assert last >= end if decay else last < 0.1
