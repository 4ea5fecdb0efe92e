import pytest
import torch

from didact.layers.coder import conv_body, conv_decoder
from didact.layers.resample import double, halve, halvings


@pytest.mark.parametrize("size", [(28, 28), (7, 12), (5, 5), (1, 3), (64, 33)])
def test_halved_and_doubled_it_has_its_size_again(size):
    down = halve(1, 2, size)(torch.rand(1, 1, *size))
    assert tuple(down.shape[2:]) == halvings(size, 1)[1]
    assert tuple(double(2, 1, size)(down).shape[2:]) == size


def test_gabas_sizes():
    assert [h for h, _ in halvings((28, 28), 3)] == [28, 14, 7, 4]


def test_body_and_decoder_mirror_each_other():
    body, n = conv_body((2, 9, 14), (4, 6, 8))
    assert body(torch.rand(3, 2, 9, 14)).shape == (3, n) == (3, 8 * 2 * 2)
    assert conv_decoder(5, (4, 6, 8), (2, 9, 14))(torch.rand(3, 5)).shape == (3, 2, 9, 14)
