import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from didact.analysis.receptive_field import (
    SlidingWindow,
    effective_receptive_field,
    output_size,
    receptive_field,
    trace_receptive_fields,
)
from didact.errors import UsageError
from didact.layers.conv.residual import BasicBlock, PadShortcut
from didact.models import ConvNeXt, EfficientNet, ResNet

sliding_windows = st.builds(
    SlidingWindow,
    kernel_size=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
)


def make_convs(chain):
    layers = [nn.Conv1d(1, 1, w.kernel_size, w.stride, w.padding, w.dilation) for w in chain]
    for layer in layers:
        nn.init.ones_(layer.weight)  # nothing cancels
    return nn.Sequential(*layers)


@given(st.lists(sliding_windows, min_size=1, max_size=4), st.integers(30, 60))
@settings(max_examples=60, deadline=None)
def test_output_size_matches_torch(chain, size):
    try:
        expected = make_convs(chain)(torch.zeros(1, 1, size)).shape[-1]
    except RuntimeError:
        with pytest.raises(UsageError, match="does not fit"):
            output_size(size, chain)
    else:
        assert output_size(size, chain) == expected


@given(st.lists(sliding_windows, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_receptive_field_matches_a_gradient_probe(chain):
    x = torch.zeros(1, 1, 801, requires_grad=True)
    y = make_convs(chain)(x)
    y[0, 0, y.shape[-1] // 2].backward()
    reached_pixels = x.grad[0, 0].nonzero()[:, 0]
    assert int(reached_pixels[-1] - reached_pixels[0]) + 1 == receptive_field(chain)


def test_receptive_fields_match_the_courses():
    assert output_size(32, [SlidingWindow(5, padding=2)]) == 32                            # Gaba, example 4.4
    # Gaba, remark 4.6
    assert receptive_field([SlidingWindow(3)] * 2) == 5 and receptive_field([SlidingWindow(3)] * 3) == 7
    assert receptive_field([SlidingWindow(4)] * 5) == 5 * (4 - 1) + 1                      # Gaba, exercise 4.5
    # Van Schependom 5.4
    assert receptive_field([SlidingWindow(3, dilation=2**l) for l in range(4)]) == 1 + 2 * (2**4 - 1)


def test_resnet50_receptive_field_is_427_pixels():
    with torch.device("meta"):
        rows = {
            r.name: r
            for r in trace_receptive_fields(
                ResNet(block="bottleneck", depths=(3, 4, 6, 3)), torch.zeros(1, 3, 224, 224)
            )
        }
    # stride on the 3 x 3; on the 1 x 1 it would be 483
    assert rows["layer4.2.conv3"].field == (427, 427)
    assert rows["layer4.2.conv3"].size == (7, 7)
    assert rows["layer4.2.conv3"].jump == (32, 32)
    assert rows["conv1"].field == (7, 7) and rows["maxpool"].field == (11, 11)


class BranchingNetwork(nn.Module):
    """Doubles, joins, pools and pads: every kind of layer that the tracer knows, with unequal height and width."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(2, 3, (5, 3), padding=(2, 1), dilation=1), nn.Conv2d(2, 3, 1)
        self.pool, self.mean = nn.MaxPool2d(3, stride=2, padding=1), nn.AvgPool2d((2, 1))
        self.up, self.last = nn.ConvTranspose2d(3, 2, (2, 4), stride=2, padding=(0, 1)), nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x):
        h = torch.cat([self.wide(x)[:, :2], self.narrow(x)[:, :1]], dim=1)
        h = self.mean(self.pool(h))
        h = F.interpolate(F.relu(h), scale_factor=2)
        return self.last(self.up(h) + 1)


def probe_receptive_field(network, x):
    """The widest extent of inputs on which any one output depends, by gradients of networks with positive weights."""
    for p in network.parameters():
        nn.init.constant_(p, 0.5)
    y = network(x.requires_grad_())
    extent = [0, 0]
    for i in range(8, y.shape[2] - 8):
        for j in range(8, y.shape[3] - 8):
            (g,) = torch.autograd.grad(y[0, 0, i, j], x, retain_graph=True)
            reached_pixels = g[0].abs().sum(0).nonzero()
            extent = [
                max(e, int(s))
                for e, s in zip(extent, reached_pixels.max(0).values - reached_pixels.min(0).values + 1, strict=True)
            ]
    return tuple(extent)


def test_trace_receptive_fields_follows_branches_and_upsampling():
    network = BranchingNetwork()
    rows = trace_receptive_fields(network, torch.zeros(1, 2, 20, 24))
    assert [r.name for r in rows] == ["wide", "narrow", "pool", "mean", "up", "last"]
    assert rows[-1].jump == (1, 0.5)
    # gradients of a maximum go one way: probe the same windows with a mean
    network.pool = nn.AvgPool2d(3, stride=2, padding=1)
    assert probe_receptive_field(network, torch.rand(1, 2, 20, 24)) == rows[-1].field


class Pyramid(nn.Module):
    """A fine map joined with a coarse one whose last row stands for half a row: 60 -> 30 -> 15 -> 8 -> 15."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(*[nn.Conv2d(1, 1, 3, stride=2, padding=1) for _ in range(2)])
        self.coarse, self.last = nn.Conv2d(1, 1, 3, stride=2, padding=1), nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x):
        h = self.fine(x)
        return self.last(h + F.interpolate(self.coarse(h), size=h.shape[2:]))


def test_trace_receptive_fields_keeps_the_finer_grid_where_branches_meet():
    x = torch.zeros(1, 1, 60, 128)
    rows = {r.name: r for r in trace_receptive_fields(Pyramid(), x)}
    assert rows["last"].size == (15, 32) and rows["last"].jump == (4, 4)  # 60 / 15 and 128 / 32
    assert (
        probe_receptive_field(Pyramid(), torch.rand(1, 1, 120, 128))[1]
        == trace_receptive_fields(Pyramid(), torch.zeros(1, 1, 120, 128))[-1].field[1]
    )


def test_trace_receptive_fields_marks_layers_that_see_the_whole_image():
    with torch.device("meta"):
        rows = trace_receptive_fields(EfficientNet(num_classes=3), torch.zeros(1, 3, 64, 64))
        lite_rows = trace_receptive_fields(EfficientNet(num_classes=3, lite=True), torch.zeros(1, 3, 64, 64))
        convnext_rows = trace_receptive_fields(ConvNeXt(num_classes=3), torch.zeros(1, 3, 64, 64))
    assert {r.name: r.field for r in rows}["_blocks.0._depthwise_conv"] == (7, 7)   # before the first squeeze
    assert rows[-1].field is None                                                   # after it
    assert lite_rows[-1].field is not None and lite_rows[-1].size == (2, 2)
    assert {r.name: r.field for r in convnext_rows}["features.1.0.block.0"] == (28, 28)     # 4 + 6 * 4
    assert convnext_rows[-1].layer == "LayerNorm2d"


def test_trace_receptive_fields_leaves_the_network_unchanged():
    block = BasicBlock(2, 2, shortcut="none")
    block.bn1.eval()
    state_before = {k: v.clone() for k, v in block.state_dict().items()}
    assert trace_receptive_fields(block, torch.rand(1, 2, 8, 9))[-1].field == (5, 5)
    assert block.training and not block.bn1.training
    assert all(torch.equal(v, state_before[k]) for k, v in block.state_dict().items())
    assert not any(m._forward_hooks for m in block.modules())


def test_effective_receptive_field_is_smaller_than_the_theoretical():
    torch.manual_seed(0)
    chain = nn.Sequential(*[nn.Conv2d(4 if l else 1, 4, 3, padding=1) for l in range(8)])
    g = effective_receptive_field(chain, torch.rand(2, 1, 31, 29))
    assert g.shape == (31, 29)
    rows, columns = (g.sum(1) > 0).nonzero(), (g.sum(0) > 0).nonzero()
    assert len(rows) == len(columns) == 17 == receptive_field([SlidingWindow(3)] * 8)
    center_share = g[15 - 4 : 15 + 5, 14 - 4 : 14 + 5].sum() / g.sum()
    # (9 / 17)^2 = 0.28, were it even
    assert center_share > 0.6


def test_trace_receptive_fields_follows_slicing():
    layer = PadShortcut(2, 4, stride=2)
    (row,) = trace_receptive_fields(nn.Sequential(layer), torch.zeros(1, 2, 8, 12))
    assert row.size == (4, 6) and row.field == (1, 1) and row.jump == (2, 2)
    network = nn.Sequential(nn.Conv2d(2, 2, 3, stride=2), SlicingLayer(), nn.Conv2d(2, 2, 3))
    assert [r.jump for r in trace_receptive_fields(network, torch.zeros(1, 2, 40, 40))] == [(2, 2), (4, 6), (4, 6)]
    assert trace_receptive_fields(network, torch.zeros(1, 2, 40, 40))[-1].field == (3 + 2 * 4, 3 + 2 * 6)


class SlicingLayer(nn.Module):
    def forward(self, x):
        return x[..., ::2, 1::3]
