"""Grad-CAM, feature maps and filters: in-place activations, tokens, names, and layers that have no maps."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import didact.recipes  # noqa: F401 (registers the families)
from didact.errors import UsageError
from didact.explain import feature_maps, filters, grad_cam
from didact.explain.inside import as_maps, last_maps
from didact.registry import MODELS, RECIPES

FAMILIES = RECIPES["cnn"].options["model"].choices   # the networks that classify images


def small(inplace=False):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    ).eval()


def test_grad_cam_is_the_class_activation_map_before_a_mean():
    """With a mean and an affine head behind the maps, α_k = w_ck / hw: Grad-CAM is CAM (Selvaraju et al. 2017, sec. 3.1)."""
    model, x = small(), torch.rand(3, 2, 8, 12)
    a = model[:6](x).detach()
    cam = torch.relu(torch.einsum("k,bkhw->bhw", model[-1].weight[1].detach() / 24, a))      # 4 × 6 places
    expected = F.interpolate(cam[:, None], (8, 12), mode="bilinear")
    torch.testing.assert_close(grad_cam(model, x, 1), expected[:, 0])


@pytest.mark.parametrize("layer", ["0", "1", "2", "4", "5"])
def test_activations_in_place_change_nothing(layer):
    """The course's hook fails behind them (mistake M56)."""
    x = torch.rand(2, 2, 8, 12)
    torch.testing.assert_close(grad_cam(small(True), x, 2, layer=layer), grad_cam(small(False), x, 2, layer=layer))


def test_every_image_gets_its_own_map():
    model, x = small(), torch.rand(3, 2, 8, 12)
    together = grad_cam(model, x, torch.tensor([0, 1, 2]))
    alone = torch.cat([grad_cam(model, x[k : k + 1], k) for k in range(3)])
    torch.testing.assert_close(together, alone)


def test_frozen_networks_are_explained_too():
    model = small().requires_grad_(False)
    assert grad_cam(model, torch.rand(1, 2, 8, 8), 0).shape == (1, 8, 8)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_images_has_maps(name):
    keywords, x = MODELS[name].make.example()
    torch.manual_seed(0)
    model = MODELS[name](**keywords).eval()
    layer = last_maps(model, model, x)
    maps = feature_maps(model, x, layer)
    assert maps.shape[2] * maps.shape[3] > 1
    heat = grad_cam(model, x, 0) + grad_cam(model, x, 1) + grad_cam(model, x, 2)   # one class alone may find nothing for it
    assert heat.shape == (len(x), *x.shape[2:]) and heat.isfinite().all() and heat.any()


def test_a_transformer_is_looked_at_before_its_last_attention():
    """Behind it only the class token is read: the slope at the patches is zero."""
    keywords, x = MODELS["vit_tiny"].make.example()
    model = MODELS["vit_tiny"](**keywords).eval()
    assert last_maps(model, model, x) is model.encoder.layers[-1].ln_1
    assert not grad_cam(model, x, 1, layer="encoder.layers.encoder_layer_1").any()


def test_tokens_lie_row_by_row():
    maps = torch.arange(2 * 5 * 3 * 4.0).view(2, 5, 3, 4)
    tokens = maps.flatten(2).mT
    torch.testing.assert_close(as_maps(tokens, (6, 8)), maps)
    torch.testing.assert_close(as_maps(torch.cat([tokens[:, :1], tokens], dim=1), (6, 8)), maps)
    assert as_maps(tokens, (7, 8)) is None and as_maps(maps[:, :, :1, :1], (6, 8)) is None


def test_looking_leaves_no_trace():
    model, x = small(), torch.rand(1, 2, 8, 8)
    before = copy.deepcopy(model.state_dict())
    grad_cam(model, x, 0)
    assert all(not m._forward_hooks for m in model.modules()) and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_feature_maps_are_what_the_layer_gives():
    model, x = small(True), torch.rand(2, 2, 8, 8)
    torch.testing.assert_close(feature_maps(model, x, model[0]), F.conv2d(x, model[0].weight, model[0].bias, padding=1).detach())


def test_filters_of_a_convolution_and_of_a_perceptron():
    model = small()
    assert torch.equal(filters(model), model[0].weight)
    units = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 4, 5))
    assert torch.equal(filters(units, (2, 3, 4)).flatten(1), units[1].weight)
    with pytest.raises(UsageError, match="no filters over the image"):
        filters(nn.Linear(7, 2), (2, 3, 4))


@pytest.mark.parametrize(("call", "says"), [
    (lambda m, x: grad_cam(m, x, 0, layer="44"), "no layer named '44'; did you mean '4'"),
    (lambda m, x: grad_cam(m, x, 0, layer="8"), "Linear gives 3 numbers, which are no maps"),
    (lambda m, x: grad_cam(m, x, 0, layer="6"), "AdaptiveAvgPool2d gives 6 × 1 × 1 numbers"),
    (lambda m, x: grad_cam(m, x, 0, layer=nn.Conv2d(1, 1, 1)), "Conv2d is not used"),
    (lambda m, x: grad_cam(lambda x: m(x), x, 0), "needs the layer itself"),
    (lambda m, x: grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), x, 0), "no convolutional layer and no patches"),
    (lambda m, x: grad_cam(m, x[0, 0], 0), r"got inputs of \(8, 8\)"),
])
def test_layers_without_maps_are_refused(call, says):
    with pytest.raises(UsageError, match=says):
        call(small(), torch.rand(1, 2, 8, 8))
