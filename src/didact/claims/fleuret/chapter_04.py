"""Fleuret, chapter 4: model components."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import didact.models  # noqa: F401 (registers the presets)
from didact import scratch
from didact.analysis.receptive_field import SlidingWindow, receptive_field
from didact.claims.forms import (
    Conditional,
    CorrectedClaim,
    Display,
    Equal,
    Exactly,
    InInterval,
    Printed,
    WithinStandardErrors,
)
from didact.claims.gaba.chapter_04 import count_weights
from didact.claims.gaba.chapter_07 import SINGLE_PRECISION, encode_positions
from didact.claims.helpers import Pair, compute_gradients, count_parameters
from didact.claims.registry import claim
from didact.layers.activation import make_activation
from didact.layers.attention import attention_masks
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.multihead import dot_product_attention
from didact.layers.init import init_weights
from didact.layers.mlp import make_mlp_layers
from didact.layers.norm import PreNorm
from didact.layers.positional import sinusoidal_table
from didact.layers.standardize import Standardize
from didact.models.tabular.mlp import MLP
from didact.models.vision.cnn import CIFAR10Net
from didact.scratch import modules
from didact.scratch.activation import gelu as scratch_gelu
from didact.scratch.activation import leaky_relu as scratch_leaky_relu
from didact.scratch.convolution import conv1d, convolution_transpose
from didact.scratch.pooling import avg_pool, max_pool


@claim("CF15", Printed("4e10"))
def dense_map_between_images() -> int:
    """(3 · 256 · 256)² weights of didact's linear layer from one to the other"""
    with torch.device("meta"):  # sizes alone
        return count_weights(MLP(3 * 256 * 256, 3 * 256 * 256, hidden=(), init="pytorch"))


@claim("CF16", Exactly((2, 3, 4, 7)))
def dense_layer_on_a_tensor() -> tuple[int, ...]:
    """didact's Linear(5, 7) on a tensor 2 × 3 × 4 × 5"""
    return tuple(modules.Linear(5, 7)(scratch.tensor(np.zeros((2, 3, 4, 5), np.float32))).shape)


@claim("CF17", Equal())
def length_of_a_convolution() -> Pair:
    """T − K + 1 of didact's convolution, and back to T by the transposed one"""
    cases, sizes = [(10, 3), (17, 5), (8, 1)], []
    for T, K in cases:
        w = scratch.tensor(np.zeros((3, 2, K)))
        y = conv1d(scratch.tensor(np.zeros((1, 2, T))), w)
        sizes.append((y.shape[-1], convolution_transpose(y, w).shape[-1]))
    return sizes, [(T - K + 1, T) for T, K in cases]


@claim("CF18", Equal())
def transposed_convolution() -> Pair:
    """⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩, both didact's, and the second torch's"""
    w, x, y = torch.randn(3, 2, 4), torch.randn(1, 2, 14), torch.randn(1, 3, 6)
    kernel, scratch_x, scratch_y = (scratch.tensor(t.numpy()) for t in (w, x, y))
    forward_product = (conv1d(scratch_x, kernel, stride=2).data * scratch_y.data).sum()
    transposed_product = (scratch_x.data * convolution_transpose(scratch_y, kernel, stride=2).data).sum()
    return [forward_product, forward_product], [transposed_product, (x * F.conv_transpose1d(y, w, stride=2)).sum()]


@claim("CF19", Equal(), correction="by K − 1; the radius grows by about half the kernel")
def growth_of_the_receptive_field() -> CorrectedClaim:
    """growth of the receptive field by one more convolution of kernel K = 3, 5, 7, by didact's rule, against K/2;
    corrected: K − 1"""
    kernels = torch.tensor([3, 5, 7])
    field_growth = [
        receptive_field([SlidingWindow(3), SlidingWindow(K)]) - receptive_field([SlidingWindow(3)])
        for K in kernels.tolist()
    ]
    return CorrectedClaim((kernels / 2, field_growth), (kernels - 1, field_growth))


@claim("CF20", Equal())
def composition_of_linear_maps() -> Pair:
    """didact's three dense layers without activations, against one matrix CBA and one vector C(Ba + b) + c"""
    layers = [modules.Linear(n, m, rng=n, dtype=np.float64) for n, m in ((3, 4), (4, 5), (5, 2))]
    (A, a), (B, b), (C, c) = ([p.data for p in layer.parameters()] for layer in layers)
    x = torch.randn(9, 3).numpy()
    return x @ (C @ B @ A).T + C @ (B @ a + b) + c, modules.Sequential(*layers)(scratch.tensor(x)).data


@claim("CF22", Equal(1e-3))
def saturation_of_tanh() -> Pair:
    """(1 − |tanh x|) e^{2|x|} = 2 up to 1e-3 for |x| from 4 to 12, on both sides: the remainder falls as e^{−2|x|};
    didact's tanh"""
    x = torch.cat([torch.linspace(4, 12, 50), torch.linspace(-12, -4, 50)])
    return (1 - make_activation("tanh")(x).abs()) * (2 * x.abs()).exp(), torch.full((100,), 2.0)


@claim("CF23", Equal())
def gelu() -> Pair:
    """x P(Z ≤ x), against didact's GELU, torch's and that of its own engine"""
    x = torch.linspace(-6, 6, 301)
    stated = x * torch.distributions.Normal(0.0, 1.0).cdf(x)
    return [stated, stated], [
        make_activation("gelu")(x),
        torch.from_numpy(scratch_gelu(scratch.tensor(x.numpy())).data),
    ]


@claim("CF24", Exactly(((2, 5), True, False)))
def pooling() -> tuple[tuple[int, ...], bool, bool]:
    """shape of didact's max pooling of 2 × 15 by 3; is its average pooling linear; is its max pooling linear"""
    x, y = (scratch.tensor(torch.randn(1, 2, 15).numpy()) for _ in range(2))
    linear = [bool(np.allclose(f(x + y, 3).data, (f(x, 3) + f(y, 3)).data)) for f in (avg_pool, max_pool)]
    return max_pool(x, 3).shape[1:], linear[0], linear[1]


@claim("CF25", WithinStandardErrors())
def dropout() -> tuple[list[Tensor], list[Tensor], list[float]]:
    """the mean of ones after didact's dropout stays 1, and three of them survive together with probability (1 − p)³:
    400,000 rows, p = 0.3"""
    y = torch.from_numpy(modules.Dropout(0.3, rng=0)(scratch.tensor(np.ones((400_000, 3)))).data)
    triples_kept = (y > 0).all(1).double()
    return (
        [y.mean(), triples_kept.mean()],
        [y.std() / math.sqrt(y.numel()), triples_kept.std() / math.sqrt(400_000)],
        [1.0, 0.7**3],
    )


@claim("CF26", Exactly((True, True, False)))
def dropout_of_channels() -> Display:
    """whether each of 200 channels after the channel dropout of didact's CIFAR10Net is kept or dropped as a whole, and
    both occur; and whether that holds after dropout of single values"""
    drop = next(m for m in CIFAR10Net(dropout2d=0.5).features if isinstance(m, nn.Dropout2d))
    channel_share, element_share = (
        (f(torch.ones(10, 20, 6, 6)) > 0).double().mean((2, 3)) for f in (drop, nn.Dropout(drop.p))
    )
    is_all_or_nothing = [bool(((share == 0) | (share == 1)).all()) for share in (channel_share, element_share)]
    has_kept_and_dropped = 0 < float(channel_share.mean()) < 1
    return Display(
        (is_all_or_nothing[0], has_kept_and_dropped, is_all_or_nothing[1]),
        {
            "channels kept or dropped as a whole": is_all_or_nothing[0],
            "both occur": has_kept_and_dropped,
            "the same with dropout of single values": is_all_or_nothing[1],
        },
    )


@claim("CF27", Equal(1e-4), condition="variances far above ε, and γ ≥ 0: the standard deviation is |γ| √(v̂/(v̂ + ε))")
def moments_after_batch_norm() -> Conditional:
    """mean and standard deviation of each channel after didact's BatchNorm2d, against β and γ: for inputs of standard
    deviation 3, and 0.001"""
    norm, γ, β = modules.BatchNorm2d(4, dtype=np.float64), 0.5 + torch.rand(4), torch.randn(4)
    norm.load_state_dict({**norm.state_dict(), "weight": γ, "bias": β})

    def moments(std: float) -> Pair:
        y = norm(scratch.tensor((std * torch.randn(16, 4, 8, 9) + 1).numpy())).data
        return [y.mean((0, 2, 3)), y.std((0, 2, 3))], [β, γ]

    return Conditional(moments(3.0), moments(0.001))


@claim("CF28", Equal())
def layer_norm_of_images() -> Pair:
    """mean and variance over D, H, W, a scale and a shift for each component, against didact's LayerNorm((D, H, W))"""
    norm, x, γ, β = (
        modules.LayerNorm((3, 4, 5), dtype=np.float64),
        torch.randn(2, 3, 4, 5),
        torch.randn(3, 4, 5),
        torch.randn(3, 4, 5),
    )
    norm.load_state_dict({"weight": γ, "bias": β})
    axes = (1, 2, 3)
    x_hat = (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + norm.eps).sqrt()
    return x_hat * γ + β, norm(scratch.tensor(x.numpy())).data


@claim("CF29", Equal(), correction="QKᵀ: one weight for each pair of query and key")
def product_of_queries_and_keys() -> CorrectedClaim:
    """softmax(QᵀK/√D) against the weights of didact's attention, 4 queries and 4 keys of dimension D = 4, where both
    are 4 × 4; corrected: QKᵀ"""
    Q, K = torch.randn(4, 4), torch.randn(4, 4)
    weights = dot_product_attention(Q, K, K)[1]
    return CorrectedClaim(
        ((Q.T @ K / math.sqrt(4)).softmax(1), weights), ((Q @ K.T / math.sqrt(4)).softmax(1), weights)
    )


@claim("CF30", Equal(), condition="A read as the exponentials; as logits the terms must be −∞, since e⁰ is 1")
def causal_terms() -> Conditional:
    """terms above the diagonal set to 0 and rows normalized, against didact's attention with its causal mask:
    exponentials, and logits"""
    q, k = torch.randn(6, 4), torch.randn(6, 4)
    s = q @ k.T / 2
    e = s.exp().tril()
    _, a = dot_product_attention(q, k, torch.eye(6), attention_masks.causal_mask(6))
    return Conditional((e / e.sum(1, keepdim=True), a), (s.tril().softmax(1), a))


@claim("CF31", Equal())
def weights_of_heads() -> Pair:
    """H(2 D D_QK + D D_V) + H D_V D with D_QK = D_V = D/H, and with two dimensions, against didact's attention without
    biases"""
    def count_attention_weights(D: int, H: int, QK: int, V: int) -> int:
        layer = GroupedQueryAttention(D, H, H, head_dim=QK)
        if V != QK:
            layer.v_proj, layer.o_proj = nn.Linear(D, H * V, bias=False), nn.Linear(H * V, D, bias=False)
        assert layer(torch.zeros(1, 2, D)).shape == (1, 2, D)                    # the sizes match
        return count_parameters(layer)

    cases = [(64, 4, 16, 16), (512, 8, 64, 64), (48, 3, 10, 7), (48, 3, 5, 48)]
    return [H * (2 * D * QK + D * V) + H * V * D for D, H, QK, V in cases], [
        count_attention_weights(*case) for case in cases
    ]


@claim("CF32", Equal())
def order_in_attention() -> Pair:
    """shuffled keys and values change nothing; shuffled queries shuffle the outputs"""
    q, k, v, order = torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 3), torch.tensor([3, 0, 4, 1, 2])
    y = dot_product_attention(q, k, v)[0]
    return [dot_product_attention(q, k[order], v[order])[0], dot_product_attention(q[order], k, v)[0]], [y, y[order]]


@claim("CF33", Equal())
def embedding() -> Pair:
    """didact's embedding is the product of one-hot vectors with its matrix; and its gradient sums over the occurrences
    of each row"""
    layer, ids, dy = (
        modules.Embedding(11, 4, rng=0, dtype=np.float64),
        torch.randint(11, (2, 3, 5)),
        torch.randn(2, 3, 5, 4),
    )
    (W,), onehot = layer.parameters(), F.one_hot(ids, 11).double()
    y = layer(ids.numpy())
    (dW,) = scratch.grad((y * dy.numpy()).sum(), (W,))
    return [onehot @ torch.from_numpy(W.data), torch.einsum("abcn,abcd->nd", onehot, dy)], [y.data, dW.data]


@claim("CF34", SINGLE_PRECISION)
def positional_encoding() -> Pair:
    """sin(t/T^{d/D}) for even d and cos(t/T^{(d−1)/D}) for odd d, T = 10⁴, against Lhotte's matrix of 2i and 2i + 1,
    and didact's"""
    t, d = torch.arange(40.0)[:, None], torch.arange(8)
    stated = torch.where(d % 2 == 0, (t / 1e4 ** (d / 8)).sin(), (t / 1e4 ** ((d - 1) / 8)).cos())
    return [stated, stated], [encode_positions(40, 8), sinusoidal_table(40, 8)]


@claim("CF49", Exactly((False, True)))
def residual_around_a_dead_layer() -> Display:
    """is ‖∂L/∂x‖ > 0 through a layer that blocks the gradient, and with didact's residual connection around it"""
    x, dead_stage = torch.randn(5, requires_grad=True), nn.Threshold(100.0, 1.0)
    outs = dead_stage(x), PreNorm(dead_stage, nn.Identity())(x)
    gradient_norms = [compute_gradients(y.square().sum() + y.sum(), x)[0].norm() for y in outs]
    return Display(
        tuple(bool(g > 0) for g in gradient_norms),
        {"‖∂L/∂x‖ of the layer alone": gradient_norms[0], "with the residual connection": gradient_norms[1]},
    )


@claim("CF50", Equal())
def leaky_relu() -> Pair:
    """a x below zero and x above, a = 0.1 and 0.01, against didact's own engine and its activation"""
    x = torch.randn(50)
    ours = torch.from_numpy(scratch_leaky_relu(scratch.tensor(x.numpy()), 0.1).data), make_activation("leaky_relu")(x)
    return [torch.where(x < 0, a * x, x) for a in (0.1, 0.01)], list(ours)


@claim("CF21", InInterval(0.45, 0.55))
def share_of_positive_activations() -> Display:
    """the fraction of positive inputs of each ReLU in 20 of didact's stacks with He initialization, on standardized
    positive data; and of each unit of the first layer, which without standardization would be anywhere from 0 to 1"""
    shares = []
    for _ in range(20):
        net, h = make_mlp_layers((64,) * 4, "relu"), torch.rand(2000, 64) ** 2
        init_weights(net, "he_normal")
        with torch.no_grad():
            h = Standardize(h.mean(0), h.std(0))(h)
            for layer in net:
                if isinstance(layer, nn.ReLU):
                    shares.append((h > 0).double().mean(0))
                h = layer(h)
    by_net = torch.stack(shares).unflatten(0, (20, 3))                          # (nets, layers, units)
    layers, first = by_net.mean((0, 2)), by_net[:, 0]
    return Display([layers, first], {
        "fraction positive by layer": layers, "of a unit of the first at least": first.min(), "at most": first.max()})
