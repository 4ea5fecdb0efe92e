"""What a Fréchet distance is of, of how many and of which split, and whose eyes the other scores are: told with every model that draws."""

import re
from dataclasses import replace

import pytest
import torch

from didact.data.core import Absent
from didact.data.load import load
from didact.objectives.referee import about_scores
from didact.train.evaluation import judge
from didact.train.precision import Precision
from didact.train.session import prepare

TINY = {
    "gan": {"widths": (4,)}, "dcgan": {"width": 2, "conditional": True}, "wgan": {"width": 2}, "stylegan": {"width": 2},
    "diffusion": {"widths": (8,), "T": 2, "conditional": True}, "flow_matching": {"widths": (8,), "sampling_steps": 1},
    "latent_diffusion": {"T": 2}, "consistency": {"teacher": "diffusion widths=8 T=4", "intervals": 2},
}


def named(notes):
    """Names of metrics -> what is said of them."""
    return {name: words for names, _, words in (note.partition(": ") for note in notes) for name in names.split(", ")}


def judged(experiment):
    network = experiment.objective
    return judge(network, experiment.data.test, batch=128, precision=Precision("fp32", torch.device("cpu"), network))


@pytest.mark.parametrize("name", TINY)
def test_every_score_of_drawn_images_is_told_with_its_true_numbers(name):
    experiment = prepare(name, TINY[name]).experiment
    told = named(experiment.notes)
    rows = judged(experiment)
    assert set(told) == set(experiment.objective.score(rows)) - {"loss", "referee_accuracy"}
    drawn = int(rows["drawn"].isfinite().all(1).sum())
    assert rows["drawn"].shape[1] == 64
    assert told["frechet"].startswith(f"of 8×8 thumbnails, {drawn} drawn beside as many real ones of the test split")
    assert drawn == len(experiment.data.test) and f"(validation: {len(experiment.data.validation)})" in told["frechet"]
    assert "--judge" in told["frechet"] and "referee_accuracy" in told["confidence"]


def test_of_rows_it_says_so():
    experiment = prepare("gan", {"data": "moons", "widths": (4,)}).experiment
    (note,) = experiment.notes
    rows = judged(experiment)
    assert note.startswith("frechet: of rows") and f"{len(rows['drawn'])} drawn beside" in note and "thumbnail" not in note
    assert set(named([note])) == set(experiment.objective.score(rows)) - {"loss"}


def test_large_splits_and_small_images():
    data = load("digits")
    large = replace(data, shape=(3, 64, 5), test=Absent(10_000), validation=Absent(3_000))
    words = {"referee": False, "conditional": False}
    (few,), (every,) = (about_scores(large, noises=n, first=first, **words) for n, first in ((1024, True), (4096, False)))
    assert "of 5×8 thumbnails, 1,024 drawn" in few and "(validation: 1,024)" in few and "in turn" not in few
    assert "10,000 drawn" in every and "(validation: 3,000), from 4,096 noises in turn" in every
    assert not re.search(r"\bin turn", about_scores(data, noises=4096, **words)[0])
