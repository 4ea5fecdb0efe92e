"""Lhotte: what the listings print, and the formulas beside them."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from didact import metrics
from didact.claims.compare import Cases, Corrected, Exactly, Inside, Printed, Same, Sampled
from didact.claims.core import claim
from didact.claims.gaba_1 import steepest_sigmoid
from didact.claims.gaba_2 import rates
from didact.claims.tools import Pair, gradients, parameters
from didact.models.mlp import MLP
from didact.registry import create


@claim("CL01", Exactly((6.5, 2.0)))
def linear_model() -> tuple[float, float]:
    """an object with w = 2 and b = 0.5: its predict(3.0), which is w x + b, and its w"""
    class LinearModel:
        def __init__(self, w: float, b: float):
            self.w, self.b = w, b

        def predict(self, x: float) -> float:
            return self.w * x + self.b

    model = LinearModel(2.0, 0.5)
    return model.predict(3.0), model.w


@claim("CL02", Exactly("torch.Size([4, 1])"))
def tiny_mlp() -> str:
    """10 – 32 – 1 on a 4 × 10 input"""
    return str(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))(torch.randn(4, 10)).shape)


@claim("CL03", Exactly("tensor(2.)"))
def derivative_of_a_square() -> str:
    """∂x²/∂x at 1"""
    x = torch.tensor(1.0, requires_grad=True)
    return str(gradients(x**2, x)[0])


@claim("CL04", Exactly((2.0, 3.0)))
def gradient_of_two_variables() -> Tensor:
    """∇(x₁² + 3x₂) at (1, 2)"""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return gradients(x[0] ** 2 + 3 * x[1], x)[0]


@claim("CL05", Exactly((1, 0)))
def rank_of_an_outer_product() -> tuple[int, ...]:
    """the rank of aaᵀ for a = (1, 2, 3), and for a = 0"""
    return tuple(int(torch.linalg.matrix_rank(torch.outer(a, a))) for a in (torch.tensor([1.0, 2, 3]), torch.zeros(3)))


@claim("CL07", Same())
def gradient_of_a_formula() -> Pair:
    """1/y − sin x sin y and −x/y² + cos x cos y at (1, 5), against the engine"""
    x, y = torch.tensor(1.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    return [1 / y - x.sin() * y.sin(), -x / y**2 + x.cos() * y.cos()], gradients(x / y + x.cos() * y.sin(), x, y)


def products(z: Tensor) -> int:
    """Multiplications in the graph behind z."""
    seen, stack = set(), [z.grad_fn]
    while stack:
        node: Any = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [parent for parent, _ in node.next_functions]
    return sum(type(n).__name__ == "MulBackward0" for n in seen)


@claim("CL08", Exactly((1, 2)))
def dynamic_graph() -> tuple[int, ...]:
    """MulBackward0 nodes of x·x if x > 0 else x·x·x, at x = 1 and x = −1"""
    found = []
    for value in (1.0, -1.0):
        x = torch.tensor(value, requires_grad=True)
        found.append(products(x * x if x.item() > 0 else x * x * x))
    return tuple(found)


@claim("CL10", Exactly((3,)), right="nn.Linear answers (3, 1); compared with targets (3,) that broadcasts to (3, 3)")
def shape_of_predictions() -> tuple[int, ...]:
    """the output of nn.Linear(1, 1) on three samples"""
    return tuple(nn.Linear(1, 1)(torch.zeros(3, 1)).shape)


@claim("CL11", Exactly((((2, 1), (2, 1)), ((1, 1), (1, 1)))))
def batches() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """x and y of each batch of three samples, batch size 2"""
    loader = DataLoader(TensorDataset(torch.zeros(3, 1), torch.zeros(3, 1)), batch_size=2)
    return tuple(tuple(tuple(t.shape) for t in batch) for batch in loader)


@claim("CL12", Exactly("torch.Size([1, 1])"))
def one_neuron() -> str:
    """nn.Linear(3, 1) on a 1 × 3 input"""
    return str(nn.Linear(3, 1)(torch.randn(1, 3)).shape)


@claim("CL13", Exactly(4), right="three layers with weights, two of them hidden; the input is not a layer of the network")
def layers_of_a_network() -> int:
    """layers with weights of 2 → 16 → 16 → 1"""
    net = create("mlp", features=2, hidden=(16, 16), outputs=1)
    return sum(isinstance(m, nn.Linear) for m in net.modules())


@claim("CL14", Same())
def gradient_of_a_matrix() -> Pair:
    """∂J/∂W = (∂J/∂z) uᵀ for z = W u"""
    W, u, y = torch.randn(4, 3, requires_grad=True), torch.randn(3), torch.randn(4)
    z = W @ u
    dz, dW = gradients((z - y).pow(4).sum(), z, W)
    return torch.outer(dz, u), dW


@claim("CL15", Same(), right="(f∘g)′(x): the prime at the left is missing")
def chain_rule() -> Corrected:
    """(f∘g)(x) = g′(x) f′(g(x)) for sin∘exp; mended: its derivative"""
    x = torch.linspace(-1, 1, 20).requires_grad_()
    whole = x.exp().sin()
    right = x.exp() * x.exp().cos()
    return Corrected((whole, right), (gradients(whole.sum(), x), right))


@claim("CL16", Inside(low=1), condition="more epochs than step_size: the 50 of the listing never reach a step of 100")
def decays_of_the_loop() -> Cases:
    """how often StepLR(step_size=100, gamma=0.1) lowers the rate: in 250 epochs, and in the listing's 50"""
    def decays(epochs: int) -> int:
        found = rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 100, 0.1), epochs + 1)
        return sum(b < a for a, b in pairwise(found))

    return Cases(decays(250), decays(50))


@claim("CL18", Sampled())
def dropout() -> tuple[Tensor, Tensor, float]:
    """E[y] = x: the mean of a million outputs of nn.Dropout(0.4) at x = 2.5; in eval mode it is the identity"""
    layer, x = nn.Dropout(0.4), torch.full((1_000_000,), 2.5)
    y = layer(x)
    assert torch.equal(layer.eval()(x), x)
    return y.mean(), y.std() / 1000, 2.5


@claim("CL19", Exactly("Expected floating point type for target with class probabilities, got Long"))
def one_hot_targets() -> str:
    """the message of CrossEntropyLoss for integer one-hot targets"""
    try:
        nn.CrossEntropyLoss()(torch.randn(4, 3), F.one_hot(torch.tensor([0, 1, 2, 0]), 3))
    except RuntimeError as error:
        return str(error).strip()
    return "no error"


@claim("CL20", Exactly((0, 2)))
def random_labels() -> tuple[int, int]:
    """the least and the largest of a thousand torch.randint(0, 3, …)"""
    y = torch.randint(0, 3, (1000,))
    return int(y.min()), int(y.max())


@claim("CL21", Same())
def softmax_sums_to_one() -> Pair:
    """Σ softmax(z) = 1, and no entry below 0"""
    p = (10 * torch.randn(20, 5)).softmax(1)
    return [p.sum(1), p.clamp(max=0)], [torch.ones(20), torch.zeros(20, 5)]


claim("CL22", Printed("0.25"))(steepest_sigmoid)


@claim("CL23", Exactly(10_000))
def neuron_on_an_image() -> int:
    """gradients that reach one unit of didact's MLP from an image of 100 × 100 pixels, none of them shared"""
    x = torch.rand(1, 1, 100, 100, requires_grad=True)
    first = MLP(100 * 100, 1, hidden=(1,), activation="tanh")
    (g,) = gradients(first(x.flatten(1)).sum(), x)
    return len(g.unique())


@claim("CL24", Exactly((432, 16, 448, (16, 16, 16))))
def convolution() -> tuple[Any, ...]:
    """weights, biases, their sum and the output of nn.Conv2d(3, 16, 3, padding=1) on 3 × 16 × 16"""
    conv = nn.Conv2d(3, 16, 3, padding=1)
    assert conv.bias is not None
    return conv.weight.numel(), conv.bias.numel(), parameters(conv), tuple(conv(torch.zeros(1, 3, 16, 16)).shape[1:])


@claim("CL25", Exactly((3, 16, 16)))
def max_pooling() -> tuple[int, ...]:
    """2 × 2 max pooling of 3 × 32 × 32"""
    return tuple(nn.MaxPool2d(2)(torch.zeros(1, 3, 32, 32)).shape[1:])


@claim("CL26", Same(), right="nn.AvgPool2d(32) or nn.AdaptiveAvgPool2d(1); the listing takes the maximum")
def global_average_pooling() -> Corrected:
    """nn.MaxPool2d(32) of 3 × 32 × 32 against the mean of each channel; mended: nn.AvgPool2d(32)"""
    x = torch.randn(1, 3, 32, 32)
    mean = x.mean((2, 3))
    return Corrected((nn.MaxPool2d(32)(x), mean), (nn.AvgPool2d(32)(x), mean))


@claim("CL27", Exactly(((16, 16, 16), (32, 8, 8), (10,))))
def tiny_conv_net() -> tuple[tuple[int, ...], ...]:
    """two of [conv 3 × 3 padding 1, ReLU, pooling 2] with 16 and 32 channels on 3 × 32 × 32, then ten classes"""
    x, shapes = torch.zeros(1, 3, 32, 32), []
    for c_in, c_out in ((3, 16), (16, 32)):
        x = F.max_pool2d(nn.Conv2d(c_in, c_out, 3, padding=1)(x).relu(), 2)
        shapes.append(tuple(x.shape[1:]))
    return (*shapes, tuple(nn.Linear(32 * 8 * 8, 10)(x.flatten(1)).shape[1:]))


@claim("CL28", Printed("0.99", "1", "0", "0.99"))
def always_yes() -> list[float]:
    """accuracy, recall of yes and of no, precision of yes, for 99 yes and 1 no; precision of no is 0/0"""
    y, answer = torch.cat([torch.ones(99), torch.zeros(1)]).long(), torch.ones(100).long()
    counts = metrics.confusion(answer, y, 2)
    recall, precision = metrics.recall(counts), metrics.precision(counts)
    return [float((answer == y).double().mean()), float(recall[1]), float(recall[0]), float(precision[1])]


@claim("CL29", Exactly(((5, 16, 9, 13), (5, 16, 4, 6))))
def simple_classifier() -> tuple[tuple[int, ...], ...]:
    """a 3 × 3 convolution with padding 1 keeps 9 × 13; pooling by 2 halves it, rounding down"""
    y = nn.Conv2d(3, 16, 3, padding=1)(torch.zeros(5, 3, 9, 13))
    return tuple(y.shape), tuple(F.max_pool2d(y, 2).shape)


@claim("CL30", Exactly((24, 32)))
def tiny_unet() -> tuple[int, ...]:
    """the output of didact's own small U-Net for a 24 × 32 image"""
    return tuple(create("unet_tiny")(torch.zeros(1, 1, 24, 32)).shape[2:])


@claim("CL47", Same())
def derivative_of_a_maximum() -> Pair:
    """∂max(a, b): 1 for the larger, 0 for the other"""
    a, b = torch.randn(20, requires_grad=True), torch.randn(20, requires_grad=True)
    return gradients(torch.maximum(a, b).sum(), a, b), [(a > b).double(), (b > a).double()]


@claim("CL06", Exactly(((4, 3, 32, 32), "cpu")))
def batch_of_images() -> tuple[tuple[int, ...], str]:
    """four images of 3 × 32 × 32, and where they lie"""
    x = torch.stack([torch.randn(3, 32, 32) for _ in range(4)])
    return tuple(x.shape), x.device.type


@claim("CL09", Same())
def descent_is_deterministic() -> Pair:
    """w after 20 steps of torch.optim.SGD on the same data, three times"""
    def trained() -> Tensor:
        w, x = torch.zeros(1, requires_grad=True), torch.tensor([1.0, 2.0, 3.0])
        sgd = torch.optim.SGD([w], lr=0.05)
        for _ in range(20):
            sgd.zero_grad()
            (w * x - 2 * x).square().mean().backward()
            sgd.step()
        return w.detach()

    first, second, third = trained(), trained(), trained()
    return [second, third], [first, first]


@claim("CL17", Same())
def regularised_net() -> Pair:
    """widths that data meet in Linear(100, 100), BatchNorm1d, ReLU, Dropout, Linear(100, 10), and its size against didact's MLP"""
    layers = [nn.Linear(100, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Dropout(), nn.Linear(100, 10)]
    h, seen = torch.randn(7, 100), [100]
    for layer in layers:
        h = layer(h)
        seen.append(h.shape[1])
    ours = MLP(100, 10, hidden=(100,), norm="batch", dropout=0.5)
    return [seen[0], seen[4], seen[5], parameters(nn.Sequential(*layers))], [100, 100, 10, parameters(ours)]


@claim("CL36", Same())
def new_head() -> Pair:
    """inputs of the last layer of didact's ResNet-18, and scores with a head of two classes, against the maps that reach it and 2"""
    net, x = create("resnet18", classes=2).eval(), torch.zeros(1, 3, 64, 64)
    maps: list[int] = []
    net.layer4.register_forward_hook(lambda module, given, out: maps.append(out.shape[1]))
    scores = net(x)
    return [net.fc.in_features, scores.shape[1]], [maps[0], 2]


@claim("CL43", Inside(0.95, 1.05))
def size_of_gpt_2() -> float:
    """parameters of didact's gpt2_xl, the largest GPT-2 (48 layers of 1600), over 1.5·10⁹; about is read as within five per cent"""
    with torch.device("meta"):
        return parameters(create("gpt2_xl")) / 1.5e9
