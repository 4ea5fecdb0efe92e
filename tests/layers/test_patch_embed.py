import pytest
import torch

from didact.errors import UsageError
from didact.layers.patch_embed import PatchEmbed, count_patches


def test_patch_embed_is_an_affine_map_of_each_patch():
    torch.manual_seed(0)
    layer, x = PatchEmbed(3, 11, patch_size=4), torch.randn(2, 3, 8, 12)
    y = layer(x)
    assert y.shape == (2, 6, 11)
    w = layer.weight.reshape(11, -1)
    for s, (row, column) in enumerate((r, c) for r in range(2) for c in range(3)):   # row by row
        patch = x[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].reshape(2, -1)
        torch.testing.assert_close(y[:, s], patch @ w.T + layer.bias, rtol=1e-4, atol=1e-5)


def test_count_patches_of_an_image():
    assert count_patches((224, 224), 16) == 196 and count_patches((32, 48), 8) == 24
    assert count_patches((32, 32), 8) == 16                         # Gaba exercise 7.4: 16 tokens and the class token
    with pytest.raises(UsageError, match="images of 32×30 pixels cannot be cut into patches of 4"):
        count_patches((32, 30), 4)
