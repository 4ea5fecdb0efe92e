import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import nn

from didact import metrics
from didact.models.denoiser import Denoiser
from didact.objectives.abilities import abilities
from didact.objectives.denoising import Blur, Denoise, Greyscale, Noise


def batch(n=70, side=12):
    torch.manual_seed(0)
    return {"x": torch.rand(n, 3, side, side), "row": torch.arange(n)}


def test_noise_has_its_deviation():
    x = torch.full((200, 3, 8, 8), 0.5)
    damaged = Noise(0.2)(x, torch.randn_like(x))
    assert damaged.std().item() == pytest.approx(0.2, rel=0.02) and damaged.min() < 0


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_blur_is_scipys(sigma):
    x = batch(2, side=20)["x"].double()
    reach = round(3 * sigma)
    expected = gaussian_filter(x.numpy(), sigma, axes=(2, 3), mode="mirror", radius=reach)
    torch.testing.assert_close(Blur(sigma)(x, x), torch.from_numpy(expected))
    assert Blur(9.0)(x, x).shape == x.shape                            # wider than the image


def test_greyscale_has_equal_channels():
    x = batch(2)["x"]
    grey = Greyscale()(x, x)
    assert grey.shape == x.shape and torch.equal(grey[:, 0], grey[:, 2])
    torch.testing.assert_close(Greyscale()(grey, grey), grey)


def test_judging_is_the_same_every_time_and_in_any_batches():
    model, b = Denoise(nn.Identity(), Noise(0.1), (3, 12, 12)), batch()
    rows, again = model.judge(b), model.judge(b)
    cut = [model.judge({k: v[i : i + 9] for k, v in b.items()}) for i in range(0, 70, 9)]
    for name in rows:
        assert torch.equal(rows[name], again[name])
        torch.testing.assert_close(torch.cat([c[name] for c in cut]), rows[name])
    assert not any("store" in name for name in model.state_dict())
    assert model.loss(b)["loss"] != model.loss(b)["loss"]               # while learning, noise is fresh


def test_doing_nothing_gains_nothing():
    model, b = Denoise(nn.Identity(), Noise(0.1), (3, 12, 12)), batch()
    scores = model.score(model.judge(b))
    assert scores["psnr_gain"] == 0 and scores["psnr"] == scores["psnr_damaged"]
    assert scores["psnr"] == pytest.approx(20, abs=0.6)                  # -10 log10(0.1²), a little more since noise is clipped
    assert scores["loss"] == pytest.approx(0.01, rel=0.05)


class Perfect(nn.Module):
    """Knows the answer."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def forward(self, damaged):
        return self.x + 1e-3


@pytest.mark.parametrize(("distance", "loss"), [("mse", 1e-6), ("l1", 1e-3)])
def test_distances(distance, loss):
    b = batch(4)
    model = Denoise(Perfect(b["x"]), Blur(1.5), (3, 12, 12), distance=distance)
    assert model.loss(b)["loss"].item() == pytest.approx(loss, rel=1e-2)
    scores = model.score(model.judge(b))
    assert scores["psnr"] > 59 and scores["ssim"] > 0.999 and scores["psnr_gain"] > 30
    assert scores["ssim_damaged"] == pytest.approx(metrics.ssim(Blur(1.5)(b["x"], b["x"]), b["x"]).mean().item())


def test_it_restores():
    model, b = Denoise(nn.Conv2d(3, 3, 1), Greyscale(), (3, 12, 12)), batch(3)
    y = model.restore(b)
    assert abilities(model) == ("restore",) and y.shape == b["x"].shape and y.min() >= 0 and y.max() <= 1


@torch.no_grad()
@pytest.mark.parametrize("size", [(5, 7), (1, 1), (16, 8), (33, 18)])
def test_it_restores_images_of_any_size(size):
    """Away from the margin as the network does it, which halves twice and takes multiples of 4 alone."""
    model = Denoise(Denoiser(widths=(4, 5, 6)), Noise(0.1), (3, 8, 8))
    torch.nn.init.normal_(model.network.head.weight, std=0.1)
    x = torch.rand(2, 3, *size)
    y = model.restore({"x": x})
    assert y.shape == x.shape
    wide = F.pad(x, (1, 1, 1, 2), mode="reflect") if size == (33, 18) else x
    if size in ((33, 18), (16, 8)):
        expected = model.network(wide)[:, :, int(size == (33, 18)) :, int(size == (33, 18)) :][:, :, : size[0], : size[1]]
        torch.testing.assert_close(y, expected.clamp(0, 1))


@torch.no_grad()
def test_what_is_shown_is_what_was_judged():
    model, b = Denoise(nn.Conv2d(3, 3, 1), Noise(0.1), (3, 12, 12)), batch()
    shown, rows = model.exhibit(b), model.judge(b)
    torch.testing.assert_close(metrics.psnr(shown["damaged"], b["x"]), rows["psnr_damaged"])
    torch.testing.assert_close(metrics.psnr(shown["restored"], b["x"]), rows["psnr"])
    some = {k: v[5:9] for k, v in b.items()}
    torch.testing.assert_close(model.exhibit(some)["damaged"], shown["damaged"][5:9])   # the noise is the row's own
