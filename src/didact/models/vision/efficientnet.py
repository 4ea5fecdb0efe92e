"""EfficientNet (Tan & Le 2019) and its Lite form: the most accuracy for the fewest operations of their time.

    x -> stem -> stages x [inverted bottlenecks] -> 1 x 1 convolution -> mean over pixels -> dropout -> classes

Lite0 is B0 without squeeze-excite and with ReLU6 for SiLU, which phones compute and quantize better. Gaba 4.10. Names
are those of efficientnet-pytorch and efficientnet-lite-pytorch on PyPI, so that their published weights load; these
were trained in TensorFlow, hence its padding. Lite0's want pixels as (v - 127) / 128, see
`didact.models.pretrained.weights`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from didact.layers.conv.convolution import SameConv2d
from didact.layers.conv.squeeze_excite import squeeze_excite
from didact.layers.drop_path import DropPath
from didact.layers.standardize import Standardize
from didact.registry import register_model


class Stage(NamedTuple):
    repeat: int
    kernel_size: int
    stride: int
    expand: int
    channels: int


_B0_STAGES = (
    Stage(1, 3, 1, 1, 16), Stage(2, 3, 2, 6, 24), Stage(2, 5, 2, 6, 40), Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112), Stage(4, 5, 2, 6, 192), Stage(1, 3, 1, 6, 320),
)

MAX_SMALL_PIXELS = 64  # up to here a stem of stride 2 would leave 2 x 2 pixels or fewer


def _make_norm(channels: int) -> nn.BatchNorm2d:
    # PyTorch's momentum of 0.1: the paper's 0.01 updates running statistics too slowly for short trainings
    return nn.BatchNorm2d(channels, eps=1e-3)


class MBConv(nn.Module):
    """y = x + project(SE(depthwise(expand(x)))): an inverted bottleneck, wide inside; x only where shapes agree.

    Sandler et al. 2018.
    """

    def __init__(self, c_in: int, stage: Stage, stride: int, *, lite: bool, drop_path: float):
        super().__init__()
        expanded_channels = c_in * stage.expand
        self.has_expansion, self.has_squeeze_excite = stage.expand > 1, not lite
        self.has_skip = stride == 1 and c_in == stage.channels
        self.activation = nn.ReLU6(inplace=True) if lite else nn.SiLU(inplace=True)
        if self.has_expansion:
            self._expand_conv = nn.Conv2d(c_in, expanded_channels, 1, bias=False)
            self._bn0 = _make_norm(expanded_channels)
        self._depthwise_conv = SameConv2d(
            expanded_channels, expanded_channels, stage.kernel_size, stride=stride, groups=expanded_channels, bias=False
        )
        self._bn1 = _make_norm(expanded_channels)
        if self.has_squeeze_excite:
            squeezed_channels = max(1, c_in // 4)  # a quarter of the block's input, not of the expanded channels
            self._se_reduce = nn.Conv2d(expanded_channels, squeezed_channels, 1)
            self._se_expand = nn.Conv2d(squeezed_channels, expanded_channels, 1)
        self._project_conv = nn.Conv2d(expanded_channels, stage.channels, 1, bias=False)
        self._bn2 = _make_norm(stage.channels)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:                            # (B, C_in, H, W)
        h = self.activation(self._bn0(self._expand_conv(x))) if self.has_expansion else x
        h = self.activation(self._bn1(self._depthwise_conv(h)))        # (B, wide, H/stride, W/stride)
        if self.has_squeeze_excite:
            h = squeeze_excite(h, self._se_reduce, self._se_expand, self.activation)
        h = self._bn2(self._project_conv(h))                           # (B, width, ...), linear: few channels
        y: Tensor = x + self.drop_path(h) if self.has_skip else h
        return y


@register_model("efficientnet_b0", lite=False)
@register_model("efficientnet_lite0", lite=True)
class EfficientNet(nn.Module):
    """For images of 224 pixels, but any size works. `size` sets the stride of the stem, on which no weight depends; see
    `note`.
    """

    def __init__(
        self,
        *,
        lite: bool = False,
        stages: tuple[Stage, ...] = _B0_STAGES,
        stem: int = 32,
        head: int = 1280,
        num_classes: int = 1000,
        channels: int = 3,
        size: tuple[int, int] = (224, 224),
        dropout: float = 0.2,
        drop_path: float = 0.2,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.lite = lite
        self.standardize = Standardize.or_identity(mean, std)
        self.activation = nn.ReLU6(inplace=True) if lite else nn.SiLU(inplace=True)
        is_small = min(size) <= MAX_SMALL_PIXELS
        self.note = f"stem of stride 1, for images of at most {MAX_SMALL_PIXELS} pixels" if is_small else ""
        self._conv_stem = SameConv2d(channels, stem, 3, stride=1 if is_small else 2, bias=False)
        self._bn0 = _make_norm(stem)
        blocks: list[MBConv] = []
        c, L = stem, sum(stage.repeat for stage in stages)
        for stage in stages:
            for i in range(stage.repeat):
                stride = stage.stride if i == 0 else 1
                blocks.append(MBConv(c, stage, stride, lite=lite, drop_path=drop_path * len(blocks) / L))
                c = stage.channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = nn.Conv2d(c, head, 1, bias=False), _make_norm(head)
        self._dropout = nn.Dropout(dropout)
        self._fc = nn.Linear(head, num_classes)
        self.init_weights()

    def init_weights(self) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
        # the paper's ±1/√classes would start ten classes with logits as large as ±6
        nn.init.normal_(self._fc.weight, std=0.01)
        nn.init.zeros_(self._fc.bias)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = self.activation(self._bn0(self._conv_stem(self.standardize(x))))
        for block in self._blocks:
            h = block(h)
        h = self.activation(self._bn1(self._conv_head(h)))             # (B, head, H/32, W/32) or twice as many
        y: Tensor = self._fc(self._dropout(h.mean(dim=(2, 3))))        # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        stages = (Stage(1, 3, 1, 1, 6), Stage(2, 5, 2, 3, 8), Stage(2, 3, 1, 3, 8))
        return {"num_classes": 7, "channels": 2, "stages": stages, "stem": 8, "head": 20, "size": (19, 26)}, torch.rand(
            batch_size, 2, 19, 26
        )
