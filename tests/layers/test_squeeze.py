import numpy as np
import torch

from didact.layers.squeeze import SqueezeExcite


def test_squeeze_excite_against_numpy():
    layer, x = SqueezeExcite(6, reduction=2), torch.randn(3, 6, 4, 5)
    z = x.numpy().mean(axis=(2, 3))
    h = np.maximum(z @ layer.w1.weight.detach().numpy().T + layer.w1.bias.detach().numpy(), 0)
    s = 1 / (1 + np.exp(-(h @ layer.w2.weight.detach().numpy().T + layer.w2.bias.detach().numpy())))
    np.testing.assert_allclose(layer(x).detach().numpy(), s[:, :, None, None] * x.numpy(), rtol=1e-5, atol=1e-6)


def test_a_narrow_layer_keeps_one_unit():
    assert SqueezeExcite(3, reduction=16).w1.out_features == 1
