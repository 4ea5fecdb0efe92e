import itertools

import pytest
import torch

from didact.errors import UsageError
from didact.models import UNet
from didact.registry import create_model


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())


def expected_parameter_count(widths, channels, classes):
    """9ab + b for a convolution 3 x 3, 4ab + b for one that doubles, ab + b for the last."""
    conv = lambda a, b, k: k * a * b + b  # noqa: E731
    down = [(channels, widths[0]), *itertools.pairwise(widths)]
    up = list(zip(widths[1:], widths, strict=False))
    return (
        sum(conv(a, b, 9) + conv(b, b, 9) for a, b in down)
        + sum(conv(a, b, 4) + conv(2 * b, b, 9) + conv(b, b, 9) for a, b in up)
        + conv(widths[0], classes, 1)
    )


def test_unet_parameter_counts():
    with torch.device("meta"):
        original, color, tiny = create_model("unet_2015"), create_model("unet"), create_model("unet_tiny")
    sizes = (64, 128, 256, 512, 1024)
    # one gray channel, as in the paper
    assert count_parameters(original) == expected_parameter_count(sizes, 1, 2) == 31_030_658
    assert count_parameters(color) == expected_parameter_count(sizes, 3, 2) == 31_031_810
    assert count_parameters(tiny) == 25_393                                       # Lhotte 7.2


def test_unet_2015_maps_572_pixels_to_388():
    """Fig. 1 of the paper; the widths do not matter for the sizes."""
    model = create_model("unet_2015", widths=(1, 1, 1, 1, 1)).eval()
    with torch.no_grad():
        assert model(torch.rand(1, 1, 572, 572)).shape == (1, 2, 388, 388)


def test_padded_unet_keeps_the_size():
    assert create_model("unet_tiny")(torch.rand(2, 1, 10, 14)).shape == (2, 1, 10, 14)        # Lhotte 7.2: even sides
    assert create_model("unet_small", num_classes=5)(torch.rand(2, 3, 24, 40)).shape == (2, 5, 24, 40)


def test_unet_crops_skip_connections_at_the_center():
    """Without padding, the output depends on the input pixels around it alone: shifted inputs give shifted outputs."""
    torch.manual_seed(0)
    model, x = UNet(widths=(3, 4), channels=1, padded=False).eval(), torch.rand(1, 1, 40, 40)
    output, shifted_output = model(x[:, :, :36, :36]), model(x[:, :, 2:38, 4:40])
    torch.testing.assert_close(output[:, :, 2:, 4:], shifted_output[:, :, :-2, :-4])


def test_unet_skip_connections_carry_detail():
    torch.manual_seed(0)
    model, x = create_model("unet_tiny").eval(), torch.rand(1, 1, 12, 12, requires_grad=True)
    with torch.no_grad():
        model.up[0].grow.weight.zero_()                                    # nothing comes from the lower levels
    model(x)[0, 0, 6, 6].backward()
    has_gradient = x.grad[0, 0] != 0
    # only from near pixels: four convolutions of 3
    assert has_gradient[2:11, 2:11].any() and has_gradient.sum() <= 81


@pytest.mark.parametrize(("keywords", "side", "message"), [
    ({"widths": (2, 2, 2)}, 30, "halves 2 times needs sides that are multiples of 4, got 30"),
    ({"widths": (2, 2), "padded": False}, 13, "even before each halving, less 4 at each level, got 13"),
    ({"widths": (2, 2), "padded": False}, 12, "too many of 12"),
])
def test_unet_refuses_sizes_that_do_not_fit(keywords, side, message):
    with pytest.raises(UsageError, match=message):
        UNet(channels=1, **keywords)(torch.rand(1, 1, side, side))
    with pytest.raises(UsageError, match="at least two levels"):
        UNet(widths=(4,))


def test_denoising_autoencoder_starts_as_the_identity():
    torch.manual_seed(0)
    model, x = create_model("denoiser"), torch.rand(2, 3, 28, 20)
    torch.testing.assert_close(model(x), x, atol=0.05, rtol=0)
    with pytest.raises(UsageError, match="halves 2 times needs sides that are multiples of 4, got 30×28"):
        model(torch.rand(1, 3, 28, 30))
    w = (32, 64, 128)
    conv = lambda a, b, k=9: k * a * b + b  # noqa: E731
    assert count_parameters(model) == (
        conv(3, w[0]) + conv(w[0], w[1]) + conv(w[1], w[1]) + conv(w[1], w[2]) + conv(w[2], w[2])
        + conv(w[2], w[1], 4) + conv(w[1], w[1]) + conv(w[1], w[0], 4) + conv(w[0], w[0]) + conv(w[0], 3)
    )
