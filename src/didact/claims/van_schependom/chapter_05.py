"""Van Schependom, chapter 5: convolutional networks."""

from functools import partial

import torch
from torch import nn

from didact.analysis.receptive_field import SlidingWindow, effective_receptive_field, receptive_field
from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Exactly
from didact.claims.gaba import chapter_04 as gaba_4
from didact.claims.helpers import Pair, count_parameters
from didact.claims.registry import claim
from didact.layers.conv.convolution import SameConv2d, dilated_conv
from didact.layers.conv.norm_pool import make_pool2d
from didact.models.tabular.mlp import MLP
from didact.objectives.distributions.classification import Categorical

claim("CV20", Equal())(gaba_4.convolution_of_many_channels)


@claim(
    "CV21",
    Equal(),
    remark="with stride 1, away from the borders or with circular padding; stride s needs shifts by multiples of s",
)
def equivariance_of_convolutions() -> Pair:
    """f(t(x)) = t(f(x)) for two of didact's convolutions with a ReLU between, of stride 1 with circular padding, t a
    shift by two rows and three columns"""
    output_of_shifted, _, shifted_output = gaba_4.shift_equivariance_outputs()
    return output_of_shifted, shifted_output


@claim(
    "CV22",
    Equal(),
    correction="a dense layer has a weight for each position; global pooling makes the output invariant",
)
def invariance_of_dense_layers() -> CorrectedClaim:
    """dense(f(t(x))) = dense(f(x)), f two convolutions with circular padding and dense didact's network, t a shift by
    (2, 3); corrected: the mean over all positions instead"""
    conv = partial(nn.Conv2d, kernel_size=3, padding=1, padding_mode="circular")
    f, x, dense = (
        nn.Sequential(conv(1, 4), nn.ReLU(), conv(4, 2)),
        torch.randn(1, 1, 8, 9),
        MLP(2 * 8 * 9, 5, hidden=(7,)),
    )
    output, output_of_shifted = f(x), f(x.roll((2, 3), (2, 3)))
    return CorrectedClaim(
        (dense(output_of_shifted), dense(output)), (output_of_shifted.mean((2, 3)), output.mean((2, 3)))
    )


@claim("CV23", Equal())
def effective_kernel() -> Pair:
    """(k − 1)d + 1, against the extent of the pixels that reach an output of didact's dilated convolution, and its
    receptive field"""
    cases, kernel_extents = [(3, 1), (3, 4), (5, 2), (7, 3)], []
    for k, d in cases:
        rows = effective_receptive_field(dilated_conv(1, 1, k, dilation=d), torch.randn(1, 1, 41, 41)).sum(1).nonzero()
        kernel_extents.append(int(rows.max() - rows.min()) + 1)
    return [(k - 1) * d + 1 for k, d in cases] * 2, kernel_extents + [
        receptive_field([SlidingWindow(k, dilation=d)]) for k, d in cases
    ]


def _dilated_windows(layers: int) -> list[SlidingWindow]:
    return [SlidingWindow(3, dilation=2**l) for l in range(layers)]


@claim("CV24", Equal())
def growth_of_the_receptive_field() -> Pair:
    """R_l = R_{l−1} + k̃_l − 1 with k = 3 and d = 1, 2, 4, … is 2^{l+1} − 1: exponential"""
    fields, R = [], 1
    for w in _dilated_windows(8):
        R += (w.kernel_size - 1) * w.dilation
        fields.append(R)
    return [*fields, *fields], [
        *(receptive_field(_dilated_windows(l)) for l in range(1, 9)),
        *(2 ** (l + 1) - 1 for l in range(1, 9)),
    ]


@claim(
    "CV25",
    Equal(),
    correction="linear in d, hence exponential in the layer where d doubles: k̃ − 1 doubles at each",
)
def growth_of_the_effective_kernel() -> CorrectedClaim:
    """k̃_l = (k − 1) 2^l + 1: its steps from layer to layer all equal; corrected: k̃ − 1 doubles"""
    k = torch.tensor([float((w.kernel_size - 1) * w.dilation + 1) for w in _dilated_windows(6)])
    steps = k.diff()
    return CorrectedClaim(
        Display((steps[1:], steps[:-1]), {"k̃": k, "its steps": steps}),
        Display((k[1:] - 1, 2 * (k[:-1] - 1)), {"k̃ − 1 over that of the layer before": (k[1:] - 1) / (k[:-1] - 1)}),
    )


def _output_widths(dilation: int) -> tuple[list[int], list[int], list[int]]:
    """Output widths by the formula with the effective size, by that with w_f, and by didact's windows."""
    cases = [(w, p, k, s) for w in (20, 33) for p in (0, 2) for k in (2, 3, 5) for s in (1, 2, 3)]
    dilated = [(w + 2 * p - ((k - 1) * dilation + 1)) // s + 1 for w, p, k, s in cases]
    undilated = [(w + 2 * p - k) // s + 1 for w, p, k, s in cases]
    return dilated, undilated, [SlidingWindow(k, s, p, dilation).output_size(w) for w, p, k, s in cases]


@claim("CV26", Equal())
def output_width() -> Pair:
    """⌊(w + 2p − w̃_f)/s + 1⌋, against didact's windows with dilations 1, 2, 3"""
    widths = [_output_widths(d) for d in (1, 2, 3)]
    return [f[0] for f in widths], [f[2] for f in widths]


@claim(
    "CV27", Equal(), condition="dilation 1; otherwise the formula needs the effective size, as the text next to it says"
)
def output_width_as_displayed() -> Conditional:
    """⌊(w + 2p − w_f)/s + 1⌋, against didact's windows without and with dilation"""
    return Conditional(_output_widths(1)[1:], _output_widths(2)[1:])


@claim("CV28", Equal())
def parameters_of_a_convolution() -> Pair:
    """C_i C_o w_f h_f + C_o, against didact's layer"""
    cases = [(3, 16, 3, 3), (8, 4, 1, 5), (64, 64, 7, 7)]
    return [i * o * w * h + o for i, o, w, h in cases], [
        count_parameters(SameConv2d(i, o, (h, w))) for i, o, w, h in cases
    ]


@claim("CV29", Equal(), correction="each output channel has a kernel of its own; weights are shared across positions")
def sharing_of_kernels() -> CorrectedClaim:
    """weights of didact's convolution of 3 to 8 channels: those of one 5 × 5 kernel that all output channels share;
    corrected: of eight, whatever the image"""
    n = count_parameters(SameConv2d(3, 8, 5, bias=False))
    return CorrectedClaim((3 * 5 * 5, n), (8 * 3 * 5 * 5, n))


@claim("CV30", Exactly((6, 6, 256)))
def pooled_size() -> tuple[int, ...]:
    """13 × 13 × 256 after didact's 2 × 2 max pooling, which halves and drops the odd row"""
    c, h, w = make_pool2d("max")(torch.zeros(1, 256, 13, 13)).shape[1:]
    return h, w, c


@claim("CV31", Exactly(0))
def parameters_of_softmax() -> int:
    """parameters that a softmax for ten classes adds to didact's network of 20 inputs: e^{z_d}/Σ e^{z_j} has nothing to
    learn"""
    net, classes = MLP(20, 10, hidden=()), Categorical(10)
    assert torch.allclose(classes.probabilities(net(torch.randn(5, 20))).sum(1), torch.ones(()))
    return count_parameters(nn.ModuleList([net, classes])) - (20 * 10 + 10)
