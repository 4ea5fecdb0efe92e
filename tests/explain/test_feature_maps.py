"""Grad-CAM, feature maps and filters: in-place activations, tokens, names, and layers that have no maps."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import didact.recipes  # noqa: F401 (registers the families)
from didact.errors import UsageError
from didact.explain import feature_maps, filters, grad_cam
from didact.explain.feature_maps import find_last_map_layer, to_maps
from didact.registry import MODELS, RECIPES

FAMILIES = RECIPES["cnn"].options["model"].choices   # the networks that classify images


def make_small_cnn(inplace=False):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    ).eval()


def test_grad_cam_before_a_mean_is_the_class_activation_map():
    """With global average pooling and a linear head, α_k = w_ck / hw and Grad-CAM is CAM.

    Selvaraju et al. 2017, sec. 3.1.
    """
    model, x = make_small_cnn(), torch.rand(3, 2, 8, 12)
    a = model[:6](x).detach()
    cam = torch.relu(torch.einsum("k,bkhw->bhw", model[-1].weight[1].detach() / 24, a))      # 4 × 6 places
    expected = F.interpolate(cam[:, None], (8, 12), mode="bilinear")
    torch.testing.assert_close(grad_cam(model, x, 1), expected[:, 0])


@pytest.mark.parametrize("layer", ["0", "1", "2", "4", "5"])
def test_grad_cam_accepts_in_place_activations(layer):
    """The course's hook fails after them (mistake M56)."""
    x = torch.rand(2, 2, 8, 12)
    torch.testing.assert_close(
        grad_cam(make_small_cnn(True), x, 2, layer=layer), grad_cam(make_small_cnn(False), x, 2, layer=layer)
    )


def test_grad_cam_maps_each_image_by_itself():
    model, x = make_small_cnn(), torch.rand(3, 2, 8, 12)
    batch_maps = grad_cam(model, x, torch.tensor([0, 1, 2]))
    single_maps = torch.cat([grad_cam(model, x[k : k + 1], k) for k in range(3)])
    torch.testing.assert_close(batch_maps, single_maps)


def test_grad_cam_explains_frozen_networks():
    model = make_small_cnn().requires_grad_(False)
    assert grad_cam(model, torch.rand(1, 2, 8, 8), 0).shape == (1, 8, 8)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_image_classifier_has_feature_maps(name):
    torch.manual_seed(1)
    keywords, x = MODELS[name].model_class.example()
    model = MODELS[name](**keywords).eval()
    layer = find_last_map_layer(model, model, x)
    maps = feature_maps(model, x, layer)
    assert maps.shape[2] * maps.shape[3] > 1
    # a single class may find no evidence
    heat = grad_cam(model, x, 0) + grad_cam(model, x, 1) + grad_cam(model, x, 2)
    assert heat.shape == (len(x), *x.shape[2:]) and heat.isfinite().all() and heat.any()


def test_last_map_layer_of_a_vit_is_before_its_last_attention():
    """After it only the class token is read: the gradient of the patches is zero."""
    keywords, x = MODELS["vit_tiny"].model_class.example()
    model = MODELS["vit_tiny"](**keywords).eval()
    assert find_last_map_layer(model, model, x) is model.encoder.layers[-1].ln_1
    assert not grad_cam(model, x, 1, layer="encoder.layers.encoder_layer_1").any()


def test_to_maps_places_tokens_row_by_row():
    maps = torch.arange(2 * 5 * 3 * 4.0).view(2, 5, 3, 4)
    tokens = maps.flatten(2).mT
    torch.testing.assert_close(to_maps(tokens, (6, 8)), maps)
    torch.testing.assert_close(to_maps(torch.cat([tokens[:, :1], tokens], dim=1), (6, 8)), maps)
    assert to_maps(tokens, (7, 8)) is None and to_maps(maps[:, :, :1, :1], (6, 8)) is None


def test_grad_cam_leaves_no_hooks_and_no_gradients():
    model, x = make_small_cnn(), torch.rand(1, 2, 8, 8)
    before = copy.deepcopy(model.state_dict())
    grad_cam(model, x, 0)
    assert all(not m._forward_hooks for m in model.modules()) and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_feature_maps_are_the_output_of_the_layer():
    model, x = make_small_cnn(True), torch.rand(2, 2, 8, 8)
    torch.testing.assert_close(
        feature_maps(model, x, model[0]), F.conv2d(x, model[0].weight, model[0].bias, padding=1).detach()
    )


def test_filters_of_a_convolution_and_of_an_mlp():
    model = make_small_cnn()
    assert torch.equal(filters(model), model[0].weight)
    units = nn.Sequential(nn.Flatten(), nn.Linear(2 * 3 * 4, 5))
    assert torch.equal(filters(units, (2, 3, 4)).flatten(1), units[1].weight)
    with pytest.raises(UsageError, match="first layer has no filters"):
        filters(nn.Linear(7, 2), (2, 3, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: grad_cam(m, x, 0, layer="44"), "no layer named '44'; did you mean '4'"),
        (lambda m, x: grad_cam(m, x, 0, layer="8"), "Linear outputs 3 numbers, which are not maps"),
        (lambda m, x: grad_cam(m, x, 0, layer="6"), "AdaptiveAvgPool2d outputs 6 × 1 × 1 numbers"),
        (lambda m, x: grad_cam(m, x, 0, layer=nn.Conv2d(1, 1, 1)), "Conv2d is not used"),
        (lambda m, x: grad_cam(lambda x: m(x), x, 0), "needs the layer itself"),
        (
            lambda m, x: grad_cam(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), x, 0),
            "no convolutional layer and no patches",
        ),
        (lambda m, x: grad_cam(m, x[0, 0], 0), r"got inputs of \(8, 8\)"),
    ],
)
def test_grad_cam_refuses_layers_without_maps(call, message):
    with pytest.raises(UsageError, match=message):
        call(make_small_cnn(), torch.rand(1, 2, 8, 8))
