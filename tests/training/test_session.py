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
from didact.inference.predict import predict
from didact.run import Run
from didact.training.prepare import prepare, take_examples
from didact.training.recording.model_summary import count_parameters, summarize_layers
from didact.training.recording.tensorboard import to_scalars
from didact.training.restore import load_model, rebuild


@pytest.fixture
def iris_run(workdir):
    return didact.train(recipes.mlp, data="iris", hidden=(16,), dropout=0.0, epochs=40, device="cpu")


def test_train_is_callable_after_its_package_is_imported(workdir):
    import didact.training.loop  # once imported, Python binds didact.train to the package

    run = didact.train(recipes.mlp, data="iris", hidden=(8,), epochs=1)
    assert isinstance(run, Run) and didact.training.loop.Trainer


def test_run_folder_holds_everything(iris_run):
    metadata = iris_run.metadata
    assert metadata["recipe"] == "mlp" and metadata["arguments"]["hidden"] == [16] and metadata["status"] == "finished"
    assert metadata["versions"]["torch"] and metadata["data"]["fingerprint"] and metadata["settings"]["seed"] == 0
    assert set(metadata["fingerprint"]) == {"1", "10", "100"} and set(iris_run.load("indices")) == {
        "train",
        "validation",
        "test",
    }
    assert {"model.safetensors", "state.safetensors", "metrics.jsonl", "test.safetensors"} <= {
        p.name for p in iris_run.folder.iterdir()
    }
    assert metadata["test"]["accuracy"] > 0.7  # three classes


def test_load_model_needs_the_run_folder_alone(iris_run, monkeypatch):
    monkeypatch.setattr("didact.training.restore.reload_data", lambda *_: pytest.fail("the data were asked for"))
    objective, data = load_model(iris_run)
    rows = iris_run.load("test")
    iris_data = load("iris")
    batch = iris_data.test.batch(torch.arange(len(iris_data.test)))
    torch.testing.assert_close(objective.evaluate_batch(batch)["output"], rows["output"])
    assert len(data.train) == len(iris_data.train)


def test_reproduce_command_repeats_the_run(workdir):
    run = didact.train(recipes.mlp, data="wine", hidden=(8, 4), epochs=2, lr=2e-3, norm="batch", seed=4, graph=False)
    words = shlex.split(run.metadata["command_to_repeat"])
    assert main([*words[1:], "--json"]) == 0
    rerun = Run.open("latest")
    assert rerun.folder != run.folder and rerun.metadata["test"] == run.metadata["test"]
    assert all(torch.equal(a, b) for a, b in zip(run.load("model").values(), rerun.load("model").values(), strict=True))


@pytest.mark.parametrize("balance", ["over", "under", "weights"])
def test_balanced_run_is_rebuilt_and_evaluated(workdir, balance):
    run = didact.train(recipes.mlp, data="breast_cancer", hidden=(8,), epochs=2, balance=balance)
    objective, data = load_model(run)
    assert data.class_counts["train"] == load("breast_cancer").class_counts["train"]
    assert rebuild(run, with_data=True).experiment.objective.state_dict().keys() == objective.state_dict().keys()
    assert didact.evaluate(run)["test"] == pytest.approx(run.metadata["test"])


def test_evaluate_repeats_the_scores_of_training(iris_run):
    scores = didact.evaluate(iris_run)
    assert scores["test"] == pytest.approx(iris_run.metadata["test"]) and scores["validation"] == pytest.approx(
        iris_run.metadata["validation"]
    )


def test_predict_returns_the_probabilities_of_the_model(iris_run):
    names = load("iris").feature_names
    row = load("iris").test.batch(torch.arange(1))["x"][0].tolist()
    text = json.dumps(dict(zip(names, row, strict=True)))
    (prediction,) = predict(iris_run, [text])
    p = load_model(iris_run)[0].classify({"x": torch.tensor([row])})[0]
    assert prediction["probability"] == pytest.approx(p.max().item(), abs=1e-5)
    assert prediction["label"] == load("iris").class_names[int(p.argmax())]
    (sampled_prediction,) = predict(iris_run, [text], num_samples=5)
    assert len(sampled_prediction["samples"]) == 5 and set(sampled_prediction["samples"]) <= set(
        load("iris").class_names
    )


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("mlp", {"loss": "mse"}),
        ("mlp", {"loss": "l1"}),
        ("mlp", {"loss": "huber"}),
        ("bagging", {"members": 2}),
        ("approximate", {}),
        ("uncertain_regression", {"method": "dropout"}),
    ],
)
def test_draws_spread_like_the_validation_residuals(workdir, recipe, options):
    noise = torch.randn(400, generator=torch.Generator().manual_seed(1)).tolist()
    Path("line.csv").write_text("x,y\n" + "".join(f"{k / 10},{100 * k + 50 * e}\n" for k, e in enumerate(noise)))
    run = didact.train(recipe, data=Path("line.csv"), target="y", steps=300, **options)
    torch.manual_seed(0)
    (prediction,) = predict(run, "x=20", num_samples=5000)
    draws, rmse = torch.tensor(prediction["samples"]), run.metadata["validation"]["rmse"]
    assert draws.std().item() == pytest.approx(rmse, rel=0.05) and rmse < 0.2 * load("line.csv", target="y").target_std
    assert draws.mean().item() == pytest.approx(prediction["y"], abs=0.1 * rmse)


def test_draws_of_numbers_need_validation_residuals(workdir):
    run = didact.train(recipes.mlp, data="diabetes", hidden=(4,), steps=3)
    run.update_metadata(status="stopped", validation={})
    with pytest.raises(
        UsageError,
        match=f"--num-samples 5 needs the validation residuals.* continue it with: didact resume {run.folder}",
    ):
        predict(run, "age=0,sex=0,bmi=0,bp=0,s1=0,s2=0,s3=0,s4=0,s5=0,s6=0", num_samples=5)


@pytest.mark.parametrize("target", ["high", "input"])
def test_target_may_be_named_like_a_part_of_the_prediction(workdir, target):
    rows = "".join(f"{k / 10},{k / 10 + 1}\n" for k in range(100))
    Path("prices.csv").write_text(f"open,{target}\n{rows}")
    run = didact.train("uncertain_regression", data=Path("prices.csv"), target=target, steps=5)
    (prediction,) = predict(run, "open=5")
    assert set(prediction) == {"input", f"predicted {target}", "std", "low", "high"} and prediction["input"] == "open=5"
    assert prediction["low"] < prediction[f"predicted {target}"] < prediction["high"]


def test_predict_takes_one_input_and_the_name_of_a_run(iris_run):
    row = "sepal length (cm)=5,sepal width (cm)=3,petal length (cm)=1.5,petal width (cm)=0.2"
    assert predict(iris_run.folder, row) == predict(str(iris_run.folder), [row]) == predict(iris_run, (row,))
    with pytest.raises(UsageError, match="inputs are files, texts, or rows written a=1,b=2, got dict"):
        predict(iris_run, [{"sepal length (cm)": 5}])
    with pytest.raises(UsageError, match="data is a name, a path or Data, got tuple"):
        didact.train(recipes.mlp, data=(torch.randn(3, 2), torch.randn(3)))


def test_load_model_refuses_weights_of_another_shape(iris_run):
    other = didact.train(recipes.mlp, data="iris", hidden=(9,), epochs=1)
    (iris_run.folder / "model.safetensors").write_bytes((other.folder / "model.safetensors").read_bytes())
    with pytest.raises(UsageError, match="does not fit recipe 'mlp'"):
        load_model(iris_run)


def test_train_refuses_conflicting_and_unknown_options():
    with pytest.raises(UsageError, match="one of --epochs, --steps, --budget"):
        didact.train(recipes.mlp, data="iris", epochs=2, steps=3)
    with pytest.raises(UsageError, match="did you mean 'dropout'"):
        didact.train(recipes.mlp, data="iris", droput=0.1)


def test_batch_norm_over_accumulated_parts_is_noted():
    options = {"data": "iris", "batch_size": 32}
    settings = ({"norm": "batch", "accumulate": 4}, {"accumulate": 4}, {"norm": "batch"})
    notes_by_setting = [prepare("mlp", options | extra_options).experiment.notes for extra_options in settings]
    assert [
        any("batch norm takes its means over each 4th of a batch" in note for note in notes)
        for notes in notes_by_setting
    ] == [True, False, False]


def test_model_summary_counts_tied_weights_once():
    from torch import nn

    from didact.objectives.distributions.classification import Categorical
    from didact.objectives.supervised import Classify

    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 3))
    net[2].weight = shared.weight
    net[3].bias.requires_grad_(False)
    objective = Classify(net, Categorical(3))
    table = summarize_layers(objective, take_examples(load("iris").train))
    assert count_parameters(objective) == {"total": 20 + 4 + 15, "trainable": 20 + 4 + 12, "tied": 16}
    assert [row["parameters"] for row in table["rows"]][:4] == [20, 0, 4, 15] and table["rows"][0]["shape"] == [4]


def test_run_has_tensorboard_events(iris_run):
    pytest.importorskip("tensorboardX")
    assert list((iris_run.folder / "tensorboard").glob("events.*"))


def test_tensorboard_events_have_checksums_and_logged_values(iris_run):
    """Read back with the classes of a package that writes them; checksums too."""
    pytest.importorskip("tensorboardX")
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (iris_run.folder / "tensorboard").glob("events.*")
    content, events = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        body = content[12 : 12 + length]
        for part, offset in ((content[:8], 8), (body, 12 + length)):
            crc = crc32c(part)
            assert (
                struct.unpack("<I", content[offset : offset + 4])[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
            )
        events.append(Event.FromString(body))
        content = content[16 + length:]
    assert events[0].file_version == "brain.Event:2" and abs(events[-1].wall_time - path.stat().st_mtime) < 60
    read_values = {(event.step, value.tag): value.simple_value for event in events[1:] for value in event.summary.value}
    logged_values = {
        (row["step"], name): value
        for row in iris_run.metrics
        for name, value in to_scalars(row).items()
        if value is not None
    }
    assert read_values.keys() == logged_values.keys() and {"train/loss", "validation/accuracy", "lr"} <= {
        name for _, name in read_values
    }
    for key, value in logged_values.items():
        assert read_values[key] == pytest.approx(value, rel=1e-6)


def test_finishing_a_run_starts_no_thread(workdir, monkeypatch):
    """Set back by a year, it ended a thread that waited by it, and whoever waited for that thread waited for ever:
    there is none."""
    started_threads = []
    monkeypatch.setattr(threading.Thread, "start", started_threads.append)
    monkeypatch.setattr("didact.training.recording.tensorboard.time.time", lambda: 1e9)
    run = didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)
    assert started_threads == [] and run.metadata["status"] == "finished"


def test_tensorboard_events_exist_before_a_run_is_finished(workdir, monkeypatch):
    """Killed in between, it is finished by resume; the other way round it would lack them for ever."""
    pytest.importorskip("tensorboardX")
    event_file_counts, original_note = [], Run.update_metadata

    def count_events_and_note(self, **metadata):
        if metadata.get("status") == "finished":
            event_file_counts.append(len(list((self.folder / "tensorboard").glob("events.*"))))
        original_note(self, **metadata)

    monkeypatch.setattr(Run, "update_metadata", count_events_and_note)
    didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)
    assert event_file_counts == [1]


def test_decision_surface_of_one_and_two_features(workdir):
    run = didact.train(recipes.uncertain_regression, epochs=2)
    surface = run.load("surface")
    assert (
        surface["x"].shape == (400, 1)
        and surface["mean"].shape == surface["std"].shape == (400,)
        and (surface["std"] > 0).all()
    )
    run = didact.train(recipes.mlp, data="moons", epochs=2)
    surface = run.load("surface")
    assert surface["x"].shape == (96 * 96, 2)
    torch.testing.assert_close(surface["mean"].sum(1), torch.ones(96 * 96))
