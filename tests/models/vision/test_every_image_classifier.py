"""Image classifiers: sizes of their papers or of torchvision, names of published weights, and forms written another
way.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from didact.errors import UsageError
from didact.models import CNN, VGG, AlexNet, CIFAR10Net, ConvNeXt, EfficientNet, LeNet5, LeNetLike, ResNet, ResNet9
from didact.models.vision.efficientnet import Stage
from didact.registry import MODELS, create_model

PARAMETER_COUNTS = {
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg11_bn": 132_868_840,
    "vgg13_bn": 133_053_736,
    "vgg16_bn": 138_365_992,
    "vgg19_bn": 143_678_248,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "cifar_resnet20": 269_722,
    "cifar_resnet32": 464_154,
    "cifar_resnet44": 658_586,
    "cifar_resnet56": 853_018,
    "cifar_resnet110": 1_727_962,
    "efficientnet_b0": 5_288_548,
    "efficientnet_lite0": 4_652_008,
    "convnext_tiny": 28_589_128,
    "lenet5": 61_706,
    "lenet_like": 105_506,
    "cifar10net": 1_181_386,
    "cifar10net_separable": 170_472,
    "resnet9": 6_573_120,  # Page's, DAWNBench
}
WEIGHT_SHAPES = {
    "alexnet": {
        "features.0.weight": (64, 3, 11, 11),
        "features.10.bias": (256,),
        "classifier.1.weight": (4096, 9216),
        "classifier.6.bias": (1000,),
    },
    "vgg16": {
        "features.0.weight": (64, 3, 3, 3),
        "features.28.weight": (512, 512, 3, 3),
        "classifier.0.weight": (4096, 25088),
        "classifier.6.bias": (1000,),
    },
    "vgg16_bn": {"features.1.running_mean": (64,), "features.40.weight": (512, 512, 3, 3), "features.41.bias": (512,)},
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer4.1.bn2.running_var": (512,),
        "fc.weight": (1000, 512),
    },
    "resnet50": {
        "layer1.0.downsample.1.bias": (256,),
        "layer3.5.conv3.weight": (1024, 256, 1, 1),
        "layer4.0.conv2.weight": (512, 512, 3, 3),
        "fc.bias": (1000,),
    },
    "convnext_tiny": {
        "features.0.0.weight": (96, 3, 4, 4),
        "features.0.1.bias": (96,),
        "features.1.0.layer_scale": (96, 1, 1),
        "features.1.2.block.0.weight": (96, 1, 7, 7),
        "features.2.0.weight": (96,),
        "features.2.1.weight": (192, 96, 2, 2),
        "features.5.8.block.3.weight": (1536, 384),
        "features.7.2.block.5.bias": (768,),
        "classifier.0.weight": (768,),
        "classifier.2.weight": (1000, 768),
    },
    "efficientnet_lite0": {
        "_conv_stem.weight": (32, 3, 3, 3),
        "_bn0.running_mean": (32,),
        "_blocks.0._depthwise_conv.weight": (32, 1, 3, 3),
        "_blocks.1._expand_conv.weight": (96, 16, 1, 1),
        "_blocks.1._bn0.bias": (96,),
        "_blocks.15._project_conv.weight": (320, 1152, 1, 1),
        "_blocks.15._bn2.num_batches_tracked": (),
        "_conv_head.weight": (1280, 320, 1, 1),
        "_bn1.weight": (1280,),
        "_fc.weight": (1000, 1280),
    },
    "efficientnet_b0": {"_blocks.0._se_reduce.weight": (8, 32, 1, 1), "_blocks.15._se_expand.weight": (1152, 48, 1, 1)},
}
TENSOR_COUNTS = {  # in torchvision's files, with the buffers of batch norms
    "alexnet": 16, "vgg16": 32, "vgg16_bn": 97, "resnet18": 122, "resnet50": 320, "convnext_tiny": 182,
}


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", sorted(PARAMETER_COUNTS))
def test_image_classifiers_have_the_published_parameter_counts(name):
    with torch.device("meta"):
        assert count_parameters(create_model(name)) == PARAMETER_COUNTS[name]


@pytest.mark.parametrize("name", sorted(WEIGHT_SHAPES))
def test_image_classifiers_have_the_names_and_shapes_of_published_weights(name):
    with torch.device("meta"):
        state = create_model(name).state_dict()
    for key, shape in WEIGHT_SHAPES[name].items():
        assert state[key].shape == shape, key
    assert len(state) == TENSOR_COUNTS.get(name, len(state))


def test_efficientnet_lite_block_has_the_names_of_the_package():
    with torch.device("meta"):
        state = create_model("efficientnet_lite0").state_dict()
    norms = [
        f"_bn{i}.{k}"
        for i in range(3)
        for k in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ]
    convs = ["_expand_conv.weight", "_depthwise_conv.weight", "_project_conv.weight"]
    assert {k.removeprefix("_blocks.4.") for k in state if k.startswith("_blocks.4.")} == {*convs, *norms}


def test_cnn_has_the_parameter_counts_of_gabas_ablation():
    # by the formula C_out (C_in k^2 + 1)
    expected_counts = {(3, 32, 3): 94_986, (5, 32, 3): 260_362, (3, 64, 3): 374_282, (3, 32, 5): 390_666}
    for (kernel, filters, blocks), parameters in expected_counts.items():
        assert count_parameters(CNN(kernel_size=kernel, filters=filters, num_blocks=blocks)) == parameters


def test_cifar10net_has_gabas_layers():
    layer_names = [type(m).__name__ for m in CIFAR10Net().features]
    assert layer_names == [*["Conv2d", "BatchNorm2d", "ReLU"] * 2, "MaxPool2d", "Dropout2d"] * 3


@pytest.mark.parametrize("size", [(28, 28), (32, 32)])
def test_lenet5_pads_28_pixels_to_the_papers_32(size):
    model = LeNet5(size=size)
    assert count_parameters(model) == 61_706
    x = torch.rand(2, 1, *size)
    assert model.features(x).shape == (2, 16, 5, 5)
    assert model(x).shape == (2, 10)


def test_lenet_like_has_256_features():
    model, x = LeNetLike(), torch.rand(2, 1, 28, 28)
    assert model.features(x).flatten(1).shape == (2, 256)                                # Fleuret, fig. 5.2
    assert model.features(x).min() >= 0


def test_resnet_stem_depends_on_the_image_size():
    small, large = (ResNet(depths=(1, 1, 1, 1), width=4, size=size) for size in ((64, 200), (65, 200)))
    assert small.conv1.weight.shape[2:] == (3, 3) and "3×3 of stride 1" in small.note
    assert large.conv1.weight.shape[2:] == (7, 7) and "7×7 of stride 2" in large.note
    forced = ResNet(depths=(1, 1), width=4, size=(32, 32), stem="large")
    assert forced.conv1.stride == (2, 2)
    assert create_model("cifar_resnet8").conv1.weight.shape == (16, 3, 3, 3)


@pytest.mark.parametrize(
    ("name", "message"), [("convnext_tiny", "patches of 1 pixels"), ("efficientnet_b0", "stem of stride 1")]
)
def test_other_stems_depend_on_the_image_size(name, message):
    with torch.device("meta"):
        small_model, large_model = create_model(name, size=(32, 40)), create_model(name)
        assert message in small_model.note and not large_model.note
        sizes = []
        for model in (small_model, large_model):
            last_conv = [m for m in model.modules() if isinstance(m, nn.Conv2d)][-1]
            last_conv.register_forward_hook(lambda m, a, y: sizes.append(tuple(y.shape[2:])))
        small_model(torch.zeros(2, 3, 32, 40)), large_model(torch.zeros(2, 3, 224, 224))
    assert min(sizes[0]) >= 2 and sizes[1] == (7, 7)


def test_resnet9_matches_its_functional_form():
    model = randomize_norms(ResNet9(width=4, num_classes=5, channels=2, size=(16, 24)))
    s, x = model.state_dict(), torch.rand(2, 2, 16, 24, dtype=torch.float64)

    def unit(h, name, norm="1", pool=False):
        h = F.conv2d(h, s[f"{name}.0.weight"], padding=1)
        return F.relu(batch_norm(F.max_pool2d(h, 2) if pool else h, s, f"{name}.{norm}"))

    h = unit(x, "prep")
    for stage in ("layer1", "layer2", "layer3"):
        h = unit(h, f"{stage}.down", "2", pool=True)
        if stage != "layer2":
            h = h + unit(unit(h, f"{stage}.residual.0"), f"{stage}.residual.1")
    torch.testing.assert_close(model(x), 0.125 * h.flatten(2).max(2).values @ s["fc.weight"].T)


@pytest.mark.parametrize(("norm", "reference"), [
    ("batch", lambda h: F.batch_norm(h, None, None, training=True)),
    ("group", lambda h: F.group_norm(h, h.shape[1] // 8)),
    ("instance", F.instance_norm),
    ("none", lambda h: h),
])
@pytest.mark.parametrize("pool", ["max", "mean"])
def test_cnn_norms_and_pools_match_their_definitions(norm, reference, pool):
    torch.manual_seed(0)
    model, x = (
        CNN(filters=8, num_blocks=1, norm=norm, pool=pool, num_classes=3, channels=2, size=(8, 10)),
        torch.rand(4, 2, 8, 10),
    )
    h = F.relu(reference(F.conv2d(x, model.features[0].weight, model.features[0].bias, padding=1)))
    windows = h.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    h = windows.amax(-1) if pool == "max" else windows.mean(-1)
    torch.testing.assert_close(model(x), model.head(h.mean((2, 3))))


def batch_norm(h, s, name):
    return F.batch_norm(h, s[name + ".running_mean"], s[name + ".running_var"], s[name + ".weight"], s[name + ".bias"])


def randomize_norms(model):
    """Weights and statistics that are neither 0 nor 1, so that leaving one out shows."""
    torch.manual_seed(0)
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(m.weight, 1, 0.3), nn.init.normal_(m.bias, 0, 0.3)
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.running_mean, 0, 0.3), nn.init.uniform_(m.running_var, 0.5, 2)
    return model.double().eval()


def test_resnet_matches_its_functional_form():
    model = randomize_norms(ResNet(block="bottleneck", depths=(1, 2), width=4, num_classes=5, channels=2))
    s, x = model.state_dict(), torch.rand(2, 2, 31, 45, dtype=torch.float64)
    h = F.relu(batch_norm(F.conv2d(x, s["conv1.weight"], stride=2, padding=3), s, "bn1"))
    h = F.max_pool2d(h, 3, 2, 1)
    for b, stride in (("layer1.0.", 1), ("layer2.0.", 2), ("layer2.1.", 1)):
        f = F.relu(batch_norm(F.conv2d(h, s[b + "conv1.weight"]), s, b + "bn1"))
        f = F.relu(batch_norm(F.conv2d(f, s[b + "conv2.weight"], stride=stride, padding=1), s, b + "bn2"))
        f = batch_norm(F.conv2d(f, s[b + "conv3.weight"]), s, b + "bn3")
        if b + "downsample.0.weight" in s:
            h = batch_norm(F.conv2d(h, s[b + "downsample.0.weight"], stride=stride), s, b + "downsample.1")
        h = F.relu(f + h)
    y = F.linear(F.adaptive_avg_pool2d(h, 1).flatten(1), s["fc.weight"], s["fc.bias"])
    torch.testing.assert_close(model(x), y)


@pytest.mark.parametrize("lite", [True, False])
def test_efficientnet_matches_its_functional_form(lite):
    stages = (Stage(1, 3, 1, 1, 6), Stage(2, 5, 2, 3, 8))
    model = randomize_norms(EfficientNet(lite=lite, stages=stages, stem=8, head=12, num_classes=5, channels=2))
    s, x0 = model.state_dict(), torch.rand(2, 2, 20, 26, dtype=torch.float64)
    f = F.relu6 if lite else F.silu

    def norm(h, n):
        return F.batch_norm(
            h, s[n + ".running_mean"], s[n + ".running_var"], s[n + ".weight"], s[n + ".bias"], eps=1e-3
        )

    # even sides at stride 2: TensorFlow pads (k - 2) in all, the smaller half before; 20 x 26 -> 10 x 13, where 13 is
    # odd
    h = f(norm(F.conv2d(F.pad(x0, (0, 1, 0, 1)), s["_conv_stem.weight"], stride=2), "_bn0"))
    for b, kernel, stride, margins in ((0, 3, 1, (1, 1, 1, 1)), (1, 5, 2, (2, 2, 1, 2)), (2, 5, 1, (2, 2, 2, 2))):
        n, x = f"_blocks.{b}.", h
        if b:
            h = f(norm(F.conv2d(h, s[n + "_expand_conv.weight"]), n + "_bn0"))
        h = f(
            norm(
                F.conv2d(F.pad(h, margins), s[n + "_depthwise_conv.weight"], stride=stride, groups=h.shape[1]),
                n + "_bn1",
            )
        )
        assert s[n + "_depthwise_conv.weight"].shape[-1] == kernel
        if not lite:
            z = F.silu(F.conv2d(F.adaptive_avg_pool2d(h, 1), s[n + "_se_reduce.weight"], s[n + "_se_reduce.bias"]))
            h = h * F.conv2d(z, s[n + "_se_expand.weight"], s[n + "_se_expand.bias"]).sigmoid()
        h = norm(F.conv2d(h, s[n + "_project_conv.weight"]), n + "_bn2")
        h = h + x if b == 2 else h
    h = f(norm(F.conv2d(h, s["_conv_head.weight"]), "_bn1")).mean((2, 3))
    torch.testing.assert_close(model(x0), F.linear(h, s["_fc.weight"], s["_fc.bias"]))


def test_convnext_matches_its_functional_form():
    model = randomize_norms(ConvNeXt(depths=(1, 1), widths=(6, 8), patch=2, num_classes=5, channels=2))
    for m in model.modules():
        if hasattr(m, "layer_scale"):
            nn.init.normal_(m.layer_scale)
    s, x = model.state_dict(), torch.rand(2, 2, 13, 18, dtype=torch.float64)

    def norm(h, n):  # over channels, from the definition
        mean, var = h.mean(1, keepdim=True), h.var(1, keepdim=True, correction=0)
        return (h - mean) / (var + 1e-6).sqrt() * s[n + ".weight"][:, None, None] + s[n + ".bias"][:, None, None]

    def block(h, n):
        f = norm(
            F.conv2d(h, s[n + "block.0.weight"], s[n + "block.0.bias"], padding=3, groups=h.shape[1]), n + "block.2"
        )
        f = F.gelu(F.conv2d(f, s[n + "block.3.weight"][:, :, None, None], s[n + "block.3.bias"]))
        return h + s[n + "layer_scale"] * F.conv2d(f, s[n + "block.5.weight"][:, :, None, None], s[n + "block.5.bias"])

    h = norm(F.conv2d(x, s["features.0.0.weight"], s["features.0.0.bias"], stride=2), "features.0.1")
    h = block(h, "features.1.0.")
    h = F.conv2d(norm(h, "features.2.0"), s["features.2.1.weight"], s["features.2.1.bias"], stride=2)
    h = block(h, "features.3.0.").mean((2, 3), keepdim=True)
    y = F.linear(norm(h, "classifier.0").flatten(1), s["classifier.2.weight"], s["classifier.2.bias"])
    torch.testing.assert_close(model(x), y)


def test_stochastic_depth_grows_with_depth():
    rates = [
        b.drop_path.p
        for name in ("layer1", "layer2")
        for b in getattr(ResNet(depths=(2, 2), width=2, drop_path=0.4), name)
    ]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4])
    with torch.device("meta"):
        blocks = [m for m in create_model("convnext_tiny").modules() if hasattr(m, "layer_scale")]
        lite_blocks = create_model("efficientnet_lite0")._blocks
    assert [b.drop_path.p for b in blocks] == pytest.approx([0.1 * l / 17 for l in range(18)])
    assert [b.drop_path.p for b in lite_blocks] == pytest.approx([0.2 * l / 16 for l in range(16)])


def test_resnet_zero_init_starts_blocks_as_the_identity():
    torch.manual_seed(0)
    deep, x = ResNet(depths=(4,), width=4, num_classes=3, zero_init=True, size=(9, 9)), torch.rand(2, 3, 9, 9)
    h = torch.relu(deep.bn1(deep.conv1(x)))
    torch.testing.assert_close(deep.layer1(h), h)


FAMILIES = (CNN, VGG, AlexNet, CIFAR10Net, ConvNeXt, EfficientNet, LeNet5, LeNetLike, ResNet, ResNet9)
IMAGE_MODELS = sorted(name for name, preset in MODELS.items() if preset.model_class in FAMILIES)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_image_classifiers_standardize_first_and_keep_the_other_names(name):
    keywords, x = MODELS[name].model_class.example(2)
    mean, std = torch.rand(2, 1, 1), torch.rand(2, 1, 1) + 0.5
    torch.manual_seed(0)
    plain = create_model(name, **keywords).eval()
    torch.manual_seed(0)
    standardized = create_model(name, **keywords, mean=mean, std=std).eval()
    assert [*standardized.state_dict()] == ["standardize.scale", "standardize.shift", *plain.state_dict()]
    torch.testing.assert_close(standardized(x), plain((x - mean) / std))


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_image_classifiers_give_the_same_in_channels_last(name):
    keywords, x = MODELS[name].model_class.example(2)
    model = create_model(name, **keywords, mean=torch.rand(2, 1, 1), std=torch.ones(2, 1, 1)).eval()
    y = model(x)
    model = model.to(memory_format=torch.channels_last)
    is_channels_last = []
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            m.register_forward_pre_hook(
                lambda m, a: is_channels_last.append(a[0].is_contiguous(memory_format=torch.channels_last))
            )
    torch.testing.assert_close(model(x.contiguous(memory_format=torch.channels_last)), y, rtol=1e-4, atol=1e-5)
    assert all(is_channels_last), "a layout changes on the way, which costs a copy each time"


@pytest.mark.parametrize(("name", "keywords", "size", "min_size"), [
    ("alexnet", {}, (62, 90), 63),
    ("vgg11", {}, (31, 90), 32),
    ("cifar10net", {}, (7, 32), 8),
    ("cnn", {"num_blocks": 5}, (32, 28), 32),
    ("convnext_tiny", {}, (224, 7), 8),
    ("convnext_tiny", {"patch": 4}, (224, 31), 32),
    ("resnet9", {}, (7, 32), 8),
])
def test_image_classifiers_refuse_too_small_images(name, keywords, size, min_size):
    with (
        torch.device("meta"),
        pytest.raises(UsageError, match=rf"at least {min_size}×{min_size} pixels, got {size[0]}×{size[1]}"),
    ):
        create_model(name, **keywords, size=size)


@pytest.mark.parametrize(("cls", "min_size"), [(LeNet5, 12), (LeNetLike, 22)])
def test_lenets_accept_their_minimum_size(cls, min_size):
    assert cls(size=(min_size, min_size))(torch.rand(1, 1, min_size, min_size)).shape == (1, 10)
    with pytest.raises(UsageError, match=f"at least {min_size}×{min_size} pixels, got {min_size - 1}×40"):
        cls(size=(min_size - 1, 40))


@pytest.mark.parametrize(
    ("name", "min_size"), [("alexnet", 63), ("vgg11", 32), ("cifar10net", 8), ("convnext_tiny", 8), ("resnet9", 8)]
)
def test_image_classifiers_accept_their_minimum_size(name, min_size):
    with torch.device("meta"):
        assert create_model(name, num_classes=4, size=(min_size, min_size))(
            torch.zeros(2, 3, min_size, min_size)
        ).shape == (2, 4)
        assert create_model(name, num_classes=4).eval()(torch.zeros(1, 3, 224, 160)).shape == (1, 4)


def test_small_resnet_learns_the_orientation_of_bars():
    """Horizontal or vertical bars anywhere in noise: no pixel alone gives the class."""
    torch.manual_seed(0)
    y = torch.arange(128) % 2
    x = 0.3 * torch.randn(128, 1, 12, 12)
    for image, label in zip(x, y, strict=True):
        position = int(torch.randint(12, ()))
        image[0].T[position] += 1 if label else 0
        image[0][position] += 0 if label else 1
    model = ResNet(depths=(1, 1), width=8, num_classes=2, channels=1, size=(12, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for i in range(60):
        rows = torch.arange(32) + 32 * (i % 3)                         # the last 32 are for the test
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    assert (model.eval()(x[96:]).argmax(1) == y[96:]).float().mean() > 0.9
