import torch
from sklearn.neighbors import NearestNeighbors

from didact.layers.vector_quantizer import VectorQuantizer, straight_through


def test_vector_quantizer_nearest_code_matches_scikit_learn():
    torch.manual_seed(0)
    layer, z = VectorQuantizer(11, 3), torch.randn(2, 3, 4, 5)
    torch.nn.init.normal_(layer.codebook)
    e, k = layer(z)
    flat = z.movedim(1, -1).reshape(-1, 3)
    expected = NearestNeighbors(n_neighbors=1).fit(layer.codebook.detach().numpy()).kneighbors(flat.numpy())[1][:, 0]
    assert torch.equal(k.flatten(), torch.from_numpy(expected))
    assert torch.equal(e[1, :, 2, 3], layer.codebook[k[1, 2, 3]])


def test_straight_through_passes_the_gradient():
    torch.manual_seed(0)
    z, e = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    y = straight_through(z, e)
    torch.testing.assert_close(y, e)
    (3 * y.square()).sum().backward()
    torch.testing.assert_close(z.grad, 6 * e)       # as if y were z, taken at e
    assert e.grad is None


def test_vector_quantizer_picks_the_same_codes_under_autocast():
    """Products in bf16 would confuse some of these near codes; the reference is computed in float64."""
    torch.manual_seed(0)
    layer, z = VectorQuantizer(64, 16), torch.randn(8, 16, 7, 9)
    torch.nn.init.normal_(layer.codebook)
    flat, e = z.movedim(1, -1).reshape(-1, 1, 16).double(), layer.codebook.detach().double()
    expected = (flat - e).square().sum(-1).argmin(1)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.nearest(z).flatten(), expected)
