"""How long it will still take: rounds, and the evaluations between them."""

import time
from dataclasses import replace

import pytest

from didact.training.plan import TrainingPlan
from helpers.small_experiments import make_classifier, make_trainer


def test_plan_counts_the_evaluations_to_come():
    plan = TrainingPlan(
        num_examples=100,
        batch_size=10,
        batches_per_round=1,
        rounds_per_epoch=10,
        total_rounds=25,
        evaluate_every=10,
        log_every=1,
    )
    assert [plan.evaluations_after(step) for step in (0, 9, 10, 20, 24, 25)] == [3, 3, 2, 1, 1, 0]
    assert [replace(plan, total_rounds=30).evaluations_after(step) for step in (0, 10, 29, 30)] == [3, 2, 1, 0]


def test_seconds_left_includes_evaluations(monkeypatch):
    experiment = make_classifier(epochs=None, steps=60, evaluate_every=10)
    original_evaluate = experiment.objective.evaluate_batch
    monkeypatch.setattr(
        experiment.objective, "evaluate_batch", lambda batch: time.sleep(0.15) or original_evaluate(batch)
    )
    trainer, events = make_trainer(experiment), []
    trainer.on_event = lambda event, facts: (
        events.append((time.perf_counter(), facts["seconds_left"])) if event == "evaluate" else None
    )
    trainer.train()
    end_time = events[-1][0]
    assert len(events) == 6 and events[-1][1] == 0
    for time_s, expected in events[1:-1]:                       # from the second on, one has been timed
        assert expected == pytest.approx(end_time - time_s, rel=0.3), (time_s, expected)


def test_seconds_left_is_estimated_before_the_first_evaluation():
    trainer = make_trainer(make_classifier(epochs=None, steps=60, evaluate_every=10))
    step_s, rows = 0.1, len(trainer.data.validation) / 32
    assert trainer.seconds_left(step_s) == pytest.approx(0.1 * 60 + 6 * 0.1 * rows / 3)
