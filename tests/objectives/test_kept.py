"""Features of frozen layers, kept: the same answers and losses, each image through the network once."""

import pytest
import torch
from torch import nn

from didact.data.load import load
from didact.layers.droppath import DropPath
from didact.objectives import kept as kept_module
from didact.objectives.kept import Kept
from didact.objectives.likelihoods import likelihood
from didact.objectives.reuse import Reuse
from didact.objectives.supervised import likelihood_of
from didact.registry import create
from didact.train.session import prepare


def reused(network, *, keep, classes=5):
    return Reuse(network, likelihood("multiclass", classes=classes), learning=1, lr=0.1, ratio=1.0, keep=keep)


def batch(n=6, size=(3, 32, 32)):
    return {"x": torch.rand(n, *size, generator=torch.Generator().manual_seed(0)), "y": torch.arange(n) % 5}


@pytest.mark.parametrize("name", ["cnn", "lenet5", "cifar_resnet8", "efficientnet_lite0", "vit_tiny", "mixer_tiny"])
def test_answers_and_losses_are_the_same(name):
    torch.manual_seed(0)
    network = create(name, classes=5, channels=3, size=(32, 32))
    plain, keeping, b = reused(network, keep=False).train(), reused(network, keep=True).train(), batch()
    for _ in range(2):                                                              # unknown, then known
        losses, gradients = [], []
        for objective in (plain, keeping):
            torch.manual_seed(1)                                                    # the head's dropout draws alike
            loss = objective.loss(b)["loss"]
            network.zero_grad()
            loss.backward()
            losses.append(loss.detach())
            gradients.append(objective.live[-1][-1].weight.grad.clone())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)
    assert keeping.kept is not None and len(keeping.kept.known) == 6
    plain.eval(), keeping.eval()
    with torch.no_grad():
        torch.testing.assert_close(keeping.judge(b)["output"], plain.judge(b)["output"], rtol=1e-4, atol=1e-5)


def counted(objective):
    """How many images have come to the first frozen layer."""
    seen = []
    objective.frozen[0][0].register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    return seen


def test_each_image_goes_through_the_network_once():
    objective, b = reused(create("cnn", classes=5, channels=3, size=(8, 8)), keep=True).train(), batch(size=(3, 8, 8))
    seen = counted(objective)
    objective.loss(b)
    tried = sum(seen) - 6                                                           # what finding the last layer took
    for order in (torch.arange(6), torch.randperm(6), torch.tensor([3, 1])):
        objective.loss({name: column[order] for name, column in b.items()})
    objective.eval()
    objective.judge(b)
    assert sum(seen) - tried == 6
    objective.judge({**b, "x": b["x"].flip(-1)})                                    # other images
    assert sum(seen) - tried == 12


def test_what_is_kept_does_not_depend_on_the_neighbours():
    """To the bit: a resumed run meets the images in other company."""
    network, x = create("cnn", classes=5, channels=3, size=(8, 8)).eval(), batch(size=(3, 8, 8))["x"]
    one, other = (Kept(network, [network.head], 10**6) for _ in range(2))
    one(x)
    other(x[[4]]), other(x[[5, 0, 2, 3, 1]])
    assert one.known.keys() == other.known.keys() and all(torch.equal(z, other.known[key]) for key, z in one.known.items())


def test_memory_is_bounded(monkeypatch):
    network, x = create("cnn", classes=5, channels=3, size=(8, 8)).eval(), batch(size=(3, 8, 8))["x"]
    width = network.head.in_features * 4
    some = Kept(network, [network.head], 2 * width + 1)
    torch.testing.assert_close(some(x), network(x))
    assert len(some.known) == 2 and some.room == 1
    monkeypatch.setattr(kept_module, "free_memory", lambda: 80)
    assert Kept.of(network, network.head, [network.head], x[:1]).room == 10


def test_who_only_uses_or_looks_into_it_keeps_nothing():
    objective, b = reused(create("cnn", classes=5, channels=3, size=(8, 8)), keep=True), batch(size=(3, 8, 8))
    objective.eval().judge(b)
    objective.train().forward(b)
    assert objective.kept is None
    objective.loss(b)
    x = b["x"].clone().requires_grad_()
    objective.eval().judge({**b, "x": x})["output"].sum().backward()
    assert x.grad.abs().sum() > 0 and len(objective.kept.known) == 6


class Restless(nn.Module):
    """Something between the frozen layer and the head that does not give the same twice."""

    def __init__(self, between):
        super().__init__()
        self.conv, self.between, self.head = nn.Conv2d(3, 4, 3), between, nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.between(self.conv(x).mean((2, 3))))


@pytest.mark.parametrize(("between", "possible"), [
    (nn.Dropout(0.5), True), (nn.Identity(), True), (nn.ReLU(), True), (nn.Dropout(0.0), True),
    (nn.BatchNorm1d(4, affine=False), False), (nn.Sequential(nn.Dropout(0.5), nn.ReLU()), False),
    (nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), False),
    (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Dropout(0.5), nn.Flatten()), False), (DropPath(0.5), True), (DropPath(0.0), True),
])
def test_what_cannot_be_kept_is_computed(between, possible):
    objective = reused(Restless(between), keep=True).train()
    assert objective.loss(batch())["loss"].isfinite() and (objective.kept is not None) == possible


def test_a_network_that_goes_on_behind_its_last_layer_is_computed():
    objective = reused(create("resnet9", classes=5, channels=3, size=(32, 32)), keep=True).train()      # scales its scores
    assert objective.loss(batch(2))["loss"].isfinite() and objective.kept is None


def test_the_recipe_keeps_features_of_images_as_they_are():
    def keeps(**given):
        return prepare("transfer", {"data": "digits", **given}).experiment.objective.keep

    assert keeps(mode="features") and not keeps(mode="features", augment=("flip",)) and not keeps(mode="full") and not keeps(mode="scratch")
    data = load("digits")
    assert not Reuse(create("cnn", classes=10, channels=1, size=(8, 8)), likelihood_of(data), learning=2, lr=1, ratio=1, keep=True).keep
