"""Fleuret, chapters 5 to 7 and the missing bits: architectures, prediction, synthesis."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.claims.compare import Conditional, CorrectedClaim, Equal, Exactly, ShownAs
from didact.claims.core import claim
from didact.claims.gaba_4 import count_weights
from didact.claims.tools import Pair, compute_gradients, count_multiplications
from didact.layers.attention.multihead import dot_product_attention
from didact.layers.conv.convolution import dilated_conv
from didact.layers.conv.residual import Bottleneck
from didact.metrics.similarity import cosine
from didact.models.tabular.mlp import MLP
from didact.models.vision.lenet import LeNetLike
from didact.models.vision.vit import ViT
from didact.objectives.vision.restoration import RestorationObjective, ToGrayscale
from didact.registry import create_model


@claim("CF35", Exactly((25, 10, 2)))
def sizes_of_an_mlp() -> tuple[int, ...]:
    """what didact's MLP of 50 → 25 → 10 → 2 makes of an example, layer by layer"""
    net, sizes = MLP(50, 2, hidden=(25, 10)), list[int]()
    for layer in (m for m in net.modules() if isinstance(m, nn.Linear)):
        layer.register_forward_hook(lambda _m, _i, y: sizes.append(y.shape[1]))
    net(torch.zeros(1, 50))
    return tuple(sizes)


@claim("CF36", Exactly((784, 256, 10)))
def sizes_of_a_lenet() -> tuple[int, ...]:
    """the image, what the convolutions leave of it, the logits: didact's own network"""
    net, x = LeNetLike(), torch.zeros(1, 1, 28, 28)
    return x.numel(), net.features(x).numel(), net(x).numel()


@claim(
    "CF37",
    Exactly(((64, 112, 112), (2048, 7, 7), (1000,))),
    condition="with the max pooling of stride 2 that only the drawing has",
)
def shapes_of_resnet50() -> Conditional:
    """behind the first convolution, before the average pooling, at the end: didact's own network on 224 × 224, with
    max pooling and
    without"""
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
def cost_in_the_channels() -> ShownAs:
    """products and weights of didact's 3 × 3 convolution for 8, 16, 32 channels in and out, over those for 8: 4ᵏ
    for 2ᵏ times the channels;
    weights of one for 256 and of didact's bottleneck, which has it on a quarter of them: 9 C², and 2 C · C/4 + 9
    (C/4)²"""
    costs, sizes, C = list[int](), list[int](), 256
    for c in (8, 16, 32):
        conv, x = dilated_conv(c, c, 3), torch.randn(1, c, 9, 9)
        costs.append(count_multiplications(lambda conv=conv, x=x: conv(x)))  # type: ignore[misc]
        sizes.append(count_weights(conv))
    conv_weights, bottleneck_weights = count_weights(dilated_conv(C, C, 3)), count_weights(Bottleneck(C, C // 4))
    growth = [[n / counts[0] for n in counts] for counts in (costs, sizes)]
    stated = [[4**k for k in range(3)]] * 2
    return ShownAs(
        ([*growth, conv_weights, bottleneck_weights], [*stated, 9 * C**2, 2 * C * (C // 4) + 9 * (C // 4) ** 2]),
        {
            "cost of 1, 2 and 4 times the channels": growth[0],
            "weights of 3 × 3 on 256 channels": conv_weights,
            "of the bottleneck": bottleneck_weights,
        },
    )


@claim("CF40", Exactly(((64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7))))
def sections_of_resnet50() -> tuple[tuple[int, ...], ...]:
    """channels and side before the first section and behind each of the four"""
    with torch.device("meta"):
        net, x = create_model("resnet50", size=(224, 224)).eval(), torch.empty(1, 3, 224, 224)
        shapes = []
        for layer in (net.maxpool, net.layer1, net.layer2, net.layer3, net.layer4):
            layer.register_forward_hook(lambda _m, _i, y: shapes.append((y.shape[1], y.shape[2])))
        net(x)
    return tuple(shapes)


@claim("CF41", Exactly((192, 17)))
def tokens_of_a_vit() -> tuple[int, int]:
    """3P² numbers in a patch and M + 1 tokens, for 32 × 32 images and P = 8: didact's own network"""
    keywords, _ = ViT.example()
    net = ViT(**{**keywords, "size": (32, 32), "patch_size": 8, "channels": 3})
    x = torch.zeros(1, 3, 32, 32)
    return F.unfold(x, 8, stride=8).shape[1], net.embed(x).shape[1]


@claim("CF44", Equal(), correction="a cosine needs vectors of length 1; CLIP also multiplies by a learned temperature")
def scores_of_clip() -> CorrectedClaim:
    """f(i_m)ᵀ g(t_n) against didact's cosines of all pairs; mended: both divided by their lengths"""
    f, g = torch.randn(4, 8), torch.randn(4, 8)
    unit = [v / v.square().sum(1, keepdim=True).sqrt() for v in (f, g)]
    return CorrectedClaim((f @ g.T, cosine(f, g)), (unit[0] @ unit[1].T, cosine(f, g)))


class ColorPerGray(nn.Module):
    """A colour of its own for each of so many greys: of a grey image there is no freer function."""

    def __init__(self, num_grays: int):
        super().__init__()
        self.colors = nn.Parameter(torch.zeros(num_grays, 3))

    def forward(self, x: Tensor) -> Tensor:                            # (B, 3, 1, 1)
        return self.colors[(x[:, 0, 0, 0] * (len(self.colors) - 1)).round().long()][:, :, None, None]


@claim("CF45", Equal(1e-6))          # the objective takes the difference in 32 bits
def denoiser() -> Pair:
    """the colours that minimise didact's denoising loss where the colour is taken away, one for each of six greys,
    from its slopes at two
    tables, between which they are straight lines; against the mean colour of this grey among 200 pixels"""
    gray_levels, x = torch.randint(6, (200,)), torch.randn(200, 3)
    # so that its luma, of ITU-R 601, is this grey
    x[:, 2] = (gray_levels / 5 - 0.299 * x[:, 0] - 0.587 * x[:, 1]) / 0.114
    table = ColorPerGray(6)
    denoise = RestorationObjective(table, ToGrayscale(), (3, 1, 1))

    def loss_gradient(colors: Tensor) -> Tensor:
        table.colors.data = colors
        return compute_gradients(denoise.loss({"x": x[:, :, None, None]})["loss"], table.colors)[0]

    gradient_at_0, gradient_at_1 = loss_gradient(torch.zeros(6, 3)), loss_gradient(torch.ones(6, 3))
    return gradient_at_0 / (gradient_at_0 - gradient_at_1), torch.stack(
        [x[gray_levels == gray].mean(0) for gray in range(6)]
    )


@claim("CF48", Equal())
def graph_layer() -> Pair:
    """σ(Σ_j a_ij x_j W) over the neighbours j of each of six vertices, with equal a_ij, as didact's attention gives
    it where a vertex sees
    its neighbours alone, against a loop over them; and of renumbered vertices against the renumbered output"""
    A, X, W, order = torch.rand(6, 6) > 0.5, torch.randn(6, 4), torch.randn(4, 3), torch.tensor([3, 0, 5, 1, 4, 2])

    def layer(A: Tensor, X: Tensor) -> Tensor:
        y, _ = dot_product_attention(torch.zeros(6, 1), torch.zeros(6, 1), X @ W, A)
        return torch.tanh(y)

    neighbor_features = [[X[j] @ W for j in range(6) if A[i, j]] for i in range(6)]
    by_hand = torch.stack(
        [torch.tanh(sum(features, torch.zeros(3)) / max(1, len(features))) for features in neighbor_features]
    )
    return [layer(A, X), layer(A[order][:, order], X[order])], [by_hand, by_hand[order]]
