import pytest
import torch

from didact.layers.autoencoder_blocks import conv_decoder, conv_encoder
from didact.layers.conv.down_up import doubling_conv, downsampled_sizes, halving_conv


@pytest.mark.parametrize("size", [(28, 28), (7, 12), (5, 5), (1, 3), (64, 33)])
def test_doubling_conv_restores_the_size_before_halving_conv(size):
    halved = halving_conv(1, 2, size)(torch.rand(1, 1, *size))
    assert tuple(halved.shape[2:]) == downsampled_sizes(size, 1)[1]
    assert tuple(doubling_conv(2, 1, size)(halved).shape[2:]) == size


def test_downsampled_sizes_match_gaba():
    assert [h for h, _ in downsampled_sizes((28, 28), 3)] == [28, 14, 7, 4]


def test_conv_encoder_and_decoder_mirror_each_other():
    encoder, n = conv_encoder((2, 9, 14), (4, 6, 8))
    assert encoder(torch.rand(3, 2, 9, 14)).shape == (3, n) == (3, 8 * 2 * 2)
    assert conv_decoder(5, (4, 6, 8), (2, 9, 14))(torch.rand(3, 5)).shape == (3, 2, 9, 14)
