"""Diffusion and flow matching on the one loop: what their arguments change, how they are drawn from, what is refused."""

from dataclasses import replace

import pytest
import torch

import didact
from didact.claims.tables import TABLES
from didact.data.core import SPLITS, Resident
from didact.data.load import load
from didact.errors import UsageError
from didact.optim.schedule import warmup_cosine
from didact.registry import RECIPES
from didact.samplers.draw import draw
from didact.train.experiment import Settings
from didact.train.loop import Training
from didact.train.session import evaluate, prepare

SMALL = {"widths": (8, 16), "time": 16, "steps": 40, "sampling_steps": 4}


@pytest.mark.parametrize("arguments", [
    {"predict": "velocity", "noise": "cosine", "T": 50},
    pytest.param({"predict": "image", "noise": "cosine"}, marks=pytest.mark.slow),
    pytest.param({"predict": "noise", "noise": "cosine", "eta": 1.0}, marks=pytest.mark.slow),
])
def test_every_way_of_predicting_learns(arguments, here):
    run = didact.train(RECIPES["diffusion"], **(SMALL | {"steps": 100, "ema": 0.9, "schedule": "constant"} | arguments))
    v = (2 * load("digits").test.columns["x"].float() / 255 - 1).var(0).mean().item()
    guess = {"image": v, "velocity": (1 + v) / 2, "noise": 1.0}[arguments["predict"]]      # what the mean of the target leaves
    assert run.facts["test"]["loss"] < 0.75 * guess
    frechet = run.facts["test"]["frechet"]
    assert frechet < 3                                   # noise gives 10 or more, the mean image 4.7, as many other digits 0.4
    assert evaluate(run)["test"]["frechet"] == pytest.approx(frechet, rel=1e-3)   # in other batches, with new noise on the way too
    assert set(run.load("gallery")) == {"samples", "out of noise", "into noise", "interpolation", "schedule"}


def test_drawn_as_asked(here):
    run = didact.train(RECIPES["diffusion"], **SMALL, conditional=True)
    own = draw(run, 4, label="3")
    assert torch.equal(own, draw(run, 4, label="3", steps=4, eta=0.0))
    for words in ({"steps": 9}, {"eta": 1.0}, {"guidance": 3.0}, {"seed": 1}):
        assert not torch.equal(own, draw(run, 4, label="3", **words))
    with pytest.raises(UsageError, match="in 1 to 1000 of them, got 1001"):
        draw(run, 1, steps=1001)


def test_a_layer_is_listed_once_however_often_it_runs(here):
    names = [row["name"] for row in didact.train(RECIPES["flow_matching"], **(SMALL | {"steps": 1})).facts["layers"]["rows"]]
    assert len(names) == len(set(names)) and "network.stem" in names


def test_only_some_models_have_steps(here):
    run = didact.train(RECIPES["vae"], steps=1, widths=(8,))
    with pytest.raises(UsageError, match="--steps is for models that draw step by step"):
        draw(run, 1, steps=5)


def test_images_without_labels_are_drawn_too(here):
    data = load("digits")
    bare = {part: Resident({"x": data.split(part).columns["x"][:100]}, data.split(part).decoders) for part in SPLITS}
    unlabelled = replace(data, task="none", labels=(), **bare)
    run = didact.train(RECIPES["diffusion"], data=unlabelled, **(SMALL | {"steps": 3}))
    assert "class_coverage" not in run.facts["test"] and run.facts["test"]["frechet"] > 0
    with pytest.raises(UsageError, match="has none; leave it out"):
        RECIPES["diffusion"](unlabelled, conditional=True)


def test_tables_of_the_course_keep_its_choices():
    """The recipe chooses otherwise: each choice is named, so that no default of ours changes a table."""
    course = {"predict": "noise", "schedule": "constant", "lr": 2e-4, "order": 1, "epochs": 20, "batch": 128, "ema": None}
    for grid in (*TABLES["10.8"].grids, *TABLES["10.9"].grids):
        for configuration in grid.configurations:
            words = {**grid.given, **configuration}
            assert words.items() >= course.items() and words["noise"] in ("linear", "cosine")
    assert TABLES["10.8"].grids[0].given["noise"] == "linear"


def test_a_large_set_is_learned_slower():
    small = load("digits")
    split = small.train
    many = Resident({name: column.repeat(4, *[1] * (column.dim() - 1)) for name, column in split.columns.items()}, split.decoders)
    for data, expected in ((small, 2e-3), (replace(small, train=many), 1e-3)):
        made = RECIPES["diffusion"](data, widths=(8, 16))
        optimizer = made.optimizer["model"]([torch.nn.Parameter(torch.zeros(1))])
        assert optimizer.param_groups[0]["lr"] == expected and made.schedule == warmup_cosine()
    assert RECIPES["diffusion"](replace(small, train=many), widths=(8, 16)).epochs == 20


def test_few_steps_into_noise_are_all_taken_back():
    for T, steps in ((20, 20), (1, 1), (200, 25)):
        assert RECIPES["diffusion"](load("digits"), T=T).objective.way.steps == steps
    coder = "vqvae widths=8,8 codes=8 dim=4"
    assert RECIPES["latent_diffusion"](load("digits"), T=20, coder=coder).objective.way.steps == 20


def test_the_average_of_a_student_moves_once_a_step():
    """However many parts a batch comes in; the referee's steps do not count."""
    teacher = "diffusion widths=8,16 time=16 predict=velocity"
    experiment = prepare("consistency", {"teacher": teacher, "decay": 0.5, "intervals": 4, "steps": 3, "accumulate": 2}).experiment
    training = Training(experiment, Settings(), device=torch.device("cpu"))
    student, average = experiment.objective.network.head.weight, experiment.objective.target.head.weight
    start, expected = average.clone(), average.clone()
    for stored, rows in list(training.epoch())[:3]:
        training.step(stored, rows)
        expected.lerp_(student.detach(), 0.5)
    torch.testing.assert_close(average, expected, rtol=0, atol=1e-7)
    assert not torch.allclose(average, start, rtol=0, atol=1e-4)


@pytest.mark.parametrize("words, told", [
    ({"T": 0}, "--T expects int from 1"), ({"T": 10, "sampling_steps": 11}, "in 1 to 10 of them, got 11"),
    ({"guidance": 2.0}, "with --conditional only"), ({"guidance": 2.0, "conditional": True, "drop": 0.0}, "give --drop more than 0"),
    ({"widths": (8, 8, 8, 8, 8)}, "give fewer --widths"),
])
def test_refused_in_one_line(words, told):
    with pytest.raises(UsageError, match=told):
        RECIPES["diffusion"](load("digits"), **words)


@pytest.mark.slow
def test_a_minute_on_digits_draws_what_a_game_would(here):
    run = didact.train(RECIPES["diffusion"], conditional=True)
    assert run.facts["test"]["as_asked"] > 0.9 and run.facts["test"]["frechet"] < 0.6
