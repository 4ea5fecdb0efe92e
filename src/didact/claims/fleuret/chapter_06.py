"""Fleuret, chapter 6: prediction."""


import torch
from torch import Tensor, nn

import didact.models  # noqa: F401 (registers the presets)
from didact.claims.forms import Conditional, CorrectedClaim, Equal
from didact.claims.helpers import Pair, compute_gradients
from didact.claims.registry import claim
from didact.metrics.similarity import cosine
from didact.models.vision.ssd import SSD
from didact.objectives.vision.restoration import RestorationObjective, ToGrayscale


@claim("CF44", Equal(), correction="a cosine needs vectors of length 1; CLIP also multiplies by a learned temperature")
def scores_of_clip() -> CorrectedClaim:
    """f(i_m)ᵀ g(t_n) against didact's cosines of all pairs; corrected: both divided by their lengths"""
    f, g = torch.randn(4, 8), torch.randn(4, 8)
    unit = [v / v.square().sum(1, keepdim=True).sqrt() for v in (f, g)]
    return CorrectedClaim((f @ g.T, cosine(f, g)), (unit[0] @ unit[1].T, cosine(f, g)))


class _ColorPerGray(nn.Module):
    """A color for each of `num_grays` gray levels: the most general function of a gray image."""

    def __init__(self, num_grays: int):
        super().__init__()
        self.colors = nn.Parameter(torch.zeros(num_grays, 3))

    def forward(self, x: Tensor) -> Tensor:                            # (B, 3, 1, 1)
        return self.colors[(x[:, 0, 0, 0] * (len(self.colors) - 1)).round().long()][:, :, None, None]


@claim("CF45", Equal(1e-6))          # the objective computes the difference in float32
def denoiser() -> Pair:
    """the colors that minimize didact's restoration loss for images turned gray, one for each of six gray levels, from
    its gradient at two tables (it is linear in between); against the mean color of each gray level among 200 pixels"""
    gray_levels, x = torch.randint(6, (200,)), torch.randn(200, 3)
    # so that its luma (ITU-R 601) is this gray level
    x[:, 2] = (gray_levels / 5 - 0.299 * x[:, 0] - 0.587 * x[:, 1]) / 0.114
    table = _ColorPerGray(6)
    denoise = RestorationObjective(table, ToGrayscale(), (3, 1, 1))

    def loss_gradient(colors: Tensor) -> Tensor:
        table.colors.data = colors
        return compute_gradients(denoise.loss({"x": x[:, :, None, None]})["loss"], table.colors)[0]

    gradient_at_0, gradient_at_1 = loss_gradient(torch.zeros(6, 3)), loss_gradient(torch.ones(6, 3))
    return gradient_at_0 / (gradient_at_0 - gradient_at_1), torch.stack(
        [x[gray_levels == gray].mean(0) for gray in range(6)]
    )


@claim("CF43", Equal(), condition="one box per cell; with k boxes k(4 + C + 1)")
def channels_of_a_detector() -> Conditional:
    """outputs of didact's SSD per cell of its maps, for C = 1, 3 and 20 classes, against 4 + C + 1: one box per cell,
    and three"""
    def numbers_per_cell(k: int, C: int) -> float:
        net = SSD(widths=(4, 6, 8, 8), levels=2, neck=6, num_classes=C, size=(32, 48), sizes=torch.full((2, k, 2), 0.3))
        cells: list[int] = []
        for head in net.heads:
            head.register_forward_pre_hook(lambda _, maps: cells.append(maps[0][0, 0].numel()))
        predictions: Tensor = net(torch.zeros(1, 3, 32, 48))
        return predictions.numel() / sum(cells)

    stated = [4 + C + 1 for C in (1, 3, 20)]
    return Conditional(*(([numbers_per_cell(k, C) for C in (1, 3, 20)], stated) for k in (1, 3)))
