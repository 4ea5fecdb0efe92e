"""Fleuret, chapter 5: architectures."""

import torch
from torch import nn
from torch.nn import functional as F

from didact.claims.forms import Conditional, Display, Equal, Exactly
from didact.claims.gaba.chapter_04 import count_weights
from didact.claims.helpers import count_multiplications
from didact.claims.registry import claim
from didact.layers.conv.convolution import dilated_conv
from didact.layers.conv.residual import Bottleneck
from didact.models.tabular.mlp import MLP
from didact.models.vision.lenet import LeNetLike
from didact.models.vision.vit import ViT
from didact.registry import create_model


@claim("CF35", Exactly((25, 10, 2)))
def sizes_of_an_mlp() -> tuple[int, ...]:
    """sizes of an example through didact's MLP of 50 → 25 → 10 → 2, layer by layer"""
    net, sizes = MLP(50, 2, hidden=(25, 10)), list[int]()
    for layer in (m for m in net.modules() if isinstance(m, nn.Linear)):
        layer.register_forward_hook(lambda _m, _i, y: sizes.append(y.shape[1]))
    net(torch.zeros(1, 50))
    return tuple(sizes)


@claim("CF36", Exactly((784, 256, 10)))
def sizes_of_a_lenet() -> tuple[int, ...]:
    """sizes of the image, of the maps after the convolutions, of the logits: didact's own network"""
    net, x = LeNetLike(), torch.zeros(1, 1, 28, 28)
    return x.numel(), net.features(x).numel(), net(x).numel()


@claim(
    "CF37",
    Exactly(((64, 112, 112), (2048, 7, 7), (1000,))),
    condition="with the max pooling of stride 2 that only the figure shows",
)
def shapes_of_resnet50() -> Conditional:
    """after the first convolution, before the average pooling, at the end: didact's own network on 224 × 224, with max
    pooling and without"""
    with torch.device("meta"):
        net, x, shapes = (
            create_model("resnet50", size=(224, 224)).eval(),
            torch.empty(1, 3, 224, 224),
            list[tuple[int, ...]](),
        )
        for layer in (net.conv1, net.layer4, net.fc):
            layer.register_forward_hook(lambda _m, _i, y: shapes.append(tuple(y.shape[1:])))
        net(x)
        net.maxpool = nn.Identity()
        net(x)
    return Conditional(tuple(shapes[:3]), tuple(shapes[3:]))


@claim("CF39", Equal())
def cost_in_the_channels() -> Display:
    """multiplications and weights of didact's 3 × 3 convolution for 8, 16, 32 channels in and out, over those for 8: 4ᵏ
    for 2ᵏ times the channels; weights of one for 256 and of didact's bottleneck, with the 3 × 3 on a quarter of them: 9
    C², and 2 C · C/4 + 9 (C/4)²"""
    costs, sizes, C = list[int](), list[int](), 256
    for c in (8, 16, 32):
        conv, x = dilated_conv(c, c, 3), torch.randn(1, c, 9, 9)
        costs.append(count_multiplications(lambda conv=conv, x=x: conv(x)))  # type: ignore[misc]
        sizes.append(count_weights(conv))
    conv_weights, bottleneck_weights = count_weights(dilated_conv(C, C, 3)), count_weights(Bottleneck(C, C // 4))
    growth = [[n / counts[0] for n in counts] for counts in (costs, sizes)]
    stated = [[4**k for k in range(3)]] * 2
    return Display(
        ([*growth, conv_weights, bottleneck_weights], [*stated, 9 * C**2, 2 * C * (C // 4) + 9 * (C // 4) ** 2]),
        {
            "cost of 1, 2 and 4 times the channels": growth[0],
            "weights of 3 × 3 on 256 channels": conv_weights,
            "of the bottleneck": bottleneck_weights,
        },
    )


@claim("CF40", Exactly(((64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7))))
def sections_of_resnet50() -> tuple[tuple[int, ...], ...]:
    """channels and side before the first section and after each of the four"""
    with torch.device("meta"):
        net, x = create_model("resnet50", size=(224, 224)).eval(), torch.empty(1, 3, 224, 224)
        shapes = []
        for layer in (net.maxpool, net.layer1, net.layer2, net.layer3, net.layer4):
            layer.register_forward_hook(lambda _m, _i, y: shapes.append((y.shape[1], y.shape[2])))
        net(x)
    return tuple(shapes)


@claim("CF41", Exactly((192, 17)))
def tokens_of_a_vit() -> tuple[int, int]:
    """3P² values in a patch and M + 1 tokens, for 32 × 32 images and P = 8: didact's own network"""
    keywords, _ = ViT.example()
    net = ViT(**{**keywords, "size": (32, 32), "patch_size": 8, "channels": 3})
    x = torch.zeros(1, 3, 32, 32)
    return F.unfold(x, 8, stride=8).shape[1], net.embed(x).shape[1]
