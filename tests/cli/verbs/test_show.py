"""`didact show`: options, receptive fields, folded lines."""

import io
import json

import pytest
from rich.console import Console

from didact.cli import progress
from didact.cli.main import main


def run_show(capsys, *words):
    assert main(["show", "cnn", *words]) == 0
    return capsys.readouterr().out


def test_show_lists_receptive_fields(capsys):
    description = json.loads(run_show(capsys, "--model", "cifar_resnet8", "--json"))
    rows = {row["name"].removeprefix("network."): row for row in description["layers"]["rows"]}
    # by r += (k - 1) j, j *= s: 3 3 3 | 3/2 3 | 3/2 3
    fields = {
        "conv1": 3,
        "layer1.0.conv2": 7,
        "layer2.0.conv1": 9,
        "layer2.0.conv2": 13,
        "layer3.0.conv1": 17,
        "layer3.0.conv2": 25,
    }
    assert {name: rows[name]["field"] for name in fields} == {name: [r, r] for name, r in fields.items()}
    assert [rows[name]["jump"][0] for name in fields] == [1, 1, 2, 2, 4, 4]
    assert [rows[name]["shape"][1:] for name in fields] == [[8, 8], [8, 8], [4, 4], [4, 4], [2, 2], [2, 2]]
    assert "field" not in rows["fc"]


def test_layer_table_has_receptive_field_columns(capsys):
    text = run_show(capsys)
    header, first_row = (next(line for line in text.splitlines() if word in line) for word in ("field", "features.0"))
    assert header.split() == ["layer", "output", "parameters", "field", "jump"]
    assert first_row.split()[-2:] == ["3×3", "1×1"] and "between neighboring outputs" in " ".join(text.split())


def test_layer_table_of_a_table_network_has_no_receptive_fields(capsys):
    assert main(["show", "mlp", "--data", "iris"]) == 0
    assert "receptive field" not in capsys.readouterr().out


def test_layer_names_are_not_truncated_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    description = json.loads(run_show(capsys, "--model", "efficientnet_b0", "--json"))
    text = run_show(capsys, "--model", "efficientnet_b0")
    assert "…" not in text.partition("parameters")[2] and all(
        f"  {row['name']} " in text for row in description["layers"]["rows"]
    )


@pytest.mark.parametrize(
    "words",
    ["mlp", "diffusion", "cnn --model resnet18", "cnn --model efficientnet_b0", "text_transformer", "char_rnn", "vae"],
)
def test_lines_are_folded_at_100_columns_in_a_pipe(capsys, words):
    assert main(["show", *words.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line) > 100]
    assert any(line.lstrip().startswith("--lr ") for line in lines)


@pytest.mark.parametrize("width", [64, 80])
def test_layer_names_are_folded_on_a_narrow_terminal(width):
    name = "network.encoder.layers.encoder_layer_11.self_attention.out_proj"
    row = {
        "name": name,
        "layer": "NonDynamicallyQuantizableLinear",
        "shape": [512, 100, 100],
        "parameters": 123_456_789,
    }
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(
        progress.make_layer_table({"rows": [row | {"field": [9, 9], "jump": [4, 4]}]}, with_receptive_fields=True)
    )
    text = console.file.getvalue()
    first_column = [line.strip().split("  ")[0] for line in text.splitlines()]
    assert "…" not in text and "".join(first_column).endswith(name)
