import numpy as np
import torch

from didact.layers.conv.squeeze_excite import SqueezeExcite


def test_squeeze_excite_matches_numpy():
    layer, x = SqueezeExcite(6, reduction=2), torch.randn(3, 6, 4, 5)
    z = x.numpy().mean(axis=(2, 3))
    (w1, b1), (w2, b2) = ((w.weight.detach().flatten(1).numpy(), w.bias.detach().numpy()) for w in (layer.w1, layer.w2))
    s = 1 / (1 + np.exp(-(np.maximum(z @ w1.T + b1, 0) @ w2.T + b2)))
    np.testing.assert_allclose(layer(x).detach().numpy(), s[:, :, None, None] * x.numpy(), rtol=1e-5, atol=1e-6)


def test_squeeze_excite_of_a_narrow_layer_keeps_one_unit():
    assert SqueezeExcite(3, reduction=16).w1.out_channels == 1
