"""Grokking: new sums are at chance level when the training sums are memorized, and right much later."""

import pytest

import didact
from didact import recipes


@pytest.mark.parametrize(("decay", "end"), [(1.0, 0.98), (0.0, 0.0)])
def test_grokking_generalizes_long_after_memorizing(tmp_path, decay, end):
    run = didact.train(recipes.grokking, weight_decay=decay, runs=str(tmp_path), steps=2000 if decay else 500)
    rows = run.metrics
    memorized_step = next(row["step"] for row in rows if row.get("train", {}).get("accuracy", 0) >= 1)
    early_accuracy = next(
        row["validation"]["accuracy"] for row in rows if "validation" in row and row["step"] >= memorized_step
    )
    assert memorized_step <= 100 and early_accuracy < 0.1                                  # chance is 1/31
    final_accuracy = [row["validation"]["accuracy"] for row in rows if "validation" in row][-1]
    assert final_accuracy >= end if decay else final_accuracy < 0.1
