"""Fleuret, The Little Book of Deep Learning."""

import math
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact import scratch
from didact.claims import gaba_2
from didact.claims.compare import Cases, Corrected, Exactly, Printed, Same, Sampled, Told
from didact.claims.core import claim
from didact.claims.gaba_4 import weights
from didact.claims.gaba_7 import SINGLE, positions
from didact.claims.tools import Pair, count_products, gradients, parameters
from didact.data.folder import ImageEncoder
from didact.layers import masks
from didact.layers.activation import activation
from didact.layers.attention import attention
from didact.layers.convolution import dilated
from didact.layers.geometry import Window, receptive_field
from didact.layers.grouped import GroupedQueryAttention
from didact.layers.norms import PreNorm
from didact.layers.positions import sinusoidal
from didact.layers.residual import Bottleneck
from didact.metrics.similarity import cosine
from didact.models.cifar import CIFAR10Net
from didact.models.lenet import LeNetLike
from didact.models.mlp import MLP
from didact.models.vit import ViT
from didact.objectives.likelihoods import Categorical
from didact.registry import create
from didact.scratch import modules
from didact.scratch.activation import gelu as scratch_gelu
from didact.scratch.activation import leaky_relu as scratch_leaky_relu
from didact.scratch.convolution import conv1d, convolution_transpose
from didact.scratch.losses import mse_loss
from didact.scratch.optim import SGD
from didact.scratch.pooling import avg_pool, max_pool


@claim("CF01", Same())
def normal_equations() -> Pair:
    """the w of ΦᵀΦ w = Φᵀy for six Gaussian kernels, against torch's least squares; and ∇ of didact's squared error there, against 0"""
    x, y = torch.linspace(-1, 1, 30), torch.randn(30)
    Φ = torch.exp(-((x[:, None] - torch.linspace(-1, 1, 6)) ** 2) / 0.1)
    w = torch.linalg.solve(Φ.T @ Φ, Φ.T @ y)
    leaf = scratch.tensor(w.numpy(), requires_grad=True)
    (g,) = scratch.grad(mse_loss(scratch.tensor(Φ.numpy()) @ leaf, y.numpy()), (leaf,))
    return [w, torch.from_numpy(g.data)], [torch.linalg.lstsq(Φ, y[:, None]).solution, torch.zeros(6)]


def pictures(number: int, width: int, height: int) -> Tensor:
    """So many images of that size, as didact reads them from files."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.png" for i in range(number)]
        for file in files:
            Image.new("RGB", (width, height)).save(file)
        return torch.stack([ImageEncoder((3, 1, 1)).whole(file) for file in files])


@claim("CF03", Exactly((50, 3, 24, 32)))
def batch_of_pictures() -> tuple[int, ...]:
    """fifty pictures 32 pixels wide and 24 high, channels first"""
    return tuple(pictures(50, 32, 24).shape)


@claim("CF04", Exactly((5, 3)), right="H is the height and W the width")
def axes_of_an_image() -> Told:
    """(H, W) of a picture 5 pixels wide and 3 high, read as (width, height)"""
    width, height = 5, 3
    H, W = pictures(1, width, height).shape[2:]
    return Told((H, W), {"width": width, "height": height, "H": H, "W": W})


@claim("CF05", Exactly((True, True, True, False)))
def views_without_copies() -> Told:
    """do a transpose, a part and a reshaped tensor share the tensor's memory, in didact's engine; does a reshaped transpose"""
    x = scratch.tensor(torch.randn(4, 6).numpy())
    shared = tuple(bool(np.shares_memory(x.data, y.data)) for y in (x.T, x[1:3, ::2], x.reshape(24), x.T.reshape(24)))
    names = ("memory shared by a transpose", "by a part", "by a reshaped tensor", "by a reshaped transpose")
    return Told(shared, dict(zip(names, shared, strict=True)))


@claim("CF06", Same())
def softmax_and_cross_entropy() -> Pair:
    """−(1/N) Σ log(exp f_y/Σ_k exp f_k), against didact's loss"""
    f, y = torch.randn(20, 5), torch.randint(5, (20,))
    return -(f[torch.arange(20), y].exp() / f.exp().sum(1)).log().mean(), Categorical(5).mean_loss(f, y)


@claim("CF07", Same())
def triplet_term() -> Pair:
    """max(0, 1 − f(a,c) + f(a,b)), for a thousand pairs, is PyTorch's ranking loss of margin 1, and > 0 just where f(a,c) < 1 + f(a,b)"""
    fac, fab = 2 * torch.randn(1000), 2 * torch.randn(1000)
    term = torch.relu(1 - fac + fab)
    ranked = F.margin_ranking_loss(fac, fab, torch.ones(1000), margin=1.0, reduction="none")
    return [term, (term > 0).double()], [ranked, (fac < 1 + fab).double()]


@claim("CF08", Same())
def decay_as_a_prior() -> Pair:
    """the gradient of λ‖w‖², what didact's weight decay of 2λ adds, = that of −log N(w; 0, 1/(2λ))"""
    w, λ = torch.randn(6, requires_grad=True), 0.4
    prior = -torch.distributions.Normal(0.0, math.sqrt(1 / (2 * λ))).log_prob(w).sum()
    own = scratch.tensor(w.detach().numpy(), requires_grad=True)
    return gradients(prior, w)[0], SGD([own], weight_decay=2 * λ).penalised(own, np.zeros(6))


@claim("CF09", Same(), condition="divided by its own number of terms, B; the bare part of (1/N) Σ has the mean (B/N) ∇L")
def partial_sums_of_the_gradient() -> Cases:
    """the mean over all subsets of B = 3 of N = 6 examples of Σ ∇ℓ_n, ∇ℓ_n by didact's objective, over B, against didact's gradient on all
    six; and the same over N"""
    N, B, whole = 6, 3, gaba_2.gradient(range(6))
    g = torch.stack([gaba_2.gradient([n]) for n in range(N)])
    total = torch.stack([g[list(part)].sum(0) for part in combinations(range(N), B)]).mean(0)

    def against(mean: Tensor) -> Told:
        return Told((mean, whole), {"mean as a share of the gradient": (mean @ whole) / (whole @ whole)})

    return Cases(against(total / B), against(total / N))


@claim("CF10", Same(), right="f = f_D ∘ … ∘ f_1, as the figure has it")
def order_of_composition() -> Corrected:
    """f_1(f_2(f_3(x))) against x^(d) = f_d(x^(d−1)), d = 1, 2, 3, didact's chain; mended: f_3(f_2(f_1(x)))"""
    (f1, f2, f3), x = [modules.Sequential(modules.Linear(4, 4, rng=i), modules.Tanh()) for i in range(3)], scratch.tensor([[0.5, -1, 2, 0]])
    h = modules.Sequential(f1, f2, f3)(x)
    return Corrected((f1(f2(f3(x))).data, h.data), (f3(f2(f1(x))).data, h.data))


@claim("CF11", Same(), right="the Jacobian is that of f_d, at x^(d−1)")
def backward_through_a_layer() -> Corrected:
    """∇ at x^(1) from ∇ at x^(2) by the Jacobian of f_1 = tanh W_1, diag(1 − f²) W, against didact's engine; mended: by that of f_2"""
    W1, W2, x0 = (scratch.tensor(torch.randn(*n).numpy(), requires_grad=True) for n in ((4, 4), (4, 4), (4,)))
    x1 = (W1 @ x0).tanh()
    x2 = (W2 @ x1).tanh()
    after, before = (g.data for g in scratch.grad((x2**3).sum(), (x2, x1)))
    J1, J2 = ((1 - x.data**2)[:, None] * W.data for x, W in ((x1, W1), (x2, W2)))
    return Corrected((after @ J1, before), (after @ J2, before))


@claim("CF12", Printed("2", "2"))
def cost_of_the_backward_pass() -> list[float]:
    """products of the backward over those of the forward pass of didact's MLP, ten layers of 64: two for each, where the input wants a
    gradient too; one for the first, where it does not"""
    net = MLP(64, 64, hidden=(64,) * 9)

    def ratio(x: Tensor) -> float:
        forward = count_products(lambda: net(x).detach())
        return (count_products(lambda: net(x).sum().backward()) - forward) / forward

    return [ratio(torch.randn(8, 64, requires_grad=wants)) for wants in (True, False)]


@claim("CF14", Printed("14e6", "1.6e9", "12e9"), right="a thousand times fewer: a book of 250 pages of 2000 characters is half a megabyte")
def books_of_a_corpus() -> list[float]:
    """8 GB, 825 GB and 6 TB over 250 · 2000 bytes"""
    return [size / (250 * 2000) for size in (8e9, 825e9, 6e12)]


@claim("CF15", Printed("4e10"))
def dense_map_between_images() -> int:
    """(3 · 256 · 256)² weights of didact's affine map from one to the other"""
    with torch.device("meta"):  # sizes alone
        return weights(MLP(3 * 256 * 256, 3 * 256 * 256, hidden=(), init="pytorch"))


@claim("CF16", Exactly((2, 3, 4, 7)))
def dense_layer_on_a_tensor() -> tuple[int, ...]:
    """didact's Linear(5, 7) on a tensor 2 × 3 × 4 × 5"""
    return tuple(modules.Linear(5, 7)(scratch.tensor(np.zeros((2, 3, 4, 5), np.float32))).shape)


@claim("CF17", Same())
def length_of_a_convolution() -> Pair:
    """T − K + 1 of didact's convolution, and back to T by the transposed one"""
    cases, sizes = [(10, 3), (17, 5), (8, 1)], []
    for T, K in cases:
        w = scratch.tensor(np.zeros((3, 2, K)))
        y = conv1d(scratch.tensor(np.zeros((1, 2, T))), w)
        sizes.append((y.shape[-1], convolution_transpose(y, w).shape[-1]))
    return sizes, [(T - K + 1, T) for T, K in cases]


@claim("CF18", Same())
def transposed_convolution() -> Pair:
    """⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩, both didact's, and the second torch's"""
    w, x, y = torch.randn(3, 2, 4), torch.randn(1, 2, 14), torch.randn(1, 3, 6)
    kernel, given, answer = (scratch.tensor(t.numpy()) for t in (w, x, y))
    forth = (conv1d(given, kernel, stride=2).data * answer.data).sum()
    back = (given.data * convolution_transpose(answer, kernel, stride=2).data).sum()
    return [forth, forth], [back, (x * F.conv_transpose1d(y, w, stride=2)).sum()]


@claim("CF19", Same(), right="by K − 1; it is the radius that grows by about half the kernel")
def growth_of_the_receptive_field() -> Corrected:
    """what one more convolution of kernel K = 3, 5, 7 adds to the receptive field, by didact's geometry, against K/2; mended: K − 1"""
    kernels = torch.tensor([3, 5, 7])
    grown = [receptive_field([Window(3), Window(K)]) - receptive_field([Window(3)]) for K in kernels.tolist()]
    return Corrected((kernels / 2, grown), (kernels - 1, grown))


@claim("CF20", Same())
def composition_of_linear_maps() -> Pair:
    """didact's three dense layers without activations, against one matrix CBA and one vector C(Ba + b) + c"""
    layers = [modules.Linear(n, m, rng=n, dtype=np.float64) for n, m in ((3, 4), (4, 5), (5, 2))]
    (A, a), (B, b), (C, c) = ([p.data for p in layer.parameters()] for layer in layers)
    x = torch.randn(9, 3).numpy()
    return x @ (C @ B @ A).T + C @ (B @ a + b) + c, modules.Sequential(*layers)(scratch.tensor(x)).data


@claim("CF22", Same(1e-3))
def saturation_of_tanh() -> Pair:
    """(1 − |tanh x|) e^{2|x|} = 2 up to 1e-3 for |x| from 4 to 12, on both sides: what is left falls as e^{−2|x|}; didact's tanh"""
    x = torch.cat([torch.linspace(4, 12, 50), torch.linspace(-12, -4, 50)])
    return (1 - activation("tanh")(x).abs()) * (2 * x.abs()).exp(), torch.full((100,), 2.0)


@claim("CF23", Same())
def gelu() -> Pair:
    """x P(Z ≤ x), against didact's GELU, torch's and that of its own engine"""
    x = torch.linspace(-6, 6, 301)
    stated = x * torch.distributions.Normal(0.0, 1.0).cdf(x)
    return [stated, stated], [activation("gelu")(x), torch.from_numpy(scratch_gelu(scratch.tensor(x.numpy())).data)]


@claim("CF24", Exactly(((2, 5), True, False)))
def pooling() -> tuple[tuple[int, ...], bool, bool]:
    """shape of didact's max pooling of 2 × 15 by 3; is its average pooling linear; is its max pooling linear"""
    x, y = (scratch.tensor(torch.randn(1, 2, 15).numpy()) for _ in range(2))
    linear = [bool(np.allclose(f(x + y, 3).data, (f(x, 3) + f(y, 3)).data)) for f in (avg_pool, max_pool)]
    return max_pool(x, 3).shape[1:], linear[0], linear[1]


@claim("CF25", Sampled())
def dropout() -> tuple[list[Tensor], list[Tensor], list[float]]:
    """the mean of ones that didact dropped stays 1, and three of them survive together with (1 − p)³: 400,000 rows, p = 0.3"""
    y = torch.from_numpy(modules.Dropout(0.3, rng=0)(scratch.tensor(np.ones((400_000, 3)))).data)
    together = (y > 0).all(1).double()
    return [y.mean(), together.mean()], [y.std() / math.sqrt(y.numel()), together.std() / math.sqrt(400_000)], [1.0, 0.7**3]


@claim("CF26", Exactly((True, True, False)))
def dropout_of_channels() -> Told:
    """is each of 200 channels behind the channel dropout of didact's CIFAR10Net whole or gone, and are there both; and is each so behind a
    dropout of single values"""
    drop = next(m for m in CIFAR10Net(dropout2d=0.5).features if isinstance(m, nn.Dropout2d))
    kept, single = ((f(torch.ones(10, 20, 6, 6)) > 0).double().mean((2, 3)) for f in (drop, nn.Dropout(drop.p)))
    whole = [bool(((share == 0) | (share == 1)).all()) for share in (kept, single)]
    both = 0 < float(kept.mean()) < 1
    return Told((whole[0], both, whole[1]), {
        "channels whole or gone": whole[0], "some of each": both, "whole or gone where single values are dropped": whole[1]})


@claim("CF27", Same(1e-4), condition="variances far above ε, and γ not below 0: the deviation is |γ| √(v̂/(v̂ + ε))")
def moments_behind_batch_norm() -> Cases:
    """mean and standard deviation of each channel behind didact's BatchNorm2d, against β and γ: of inputs with deviation 3, and 0.001"""
    norm, γ, β = modules.BatchNorm2d(4, dtype=np.float64), 0.5 + torch.rand(4), torch.randn(4)
    norm.load_state_dict({**norm.state_dict(), "weight": γ, "bias": β})

    def moments(deviation: float) -> Pair:
        y = norm(scratch.tensor((deviation * torch.randn(16, 4, 8, 9) + 1).numpy())).data
        return [y.mean((0, 2, 3)), y.std((0, 2, 3))], [β, γ]

    return Cases(moments(3.0), moments(0.001))


@claim("CF28", Same())
def layer_norm_of_images() -> Pair:
    """mean and variance over D, H, W, a scale and a shift for each component, against didact's LayerNorm((D, H, W))"""
    norm, x, γ, β = modules.LayerNorm((3, 4, 5), dtype=np.float64), torch.randn(2, 3, 4, 5), torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    norm.load_state_dict({"weight": γ, "bias": β})
    axes = (1, 2, 3)
    x_hat = (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + norm.eps).sqrt()
    return x_hat * γ + β, norm(scratch.tensor(x.numpy())).data


@claim("CF29", Same(), right="QKᵀ: one weight for each query and key")
def product_of_queries_and_keys() -> Corrected:
    """softmax(QᵀK/√D) against the weights of didact's attention, 4 queries and 4 keys of width D = 4, where both are 4 × 4; mended: QKᵀ"""
    Q, K = torch.randn(4, 4), torch.randn(4, 4)
    weights = attention(Q, K, K)[1]
    return Corrected(((Q.T @ K / math.sqrt(4)).softmax(1), weights), ((Q @ K.T / math.sqrt(4)).softmax(1), weights))


@claim("CF30", Same(), condition="A read as the exponentials; as logits the terms must be −∞, since e⁰ is 1")
def causal_terms() -> Cases:
    """terms above the diagonal set to 0 and rows normalised, against didact's attention with its causal mask: exponentials, and logits"""
    q, k = torch.randn(6, 4), torch.randn(6, 4)
    s = q @ k.T / 2
    e = s.exp().tril()
    _, a = attention(q, k, torch.eye(6), masks.causal(6))
    return Cases((e / e.sum(1, keepdim=True), a), (s.tril().softmax(1), a))


@claim("CF31", Same())
def weights_of_heads() -> Pair:
    """H(2 D D_QK + D D_V) + H D_V D with D_QK = D_V = D/H, and with two widths, against didact's attention without biases"""
    def counted(D: int, H: int, QK: int, V: int) -> int:
        layer = GroupedQueryAttention(D, H, H, head_dim=QK)
        if V != QK:
            layer.v_proj, layer.o_proj = nn.Linear(D, H * V, bias=False), nn.Linear(H * V, D, bias=False)
        assert layer(torch.zeros(1, 2, D)).shape == (1, 2, D)                    # the sizes fit together
        return parameters(layer)

    cases = [(64, 4, 16, 16), (512, 8, 64, 64), (48, 3, 10, 7), (48, 3, 5, 48)]
    return [H * (2 * D * QK + D * V) + H * V * D for D, H, QK, V in cases], [counted(*case) for case in cases]


@claim("CF32", Same())
def order_in_attention() -> Pair:
    """shuffled keys and values change nothing; shuffled queries shuffle the answers"""
    q, k, v, order = torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 3), torch.tensor([3, 0, 4, 1, 2])
    y = attention(q, k, v)[0]
    return [attention(q, k[order], v[order])[0], attention(q[order], k, v)[0]], [y, y[order]]


@claim("CF33", Same())
def embedding() -> Pair:
    """didact's embedding looks rows up: the product of one-hot vectors with its matrix; and its gradient sums what reaches each row"""
    layer, ids, dy = modules.Embedding(11, 4, rng=0, dtype=np.float64), torch.randint(11, (2, 3, 5)), torch.randn(2, 3, 5, 4)
    (W,), onehot = layer.parameters(), F.one_hot(ids, 11).double()
    y = layer(ids.numpy())
    (dW,) = scratch.grad((y * dy.numpy()).sum(), (W,))
    return [onehot @ torch.from_numpy(W.data), torch.einsum("abcn,abcd->nd", onehot, dy)], [y.data, dW.data]


@claim("CF34", SINGLE)
def positional_encoding() -> Pair:
    """sin(t/T^{d/D}) for even d and cos(t/T^{(d−1)/D}) for odd d, T = 10⁴, against Lhotte's matrix of 2i and 2i + 1, and didact's"""
    t, d = torch.arange(40.0)[:, None], torch.arange(8)
    stated = torch.where(d % 2 == 0, (t / 1e4 ** (d / 8)).sin(), (t / 1e4 ** ((d - 1) / 8)).cos())
    return [stated, stated], [positions(40, 8), sinusoidal(40, 8)]


@claim("CF35", Exactly((25, 10, 2)))
def sizes_of_an_mlp() -> tuple[int, ...]:
    """what didact's MLP of 50 → 25 → 10 → 2 makes of an example, layer by layer"""
    net, found = MLP(50, 2, hidden=(25, 10)), list[int]()
    for layer in (m for m in net.modules() if isinstance(m, nn.Linear)):
        layer.register_forward_hook(lambda _m, _i, y: found.append(y.shape[1]))
    net(torch.zeros(1, 50))
    return tuple(found)


@claim("CF36", Exactly((784, 256, 10)))
def sizes_of_a_lenet() -> tuple[int, ...]:
    """the image, what the convolutions leave of it, the logits: didact's own network"""
    net, x = LeNetLike(), torch.zeros(1, 1, 28, 28)
    return x.numel(), net.features(x).numel(), net(x).numel()


@claim("CF37", Exactly(((64, 112, 112), (2048, 7, 7), (1000,))), condition="with the max pooling of stride 2 that only the drawing has")
def shapes_of_resnet50() -> Cases:
    """behind the first convolution, before the average pooling, at the end: didact's own network on 224 × 224, with max pooling and
    without"""
    with torch.device("meta"):
        net, x, shapes = create("resnet50", size=(224, 224)).eval(), torch.empty(1, 3, 224, 224), list[tuple[int, ...]]()
        for layer in (net.conv1, net.layer4, net.fc):
            layer.register_forward_hook(lambda _m, _i, y: shapes.append(tuple(y.shape[1:])))
        net(x)
        net.maxpool = nn.Identity()
        net(x)
    return Cases(tuple(shapes[:3]), tuple(shapes[3:]))


@claim("CF39", Same())
def cost_in_the_channels() -> Told:
    """products and weights of didact's 3 × 3 convolution for 8, 16, 32 channels in and out, over those for 8: 4ᵏ for 2ᵏ times the channels;
    weights of one for 256 and of didact's bottleneck, which has it on a quarter of them: 9 C², and 2 C · C/4 + 9 (C/4)²"""
    costs, sizes, C = list[int](), list[int](), 256
    for c in (8, 16, 32):
        conv, x = dilated(c, c, 3), torch.randn(1, c, 9, 9)
        costs.append(count_products(lambda conv=conv, x=x: conv(x)))  # type: ignore[misc]
        sizes.append(weights(conv))
    plain, neck = weights(dilated(C, C, 3)), weights(Bottleneck(C, C // 4))
    grown = [[n / of[0] for n in of] for of in (costs, sizes)]
    stated = [[4**k for k in range(3)]] * 2
    return Told(([*grown, plain, neck], [*stated, 9 * C**2, 2 * C * (C // 4) + 9 * (C // 4) ** 2]),
                {"cost of 1, 2 and 4 times the channels": grown[0], "weights of 3 × 3 on 256 channels": plain, "of the bottleneck": neck})


@claim("CF40", Exactly(((64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7))))
def sections_of_resnet50() -> tuple[tuple[int, ...], ...]:
    """channels and side before the first section and behind each of the four"""
    with torch.device("meta"):
        net, x = create("resnet50", size=(224, 224)).eval(), torch.empty(1, 3, 224, 224)
        shapes = []
        for layer in (net.maxpool, net.layer1, net.layer2, net.layer3, net.layer4):
            layer.register_forward_hook(lambda _m, _i, y: shapes.append((y.shape[1], y.shape[2])))
        net(x)
    return tuple(shapes)


@claim("CF41", Exactly((192, 17)))
def tokens_of_a_vit() -> tuple[int, int]:
    """3P² numbers in a patch and M + 1 tokens, for 32 × 32 images and P = 8: didact's own network"""
    keywords, _ = ViT.example()
    net = ViT(**{**keywords, "size": (32, 32), "patch": 8, "channels": 3})
    x = torch.zeros(1, 3, 32, 32)
    return F.unfold(x, 8, stride=8).shape[1], net.embed(x).shape[1]


@claim("CF42", Same())
def causal_model() -> Pair:
    """how many of the logits of didact's small GPT at t = 0 … 7 change with the token at s: all for t ≥ s, none before, against 1 and 0"""
    net, ids = create("gpt_small", vocabulary=20).eval(), torch.randint(20, (1, 8))
    with torch.no_grad():
        logits, share = net(ids)[0], []
        for s in range(8):
            other = ids.clone()
            other[0, s] = (ids[0, s] + 1) % 20
            share.append(((net(other)[0] - logits).abs() > 1e-9).double().mean(1))
    return torch.stack(share, dim=1), torch.ones(8, 8).tril()


@claim("CF44", Same(), right="a cosine needs vectors of length 1; CLIP also multiplies by a learned temperature")
def scores_of_clip() -> Corrected:
    """f(i_m)ᵀ g(t_n) against didact's cosines of all pairs; mended: both divided by their lengths"""
    f, g = torch.randn(4, 8), torch.randn(4, 8)
    unit = [v / v.square().sum(1, keepdim=True).sqrt() for v in (f, g)]
    return Corrected((f @ g.T, cosine(f, g)), (unit[0] @ unit[1].T, cosine(f, g)))


@claim("CF45", Same())
def denoiser() -> Pair:
    """the table that minimises E(f(X̃) − X)² for a joint law of 5 × 6 values, by least squares, against E(X|X̃)"""
    joint, x = torch.rand(5, 6), torch.randn(5)
    joint = joint / joint.sum()
    design, weight = torch.eye(6).repeat(5, 1), joint.flatten().sqrt()
    fitted = torch.linalg.lstsq(design * weight[:, None], (x.repeat_interleave(6) * weight)[:, None]).solution[:, 0]
    return fitted, (joint * x[:, None]).sum(0) / joint.sum(0)


@claim("CF48", Same())
def graph_layer() -> Pair:
    """σ(AXW) against σ(Σ_j x_j W) over the neighbours j of each of six vertices; and of renumbered ones against the renumbered output"""
    A, X, W, order = (torch.rand(6, 6) > 0.5).double(), torch.randn(6, 4), torch.randn(4, 3), torch.tensor([3, 0, 5, 1, 4, 2])
    P = torch.eye(6)[order]
    near = torch.stack([torch.tanh(sum((X[j] @ W for j in range(6) if A[i, j]), torch.zeros(3))) for i in range(6)])
    return [torch.tanh(A @ X @ W), torch.tanh(P @ A @ P.T @ (P @ X) @ W)], [near, near[order]]


@claim("CF49", Exactly((False, True)))
def residual_around_a_dead_stage() -> Told:
    """is ‖∂L/∂x‖ > 0 behind a stage that kills the gradient, and with didact's residual connection around it"""
    x, dead = torch.randn(5, requires_grad=True), nn.Threshold(100.0, 1.0)
    outs = dead(x), PreNorm(dead, nn.Identity())(x)
    left = [gradients(y.square().sum() + y.sum(), x)[0].norm() for y in outs]
    return Told(tuple(bool(g > 0) for g in left), {"‖∂L/∂x‖ of the stage alone": left[0], "with the residual connection": left[1]})


@claim("CF50", Same())
def leaky_relu() -> Pair:
    """a x below zero and x above, a = 0.1 and 0.01, against didact's own engine and its activation"""
    x = torch.randn(50)
    ours = torch.from_numpy(scratch_leaky_relu(scratch.tensor(x.numpy()), 0.1).data), activation("leaky_relu")(x)
    return [torch.where(x < 0, a * x, x) for a in (0.1, 0.01)], list(ours)
