"""How long it will still take: rounds, and the evaluations between them."""

import time
from dataclasses import replace

import pytest
from making import classify, training

from didact.train.loop import Plan


def test_evaluations_that_are_still_to_come():
    plan = Plan(rows=100, batch=10, turns=1, epoch=10, total=25, evaluate_every=10, log_every=1)
    assert [plan.evaluations_after(step) for step in (0, 9, 10, 20, 24, 25)] == [3, 3, 2, 1, 1, 0]
    assert [replace(plan, total=30).evaluations_after(step) for step in (0, 10, 29, 30)] == [3, 2, 1, 0]


def test_the_expected_time_holds_the_evaluations(monkeypatch):
    experiment = classify(epochs=None, steps=60, evaluate_every=10)
    judge = experiment.objective.judge
    monkeypatch.setattr(experiment.objective, "judge", lambda batch: time.sleep(0.15) or judge(batch))
    session, seen = training(experiment), []
    session.tell = lambda event, facts: seen.append((time.perf_counter(), facts["seconds_left"])) if event == "evaluate" else None
    session.train()
    end = seen[-1][0]
    assert len(seen) == 6 and seen[-1][1] == 0
    for at, expected in seen[1:-1]:                       # from the second on, one has been timed
        assert expected == pytest.approx(end - at, rel=0.3), (at, expected)


def test_before_the_first_evaluation_it_is_guessed():
    session = training(classify(epochs=None, steps=60, evaluate_every=10))
    each, rows = 0.1, len(session.data.validation) / 32
    assert session.seconds_left(each) == pytest.approx(0.1 * 60 + 6 * 0.1 * rows / 3)
