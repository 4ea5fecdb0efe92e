"""Saliency, gradient × input, Grad-CAM and occlusion beside captum's, with the same weights."""

import pytest
import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.explain import grad_cam, gradient_times_input, occlusion, saliency
from didact.explain.inside import last_maps
from didact.registry import MODELS

attr = pytest.importorskip("captum.attr", reason="captum is not installed")
FAMILIES = ["cnn", "lenet5", "cifar_resnet8", "resnet18", "vgg11_bn", "efficientnet_b0", "convnext_tiny", "vit_tiny", "mixer_tiny"]
quiet = pytest.mark.filterwarnings("ignore")   # captum sets requires_grad on inputs, and says so


def made(name):
    torch.manual_seed(0)
    keywords, x = MODELS[name].make.example(batch=3)
    model = MODELS[name](**keywords).eval()
    for m in model.modules():   # captum's own hooks would see activations that were overwritten
        if isinstance(m, nn.ReLU):
            m.inplace = False
    return model, x, torch.tensor([0, 2, 1])


@quiet
@pytest.mark.parametrize("name", FAMILIES)
def test_saliency(name):
    model, x, y = made(name)
    theirs = attr.Saliency(model).attribute(x.clone(), target=y, abs=True).amax(1)
    torch.testing.assert_close(saliency(model, x, y), theirs, atol=1e-5, rtol=1e-5)


@quiet
def test_gradient_times_input():
    model, x, y = made("cnn")
    theirs = attr.InputXGradient(model).attribute(x.clone(), target=y)
    torch.testing.assert_close(gradient_times_input(model, x, y), theirs.detach(), atol=1e-5, rtol=1e-5)


@quiet
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("vit_tiny", "mixer_tiny")])   # captum knows no tokens
def test_grad_cam(name):
    model, x, y = made(name)
    layer = last_maps(model, model, x)
    theirs = torch.relu(attr.LayerGradCam(model, layer).attribute(x.clone(), target=y))
    size = tuple(x.shape[2:])
    theirs = attr.LayerAttribution.interpolate(theirs, size, "bilinear")[:, 0].detach()
    assert theirs.any()
    torch.testing.assert_close(grad_cam(model, x, y), theirs, atol=1e-5, rtol=1e-5)


@quiet
@pytest.mark.parametrize(("patch", "stride"), [(3, 2), (1, 1), (5, 4), (5, 2)])
def test_occlusion(patch, stride):
    model, x, y = made("cnn")                                     # 9 × 13 pixels: these squares end at the edges
    window, step = (2, patch, patch), (1, stride, stride)
    theirs = attr.Occlusion(model).attribute(x, sliding_window_shapes=window, strides=step, target=y, baselines=0.5)
    ours = occlusion(model, x, y, patch=patch, stride=stride, baseline=0.5)
    torch.testing.assert_close(ours, theirs[:, 0].detach(), atol=1e-5, rtol=1e-5)
