"""From a recipe to a run and back from the folder to the model."""

import json
import shlex
import struct
import threading
from pathlib import Path

import pytest
import torch

import didact
from didact import recipes
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.run import Run
from didact.train.layers import counts, layer_table
from didact.train.session import example, prepare, rebuild, restored
from didact.train.tensorboard import scalars
from didact.train.use import predict


@pytest.fixture
def iris(here):
    return didact.train(recipes.mlp, data="iris", hidden=(16,), dropout=0.0, epochs=40, device="cpu")


def test_the_room_is_the_verb(here):
    import didact.train.loop  # once imported, Python binds didact.train to the package

    run = didact.train(recipes.mlp, data="iris", hidden=(8,), epochs=1)
    assert isinstance(run, Run) and didact.train.loop.Training


def test_a_run_holds_everything(iris):
    facts = iris.facts
    assert facts["recipe"] == "mlp" and facts["arguments"]["hidden"] == [16] and facts["status"] == "finished"
    assert facts["versions"]["torch"] and facts["data"]["fingerprint"] and facts["settings"]["seed"] == 0
    assert set(facts["fingerprint"]) == {"1", "10", "100"} and set(iris.load("indices")) == {"train", "validation", "test"}
    assert {"model.safetensors", "state.safetensors", "metrics.jsonl", "test.safetensors"} <= {p.name for p in iris.folder.iterdir()}
    assert facts["test"]["accuracy"] > 0.7  # three classes


def test_a_run_is_rebuilt_from_its_folder_alone(iris, monkeypatch):
    monkeypatch.setattr("didact.train.session.reload", lambda *_: pytest.fail("the data were asked for"))
    objective, data = restored(iris)
    rows = iris.load("test")
    loaded = load("iris")
    batch = loaded.test.batch(torch.arange(len(loaded.test)))
    torch.testing.assert_close(objective.judge(batch)["output"], rows["output"])
    assert len(data.train) == len(loaded.train)


def test_the_command_to_repeat_it_repeats_it(here):
    run = didact.train(recipes.mlp, data="wine", hidden=(8, 4), epochs=2, lr=2e-3, norm="batch", seed=4, graph=False)
    words = shlex.split(run.facts["repeat"])
    assert main([*words[1:], "--json"]) == 0
    again = Run.open("latest")
    assert again.folder != run.folder and again.facts["test"] == run.facts["test"]
    assert all(torch.equal(a, b) for a, b in zip(run.load("model").values(), again.load("model").values(), strict=True))


@pytest.mark.parametrize("balance", ["over", "under", "weights"])
def test_a_balanced_run_is_rebuilt_and_used(here, balance):
    run = didact.train(recipes.mlp, data="breast_cancer", hidden=(8,), epochs=2, balance=balance)
    objective, data = restored(run)
    assert data.counts["train"] == load("breast_cancer").counts["train"]
    assert rebuild(run, with_data=True).experiment.objective.state_dict().keys() == objective.state_dict().keys()
    assert didact.evaluate(run)["test"] == pytest.approx(run.facts["test"])


def test_evaluation_finds_what_training_found(iris):
    found = didact.evaluate(iris)
    assert found["test"] == pytest.approx(iris.facts["test"]) and found["validation"] == pytest.approx(iris.facts["validation"])


def test_predictions_are_the_models_own(iris):
    names = load("iris").names
    row = load("iris").test.batch(torch.arange(1))["x"][0].tolist()
    text = json.dumps(dict(zip(names, row, strict=True)))
    (found,) = predict(iris, [text])
    p = restored(iris)[0].classify({"x": torch.tensor([row])})[0]
    assert found["probability"] == pytest.approx(p.max().item(), abs=1e-5)
    assert found["label"] == load("iris").labels[int(p.argmax())]
    (drawn,) = predict(iris, [text], draws=5)
    assert len(drawn["draws"]) == 5 and set(drawn["draws"]) <= set(load("iris").labels)


@pytest.mark.parametrize(("recipe", "given"), [
    ("mlp", {"loss": "mse"}), ("mlp", {"loss": "l1"}), ("mlp", {"loss": "huber"}), ("bagging", {"members": 2}), ("approximate", {}),
    ("uncertain_regression", {"method": "dropout"}),
])
def test_drawn_numbers_lie_as_far_from_the_prediction_as_validation_targets_did(here, recipe, given):
    noise = torch.randn(400, generator=torch.Generator().manual_seed(1)).tolist()
    Path("line.csv").write_text("x,y\n" + "".join(f"{k / 10},{100 * k + 50 * e}\n" for k, e in enumerate(noise)))
    run = didact.train(recipe, data=Path("line.csv"), target="y", steps=300, **given)
    torch.manual_seed(0)
    (found,) = predict(run, "x=20", draws=5000)
    drawn, rmse = torch.tensor(found["draws"]), run.facts["validation"]["rmse"]
    assert drawn.std().item() == pytest.approx(rmse, rel=0.05) and rmse < 0.2 * load("line.csv", target="y").target_std
    assert drawn.mean().item() == pytest.approx(found["y"], abs=0.1 * rmse)


def test_numbers_are_not_drawn_from_a_run_that_knows_no_residuals(here):
    run = didact.train(recipes.mlp, data="diabetes", hidden=(4,), steps=3)
    run.note(status="stopped", validation={})
    with pytest.raises(UsageError, match=f"--draws 5 needs how far .* go on with: didact resume {run.folder}"):
        predict(run, "age=0,sex=0,bmi=0,bp=0,s1=0,s2=0,s3=0,s4=0,s5=0,s6=0", draws=5)


@pytest.mark.parametrize("target", ["high", "input"])
def test_a_target_may_be_called_as_a_part_of_the_answer_is(here, target):
    rows = "".join(f"{k / 10},{k / 10 + 1}\n" for k in range(100))
    Path("prices.csv").write_text(f"open,{target}\n{rows}")
    run = didact.train("uncertain_regression", data=Path("prices.csv"), target=target, steps=5)
    (found,) = predict(run, "open=5")
    assert set(found) == {"input", f"predicted {target}", "std", "low", "high"} and found["input"] == "open=5"
    assert found["low"] < found[f"predicted {target}"] < found["high"]


def test_one_input_and_a_name_of_a_run_will_do(iris):
    row = "sepal length (cm)=5,sepal width (cm)=3,petal length (cm)=1.5,petal width (cm)=0.2"
    assert predict(iris.folder, row) == predict(str(iris.folder), [row]) == predict(iris, (row,))
    with pytest.raises(UsageError, match="inputs are files, texts, or rows written a=1,b=2, got dict"):
        predict(iris, [{"sepal length (cm)": 5}])
    with pytest.raises(UsageError, match="data is a name, a path or Data, got tuple"):
        didact.train(recipes.mlp, data=(torch.randn(3, 2), torch.randn(3)))


def test_weights_of_another_shape_are_refused(iris):
    other = didact.train(recipes.mlp, data="iris", hidden=(9,), epochs=1)
    (iris.folder / "model.safetensors").write_bytes((other.folder / "model.safetensors").read_bytes())
    with pytest.raises(UsageError, match="does not fit recipe 'mlp'"):
        restored(iris)


def test_options_of_the_recipe_win_over_those_of_all():
    with pytest.raises(UsageError, match="either --epochs or --steps"):
        didact.train(recipes.mlp, data="iris", epochs=2, steps=3)
    with pytest.raises(UsageError, match="did you mean 'dropout'"):
        didact.train(recipes.mlp, data="iris", droput=0.1)


def test_batch_norm_over_parts_of_a_batch_is_said():
    given = {"data": "iris", "batch": 32}
    settings = ({"norm": "batch", "accumulate": 4}, {"accumulate": 4}, {"norm": "batch"})
    said = [prepare("mlp", given | more).experiment.notes for more in settings]
    assert [any("batch norm takes its means over each 4th of a batch" in note for note in notes) for notes in said] == [True, False, False]


def test_layer_table_counts_once_what_is_tied():
    from torch import nn

    from didact.objectives.likelihoods import Categorical
    from didact.objectives.supervised import Classify

    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 3))
    net[2].weight = shared.weight
    net[3].bias.requires_grad_(False)
    objective = Classify(net, Categorical(3))
    table = layer_table(objective, example(load("iris").train))
    assert counts(objective) == {"total": 20 + 4 + 15, "trainable": 20 + 4 + 12, "tied": 16}
    assert [row["parameters"] for row in table["rows"]][:4] == [20, 0, 4, 15] and table["rows"][0]["shape"] == [4]


def test_events_for_tensorboard(iris):
    pytest.importorskip("tensorboardX")
    assert list((iris.folder / "tensorboard").glob("events.*"))


def test_events_are_what_tensorboard_reads(iris):
    """Read back with the classes of a package that writes them; checksums too."""
    pytest.importorskip("tensorboardX")
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (iris.folder / "tensorboard").glob("events.*")
    content, found = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        body = content[12 : 12 + length]
        for part, at in ((content[:8], 8), (body, 12 + length)):
            crc = crc32c(part)
            assert struct.unpack("<I", content[at : at + 4])[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
        found.append(Event.FromString(body))
        content = content[16 + length:]
    assert found[0].file_version == "brain.Event:2" and abs(found[-1].wall_time - path.stat().st_mtime) < 60
    read = {(event.step, value.tag): value.simple_value for event in found[1:] for value in event.summary.value}
    logged = {(row["step"], name): value for row in iris.metrics for name, value in scalars(row).items() if value is not None}
    assert read.keys() == logged.keys() and {"train/loss", "validation/accuracy", "lr"} <= {name for _, name in read}
    for key, value in logged.items():
        assert read[key] == pytest.approx(value, rel=1e-6)


def test_finishing_needs_no_clock_that_goes_on(here, monkeypatch):
    """Set back by a year, it ended a thread that waited by it, and whoever waited for that thread waited for ever: there is none."""
    started = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    monkeypatch.setattr("didact.train.tensorboard.time.time", lambda: 1e9)
    run = didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)
    assert started == [] and run.facts["status"] == "finished"


def test_events_are_there_before_a_run_says_that_it_is_finished(here, monkeypatch):
    """Killed in between, it is finished by resume; the other way round it would lack them for ever."""
    pytest.importorskip("tensorboardX")
    seen, note = [], Run.note

    def watched(self, **facts):
        if facts.get("status") == "finished":
            seen.append(len(list((self.folder / "tensorboard").glob("events.*"))))
        note(self, **facts)

    monkeypatch.setattr(Run, "note", watched)
    didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)
    assert seen == [1]


def test_surfaces_of_one_and_two_features(here):
    run = didact.train(recipes.uncertain_regression, epochs=2)
    found = run.load("surface")
    assert found["x"].shape == (400, 1) and found["mean"].shape == found["std"].shape == (400,) and (found["std"] > 0).all()
    run = didact.train(recipes.mlp, data="moons", epochs=2)
    found = run.load("surface")
    assert found["x"].shape == (96 * 96, 2)
    torch.testing.assert_close(found["mean"].sum(1), torch.ones(96 * 96))
