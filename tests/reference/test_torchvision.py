"""The same outputs as torchvision's networks with the same weights and names, where torchvision is installed."""

import pytest
import torch
from torch import nn

from didact.models.pretrained.weights import load_weights
from didact.registry import create_model

torchvision = pytest.importorskip("torchvision")
MODEL_NAMES = [
    "alexnet", "vgg11", "vgg16", "vgg16_bn", "vgg19_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "convnext_tiny", "vit_b_16",
]


def make_model_pair(name):
    """torchvision's network with random numbers everywhere, and ours with the same; in float64, so that only mistakes
    differ.
    """
    torch.manual_seed(0)
    reference, didact_model = torchvision.models.get_model(name, weights=None), create_model(name, num_classes=1000)
    for m in reference.modules():
        if isinstance(m, nn.BatchNorm2d):  # the statistics of a new network would hide that one of them is not loaded
            nn.init.normal_(m.running_mean, 0, 0.1), nn.init.uniform_(m.running_var, 0.5, 2)
        if isinstance(m, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.normal_(m.bias, 0, 0.1)
        if hasattr(m, "layer_scale"):
            nn.init.normal_(m.layer_scale, 0, 0.1)
        if isinstance(m, nn.Linear):  # the head of a fresh ViT is zero
            nn.init.normal_(m.weight, 0, 0.02), nn.init.normal_(m.bias, 0, 0.02)
    return reference.double().eval(), didact_model.double().eval()


def state_shapes(model):
    return sorted((name, tuple(value.shape)) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", MODEL_NAMES)
@torch.no_grad()
def test_torchvision_models_with_the_same_weights_agree(name):
    reference, didact_model = make_model_pair(name)
    assert state_shapes(reference) == state_shapes(didact_model)
    didact_model.load_state_dict(reference.state_dict())
    x = torch.rand(2, 3, *((224, 224) if name.startswith("vit") else (96, 128)), dtype=torch.float64)
    y = reference(x)
    assert y.std() > 1e-4, "a constant output would agree with anything"
    torch.testing.assert_close(didact_model(x), y, rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_efficientnet_b0_matches_torchvision_under_other_names():
    """Ours pads as TensorFlow does, which is torchvision's way where every map before a stride has odd sides, and its
    norms have TensorFlow's ε; the parts come in the same order.
    """
    reference, didact_model = make_model_pair("efficientnet_b0")
    for m in didact_model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.eps = 1e-5
    assert [tuple(v.shape) for v in reference.state_dict().values()] == [
        tuple(v.shape) for v in didact_model.state_dict().values()
    ]
    didact_model.load_state_dict(dict(zip(didact_model.state_dict(), reference.state_dict().values(), strict=True)))
    x = torch.rand(2, 3, 65, 97, dtype=torch.float64)                  # 65 33 17 9 5, 97 49 25 13 7
    torch.testing.assert_close(didact_model(x), reference(x), rtol=1e-6, atol=1e-8)


def test_load_weights_loads_every_tensor_of_a_torchvision_file(tmp_path):
    reference, didact_model = torchvision.models.resnet18(weights=None), create_model("resnet18")
    torch.save(reference.state_dict(), tmp_path / "resnet18.pth")
    report = load_weights(didact_model, tmp_path / "resnet18.pth")
    assert len(report.matched) == 122 and not report.missing and not report.unused and not report.reshaped


def test_resnet18_gradients_match_torchvision():
    reference, didact_model = make_model_pair("resnet18")
    didact_model.load_state_dict(reference.state_dict())
    x = torch.rand(4, 3, 64, 96, dtype=torch.float64)
    for model in (reference.train(), didact_model.train()):
        model(x).square().mean().backward()
    grads = {name: p.grad for name, p in didact_model.named_parameters()}
    torch.testing.assert_close(grads, {name: p.grad for name, p in reference.named_parameters()}, rtol=1e-6, atol=1e-10)


def test_deformable_conv2d_matches_torchvision():
    from didact.layers.conv.convolution import deformable_conv2d

    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 9, 11), torch.randn(4, 3, 3, 3), torch.randn(4)
    offset = 2 * torch.randn(2, 18, 5, 6)
    expected = torchvision.ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=1)
    torch.testing.assert_close(
        deformable_conv2d(x, offset, weight, bias, stride=2, padding=1), expected, rtol=1e-4, atol=1e-4
    )
