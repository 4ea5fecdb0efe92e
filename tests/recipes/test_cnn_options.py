"""What `cnn` and `cnn_ablation` can be told: skips, other convolutions, squeeze-excite; and the digits in seconds."""

from time import process_time

import pytest

import didact
from didact.errors import UsageError
from didact.layers.convolution import DeformableConv2d
from didact.layers.residual import Nothing, PadShortcut
from didact.layers.separable import SeparableConv2d
from didact.layers.squeeze import SqueezeExcite
from didact.registry import RECIPES
from didact.train.session import prepare


def network(recipe, **arguments):
    return prepare(recipe, {"data": "digits", **arguments}).experiment.objective.network


def kinds(network):
    return [type(m) for m in network.modules()]


def test_with_and_without_a_skip():
    """Gaba Ex 4.2: the plain network has the layers of the residual one, and nothing around its blocks."""
    plain, own = network("cnn", model="cifar_resnet8", shortcut="none"), network("cnn", model="cifar_resnet8")
    assert kinds(plain).count(Nothing) == 3 and kinds(own).count(PadShortcut) == 2
    assert {k: v.shape for k, v in plain.state_dict().items()} == {k: v.shape for k, v in own.state_dict().items()}
    assert any("downsample" in name for name, _ in network("cnn", model="cifar_resnet8", shortcut="projection").named_parameters())
    with pytest.raises(UsageError, match="--shortcut none is what goes around the blocks of a ResNet, got --model cnn; leave it out"):
        network("cnn", shortcut="none")


@pytest.mark.parametrize(("convolution", "kind"), [("separable", SeparableConv2d), ("deformable", DeformableConv2d), ("dilated", None)])
def test_every_convolution_learns(convolution, kind, here):
    words = {"convolution": convolution, "squeeze": convolution == "dilated", "filters": 8, "blocks": 2, "epochs": 4, "lr": 1e-2}
    run = didact.train(RECIPES["cnn_ablation"], **words)
    assert run.facts["test"]["accuracy"] > 0.6                              # ten digits
    made = network("cnn_ablation", convolution=convolution, squeeze=True)
    assert kinds(made).count(SqueezeExcite) == 3
    assert kinds(made).count(kind) == 3 if kind else made.features[0].dilation == (2, 2)


def test_the_ablation_of_older_runs_is_the_default():
    made = network("cnn_ablation")
    assert SqueezeExcite not in kinds(made) and sum(p.numel() for p in made.parameters()) == 94_986 - 2 * 9 * 32   # one channel, not three


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_digits_in_seconds(seed, here):
    """98 % of the test digits in 20 s on two cores: 40 s of a processor, which other work beside does not count in."""
    start = process_time()
    run = didact.train(RECIPES["cnn"], seed=seed)
    assert run.facts["test"]["accuracy"] >= 0.98 and process_time() - start < 40
