"""A model of one's own in the same loop."""

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


def test_mistakes_are_told():
    with pytest.raises(UsageError, match="knows no 'epoch'"):
        didact.fit(nn.Linear(5, 3), blobs(), loss=F.cross_entropy, epoch=3)
    with pytest.raises(UsageError, match="as many rows, got 3 and 4"):
        from_tensors(torch.zeros(3, 1), torch.zeros(4))


def test_images_and_classes_are_recognised():
    data = from_tensors(torch.rand(60, 3, 5, 7), torch.arange(60) % 2)
    assert (data.kind, data.task, data.shape, data.labels) == ("images", "binary", (3, 5, 7), ("0", "1"))
