import pytest
import torch
import torchmetrics.functional.image as tm
from torch.testing import assert_close

from didact import metrics


def make_image_pair(shape, noise):
    torch.manual_seed(0)
    x = torch.rand(shape)
    return (x + noise * torch.randn(shape)).clamp(0, 1), x


@pytest.mark.parametrize("shape", [(4, 3, 16, 23), (2, 1, 31, 12)])
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_psnr_and_ssim_equal_torchmetrics(shape, noise):
    y, x = make_image_pair(shape, noise)
    expected_psnr = tm.peak_signal_noise_ratio(y, x, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert_close(metrics.psnr(y, x).float(), expected_psnr, atol=1e-4, rtol=0)
    _, ssim_map = tm.structural_similarity_index_measure(y, x, data_range=1.0, sigma=1.5, return_full_image=True)
    # torchmetrics counts windows over mirrored borders, too; Wang's does not
    inner_ssim = ssim_map[:, :, 5:-5, 5:-5]
    assert_close(metrics.ssim(y, x).float(), inner_ssim.mean((1, 2, 3)), atol=1e-5, rtol=0)


def test_psnr_and_ssim_at_their_limits():
    _, x = make_image_pair((2, 3, 20, 20), 0)
    assert metrics.psnr(x, x).tolist() == [100.0] * 2
    assert_close(metrics.ssim(x, x), torch.ones(2, dtype=torch.float64))
    # 10 log10(1 / 0.01)
    assert_close(metrics.psnr(x, x + 0.1), torch.full((2,), 20.0, dtype=torch.float64), atol=1e-4, rtol=0)
    # the negative is unlike
    assert (metrics.ssim(1 - x, x) < 0).all()


def test_ssim_of_flat_images_has_its_closed_form():
    """Flat images of gray a and b: no variance, so SSIM = (2ab + c1) / (a² + b² + c1)."""
    a, b, c1 = 0.3, 0.7, 1e-4
    x, y = torch.full((1, 1, 13, 17), a, dtype=torch.float64), torch.full((1, 1, 13, 17), b, dtype=torch.float64)
    assert float(metrics.ssim(x, y)) == pytest.approx((2 * a * b + c1) / (a * a + b * b + c1), rel=1e-9)


def test_ssim_of_images_smaller_than_the_window():
    y, x = make_image_pair((3, 1, 8, 8), 0.1)
    assert ((metrics.ssim(y, x) > 0.5) & (metrics.ssim(y, x) < 1)).all()
