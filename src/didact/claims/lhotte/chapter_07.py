"""Lhotte, chapter 7: architectures and transfer learning."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from didact import scratch
from didact.analysis.receptive_field import SlidingWindow
from didact.claims.forms import Conditional, Display, Equal, Exactly, WithinStandardErrors
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.metrics.similarity import cosine
from didact.models.text.seq2seq import Seq2Seq
from didact.models.vision.resnet import ResNet
from didact.registry import create_model
from didact.scratch import modules
from didact.scratch.recurrent import rnn


@claim("CL29", Equal())
def simple_classifier() -> Display:
    """shapes of N × 3 × H × W after the listing's Conv2d(3, 16, 3, padding=1) and MaxPool2d(2), in didact's engine and
    by didact's rule for the sides: N × 16 × H × W and N × 16 × H//2 × W//2, for even and odd sides"""
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
    return Display(
        (stated, shapes),
        {"sides": str(sizes[1][1:]), "convolved and pooled, by didact's engine": f"{shapes[4]}, {shapes[5]}"},
    )


@claim(
    "CL30",
    Exactly("same shape"),
    condition="even height and width: pooling rounds odd ones down, and the skip connection does not fit",
)
def tiny_unet() -> Conditional:
    """the output of the listing's steps with the layers of didact's own small U-Net, for images of 24 × 32 and of 25 ×
    32"""
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


@claim("CL36", Equal())
def new_head() -> Display:
    """inputs of the last layer of didact's ResNet-18 and its logits with a new head of two classes, against the maps
    that reach it and 2"""
    with torch.device("meta"):  # shapes alone
        net, maps = create_model("resnet18").eval(), list[int]()
        assert isinstance(net, ResNet)
        features = net.fc.in_features
        net.fc = nn.Linear(features, 2)
        net.get_submodule("layer4").register_forward_hook(lambda module, given, out: maps.append(out.shape[1]))
        scores = net(torch.zeros(1, 3, 64, 64))
    return Display(([features, scores.shape[1]], [maps[0], 2]), {"num_features": features, "scores": scores.shape[1]})


@claim("CL31", Exactly(((4, 5, 20), (1, 4, 20))))
def shapes_of_an_rnn() -> tuple[tuple[int, ...], ...]:
    """didact's RNN of 10 inputs and 20 units on 4 × 5 × 10"""
    y, (h,) = Recurrent("rnn", 10, 20)(torch.zeros(4, 5, 10))
    return tuple(y.shape), tuple(h.shape)


@claim("CL32", Equal(), remark="h^(0) is set to zero; the first state in the text, h^(1), is computed")
def recurrence() -> Pair:
    """h^(t) = tanh(U x^(t) + W h^(t−1) + b) from h^(0) = 0, against didact's layer, fused and by its own engine"""
    layer, x, h, states = Recurrent("rnn", 3, 4, init="random"), torch.randn(6, 3), torch.zeros(4), []
    U, W, b_x, b_h = cell_weights(layer.rnn, 0)
    for t in range(6):
        h = torch.tanh(U @ x[t] + W @ h + b_x + b_h)
        states.append(h)
    scratch_weights = [scratch.tensor(p.detach().numpy()) for p in (U, W, b_x, b_h)]
    ours = rnn(scratch.tensor(x[:, None].numpy()), scratch.tensor(np.zeros((1, 4))), *scratch_weights).data
    return [torch.stack(states)] * 2, [layer(x[None])[0], torch.from_numpy(ours)]


@claim("CL33", Exactly((0.0, 1.0)))
def similarity_of_one_hot_vectors() -> tuple[float, float]:
    """didact's cosine similarity of any two of 20 one-hot vectors, and of two parallel vectors"""
    (different,) = set(cosine(torch.eye(20), torch.eye(20))[~torch.eye(20).bool()].tolist())
    return different, float(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]])))


@claim("CL34", Exactly((("batch", "seq", "emb"), ("batch", "seq", "vocab"))))
def shapes_of_seq2seq() -> tuple[tuple[str, ...], ...]:
    """the embeddings and the logits of the decoder of didact's Seq2Seq"""
    axis_names, ids = {3: "batch", 5: "seq", 7: "emb", 23: "vocab"}, torch.ones(3, 5).long()
    net = Seq2Seq(19, 23, attention="none", embed_dim=7, hidden_size=11)
    return tuple(tuple(axis_names[n] for n in t.shape) for t in (net.target(ids), net(ids, ids)))


@claim("CL35", WithinStandardErrors())
def initial_embedding() -> tuple[list[Tensor], list[float], list[float]]:
    """mean, variance and mean fourth power of the 500,000 weights of a new nn.Embedding, and of didact's own, against
    0, 1 and 3"""
    tables = (
        nn.Embedding(5000, 100).weight.detach(),
        torch.from_numpy(modules.Embedding(5000, 100, rng=0, dtype=np.float64).weight.data),
    )
    n = tables[0].numel()
    moments = [m for w in tables for m in (w.mean(), w.var(), w.pow(4).mean())]
    return moments, [math.sqrt(v / n) for v in (1, 2, 96)] * 2, [0.0, 1.0, 3.0] * 2
