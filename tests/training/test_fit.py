"""A model of one's own in the same loop."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import didact
from didact.errors import UsageError
from didact.layers.auxiliary_loss import pop_auxiliary_loss
from didact.layers.moe import MixtureOfExperts
from didact.metrics import accuracy
from didact.optim.schedule import Cosine
from didact.training.fit import from_tensors
from helpers.small_experiments import make_blobs, make_line


def test_fit_trains_any_module_on_tensors():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = x @ torch.tensor([1.0, -1.0, 2.0])
    net = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    result = didact.fit(net, (x, y), loss=F.mse_loss, lr=0.05, epochs=20, batch_size=32)
    assert result.test["loss"] < 1e-2
    torch.testing.assert_close(net[0].weight[0], torch.tensor([1.0, -1.0, 2.0]), atol=0.05, rtol=0)


def test_fit_reports_given_metrics():
    data = make_blobs()
    result = didact.fit(
        nn.Linear(5, 3), data, loss=F.cross_entropy, metrics={"accuracy": accuracy}, epochs=15, lr=0.05, batch_size=32
    )
    assert result.test["accuracy"] > 0.85 and result.validation["loss"] < 0.5


def test_fit_loss_of_a_split_does_not_depend_on_the_batch_size():
    data = make_line()
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    result = didact.fit(net, data, loss=F.l1_loss, epochs=2, batch_size=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert result.test["loss"] == pytest.approx(F.l1_loss(net(rows["x"]), rows["y"]).item(), rel=1e-5)


CLASSES = torch.tensor([1.0, 5.0, 0.1])
LOSSES = {  # what PyTorch makes of many rows at once is not always the mean of what it makes of each
    "plain": nn.CrossEntropyLoss(),
    "weighted": nn.CrossEntropyLoss(CLASSES),
    "smoothed": nn.CrossEntropyLoss(CLASSES, label_smoothing=0.2),
    "ignoring": nn.CrossEntropyLoss(ignore_index=1),
    "unreduced": nn.CrossEntropyLoss(reduction="none"),
    "margin": nn.MultiMarginLoss(weight=CLASSES),
    "a function": partial(F.cross_entropy, weight=CLASSES, ignore_index=2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_fit_loss_of_a_split_is_the_loss_of_the_module(name):
    data, net, loss = make_blobs(), nn.Linear(5, 3), LOSSES[name]
    result = didact.fit(net, data, loss=loss, epochs=2, batch_size=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert result.test["loss"] == pytest.approx(loss(net(rows["x"]), rows["y"]).mean().item(), rel=1e-5)


def test_fit_reports_a_summed_loss_per_example():
    data, net, loss = make_line(), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), nn.MSELoss(reduction="sum")
    result = didact.fit(net, data, loss=loss, epochs=2, batch_size=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert result.test["loss"] == pytest.approx(F.mse_loss(net(rows["x"]), rows["y"]).item(), rel=1e-5)


def test_fit_evaluates_a_loss_module_on_whole_batches(monkeypatch):
    batch_sizes, forward = [], nn.CrossEntropyLoss.forward
    monkeypatch.setattr(
        nn.CrossEntropyLoss, "forward", lambda self, out, y: batch_sizes.append(len(y)) or forward(self, out, y)
    )
    didact.fit(nn.Linear(5, 3), data := make_blobs(), loss=nn.CrossEntropyLoss(), epochs=1, batch_size=70)
    assert batch_sizes == [70, 70, 70, len(data.validation), len(data.test)]


def test_fit_accepts_double_precision():
    x, y = torch.randn(60, 5).double(), torch.arange(60) % 3
    result = didact.fit(nn.Linear(5, 3).double(), (x, y), loss=nn.CrossEntropyLoss(CLASSES.double()), epochs=1)
    assert 0 < result.test["loss"] < 5


def test_fit_minimizes_auxiliary_losses_of_layers():
    torch.manual_seed(0)
    layer, data = MixtureOfExperts(5, 8, num_experts=8), make_blobs()
    with torch.no_grad():
        layer.router.weight[0] = 3 * layer.router.weight[0]
    # 1.48; it comes down to 1.1
    initial_balance = compute_balance(layer, data)
    didact.fit(
        nn.Sequential(layer, nn.Linear(5, 3)),
        data,
        loss=lambda out, y: 0 * out.sum(),
        epochs=40,
        lr=0.05,
        batch_size=64,
    )
    # there is nothing else to learn here
    assert compute_balance(layer, data) < 1 + 0.5 * (initial_balance - 1)
    assert layer.auxiliary_loss is None


def compute_balance(layer, data):
    layer.train()(data.train.batch(torch.arange(len(data.train)))["x"])
    return pop_auxiliary_loss(layer).item()


@pytest.mark.parametrize(("options", "message"), [
    ({"epoch": 3}, r"knows no 'epoch'; beside loss, .* it takes lr, batch_size, .*, epochs, "),
    ({"objective": 3}, "knows no 'objective'"),
    ({"size": 99, "target": "y", "tokens": "bpe"}, "knows no 'size', 'target', 'tokens'"),
    ({"text": "t", "runs": "/nowhere", "save_every": 3.0}, "knows no 'runs', 'save_every', 'text'"),
    ({"initialize_weights": None, "resolved_arguments": {}, "notes": ()},
     "knows no 'initialize_weights', 'notes', 'resolved_arguments'"),
    ({"seed": "abc"}, "--seed expects int at least 0, got 'abc'"),
    ({"precision": "fp99"}, "--precision cannot be 'fp99'; did you mean 'fp32'"),
    ({"batch_size": 0}, "--batch-size expects int at least 1, got 0"),
    ({"lr": "fast"}, "--lr expects float more than 0, got 'fast'"),
    ({"compile": "x"}, "--compile expects yes/no, got 'x'"),
    ({"epochs": 3, "steps": 3}, "either epochs or steps, not both, got 3 and 3"),
    ({"lr": 0.1, "optimizer": torch.optim.SGD}, "lr=0.1 is that of AdamW, but another optimizer is given"),
    ({"split_seed": 1}, "'blobs' is Data, which is split already"),
    ({"schedule": "cosine"}, r"cosine\(\) for one, got 'cosine'"),
])
def test_fit_refuses_wrong_options_and_options_without_effect(options, message):
    with pytest.raises(UsageError, match=message) as error:
        didact.fit(nn.Linear(5, 3), make_blobs(), loss=F.cross_entropy, **options)
    assert "\n" not in str(error.value)


def test_every_option_of_fit_changes_the_result():
    """Each by itself changes what comes out, but for those that make the same by another way."""
    x, y = torch.randn(90, 5, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3

    def run_fit(**options):
        losses = []
        torch.manual_seed(0)
        result = didact.fit(
            nn.Linear(5, 3),
            (x, y),
            loss=partial(F.cross_entropy, weight=CLASSES),
            on_event=lambda event, facts: event == "evaluate" and losses.append(facts["loss"]),
            **({"epochs": 3, "batch_size": 20} | options),
        )
        return result.state.step, result.validation, result.test, losses

    default_result = run_fit()
    assert default_result == run_fit(device="cpu", precision="fp32", graph=False, compile=False, min_delta=0)
    for options in (
        {"lr": 0.1},
        {"batch_size": 30},
        {"clip_norm": 1e-9},
        {"clip_value": 1e-9},
        {"ema": 0.9},
        {"patience": 1, "min_delta": 9.0},
        {"evaluate_every": 2},
        {"seed": 3},
        {"split_seed": 5},
        {"epochs": 2},
        {"epochs": None, "steps": 2},
        {"precision": "bf16"},
        {"accumulate": 2},
        {"log_every": 2},
        {"schedule": Cosine()},
        {"augment": lambda batch, _: batch | {"x": -batch["x"]}},
        {"optimizer": partial(torch.optim.SGD, lr=0.1)},
    ):
        assert run_fit(**options) != default_result, options


def test_split_seed_divides_the_tensors():
    x, y = torch.randn(90, 5), torch.arange(90) % 3
    model, copied_model = nn.Linear(5, 3), nn.Linear(5, 3)
    copied_model.load_state_dict(model.state_dict())
    one = didact.fit(model, (x, y), loss=F.cross_entropy, epochs=1, split_seed=5)
    other = didact.fit(copied_model, from_tensors(x, y, seed=5), loss=F.cross_entropy, epochs=1)
    assert one.test == other.test and one.validation == other.validation


def test_from_tensors_refuses_lengths_that_differ():
    with pytest.raises(UsageError, match="the same length, got 3 and 4"):
        from_tensors(torch.zeros(3, 1), torch.zeros(4))


def test_from_tensors_recognizes_images_and_classes():
    data = from_tensors(torch.rand(60, 3, 5, 7), torch.arange(60) % 2)
    assert (data.kind, data.task, data.shape, data.class_names) == ("images", "binary", (3, 5, 7), ("0", "1"))


def test_fit_refuses_outputs_of_another_shape_than_y():
    """F.mse_loss would pair every answer with every y."""
    x = torch.randn(60, 3)
    y = x @ torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(
        UsageError, match=r"the module returns \(\d+, 1\) where y is \(\d+,\); give y the shape of the output"
    ):
        didact.fit(nn.Linear(3, 1), (x, y), loss=F.mse_loss, epochs=1)
    result = didact.fit(nn.Linear(3, 1), (x, y), loss=lambda out, y: (out[:, 0] - y).square().mean(), epochs=60, lr=0.1)
    assert result.test["loss"] < 0.1, "a loss of one's own may know better"


def test_from_tensors_reads_arrays_and_checks_class_indices():
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    first_batches = [from_tensors(*pair).train.batch(torch.arange(4))["x"] for pair in ((x, y), (x.numpy(), y.numpy()))]
    assert torch.equal(*first_batches)
    with pytest.raises(UsageError, match="class numbers from 0 on, got -1"):
        from_tensors(x, y - 1)
