"""The feature cache: the same outputs and losses, each image through the network once."""

import pytest
import torch
from torch import nn

from didact.data.load import load
from didact.layers.drop_path import DropPath
from didact.objectives import feature_cache as kept_module
from didact.objectives.distributions.classification import make_likelihood
from didact.objectives.feature_cache import FeatureCache
from didact.objectives.supervised import likelihood_for
from didact.objectives.transfer import TransferClassifier
from didact.registry import create_model
from didact.training.prepare import prepare


def make_transfer_classifier(network, *, cache_features, num_classes=5):
    return TransferClassifier(
        network,
        make_likelihood("multiclass", num_classes=num_classes),
        num_trainable_layers=1,
        lr=0.1,
        lr_ratio=1.0,
        cache_features=cache_features,
    )


def make_batch(n=6, size=(3, 32, 32)):
    return {"x": torch.rand(n, *size, generator=torch.Generator().manual_seed(0)), "y": torch.arange(n) % 5}


@pytest.mark.parametrize("name", ["cnn", "lenet5", "cifar_resnet8", "efficientnet_lite0", "vit_tiny", "mixer_tiny"])
def test_feature_cache_gives_the_same_outputs_and_losses(name):
    torch.manual_seed(0)
    network = create_model(name, num_classes=5, channels=3, size=(32, 32))
    uncached, cached, b = (
        make_transfer_classifier(network, cache_features=False).train(),
        make_transfer_classifier(network, cache_features=True).train(),
        make_batch(),
    )
    for _ in range(2):                                                              # unknown, then known
        losses, gradients = [], []
        for objective in (uncached, cached):
            torch.manual_seed(1)                                                    # same dropout mask
            loss = objective.loss(b)["loss"]
            network.zero_grad()
            loss.backward()
            losses.append(loss.detach())
            gradients.append(objective.trainable_layers[-1][-1].weight.grad.clone())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)
    assert cached.feature_cache is not None and len(cached.feature_cache.features) == 6
    uncached.eval(), cached.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            cached.evaluate_batch(b)["output"], uncached.evaluate_batch(b)["output"], rtol=1e-4, atol=1e-5
        )


def count_frozen_inputs(objective):
    """How many images have reached the first frozen layer."""
    batch_sizes = []
    objective.frozen_layers[0][0].register_forward_hook(lambda module, inputs, output: batch_sizes.append(len(output)))
    return batch_sizes


def test_feature_cache_computes_each_image_once():
    objective, b = (
        make_transfer_classifier(
            create_model("cnn", num_classes=5, channels=3, size=(8, 8)), cache_features=True
        ).train(),
        make_batch(size=(3, 8, 8)),
    )
    batch_sizes = count_frozen_inputs(objective)
    objective.loss(b)
    # what finding the last layer took
    num_probed = sum(batch_sizes) - 6
    for order in (torch.arange(6), torch.randperm(6), torch.tensor([3, 1])):
        objective.loss({name: column[order] for name, column in b.items()})
    objective.eval()
    objective.evaluate_batch(b)
    assert sum(batch_sizes) - num_probed == 6
    objective.evaluate_batch({**b, "x": b["x"].flip(-1)})                                    # other images
    assert sum(batch_sizes) - num_probed == 12


def test_feature_cache_is_independent_of_batching():
    """To the bit: a resumed run meets the images in other batches."""
    network, x = create_model("cnn", num_classes=5, channels=3, size=(8, 8)).eval(), make_batch(size=(3, 8, 8))["x"]
    first_cache, second_cache = (FeatureCache(network, [network.head], 10**6) for _ in range(2))
    first_cache(x)
    second_cache(x[[4]]), second_cache(x[[5, 0, 2, 3, 1]])
    assert first_cache.features.keys() == second_cache.features.keys() and all(
        torch.equal(z, second_cache.features[key]) for key, z in first_cache.features.items()
    )


def test_feature_cache_respects_its_memory_limit(monkeypatch):
    network, x = create_model("cnn", num_classes=5, channels=3, size=(8, 8)).eval(), make_batch(size=(3, 8, 8))["x"]
    width = network.head.in_features * 4
    cache = FeatureCache(network, [network.head], 2 * width + 1)
    torch.testing.assert_close(cache(x), network(x))
    assert len(cache.features) == 2 and cache.free_bytes == 1
    monkeypatch.setattr(kept_module, "free_memory", lambda: 80)
    assert FeatureCache.build(network, network.head, [network.head], x[:1]).free_bytes == 10


def test_feature_cache_is_built_only_in_training():
    objective, b = (
        make_transfer_classifier(create_model("cnn", num_classes=5, channels=3, size=(8, 8)), cache_features=True),
        make_batch(size=(3, 8, 8)),
    )
    objective.eval().evaluate_batch(b)
    objective.train().forward(b)
    assert objective.feature_cache is None
    objective.loss(b)
    x = b["x"].clone().requires_grad_()
    objective.eval().evaluate_batch({**b, "x": x})["output"].sum().backward()
    assert x.grad.abs().sum() > 0 and len(objective.feature_cache.features) == 6


class NetworkWithLayerBetween(nn.Module):
    """A layer between the frozen ones and the head that gives different outputs in different passes."""

    def __init__(self, between):
        super().__init__()
        self.conv, self.between, self.head = nn.Conv2d(3, 4, 3), between, nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.between(self.conv(x).mean((2, 3))))


@pytest.mark.parametrize(
    ("between", "is_cacheable"),
    [
        (nn.Dropout(0.5), True),
        (nn.Identity(), True),
        (nn.ReLU(), True),
        (nn.Dropout(0.0), True),
        (nn.BatchNorm1d(4, affine=False), False),
        (nn.Sequential(nn.Dropout(0.5), nn.ReLU()), False),
        (nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), False),
        (nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Dropout(0.5), nn.Flatten()), False),
        (DropPath(0.5), True),
        (DropPath(0.0), True),
    ],
)
def test_feature_cache_is_skipped_for_layers_that_vary(between, is_cacheable):
    objective = make_transfer_classifier(NetworkWithLayerBetween(between), cache_features=True).train()
    assert objective.loss(make_batch())["loss"].isfinite() and (objective.feature_cache is not None) == is_cacheable


def test_feature_cache_is_skipped_when_computation_follows_the_last_layer():
    # scales its scores
    objective = make_transfer_classifier(
        create_model("resnet9", num_classes=5, channels=3, size=(32, 32)), cache_features=True
    ).train()
    assert objective.loss(make_batch(2))["loss"].isfinite() and objective.feature_cache is None


def test_transfer_recipe_caches_features_without_augmentation():
    def caches_features(**options):
        return prepare("transfer", {"data": "digits", **options}).experiment.objective.cache_features

    assert (
        caches_features(mode="features")
        and not caches_features(mode="features", augment=("flip",))
        and not caches_features(mode="full")
        and not caches_features(mode="scratch")
    )
    data = load("digits")
    assert not TransferClassifier(
        create_model("cnn", num_classes=10, channels=1, size=(8, 8)),
        likelihood_for(data),
        num_trainable_layers=2,
        lr=1,
        lr_ratio=1,
        cache_features=True,
    ).cache_features
