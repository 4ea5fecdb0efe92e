"""The same names, the same weights, the same answers as torchvision's own networks, where torchvision is installed."""

import pytest
import torch
from torch import nn

from didact.models.weights import load_weights
from didact.registry import create

torchvision = pytest.importorskip("torchvision")
NAMES = [
    "alexnet", "vgg11", "vgg16", "vgg16_bn", "vgg19_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "convnext_tiny", "vit_b_16",
]


def pair(name):
    """Theirs, with every number in it drawn, and ours of the same kind; in double precision, so that only mistakes differ."""
    torch.manual_seed(0)
    theirs, ours = torchvision.models.get_model(name, weights=None), create(name, classes=1000)
    for m in theirs.modules():
        if isinstance(m, nn.BatchNorm2d):  # statistics of a fresh network would hide that one is not read
            nn.init.normal_(m.running_mean, 0, 0.1), nn.init.uniform_(m.running_var, 0.5, 2)
        if isinstance(m, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.normal_(m.bias, 0, 0.1)
        if hasattr(m, "layer_scale"):
            nn.init.normal_(m.layer_scale, 0, 0.1)
        if isinstance(m, nn.Linear):  # the head of a fresh ViT is zero
            nn.init.normal_(m.weight, 0, 0.02), nn.init.normal_(m.bias, 0, 0.02)
    return theirs.double().eval(), ours.double().eval()


def shapes(model):
    return sorted((name, tuple(value.shape)) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_same_weights_same_answers(name):
    theirs, ours = pair(name)
    assert shapes(theirs) == shapes(ours)
    ours.load_state_dict(theirs.state_dict())
    x = torch.rand(2, 3, *((224, 224) if name.startswith("vit") else (96, 128)), dtype=torch.float64)
    y = theirs(x)
    assert y.std() > 1e-4, "an answer that says nothing would agree with anything"
    torch.testing.assert_close(ours(x), y, rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_efficientnet_b0_under_other_names():
    """Ours pads as TensorFlow does, which is torchvision's way where every map before a stride has odd sides, and its norms have
    TensorFlow's ε; parts come in the same order."""
    theirs, ours = pair("efficientnet_b0")
    for m in ours.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.eps = 1e-5
    assert [tuple(v.shape) for v in theirs.state_dict().values()] == [tuple(v.shape) for v in ours.state_dict().values()]
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    x = torch.rand(2, 3, 65, 97, dtype=torch.float64)                  # 65 33 17 9 5, 97 49 25 13 7
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-6, atol=1e-8)


def test_a_file_of_theirs_loads_whole(tmp_path):
    theirs, ours = torchvision.models.resnet18(weights=None), create("resnet18")
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    report = load_weights(ours, tmp_path / "resnet18.pth")
    assert len(report.matched) == 122 and not report.missing and not report.unused and not report.reshaped


def test_gradients_agree_too():
    theirs, ours = pair("resnet18")
    ours.load_state_dict(theirs.state_dict())
    x = torch.rand(4, 3, 64, 96, dtype=torch.float64)
    for model in (theirs.train(), ours.train()):
        model(x).square().mean().backward()
    grads = {name: p.grad for name, p in ours.named_parameters()}
    torch.testing.assert_close(grads, {name: p.grad for name, p in theirs.named_parameters()}, rtol=1e-6, atol=1e-10)


def test_deformable_convolution():
    from didact.layers.convolution import deformable_conv2d

    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 9, 11), torch.randn(4, 3, 3, 3), torch.randn(4)
    offset = 2 * torch.randn(2, 18, 5, 6)
    theirs = torchvision.ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=1)
    torch.testing.assert_close(deformable_conv2d(x, offset, weight, bias, stride=2, padding=1), theirs, rtol=1e-4, atol=1e-4)
