"""The same names, the same weights, the same answers as torchvision's own networks, where torchvision is installed."""

import pytest
import torch

from didact.registry import create

torchvision = pytest.importorskip("torchvision")
NAMES = ["alexnet", "vgg11", "vgg16_bn", "resnet18", "resnet34", "resnet50", "resnet101", "convnext_tiny"]


@pytest.mark.parametrize("name", NAMES)
def test_same_weights_same_answers(name):
    torch.manual_seed(0)
    theirs, ours = torchvision.models.get_model(name, weights=None).eval(), create(name).eval()
    for m in theirs.modules():
        if isinstance(m, torch.nn.BatchNorm2d):  # statistics of a fresh network would hide that one is not read
            torch.nn.init.normal_(m.running_mean, 0, 0.1), torch.nn.init.uniform_(m.running_var, 0.5, 2)
        if hasattr(m, "layer_scale"):
            torch.nn.init.normal_(m.layer_scale, 0, 0.1)
    assert [(k, v.shape) for k, v in sorted(theirs.state_dict().items())] == [(k, v.shape) for k, v in sorted(ours.state_dict().items())]
    ours.load_state_dict(theirs.state_dict())
    x = torch.rand(2, 3, 96, 128)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_deformable_convolution():
    from didact.layers.convolution import deformable_conv2d

    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 9, 11), torch.randn(4, 3, 3, 3), torch.randn(4)
    offset = 2 * torch.randn(2, 18, 5, 6)
    theirs = torchvision.ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=1)
    torch.testing.assert_close(deformable_conv2d(x, offset, weight, bias, stride=2, padding=1), theirs, rtol=1e-4, atol=1e-4)
