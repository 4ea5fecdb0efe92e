"""What `cnn` and `cnn_ablation` can be told: skips, other convolutions, squeeze-excite; and the digits in seconds."""

from time import process_time

import pytest

import didact
from didact.errors import UsageError
from didact.layers.conv.convolution import DeformableConv2d
from didact.layers.conv.residual import NoShortcut, PadShortcut
from didact.layers.conv.separable import SeparableConv2d
from didact.layers.conv.squeeze_excite import SqueezeExcite
from didact.registry import RECIPES
from didact.training.prepare import prepare


def build_network(recipe, **arguments):
    return prepare(recipe, {"data": "digits", **arguments}).experiment.objective.network


def list_layer_types(network):
    return [type(m) for m in network.modules()]


def test_shortcut_none_has_the_layers_of_the_residual_network():
    """Gaba Ex 4.2: the plain network has the layers of the residual one, and nothing around its blocks."""
    plain, residual = (
        build_network("cnn", model="cifar_resnet8", shortcut="none"),
        build_network("cnn", model="cifar_resnet8"),
    )
    assert list_layer_types(plain).count(NoShortcut) == 3 and list_layer_types(residual).count(PadShortcut) == 2
    assert {k: v.shape for k, v in plain.state_dict().items()} == {k: v.shape for k, v in residual.state_dict().items()}
    assert any(
        "downsample" in name
        for name, _ in build_network("cnn", model="cifar_resnet8", shortcut="projection").named_parameters()
    )
    with pytest.raises(
        UsageError, match="--shortcut none is what goes around the blocks of a ResNet, got --model cnn; leave it out"
    ):
        build_network("cnn", shortcut="none")


@pytest.mark.parametrize(
    ("convolution", "kind"), [("separable", SeparableConv2d), ("deformable", DeformableConv2d), ("dilated", None)]
)
def test_cnn_ablation_learns_with_every_convolution(convolution, kind, workdir):
    options = {
        "convolution": convolution,
        "squeeze_excite": convolution == "dilated",
        "channels": 8,
        "num_blocks": 2,
        "epochs": 4,
        "lr": 1e-2,
    }
    run = didact.train(RECIPES["cnn_ablation"], **options)
    assert run.metadata["test"]["accuracy"] > 0.6                              # ten digits
    ablation_network = build_network("cnn_ablation", convolution=convolution, squeeze_excite=True)
    assert list_layer_types(ablation_network).count(SqueezeExcite) == 3
    assert (
        list_layer_types(ablation_network).count(kind) == 3 if kind else ablation_network.features[0].dilation == (2, 2)
    )


def test_cnn_ablation_default_is_that_of_older_runs():
    ablation_network = build_network("cnn_ablation")
    # one channel, not three
    assert (
        SqueezeExcite not in list_layer_types(ablation_network)
        and sum(p.numel() for p in ablation_network.parameters()) == 94_986 - 2 * 9 * 32
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cnn_reaches_98_percent_on_digits_in_seconds(seed, workdir):
    """98 % of the test digits in 20 s on two cores: 40 s of a processor, which other work beside does not count in."""
    start = process_time()
    run = didact.train(RECIPES["cnn"], seed=seed)
    assert run.metadata["test"]["accuracy"] >= 0.98 and process_time() - start < 40
