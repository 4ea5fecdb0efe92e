"""A model of one's own in the same loop."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from making import blobs, line
from torch import nn

import didact
from didact.errors import UsageError
from didact.layers.moe import MixtureOfExperts
from didact.layers.penalty import penalty
from didact.metrics import accuracy
from didact.optim.schedule import cosine
from didact.train.fit import from_tensors


def test_any_module_on_tensors():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    y = x @ torch.tensor([1.0, -1.0, 2.0])
    net = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    fitted = didact.fit(net, (x, y), loss=F.mse_loss, lr=0.05, epochs=20, batch=32)
    assert fitted.test["loss"] < 1e-2
    torch.testing.assert_close(net[0].weight[0], torch.tensor([1.0, -1.0, 2.0]), atol=0.05, rtol=0)


def test_classes_with_a_metric_of_ones_own():
    data = blobs()
    fitted = didact.fit(nn.Linear(5, 3), data, loss=F.cross_entropy, metrics={"accuracy": accuracy}, epochs=15, lr=0.05, batch=32)
    assert fitted.test["accuracy"] > 0.85 and fitted.validation["loss"] < 0.5


def test_losses_of_a_split_do_not_depend_on_the_batch():
    data = line()
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    fitted = didact.fit(net, data, loss=F.l1_loss, epochs=2, batch=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert fitted.test["loss"] == pytest.approx(F.l1_loss(net(rows["x"]), rows["y"]).item(), rel=1e-5)


CLASSES = torch.tensor([1.0, 5.0, 0.1])
LOSSES = {  # what PyTorch makes of many rows at once is not always the mean of what it makes of each
    "plain": nn.CrossEntropyLoss(), "weighted": nn.CrossEntropyLoss(CLASSES), "smoothed": nn.CrossEntropyLoss(CLASSES, label_smoothing=0.2),
    "ignoring": nn.CrossEntropyLoss(ignore_index=1), "unreduced": nn.CrossEntropyLoss(reduction="none"),
    "margin": nn.MultiMarginLoss(weight=CLASSES), "a function": partial(F.cross_entropy, weight=CLASSES, ignore_index=2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_a_split_is_what_the_module_says_of_it(name):
    data, net, loss = blobs(), nn.Linear(5, 3), LOSSES[name]
    fitted = didact.fit(net, data, loss=loss, epochs=2, batch=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert fitted.test["loss"] == pytest.approx(loss(net(rows["x"]), rows["y"]).mean().item(), rel=1e-5)


def test_a_sum_is_told_of_one_example():
    data, net, loss = line(), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), nn.MSELoss(reduction="sum")
    fitted = didact.fit(net, data, loss=loss, epochs=2, batch=50)
    rows = data.test.batch(torch.arange(len(data.test)))
    assert fitted.test["loss"] == pytest.approx(F.mse_loss(net(rows["x"]), rows["y"]).item(), rel=1e-5)


def test_a_module_judges_many_rows_at_once(monkeypatch):
    asked, forward = [], nn.CrossEntropyLoss.forward
    monkeypatch.setattr(nn.CrossEntropyLoss, "forward", lambda self, out, y: asked.append(len(y)) or forward(self, out, y))
    didact.fit(nn.Linear(5, 3), data := blobs(), loss=nn.CrossEntropyLoss(), epochs=1, batch=70)
    assert asked == [70, 70, 70, len(data.validation), len(data.test)]


def test_weights_in_double_precision_are_no_hindrance():
    x, y = torch.randn(60, 5).double(), torch.arange(60) % 3
    fitted = didact.fit(nn.Linear(5, 3).double(), (x, y), loss=nn.CrossEntropyLoss(CLASSES.double()), epochs=1)
    assert 0 < fitted.test["loss"] < 5


def test_what_layers_want_beside_the_task_is_learned_and_let_go():
    torch.manual_seed(0)
    layer, data = MixtureOfExperts(5, 8, experts=8), blobs()
    with torch.no_grad():
        layer.router.weight[0] = 3 * layer.router.weight[0]
    uneven = balance(layer, data)                                                # 1.48; it comes down to 1.1
    didact.fit(nn.Sequential(layer, nn.Linear(5, 3)), data, loss=lambda out, y: 0 * out.sum(), epochs=40, lr=0.05, batch=64)
    assert balance(layer, data) < 1 + 0.5 * (uneven - 1)                         # there is nothing else to learn here
    assert layer.penalty is None


def balance(layer, data):
    layer.train()(data.train.batch(torch.arange(len(data.train)))["x"])
    return penalty(layer).item()


@pytest.mark.parametrize(("given", "told"), [
    ({"epoch": 3}, r"knows no 'epoch'; beside loss, .* it takes lr, batch, .*, epochs, "),
    ({"objective": 3}, "knows no 'objective'"),
    ({"size": 99, "target": "y", "tokens": "bpe"}, "knows no 'size', 'target', 'tokens'"),
    ({"text": "t", "runs": "/nowhere", "save_every": 3.0}, "knows no 'runs', 'save_every', 'text'"),
    ({"begin": None, "settled": {}, "notes": ()}, "knows no 'begin', 'notes', 'settled'"),
    ({"seed": "abc"}, "--seed expects int at least 0, got 'abc'"),
    ({"precision": "fp99"}, "--precision cannot be 'fp99'; did you mean 'fp32'"),
    ({"batch": 0}, "--batch expects int at least 1, got 0"),
    ({"lr": "fast"}, "--lr expects float more than 0, got 'fast'"),
    ({"compile": "x"}, "--compile expects yes/no, got 'x'"),
    ({"epochs": 3, "steps": 3}, "either epochs or steps, not both, got 3 and 3"),
    ({"lr": 0.1, "optimizer": torch.optim.SGD}, "lr=0.1 is that of AdamW, but another optimizer is given"),
    ({"split_seed": 1}, "'blobs' is Data and divided already"),
    ({"schedule": "cosine"}, r"cosine\(\) for one, got 'cosine'"),
])
def test_what_is_wrong_or_could_change_nothing_is_refused(given, told):
    with pytest.raises(UsageError, match=told) as error:
        didact.fit(nn.Linear(5, 3), blobs(), loss=F.cross_entropy, **given)
    assert "\n" not in str(error.value)


def test_every_choice_counts():
    """Each by itself changes what comes out, but for those that make the same by another way."""
    x, y = torch.randn(90, 5, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3

    def fitted(**given):
        told = []
        torch.manual_seed(0)
        found = didact.fit(
            nn.Linear(5, 3), (x, y), loss=partial(F.cross_entropy, weight=CLASSES),
            tell=lambda event, facts: event == "evaluate" and told.append(facts["loss"]), **({"epochs": 3, "batch": 20} | given)
        )
        return found.state.step, found.validation, found.test, told

    plain = fitted()
    assert plain == fitted(device="cpu", precision="fp32", graph=False, compile=False, min_delta=0)
    for given in (
        {"lr": 0.1}, {"batch": 30}, {"clip_norm": 1e-9}, {"clip_value": 1e-9}, {"ema": 0.9}, {"patience": 1, "min_delta": 9.0},
        {"evaluate_every": 2}, {"seed": 3}, {"split_seed": 5}, {"epochs": 2}, {"epochs": None, "steps": 2}, {"precision": "bf16"},
        {"accumulate": 2}, {"log_every": 2}, {"schedule": cosine()}, {"augment": lambda batch, _: batch | {"x": -batch["x"]}},
        {"optimizer": partial(torch.optim.SGD, lr=0.1)},
    ):
        assert fitted(**given) != plain, given


def test_split_seed_divides_the_tensors():
    x, y = torch.randn(90, 5), torch.arange(90) % 3
    given, own = nn.Linear(5, 3), nn.Linear(5, 3)
    own.load_state_dict(given.state_dict())
    one = didact.fit(given, (x, y), loss=F.cross_entropy, epochs=1, split_seed=5)
    other = didact.fit(own, from_tensors(x, y, seed=5), loss=F.cross_entropy, epochs=1)
    assert one.test == other.test and one.validation == other.validation


def test_lengths_that_differ_are_told():
    with pytest.raises(UsageError, match="as many rows, got 3 and 4"):
        from_tensors(torch.zeros(3, 1), torch.zeros(4))


def test_images_and_classes_are_recognised():
    data = from_tensors(torch.rand(60, 3, 5, 7), torch.arange(60) % 2)
    assert (data.kind, data.task, data.shape, data.labels) == ("images", "binary", (3, 5, 7), ("0", "1"))


def test_answers_of_another_shape_than_y_are_refused():
    """F.mse_loss would pair every answer with every y."""
    x = torch.randn(60, 3)
    y = x @ torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match=r"the module answers \(\d+, 1\) where y is \(\d+,\); give y the shape of the answers"):
        didact.fit(nn.Linear(3, 1), (x, y), loss=F.mse_loss, epochs=1)
    fitted = didact.fit(nn.Linear(3, 1), (x, y), loss=lambda out, y: (out[:, 0] - y).square().mean(), epochs=60, lr=0.1)
    assert fitted.test["loss"] < 0.1, "a loss of one's own may know better"


def test_arrays_are_tensors_and_classes_begin_with_zero():
    x, y = torch.randn(30, 2), torch.arange(30) % 3
    first = [from_tensors(*both).train.batch(torch.arange(4))["x"] for both in ((x, y), (x.numpy(), y.numpy()))]
    assert torch.equal(*first)
    with pytest.raises(UsageError, match="classes from 0 on, got -1"):
        from_tensors(x, y - 1)
