"""ResNet (He et al. 2016): residual blocks, so that a hundred layers train better than twenty.

    x -> stem -> stages x [blocks; the first of all stages but one halves the image] -> mean over pixels -> classes

Layout and names are torchvision's, with the stride on the 3 x 3 convolution. Gaba 4.4.4, Fleuret 5.2.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from didact.errors import look_up
from didact.layers.conv.residual import BasicBlock, Bottleneck, Shortcut
from didact.layers.drop_path import block_survival_probability
from didact.layers.standardize import Standardize
from didact.registry import register_model

Stem = Literal["auto", "large", "small"]
_BLOCKS: dict[str, type[BasicBlock] | type[Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}
MAX_SMALL_PIXELS = 64  # up to here the large stem and four stages would leave 2 x 2 pixels or fewer


@register_model("resnet18", block="basic", depths=(2, 2, 2, 2))
@register_model("resnet34", block="basic", depths=(3, 4, 6, 3))
@register_model("resnet50", block="bottleneck", depths=(3, 4, 6, 3))
@register_model("resnet101", block="bottleneck", depths=(3, 4, 23, 3))
@register_model("resnet152", block="bottleneck", depths=(3, 8, 36, 3))
@register_model("cifar_resnet8", depths=(1, 1, 1), width=16, shortcut="pad", num_classes=10, size=(32, 32))
@register_model("cifar_resnet20", depths=(3, 3, 3), width=16, shortcut="pad", num_classes=10, size=(32, 32))
@register_model("cifar_resnet32", depths=(5, 5, 5), width=16, shortcut="pad", num_classes=10, size=(32, 32))
@register_model("cifar_resnet44", depths=(7, 7, 7), width=16, shortcut="pad", num_classes=10, size=(32, 32))
@register_model("cifar_resnet56", depths=(9, 9, 9), width=16, shortcut="pad", num_classes=10, size=(32, 32))
@register_model("cifar_resnet110", depths=(18, 18, 18), width=16, shortcut="pad", num_classes=10, size=(32, 32))
class ResNet(nn.Module):
    """The ImageNet networks of the paper, and those for CIFAR of its section 4.2: three stages, skips without
    parameters, 6 n + 2 layers.

    `size` of the images chooses the stem: 7 x 7 of stride 2 and pooling for large ones, 3 x 3 for small, see `note`.
    `shortcut="none"` is the plain network; `zero_init` starts each block as the identity (Goyal et al. 2017).
    `drop_path` is the probability 1 - p_L of dropping the last block (stochastic depth, Gaba 3.12).
    """

    def __init__(
        self,
        *,
        block: Literal["basic", "bottleneck"] = "basic",
        depths: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        num_classes: int = 1000,
        channels: int = 3,
        size: tuple[int, int] = (224, 224),
        stem: Stem = "auto",
        shortcut: Shortcut = "projection",
        zero_init: bool = False,
        drop_path: float = 0.0,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        block_class = look_up("block", block, _BLOCKS)
        self.standardize = Standardize.or_identity(mean, std)
        self.stem: Stem = stem if stem != "auto" else "small" if min(size) <= MAX_SMALL_PIXELS else "large"
        is_large = self.stem == "large"
        self.conv1 = nn.Conv2d(
            channels, width, 7 if is_large else 3, stride=2 if is_large else 1, padding=3 if is_large else 1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if is_large else nn.Identity()

        c, l, L = width, 0, sum(depths)
        self.stages = [f"layer{stage}" for stage in range(1, len(depths) + 1)]
        for stage, (name, depth) in enumerate(zip(self.stages, depths, strict=True)):
            blocks: list[nn.Module] = []
            for i in range(depth):
                l += 1
                stride = 2 if stage > 0 and i == 0 else 1
                p_l = block_survival_probability(l, L, 1 - drop_path)
                blocks.append(block_class(c, width * 2**stage, stride=stride, shortcut=shortcut, drop_path=1 - p_l))
                c = width * 2**stage * block_class.expansion
            self.add_module(name, nn.Sequential(*blocks))
        self.fc = nn.Linear(c, num_classes)
        self.init_weights(zero_init)

    @property
    def note(self) -> str:
        """The stem that was chosen."""
        if self.stem == "large":
            return "stem 7×7 of stride 2 and max pooling, for large images"
        return f"stem 3×3 of stride 1 without pooling, for images of at most {MAX_SMALL_PIXELS} pixels"

    def init_weights(self, zero_init: bool) -> None:
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init and isinstance(m, BasicBlock | Bottleneck):
                last = m.bn3 if isinstance(m, Bottleneck) else m.bn2
                nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:                            # (B, channels, H, W)
        h = torch.relu_(self.bn1(self.conv1(self.standardize(x))))     # (B, width, H/2, W/2) or all pixels
        h = self.maxpool(h)
        for stage in self.stages:
            h = getattr(self, stage)(h)
        y: Tensor = self.fc(h.mean(dim=(2, 3)))                        # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"num_classes": 7, "channels": 2, "depths": (1, 2, 1), "width": 6, "size": (17, 21)}, torch.rand(
            batch_size, 2, 17, 21
        )
