"""The layer table: every layer where it runs, with what it gives and how many of its numbers learn, in both engines."""

import json
import re

import pytest
import torch
from torch import nn

import didact
from didact import recipes, report
from didact.adaptation.lora import add_lora
from didact.cli.main import main
from didact.objectives.distributions.classification import Categorical
from didact.objectives.supervised import Classify
from didact.registry import RECIPES
from didact.training.prepare import describe_recipe, prepare, take_examples
from didact.training.recording.model_summary import summarize_layers

SMALL = {
    "data": "python_topics",
    "num_layers": 1,
    "embed_dim": 16,
    "num_heads": 2,
    "context_length": 16,
    "device": "cpu",
}


def get_layer_rows(recipe, **options):
    return describe_recipe(recipe, options)["layers"]["rows"]


@pytest.mark.parametrize("name", ["scratch_mlp", "scratch_lenet", "scratch_rnn", "scratch_gpt", "scratch_manual"])
def test_model_summary_of_scratch_networks_equals_their_torch_twins(name):
    experiment = prepare(name, {}).experiment
    batch, expected = take_examples(experiment.data.train), {}
    twin = experiment.objective.make_twin()

    def make_hook(name):
        def record_output(module, inputs, output):
            output = output[0] if isinstance(output, tuple) else output
            expected[name] = (list(output.shape[1:]), sum(p.numel() for p in module.parameters(recurse=False)))
        return record_output

    for part, module in twin.named_modules():
        module.register_forward_hook(make_hook(part))
    twin(batch["x"].to(next(twin.parameters()).dtype) if batch["x"].is_floating_point() else batch["x"])
    class_names = {part: type(module).__name__.lower() for part, module in twin.named_modules()}
    rows = summarize_layers(experiment.objective, batch)["rows"]
    called_rows = [row for row in rows if row["shape"] is not None]
    assert {row["name"]: (row["shape"], row["parameters"]) for row in called_rows} == {
        row["name"]: expected[row["name"]] for row in called_rows
    }
    assert [row["layer"].lower() for row in called_rows] == [class_names[row["name"]] for row in called_rows]
    assert {part for part, module in twin.named_modules() if not any(module.children()) and part in expected} <= {
        row["name"] for row in called_rows
    }
    # attention multiplies by it without calling it
    uncalled_names = [row["name"] for row in rows if row["shape"] is None]
    assert all(part.endswith("attention.out_proj") for part in uncalled_names)


@pytest.mark.parametrize(("name", "options"), [
    ("scratch_gpt", {}), ("mlp", {}), ("cnn", {"model": "vit_tiny"}), ("transfer", {"mode": "features"}),
    ("char_rnn", {"data": "python_topics"}), ("segmentation", {}), ("detection", {}),
    ("fine_tune", {"mode": "lora"}), ("text_transformer", {"data": "verdicts"}), ("gpt", SMALL),
    ("gpt", SMALL | {"num_experts": 2}),
])  # fmt: skip
def test_model_summary_rows_add_up_to_the_totals(name, options):
    table = describe_recipe(RECIPES[name], options)["layers"]
    assert sum(row["parameters"] for row in table["rows"]) == table["total"]
    assert sum(row["trainable"] for row in table["rows"]) == table["trainable"]
    assert len({row["name"] for row in table["rows"]}) == len(table["rows"])


def test_model_summary_lists_lora_after_the_layer_it_adapts():
    rows = get_layer_rows(recipes.fine_tune, mode="lora", num_layers=1)
    names = [row["name"].removeprefix("network.bert.encoder.layer.0.") for row in rows]
    index = names.index("intermediate.dense.layer")
    layer, lora_row = rows[index : index + 2]
    assert (layer["layer"], layer["shape"], layer["parameters"], layer["trainable"]) == (
        "Linear",
        [9, 256],
        64 * 256 + 256,
        0,
    )
    assert (lora_row["layer"], lora_row["shape"], lora_row["parameters"], lora_row["trainable"]) == (
        "LoRA",
        [9, 256],
        8 * (64 + 256),
        8 * (64 + 256),
    )
    assert names[index + 1] == "intermediate.dense" and not [
        name for name in names if name.endswith("dense.dropout")
    ], "dropout of nothing"
    assert names.index("network.bert.embeddings.position_embeddings") == 1 + names.index(
        "network.bert.embeddings.word_embeddings"
    )


def test_model_summary_lists_a_lora_weight_with_its_layer():
    net = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2, batch_first=True), "head": nn.Linear(8, 3)})

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            x = x[:, :, None].expand(-1, -1, 8)
            return self.net["head"](self.net["attention"](x, x, x, need_weights=False)[0].mean(1))

    add_lora(net, rank=2, target_modules=("in_proj_weight",))
    rows = summarize_layers(
        Classify(Reader(), Categorical(3)), {"x": torch.rand(5, 4), "y": torch.zeros(5, dtype=torch.long)}
    )["rows"]
    rows_by_name = {row["name"]: (row["layer"], row["shape"], row["parameters"], row["trainable"]) for row in rows}
    assert rows_by_name["network.net.attention"] == ("MultiheadAttention", [4, 8], 3 * 8 * 8 + 3 * 8, 0)
    assert rows_by_name["network.net.attention.in_proj_weight"] == ("LoRAWeight", None, 2 * (24 + 8), 2 * (24 + 8))
    assert not [name for name in rows_by_name if "parametrizations" in name]


def test_model_summary_gives_the_output_shape_of_an_lstm():
    (rnn,) = (
        row for row in get_layer_rows(recipes.char_rnn, data="python_topics", hidden_size=24) if row["layer"] == "LSTM"
    )
    assert rnn["shape"] == [64, 24]


def test_show_and_report_count_trainable_parameters(workdir, capsys):
    assert main(["show", "fine_tune", "--mode", "lora", "--num-layers", "1"]) == 0
    assert re.search(r"  layer +output +parameters +(?:trained|trainable) *\n", capsys.readouterr().out)
    assert main(["show", "fine_tune", "--mode", "lora", "--num-layers", "1", "--json"]) == 0
    assert all("trainable" in row for row in json.loads(capsys.readouterr().out)["layers"]["rows"])
    assert main(["show", "mlp"]) == 0 and " parameters    field " in capsys.readouterr().out, "all of it learns"
    run = didact.train(recipes.transfer, mode="features", weights=str(train_cnn()), steps=1)
    page = report.write_report(run).read_text()
    assert '<th scope="col" class="n">trained</th>' in page and '<td class="n">1,290</td></tr></tfoot>' in page


def train_cnn():
    return didact.train(recipes.cnn, data="digits", model="cnn", steps=1).folder
