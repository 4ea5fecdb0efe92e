"""Diffusion and flow matching: the effect of their options, sampling, errors."""

from dataclasses import replace

import pytest
import torch

import didact
from didact.claims.measured_tables import TABLES
from didact.data.core import SPLITS, TensorSplit
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.sample_images import sample_images
from didact.optim.schedule import WarmupCosine
from didact.registry import RECIPES
from didact.training.experiment import Settings
from didact.training.loop import Trainer
from didact.training.prepare import prepare

SMALL = {"channels": (8, 16), "time_dim": 16, "steps": 40, "sampling_steps": 4}


@pytest.mark.parametrize("arguments", [
    {"prediction_type": "velocity", "noise_schedule": "cosine", "timesteps": 50},
    pytest.param({"prediction_type": "image", "noise_schedule": "cosine"}, marks=pytest.mark.slow),
    pytest.param({"prediction_type": "noise", "noise_schedule": "cosine", "eta": 1.0}, marks=pytest.mark.slow),
])
def test_diffusion_learns_with_every_prediction_type(arguments, workdir):
    run = didact.train(RECIPES["diffusion"], **(SMALL | {"steps": 100, "ema": 0.9, "schedule": "constant"} | arguments))
    variance = (2 * load("digits").test.columns["x"].float() / 255 - 1).var(0).mean().item()
    # what the mean of the target leaves
    baseline = {"image": variance, "velocity": (1 + variance) / 2, "noise": 1.0}[arguments["prediction_type"]]
    assert run.metadata["test"]["loss"] < 0.75 * baseline
    frechet = run.metadata["test"]["frechet"]
    # noise gives 10 or more, the mean image 4.7, as many other digits 0.4
    assert frechet < 3
    # in other batches, with new noise on the way too
    assert evaluate(run)["test"]["frechet"] == pytest.approx(frechet, rel=1e-3)
    assert set(run.load("gallery")) == {"samples", "reverse process", "forward process", "interpolation", "schedule"}


def test_sampling_options_change_the_samples(workdir):
    run = didact.train(RECIPES["diffusion"], **SMALL, conditional=True)
    samples = sample_images(run, 4, label="3")
    assert torch.equal(samples, sample_images(run, 4, label="3", steps=4, eta=0.0))
    for options in ({"steps": 9}, {"eta": 1.0}, {"guidance": 3.0}, {"seed": 1}):
        assert not torch.equal(samples, sample_images(run, 4, label="3", **options))
    with pytest.raises(UsageError, match="in 1 to 1000 of them, got 1001"):
        sample_images(run, 1, steps=1001)


def test_layer_that_runs_several_times_is_listed_once(workdir):
    names = [
        row["name"]
        for row in didact.train(RECIPES["flow_matching"], **(SMALL | {"steps": 1})).metadata["layers"]["rows"]
    ]
    assert len(names) == len(set(names)) and "network.stem" in names


def test_sampling_steps_are_refused_by_a_vae(workdir):
    run = didact.train(RECIPES["vae"], steps=1, hidden=(8,))
    with pytest.raises(UsageError, match="--steps is for diffusion and flow matching"):
        sample_images(run, 1, steps=5)


def test_diffusion_learns_unlabeled_images(workdir):
    data = load("digits")
    splits = {
        part: TensorSplit({"x": data.split(part).columns["x"][:100]}, data.split(part).decoders) for part in SPLITS
    }
    unlabeled = replace(data, task="none", class_names=(), **splits)
    run = didact.train(RECIPES["diffusion"], data=unlabeled, **(SMALL | {"steps": 3}))
    assert "class_coverage" not in run.metadata["test"] and run.metadata["test"]["frechet"] > 0
    with pytest.raises(UsageError, match="has none; leave it out"):
        RECIPES["diffusion"](unlabeled, conditional=True)


def test_course_tables_name_their_options():
    """The recipe chooses otherwise: each choice is named, so that no default of ours changes a table."""
    course_options = {
        "prediction_type": "noise",
        "schedule": "constant",
        "lr": 2e-4,
        "solver_order": 1,
        "epochs": 20,
        "batch_size": 128,
        "ema": None,
    }
    for grid in (*TABLES["10.8"].grids, *TABLES["10.9"].grids):
        for configuration in grid.configurations:
            options = {**grid.fixed, **configuration}
            assert options.items() >= course_options.items() and options["noise_schedule"] in ("linear", "cosine")
    assert TABLES["10.8"].grids[0].fixed["noise_schedule"] == "linear"


def test_large_dataset_gets_a_smaller_learning_rate():
    small_data = load("digits")
    split = small_data.train
    large_split = TensorSplit(
        {name: column.repeat(4, *[1] * (column.dim() - 1)) for name, column in split.columns.items()}, split.decoders
    )
    for data, expected in ((small_data, 2e-3), (replace(small_data, train=large_split), 1e-3)):
        experiment = RECIPES["diffusion"](data, channels=(8, 16))
        optimizer = experiment.optimizer["model"]([torch.nn.Parameter(torch.zeros(1))])
        assert optimizer.param_groups[0]["lr"] == expected and experiment.schedule == WarmupCosine()
    assert RECIPES["diffusion"](replace(small_data, train=large_split), channels=(8, 16)).epochs == 20


def test_visualized_timesteps_do_not_exceed_the_timesteps():
    for T, steps in ((20, 20), (1, 1), (200, 25)):
        assert RECIPES["diffusion"](load("digits"), timesteps=T).objective.sampling.steps == steps
    autoencoder = "vqvae channels=8,8 codebook_size=8 code_dim=4"
    assert (
        RECIPES["latent_diffusion"](load("digits"), timesteps=20, autoencoder=autoencoder).objective.sampling.steps
        == 20
    )


def test_consistency_ema_moves_once_per_step():
    """However many parts a batch comes in; the referee's steps do not count."""
    teacher = "diffusion channels=8,16 time_dim=16 prediction_type=velocity"
    experiment = prepare(
        "consistency", {"teacher": teacher, "ema_decay": 0.5, "num_intervals": 4, "steps": 3, "accumulate": 2}
    ).experiment
    training = Trainer(experiment, Settings(), device=torch.device("cpu"))
    student, ema_weight = experiment.objective.network.head.weight, experiment.objective.target.head.weight
    start, expected = ema_weight.clone(), ema_weight.clone()
    for stored, rows in list(training.iterate_epoch())[:3]:
        training.train_step(stored, rows)
        expected.lerp_(student.detach(), 0.5)
    torch.testing.assert_close(ema_weight, expected, rtol=0, atol=1e-7)
    assert not torch.allclose(ema_weight, start, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "words, message",
    [
        ({"timesteps": 0}, "--timesteps expects int from 1"),
        ({"timesteps": 10, "sampling_steps": 11}, "in 1 to 10 of them, got 11"),
        ({"guidance": 2.0}, "needs a class-conditional model; add --conditional"),
        ({"guidance": 2.0, "conditional": True, "label_dropout": 0.0}, "give a --label-dropout above 0"),
        ({"channels": (8, 8, 8, 8, 8)}, "give fewer --channels"),
    ],
)
def test_diffusion_refuses_bad_options_in_one_line(words, message):
    with pytest.raises(UsageError, match=message):
        RECIPES["diffusion"](load("digits"), **words)


@pytest.mark.slow
def test_diffusion_draws_recognizable_digits(workdir):
    run = didact.train(RECIPES["diffusion"], conditional=True)
    assert run.metadata["test"]["class_accuracy"] > 0.9 and run.metadata["test"]["frechet"] < 0.6
