"""Notes about a budget are about the one that is used."""

import pytest

from didact import recipes  # noqa: F401 (registers the recipes)
from didact.cli.main import main
from didact.training.prepare import prepare

RECIPE_NAMES = (
    "mlp",
    "cnn",
    "regularized_mlp",
    "segmentation",
    "denoising",
    "detection",
    "vae",
    "realnvp",
    "scratch_mlp",
)


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_notes_name_no_epochs_where_steps_are_set(name):
    assert not [note for note in prepare(name, {"steps": 3}).experiment.notes if "epoch" in note]


def test_notes_name_chosen_epochs_and_batch_size():
    assert prepare("mlp", {"data": "iris"}).experiment.notes == (
        "chosen from 105 training examples: 60 epochs, batches of 32",
    )
    assert prepare("mlp", {"data": "iris", "steps": 3}).experiment.notes == (
        "chosen from 105 training examples: batches of 32",
    )
    assert prepare("mlp", {"data": "iris", "steps": 3, "batch_size": 8}).experiment.notes == ()
    assert "network ssd_tiny, augmentations: " in prepare("detection", {"steps": 3}).experiment.notes[0]


def test_progress_and_report_omit_budget_notes_where_steps_are_set(workdir, capsys):
    assert (
        main(
            ["train", "mlp", "--data", "iris", "--hidden", "4", "--steps", "3", "--batch-size", "8", "--device", "cpu"]
        )
        == 0
    )
    assert "chosen from" not in capsys.readouterr().err
    assert "chosen from" not in next(workdir.glob("runs/mlp/*/report.html")).read_text()
