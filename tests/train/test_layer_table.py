"""The layer table: every layer where it runs, with what it gives and how many of its numbers learn, in both engines."""

import json
import re

import pytest
import torch
from torch import nn

import didact
from didact import recipes, report
from didact.cli.main import main
from didact.layers.lora import adapt
from didact.objectives.likelihoods import Categorical
from didact.objectives.supervised import Classify
from didact.registry import RECIPES
from didact.train.layers import layer_table
from didact.train.session import describe_recipe, example, prepare

SMALL = {"data": "python_topics", "layers": 1, "width": 16, "heads": 2, "context": 16, "device": "cpu"}


def rows_of(recipe, **given):
    return describe_recipe(recipe, given)["layers"]["rows"]


@pytest.mark.parametrize("name", ["scratch_mlp", "scratch_lenet", "scratch_rnn", "scratch_gpt", "scratch_manual"])
def test_the_numpy_engine_is_listed_as_the_same_network_in_pytorch(name):
    experiment = prepare(name, {}).experiment
    batch, found = example(experiment.data.train), {}
    twin = experiment.objective.twin()

    def hook(name):
        def keep(module, inputs, output):
            output = output[0] if isinstance(output, tuple) else output
            found[name] = (list(output.shape[1:]), sum(p.numel() for p in module.parameters(recurse=False)))
        return keep

    for part, module in twin.named_modules():
        module.register_forward_hook(hook(part))
    twin(batch["x"].to(next(twin.parameters()).dtype) if batch["x"].is_floating_point() else batch["x"])
    kinds = {part: type(module).__name__.lower() for part, module in twin.named_modules()}
    rows = layer_table(experiment.objective, batch)["rows"]
    ran = [row for row in rows if row["shape"] is not None]
    assert {row["name"]: (row["shape"], row["parameters"]) for row in ran} == {row["name"]: found[row["name"]] for row in ran}
    assert [row["layer"].lower() for row in ran] == [kinds[row["name"]] for row in ran]
    assert {part for part, module in twin.named_modules() if not any(module.children()) and part in found} <= {row["name"] for row in ran}
    inner = [row["name"] for row in rows if row["shape"] is None]           # attention multiplies by it without calling it
    assert all(part.endswith("attention.out_proj") for part in inner)


@pytest.mark.parametrize(("name", "given"), [
    ("scratch_gpt", {}), ("mlp", {}), ("cnn", {"model": "vit_tiny"}), ("transfer", {"mode": "features"}),
    ("char_rnn", {"data": "python_topics"}), ("segmentation", {}), ("detection", {}),
    ("fine_tune", {"learn": "lora"}), ("text_transformer", {"data": "verdicts"}), ("gpt", SMALL), ("gpt", SMALL | {"experts": 2}),
])  # fmt: skip
def test_rows_add_up_to_the_totals(name, given):
    table = describe_recipe(RECIPES[name], given)["layers"]
    assert sum(row["parameters"] for row in table["rows"]) == table["total"]
    assert sum(row["trainable"] for row in table["rows"]) == table["trainable"]
    assert len({row["name"] for row in table["rows"]}) == len(table["rows"])


def test_lora_stands_behind_the_layer_that_it_adapts():
    rows = rows_of(recipes.fine_tune, learn="lora", layers=1)
    names = [row["name"].removeprefix("network.bert.encoder.layer.0.") for row in rows]
    at = names.index("intermediate.dense.layer")
    layer, thin = rows[at : at + 2]
    assert (layer["layer"], layer["shape"], layer["parameters"], layer["trainable"]) == ("Linear", [9, 256], 64 * 256 + 256, 0)
    assert (thin["layer"], thin["shape"], thin["parameters"], thin["trainable"]) == ("LoRA", [9, 256], 8 * (64 + 256), 8 * (64 + 256))
    assert names[at + 1] == "intermediate.dense" and not [name for name in names if name.endswith("dense.dropout")], "dropout of nothing"
    assert names.index("network.bert.embeddings.position_embeddings") == 1 + names.index("network.bert.embeddings.word_embeddings")


def test_a_matrix_that_lora_computes_belongs_to_its_layer():
    net = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2, batch_first=True), "head": nn.Linear(8, 3)})

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            x = x[:, :, None].expand(-1, -1, 8)
            return self.net["head"](self.net["attention"](x, x, x, need_weights=False)[0].mean(1))

    adapt(net, rank=2, within=("in_proj_weight",))
    rows = layer_table(Classify(Reader(), Categorical(3)), {"x": torch.rand(5, 4), "y": torch.zeros(5, dtype=torch.long)})["rows"]
    shown = {row["name"]: (row["layer"], row["shape"], row["parameters"], row["trainable"]) for row in rows}
    assert shown["network.net.attention"] == ("MultiheadAttention", [4, 8], 3 * 8 * 8 + 3 * 8, 0)
    assert shown["network.net.attention.in_proj_weight"] == ("LoRAWeight", None, 2 * (24 + 8), 2 * (24 + 8))
    assert not [name for name in shown if "parametrizations" in name]


def test_a_recurrent_layer_says_what_it_gives():
    (rnn,) = (row for row in rows_of(recipes.char_rnn, data="python_topics", hidden=24) if row["layer"] == "LSTM")
    assert rnn["shape"] == [64, 24]


def test_show_and_report_say_what_is_trained_where_not_all_is(here, capsys):
    assert main(["show", "fine_tune", "--learn", "lora", "--layers", "1"]) == 0
    assert re.search(r"  layer +output +parameters +trained\n", capsys.readouterr().out)
    assert main(["show", "fine_tune", "--learn", "lora", "--layers", "1", "--json"]) == 0
    assert all("trainable" in row for row in json.loads(capsys.readouterr().out)["layers"]["rows"])
    assert main(["show", "mlp"]) == 0 and " parameters    sees " in capsys.readouterr().out, "all of it learns"
    run = didact.train(recipes.transfer, mode="features", weights=str(trained_cnn()), steps=1)
    page = report.write(run).read_text()
    assert '<th scope="col" class="n">trained</th>' in page and '<td class="n">1,290</td></tr></tfoot>' in page


def trained_cnn():
    return didact.train(recipes.cnn, data="digits", model="cnn", steps=1).folder
