"""Notes on values unseen in training."""

from pathlib import Path

import pytest

import didact
from didact.cli.main import main
from didact.data.load import load


@pytest.fixture
def houses_encoder(workdir):
    rows = "".join(f"{k % 5 + 1},{'Gent' if k % 2 else 'Brugge'},{40 + k},{1000 * k}\n" for k in range(60))
    Path("houses.csv").write_text(f"rooms,city,area,price\n{rows}")
    return load("houses.csv", target="price").encoder


def test_describe_unseen_inputs_lists_new_cells_and_names(houses_encoder):
    Path("new.csv").write_text("rooms,city,area\n3,Gent,60\n2,Ghent,sixty\n2,,\n1,Ghent,70\n")
    assert houses_encoder.describe_unseen_inputs(["new.csv"]) == [
        "column 'city' holds 'Ghent', unseen in training; first in new.csv:3",
        "column 'area' holds 1 cell not read as a number, taken as missing; first in new.csv:3",
    ]


def test_describe_unseen_inputs_ignores_what_training_saw(houses_encoder):
    Path("new.csv").write_text("rooms,city,area\n3.0,gent,60\n2,BRUGGE,\n")
    assert houses_encoder.describe_unseen_inputs(["new.csv", "rooms=4,city=Gent,area=50"]) == []
    assert len(houses_encoder.describe_unseen_inputs(["rooms=4,city=Antwerpen,area=50"])) == 1


def test_predict_prints_unseen_inputs_to_stderr(houses_encoder, capsys):
    didact.train("mlp", data="houses.csv", target="price", hidden=(4,), epochs=1)
    assert main(["predict", "latest", "rooms=4,city=Antwerpen,area=50"]) == 0
    captured = capsys.readouterr()
    assert (
        "price" in captured.out
        and captured.err.count("\n") == 1
        and "'Antwerpen', unseen in training" in captured.err
    )
