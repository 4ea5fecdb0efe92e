"""Lhotte: what the listings print, and the formulas beside them."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from didact import metrics, scratch
from didact.adaptation.lora import LoRA
from didact.analysis.receptive_field import SlidingWindow
from didact.claims.compare import (
    Approximately,
    Conditional,
    CorrectedClaim,
    Equal,
    Exactly,
    Printed,
    ShownAs,
    WithinStandardErrors,
)
from didact.claims.core import claim
from didact.claims.gaba_1 import steepest_sigmoid
from didact.claims.gaba_2 import scheduler_rates
from didact.claims.tools import Pair, compute_gradients, count_parameters
from didact.data.core import TensorSplit, uint8_to_unit
from didact.layers.conv.norm_pool import make_pool2d
from didact.models.tabular.mlp import MLP
from didact.models.text.gpt import GPT
from didact.models.vision.resnet import ResNet
from didact.objectives.distributions.classification import Categorical
from didact.optim.schedule import StepDecay
from didact.registry import create_model
from didact.scratch import modules
from didact.scratch.gradients.compare_gradients import compare_gradients
from didact.scratch.optim import SGD
from didact.scratch.pooling import avg_pool, max_pool
from didact.training.seeding import epoch_permutation


@claim("CL01", Exactly((6.5, 2.0)))
def linear_model() -> tuple[float, float]:
    """didact's linear model with w = 2 and b = 0.5: its prediction at 3.0, which is w x + b, and its w"""
    model = modules.Linear(1, 1, dtype=np.float64)
    model.load_state_dict({"weight": [[2.0]], "bias": [0.5]})
    return model(scratch.tensor([[3.0]])).item(), model.weight.item()


@claim("CL02", Exactly("torch.Size([4, 1])"))
def tiny_mlp() -> str:
    """didact's MLP 10 – 32 – 1 on a 4 × 10 input"""
    return str(MLP(10, 1, hidden=(32,))(torch.randn(4, 10)).shape)


@claim("CL03", Exactly("tensor(2.)"))
def derivative_of_a_square() -> str:
    """∂x²/∂x at 1, by didact's own engine, as torch prints it"""
    return str(torch.tensor(compare_gradients("x**2", {"x": 1.0})["reverse"]["x"]))


@claim("CL04", Exactly((2.0, 3.0)))
def gradient_of_two_variables() -> tuple[float, ...]:
    """∇(x₁² + 3x₂) at (1, 2), by didact's own engine"""
    return tuple(compare_gradients("a**2 + 3*b", {"a": 1.0, "b": 2.0})["reverse"].values())


@claim("CL05", Exactly((1, 0)))
def rank_of_an_outer_product() -> tuple[int, ...]:
    """the rank of aaᵀ for a = (1, 2, 3), and for a = 0: of what didact's LoRA of rank 1 with B = a and A = aᵀ adds
    to a matrix of zeros"""
    def rank(a: Tensor) -> int:
        layer = LoRA(nn.Linear(3, 3, bias=False), rank=1)
        w = layer.layer.get_parameter("weight")
        w.data.zero_()
        layer.a.data, layer.b.data = a[None], a[:, None]
        layer.merge_weights()
        return int(torch.linalg.matrix_rank(w))

    return rank(torch.tensor([1.0, 2, 3])), rank(torch.zeros(3))


@claim("CL07", Equal(1e-8))
def gradient_of_a_formula() -> Pair:
    """1/y − sin x sin y and −x/y² + cos x cos y at (1, 5), against didact's four ways to a gradient"""
    x, y = 1.0, 5.0
    stated = [1 / y - math.sin(x) * math.sin(y), -x / y**2 + math.cos(x) * math.cos(y)]
    gradients_by_method = compare_gradients("x/y + cos(x)*sin(y)", {"x": x, "y": y})
    return [stated] * 4, [list(gradient.values()) for gradient in gradients_by_method.values()]


def _count_graph_products(z: Any) -> tuple[int, int]:
    """Multiplications in the graph behind z, by PyTorch's engine or didact's, and arrows into the last operation."""
    is_scratch = isinstance(z, scratch.Tensor)
    visited, to_visit = list[Any](), [z.node if is_scratch else z.grad_fn]
    while to_visit:
        node = to_visit.pop()
        if node is not None and node not in visited:
            visited.append(node)
            to_visit += _graph_parents(node)
    return sum((n.name if is_scratch else n.name().removesuffix("Backward0").lower()) == "mul" for n in visited), len(
        _graph_parents(visited[0])
    )


def _graph_parents(node: Any) -> list[Any]:
    """What an operation reads, leaves too: didact's have no node, PyTorch's one that accumulates their gradient."""
    return [x.node for x in node.inputs] if hasattr(node, "inputs") else [parent for parent, _ in node.next_functions]


@claim(
    "CL08",
    Exactly((1, 2, 2, 1, 2, 2)),
    remark="in PyTorch's graph, and in figure 2.2, nodes are operations and edges carry tensors; §2.2 has it the other "
           "way round",
)
def dynamic_graph() -> ShownAs:
    """MulBackward0 nodes of x·x if x > 0 else x·x·x at x = 1, edges into the one there, and nodes at x = −1; the
    same of didact's engine"""
    def counts(leaf: Callable[[float], Any]) -> tuple[int, int, int]:
        def graph(x: Any) -> Any:
            return x * x if x.item() > 0 else x * x * x

        (nodes, edges), (products_at_minus_one, _) = (
            _count_graph_products(graph(leaf(1.0))),
            _count_graph_products(graph(leaf(-1.0))),
        )
        return nodes, edges, products_at_minus_one

    theirs, ours = (counts(partial(make, requires_grad=True)) for make in (torch.tensor, scratch.tensor))
    return ShownAs(
        theirs + ours,
        {
            f"{what}, PyTorch's and didact's": (a, b)
            for what, a, b in zip(("products of x·x", "edges into it", "products of x·x·x"), theirs, ours, strict=True)
        },
    )


@claim(
    "CL10",
    Exactly((3,)),
    correction="a number times x of (3, 1) is (3, 1); minus y of (3,) it broadcasts to (3, 3), unnoticed because all y "
               "are 1",
)
def shape_of_predictions() -> tuple[int, ...]:
    """the shape of w x in the listing by didact's engine, w a number and x of three rows and one column"""
    w, x = scratch.tensor(0.5), scratch.tensor(np.zeros((3, 1)))
    return tuple((w * x).shape)


@claim(
    "CL11",
    Equal(),
    remark="didact's training joins a last batch of a single sample to the one before: batch norm could not take it",
)
def batches() -> ShownAs:
    """shapes of x and y in each batch of the listing's DataLoader, batch size 2 of three samples shuffled, and of
    didact's split in the
    order in which it judges, against [2, 1], [2, 1] and [1, 1], [1, 1]; and the samples that came, each once"""
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[0.0], [1.0], [4.0]])
    theirs = list(DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True))
    ours = [
        (b["x"], b["y"]) for b in TensorSplit({"x": x, "y": y}).batches(epoch_permutation(3, seed=0, epoch=0).split(2))
    ]
    shapes = [[list(t.shape) for batch in batches for t in batch] for batches in (theirs, ours)]
    samples = [torch.cat([t for t, _ in batches]).flatten().sort().values for batches in (theirs, ours)]
    return ShownAs(([*shapes, *samples], [[[2, 1], [2, 1], [1, 1], [1, 1]]] * 2 + [x.flatten()] * 2),
                {"DataLoader's batches": str(shapes[0]), "didact's": str(shapes[1])})


@claim("CL12", Exactly("torch.Size([1, 1])"))
def one_neuron() -> str:
    """didact's MLP of one neuron and three inputs on a 1 × 3 input"""
    return str(MLP(3, 1, hidden=())(torch.randn(1, 3)).shape)


@claim(
    "CL13",
    Exactly(4),
    correction="three layers with weights, two of them hidden; the input is not a layer of the network",
)
def layers_of_a_network() -> int:
    """layers with weights of 2 → 16 → 16 → 1"""
    net = create_model("mlp", features=2, hidden=(16, 16), outputs=1)
    return sum(isinstance(m, nn.Linear) for m in net.modules())


@claim("CL14", Equal())
def gradient_of_a_matrix() -> Pair:
    """∂J/∂W = (∂J/∂z) uᵀ for z = W u and J = Σ(z − y)⁴, ∂J/∂z = 4(z − y)³, against didact's own engine"""
    W, u, y = torch.randn(4, 3), torch.randn(3), torch.randn(4)
    leaf = scratch.tensor(W.numpy(), requires_grad=True)
    (dW,) = scratch.grad(((leaf @ u.numpy() - y.numpy()) ** 4).sum(), (leaf,))
    return torch.outer(4 * (W @ u - y) ** 3, u), dW.data


@claim("CL15", Equal(), correction="(f∘g)′(x): the prime at the left is missing")
def chain_rule() -> CorrectedClaim:
    """(f∘g)(x) = g′(x) f′(g(x)) for sin∘exp; mended: its derivative, by didact's own engine"""
    x = scratch.tensor(np.linspace(-1, 1, 20), requires_grad=True)
    composed = x.exp().sin()
    stated = np.exp(x.data) * np.cos(np.exp(x.data))
    return CorrectedClaim((composed.data, stated), (scratch.grad(composed.sum(), (x,))[0].data, stated))


@claim(
    "CL16",
    Exactly(((100, 0.1), (200, 0.1)) * 2),
    condition="more epochs than step_size: the 50 of the listing never reach 100",
)
def decays_of_the_loop() -> Conditional:
    """epochs at which StepLR(step_size=100, gamma=0.1) lowers the rate, and by what factor, didact's and torch's:
    in 250 epochs, and in the
    listing's 50"""
    def decays(epochs: int) -> ShownAs:
        ours = [StepDecay(gamma=0.1, every=100)(t, epochs) for t in range(epochs + 1)]
        theirs = scheduler_rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 100, 0.1), epochs + 1, lr=0.1)
        decay_steps = [
            (t, round(b / a, 9)) for lr in (ours, theirs) for t, (a, b) in enumerate(pairwise(lr), 1) if b != a
        ]
        epochs_shown = [t for t in (0, 99, 100, 199, 200, epochs) if t <= epochs]
        return ShownAs(tuple(decay_steps), {"epoch": epochs_shown, "rate": [theirs[t] for t in epochs_shown]})

    return Conditional(decays(250), decays(50))


@claim("CL18", WithinStandardErrors())
def dropout() -> tuple[Tensor, Tensor, float]:
    """E[y] = x: the mean of a million outputs of didact's dropout, p = 0.4, at x = 2.5; in eval mode it is the
    identity"""
    layer, x = modules.Dropout(0.4, rng=0), scratch.tensor(np.full(1_000_000, 2.5))
    y = torch.from_numpy(layer(x).data)
    layer.eval()
    assert np.array_equal(layer(x).data, x.data)
    return y.mean(), y.std() / 1000, 2.5


@claim("CL19", Exactly("Expected floating point type for target with class probabilities, got Long"),
       remark="of integers alone: one-hot rows of floats are accepted, unlike what the heading says")
def one_hot_targets() -> str:
    """the message for integer one-hot targets, which CrossEntropyLoss gives and didact's own objective hands on"""
    try:
        Categorical(3).mean_loss(torch.randn(4, 3), F.one_hot(torch.tensor([0, 1, 2, 0]), 3))
    except RuntimeError as error:
        return str(error).strip()
    return "no error"


@claim("CL20", Exactly((0, 2)))
def random_labels() -> tuple[int, int]:
    """the least and the largest of a thousand torch.randint(0, 3, …), as didact's confusion matrix of four classes
    counts them"""
    y = torch.randint(0, 3, (1000,))
    labels_found = metrics.confusion_matrix(y, y, 4).sum(1).nonzero()
    return int(labels_found.min()), int(labels_found.max())


@claim("CL21", Equal())
def softmax_sums_to_one() -> Pair:
    """didact's probabilities, e^z/Σ e^z: they sum to 1, and none is below 0"""
    z = 10 * torch.randn(20, 5)
    p = Categorical(5).probabilities(z)
    return [z.exp() / z.exp().sum(1, keepdim=True), torch.ones(20), torch.zeros(20, 5)], [p, p.sum(1), p.clamp(max=0)]


claim("CL22", Printed("0.25"))(steepest_sigmoid)


@claim("CL23", Exactly(10_000))
def neuron_on_an_image() -> int:
    """gradients that reach one unit of didact's MLP from an image of 100 × 100 pixels, none of them shared"""
    x = torch.rand(1, 1, 100, 100, requires_grad=True)
    first = MLP(100 * 100, 1, hidden=(1,), activation="tanh")
    (g,) = compute_gradients(first(x.flatten(1)).sum(), x)
    return len(g.unique())


@claim("CL24", Exactly((432, 16, 448, (16, 16, 16))))
def convolution() -> tuple[Any, ...]:
    """weights, biases, their sum and the output of didact's Conv2d(3, 16, 3, padding=1) on 3 × 16 × 16"""
    conv = modules.Conv2d(3, 16, 3, padding=1)
    weight, bias = (p.size for p in conv.parameters())
    return weight, bias, weight + bias, tuple(conv(scratch.tensor(np.zeros((1, 3, 16, 16), np.float32))).shape[1:])


@claim("CL25", Exactly((3, 16, 16)))
def max_pooling() -> tuple[int, ...]:
    """didact's 2 × 2 max pooling of 3 × 32 × 32"""
    return tuple(make_pool2d("max")(torch.zeros(1, 3, 32, 32)).shape[1:])


@claim("CL26", Equal(), correction="nn.AvgPool2d(32) or nn.AdaptiveAvgPool2d(1); the listing takes the maximum")
def global_average_pooling() -> CorrectedClaim:
    """max pooling by 32 of 3 × 32 × 32 against the mean of each channel; mended: average pooling by 32; both
    didact's"""
    x = torch.randn(1, 3, 32, 32)
    scratch_x, mean = scratch.tensor(x.numpy()), x.mean((2, 3))
    return CorrectedClaim((max_pool(scratch_x, 32).data, mean), (avg_pool(scratch_x, 32).data, mean))


@claim("CL27", Exactly(((16, 16, 16), (32, 8, 8), (10,))))
def tiny_conv_net() -> tuple[tuple[int, ...], ...]:
    """the listing in didact's engine: twice [conv 3 × 3 padding 1, ReLU, pooling 2] with 16 and 32 channels on 3 ×
    32 × 32, then all
    32 · 8 · 8 numbers to ten classes"""
    x, pool, shapes = scratch.tensor(np.zeros((1, 3, 32, 32), np.float32)), modules.MaxPool2d(2, 2), []
    for conv in (modules.Conv2d(3, 16, 3, padding=1), modules.Conv2d(16, 32, 3, padding=1)):
        x = pool(conv(x).relu())
        shapes.append(tuple(x.shape[1:]))
    scores = modules.Linear(32 * 8 * 8, 10)(modules.Flatten()(x))
    return (*shapes, tuple(scores.shape[1:]))


@claim("CL28", Exactly((0.99, 1.0, 0.0, 0.99, (0, 0))))
def metrics_of_always_yes() -> ShownAs:
    """accuracy, recall of yes and of no, precision of yes, for 99 yes and 1 no, didact's metrics; for precision of
    no right ones and all
    that were said, whose quotient torch makes nan and didact's metric 0"""
    y, predictions = torch.cat([torch.ones(99), torch.zeros(1)]).long(), torch.ones(100).long()
    counts = metrics.confusion_matrix(predictions, y, 2)
    recall, precision = metrics.recall(counts), metrics.precision(counts)
    accuracy, num_correct_no, num_predicted_no = (
        metrics.accuracy(F.one_hot(predictions, 2).double(), y),
        counts[0, 0],
        counts[:, 0].sum(),
    )
    compared = (
        *(round(float(v), 6) for v in (accuracy, recall[1], recall[0], precision[1])),
        (int(num_correct_no), int(num_predicted_no)),
    )
    return ShownAs(compared, {"accuracy": accuracy, "recall": recall.flip(0), "precision of yes": precision[1],
                           "of no, 0/0,": num_correct_no / num_predicted_no, "by didact's metric": precision[0]})


@claim("CL29", Equal())
def simple_classifier() -> ShownAs:
    """what the listing's Conv2d(3, 16, 3, padding=1) and MaxPool2d(2) make of N × 3 × H × W, in didact's engine and
    by didact's rule for
    the sides: N × 16 × H × W and N × 16 × H//2 × W//2, for even and odd sides"""
    conv, pool, sizes = modules.Conv2d(3, 16, 3, padding=1), modules.MaxPool2d(2), ((5, 32, 32), (2, 9, 13), (1, 8, 7))
    stated, shapes = [], []
    for n, h, w in sizes:
        y = conv(scratch.tensor(np.zeros((n, 3, h, w), np.float32)))
        stated += [(n, 16, h, w), (n, 16, h // 2, w // 2), (h, w), (h // 2, w // 2)]
        sides = [
            tuple(window.output_size(side) for side in (h, w))
            for window in (SlidingWindow(3, padding=1), SlidingWindow(2, stride=2))
        ]
        shapes += [y.shape, pool(y).shape, *sides]
    return ShownAs(
        (stated, shapes),
        {"sides": str(sizes[1][1:]), "convolved and pooled, by didact's engine": f"{shapes[4]}, {shapes[5]}"},
    )


@claim(
    "CL30",
    Exactly("same shape"),
    condition="height and width even: pooling rounds an odd one down, and the two ends do not fit",
)
def tiny_unet() -> Conditional:
    """the output of the listing's steps with the layers of didact's own small U-Net, for images of 24 × 32 and of
    25 × 32"""
    names = ("first", "halve", "down.0", "up.0.grow", "up.0.convs", "head")
    first, halve, down_block, upsample, convs, head = map(create_model("unet_tiny").get_submodule, names)

    def output_shape(height: int, width: int) -> str:
        x = first(torch.zeros(1, 1, height, width))
        try:
            y = head(convs(torch.cat([upsample(down_block(halve(x))), x], dim=1)))
        except RuntimeError as error:
            return f"{type(error).__name__}: {str(error).split('.')[0]}"
        return "same shape" if y.shape == (1, 1, height, width) else str(tuple(y.shape))

    return Conditional(output_shape(24, 32), output_shape(25, 32))


@claim("CL47", Equal())
def derivative_of_a_maximum() -> Pair:
    """∂max(a, b) by didact's own engine: 1 for the larger, 0 for the other"""
    a, b = (scratch.tensor(torch.randn(20).numpy(), requires_grad=True) for _ in range(2))
    ours = [g.data for g in scratch.grad(scratch.maximum(a, b).sum(), (a, b))]
    return [(a.data > b.data).astype(float), (b.data > a.data).astype(float)], ours


@claim("CL06", Exactly(((4, 3, 32, 32), "cpu")))
def batch_of_images() -> tuple[tuple[int, ...], str]:
    """a batch of four out of didact's split of ten images of 3 × 32 × 32, as a network reads it, and where it lies"""
    split = TensorSplit({"x": torch.randint(256, (10, 3, 32, 32), dtype=torch.uint8)}, {"x": uint8_to_unit})
    x = split.batch(torch.tensor([0, 3, 7, 9]))["x"]
    return tuple(x.shape), x.device.type


@claim("CL09", Equal())
def descent_is_deterministic() -> Pair:
    """w after the listing's step of torch.optim.SGD from 0.5, three times, and of didact's, against w − 2η mean(x(w
    x − 1))"""
    x, y, η = np.array([[0.78], [0.44], [0.80]]), np.ones(3), 0.1

    def step_of_listing() -> float:
        w = torch.tensor(0.5, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=η)
        (w * torch.tensor(x) - torch.tensor(y)).square().mean().backward()
        optimizer.step()
        return w.item()

    def step_of_scratch() -> float:
        w = scratch.tensor(0.5, requires_grad=True, dtype=np.float64)
        ((w * x - y) ** 2).mean().backward()
        SGD([w], lr=η).step()
        return float(w.item())

    by_hand = 0.5 - 2 * η * (x * (0.5 * x - 1)).mean()
    return [by_hand] * 6, [take_step() for take_step in (step_of_listing, step_of_scratch) for _ in range(3)]


@claim("CL17", Equal())
def regularized_net() -> Pair:
    """widths that data meet in didact's Linear(100, 100), batch norm, ReLU, dropout, Linear(100, 10), and their
    parameters, by hand"""
    net, widths = MLP(100, 10, hidden=(100,), norm="batch", dropout=0.5), [100]
    for layer in (net.hidden, net.head):
        layer.register_forward_hook(lambda _m, _i, y: widths.append(y.shape[1]))
    net(torch.randn(7, 100))
    return [100, 100, 10, 100 * 100 + 100 + 2 * 100 + 100 * 10 + 10], [*widths, count_parameters(net)]


@claim("CL36", Equal())
def new_head() -> ShownAs:
    """what the last layer of didact's ResNet-18 takes and its scores with a new one of two classes, against the
    maps that reach it and 2"""
    with torch.device("meta"):  # shapes alone
        net, maps = create_model("resnet18").eval(), list[int]()
        assert isinstance(net, ResNet)
        features = net.fc.in_features
        net.fc = nn.Linear(features, 2)
        net.get_submodule("layer4").register_forward_hook(lambda module, given, out: maps.append(out.shape[1]))
        scores = net(torch.zeros(1, 3, 64, 64))
    return ShownAs(([features, scores.shape[1]], [maps[0], 2]), {"num_features": features, "scores": scores.shape[1]})


@claim("CL43", Approximately(1.5, 0.05, "said with 'about'"))
def size_of_gpt_2() -> float:
    """billions of parameters of didact's GPT-2 in its largest size: 48 layers of 1600, 25 heads, 1024 places,
    50,257 tokens"""
    with torch.device("meta"):
        net = GPT(50_257, context_length=1024, embed_dim=1600, num_layers=48, num_heads=25)
    return count_parameters(net) / 1e9
