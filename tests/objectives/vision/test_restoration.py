import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import nn

from didact import metrics
from didact.models.vision.denoising_autoencoder import DenoisingAutoencoder
from didact.objectives.abilities import abilities
from didact.objectives.vision.restoration import AddBlur, AddNoise, RestorationObjective, ToGrayscale


def make_batch(n=70, side=12):
    torch.manual_seed(0)
    return {"x": torch.rand(n, 3, side, side), "row": torch.arange(n)}


def test_add_noise_has_its_standard_deviation():
    x = torch.full((200, 3, 8, 8), 0.5)
    damaged = AddNoise(0.2)(x, torch.randn_like(x))
    assert damaged.std().item() == pytest.approx(0.2, rel=0.02) and damaged.min() < 0


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_add_blur_matches_scipy(sigma):
    x = make_batch(2, side=20)["x"].double()
    radius = round(3 * sigma)
    expected = gaussian_filter(x.numpy(), sigma, axes=(2, 3), mode="mirror", radius=radius)
    torch.testing.assert_close(AddBlur(sigma)(x, x), torch.from_numpy(expected))
    assert AddBlur(9.0)(x, x).shape == x.shape                            # wider than the image


def test_to_grayscale_gives_equal_channels():
    x = make_batch(2)["x"]
    gray = ToGrayscale()(x, x)
    assert gray.shape == x.shape and torch.equal(gray[:, 0], gray[:, 2])
    torch.testing.assert_close(ToGrayscale()(gray, gray), gray)


def test_restoration_evaluation_is_independent_of_batching():
    model, b = RestorationObjective(nn.Identity(), AddNoise(0.1), (3, 12, 12)), make_batch()
    outputs, repeated_outputs = model.evaluate_batch(b), model.evaluate_batch(b)
    outputs_by_batch = [model.evaluate_batch({k: v[i : i + 9] for k, v in b.items()}) for i in range(0, 70, 9)]
    for name in outputs:
        assert torch.equal(outputs[name], repeated_outputs[name])
        torch.testing.assert_close(torch.cat([c[name] for c in outputs_by_batch]), outputs[name])
    assert not any("noises" in name for name in model.state_dict())
    assert model.loss(b)["loss"] != model.loss(b)["loss"]               # training noise is new each time


def test_identity_restoration_has_no_psnr_gain():
    model, b = RestorationObjective(nn.Identity(), AddNoise(0.1), (3, 12, 12)), make_batch()
    scores = model.compute_metrics(model.evaluate_batch(b))
    assert scores["psnr_gain"] == 0 and scores["psnr"] == scores["psnr_damaged"]
    # -10 log10(0.1²), a little more since noise is clipped
    assert scores["psnr"] == pytest.approx(20, abs=0.6)
    assert scores["loss"] == pytest.approx(0.01, rel=0.05)


class PerfectRestoration(nn.Module):
    """Returns the original."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def forward(self, damaged):
        return self.x + 1e-3


@pytest.mark.parametrize(("distance", "loss"), [("mse", 1e-6), ("l1", 1e-3)])
def test_restoration_losses_match_their_distances(distance, loss):
    b = make_batch(4)
    model = RestorationObjective(PerfectRestoration(b["x"]), AddBlur(1.5), (3, 12, 12), distance=distance)
    assert model.loss(b)["loss"].item() == pytest.approx(loss, rel=1e-2)
    scores = model.compute_metrics(model.evaluate_batch(b))
    assert scores["psnr"] > 59 and scores["ssim"] > 0.999 and scores["psnr_gain"] > 30
    assert scores["ssim_damaged"] == pytest.approx(metrics.ssim(AddBlur(1.5)(b["x"], b["x"]), b["x"]).mean().item())


def test_restoration_returns_images_in_range():
    model, b = RestorationObjective(nn.Conv2d(3, 3, 1), ToGrayscale(), (3, 12, 12)), make_batch(3)
    y = model.restore(b)
    assert abilities(model) == ("restore",) and y.shape == b["x"].shape and y.min() >= 0 and y.max() <= 1


@torch.no_grad()
@pytest.mark.parametrize("size", [(5, 7), (1, 1), (16, 8), (33, 18)])
def test_restoration_handles_images_of_any_size(size):
    """Away from the padding as the network does it, which halves twice and takes only multiples of 4."""
    model = RestorationObjective(DenoisingAutoencoder(widths=(4, 5, 6)), AddNoise(0.1), (3, 8, 8))
    torch.nn.init.normal_(model.network.head.weight, std=0.1)
    x = torch.rand(2, 3, *size)
    y = model.restore({"x": x})
    assert y.shape == x.shape
    padded = F.pad(x, (1, 1, 1, 2), mode="reflect") if size == (33, 18) else x
    if size in ((33, 18), (16, 8)):
        expected = model.network(padded)[:, :, int(size == (33, 18)) :, int(size == (33, 18)) :][
            :, :, : size[0], : size[1]
        ]
        torch.testing.assert_close(y, expected.clamp(0, 1))


@torch.no_grad()
def test_restoration_examples_match_the_evaluation():
    model, b = RestorationObjective(nn.Conv2d(3, 3, 1), AddNoise(0.1), (3, 12, 12)), make_batch()
    examples, outputs = model.report_examples(b), model.evaluate_batch(b)
    torch.testing.assert_close(metrics.psnr(examples["damaged"], b["x"]), outputs["psnr_damaged"])
    torch.testing.assert_close(metrics.psnr(examples["restored"], b["x"]), outputs["psnr"])
    last_rows = {k: v[5:9] for k, v in b.items()}
    # the noise belongs to the example
    torch.testing.assert_close(model.report_examples(last_rows)["damaged"], examples["damaged"][5:9])
