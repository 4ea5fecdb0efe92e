"""Notes on sample quality: what a Fréchet distance is of, of how many samples, and which classifier scores them."""

import re
from dataclasses import replace

import pytest
import torch

from didact.data.core import MissingSplit
from didact.data.load import load
from didact.objectives.generative.sample_quality import metric_notes
from didact.training.evaluation import evaluate_split
from didact.training.precision import Precision
from didact.training.prepare import prepare

TINY_OPTIONS = {
    "gan": {"hidden": (4,)},
    "dcgan": {"channels": 2, "conditional": True},
    "wgan": {"channels": 2},
    "stylegan": {"channels": 2},
    "diffusion": {"channels": (8,), "timesteps": 2, "conditional": True},
    "flow_matching": {"channels": (8,), "sampling_steps": 1},
    "latent_diffusion": {"timesteps": 2},
    "consistency": {"teacher": "diffusion channels=8 timesteps=4", "num_intervals": 2},
}


def split_notes(notes):
    """Names of metrics -> their note."""
    return {name: words for names, _, words in (note.partition(": ") for note in notes) for name in names.split(", ")}


def evaluate_test_split(experiment):
    objective = experiment.objective
    return evaluate_split(
        objective, experiment.data.test, batch_size=128, precision=Precision("fp32", torch.device("cpu"), objective)
    )


@pytest.mark.parametrize("name", TINY_OPTIONS)
def test_every_sample_score_has_a_note_with_its_sample_counts(name):
    experiment = prepare(name, TINY_OPTIONS[name]).experiment
    notes_by_metric = split_notes(experiment.notes)
    rows = evaluate_test_split(experiment)
    assert set(notes_by_metric) == set(experiment.objective.compute_metrics(rows)) - {"loss", "referee_accuracy"}
    sample_count = int(rows["sampled"].isfinite().all(1).sum())
    assert rows["sampled"].shape[1] == 64
    assert notes_by_metric["frechet"].startswith(
        f"of 8×8 thumbnails, {sample_count} samples against as many real examples of the test split"
    )
    assert (
        sample_count == len(experiment.data.test)
        and f"(validation: {len(experiment.data.validation)})" in notes_by_metric["frechet"]
    )
    assert "--classifier" in notes_by_metric["frechet"] and "referee_accuracy" in notes_by_metric["confidence"]


def test_note_of_a_table_gan_counts_rows():
    experiment = prepare("gan", {"data": "moons", "hidden": (4,)}).experiment
    (note,) = experiment.notes
    rows = evaluate_test_split(experiment)
    assert note.startswith("frechet: of standardized rows") and "thumbnail" not in note
    assert f"{len(rows['sampled'])} samples against" in note
    assert set(split_notes([note])) == set(experiment.objective.compute_metrics(rows)) - {"loss"}


def test_metric_notes_of_large_splits_and_small_images():
    data = load("digits")
    large = replace(data, shape=(3, 64, 5), test=MissingSplit(10_000), validation=MissingSplit(3_000))
    note_options = {"referee": False, "conditional": False}
    (limited_note,), (full_note,) = (
        metric_notes(large, num_noises=n, only_first=first, **note_options)
        for n, first in ((1024, True), (4096, False))
    )
    assert (
        "of 5×8 thumbnails, 1,024 samples" in limited_note
        and "(validation: 1,024)" in limited_note
        and "in turn" not in limited_note
    )
    assert "10,000 samples" in full_note and "(validation: 3,000), from 4,096 noise vectors in turn" in full_note
    assert not re.search(r"\bin turn", metric_notes(data, num_noises=4096, **note_options)[0])
