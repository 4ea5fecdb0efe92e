"""Saliency, gradient × input, Grad-CAM and occlusion against captum, with the same weights."""

import pytest
import torch
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.explain import grad_cam, gradient_times_input, occlusion, saliency
from didact.explain.feature_maps import find_last_map_layer
from didact.registry import MODELS

attr = pytest.importorskip("captum.attr", reason="captum is not installed")
FAMILIES = [
    "cnn",
    "lenet5",
    "cifar_resnet8",
    "resnet18",
    "vgg11_bn",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_tiny",
    "mixer_tiny",
]
ignore_warnings = pytest.mark.filterwarnings("ignore")   # captum sets requires_grad on inputs, and says so


def make_model(name):
    torch.manual_seed(0)
    keywords, x = MODELS[name].model_class.example(batch_size=3)
    model = MODELS[name](**keywords).eval()
    for m in model.modules():   # captum's own hooks would see activations that were overwritten
        if isinstance(m, nn.ReLU):
            m.inplace = False
    return model, x, torch.tensor([0, 2, 1])


@ignore_warnings
@pytest.mark.parametrize("name", FAMILIES)
def test_saliency_matches_captum(name):
    model, x, y = make_model(name)
    expected = attr.Saliency(model).attribute(x.clone(), target=y, abs=True).amax(1)
    torch.testing.assert_close(saliency(model, x, y), expected, atol=1e-5, rtol=1e-5)


@ignore_warnings
def test_gradient_times_input_matches_captum():
    model, x, y = make_model("cnn")
    expected = attr.InputXGradient(model).attribute(x.clone(), target=y)
    torch.testing.assert_close(gradient_times_input(model, x, y), expected.detach(), atol=1e-5, rtol=1e-5)


@ignore_warnings
# captum has no tokens
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("vit_tiny", "mixer_tiny")])
def test_grad_cam_matches_captum(name):
    model, x, y = make_model(name)
    layer = find_last_map_layer(model, model, x)
    expected = torch.relu(attr.LayerGradCam(model, layer).attribute(x.clone(), target=y))
    size = tuple(x.shape[2:])
    expected = attr.LayerAttribution.interpolate(expected, size, "bilinear")[:, 0].detach()
    assert expected.any()
    torch.testing.assert_close(grad_cam(model, x, y), expected, atol=1e-5, rtol=1e-5)


@ignore_warnings
@pytest.mark.parametrize(("patch", "stride"), [(3, 2), (1, 1), (5, 4), (5, 2)])
def test_occlusion_matches_captum(patch, stride):
    model, x, y = make_model("cnn")                                     # 9 × 13 pixels: these squares end at the edges
    window, step = (2, patch, patch), (1, stride, stride)
    expected = attr.Occlusion(model).attribute(x, sliding_window_shapes=window, strides=step, target=y, baselines=0.5)
    actual = occlusion(model, x, y, patch=patch, stride=stride, baseline=0.5)
    torch.testing.assert_close(actual, expected[:, 0].detach(), atol=1e-5, rtol=1e-5)
