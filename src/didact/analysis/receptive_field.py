"""Output sizes and receptive fields of convolutional networks.

    size      o = floor((i + 2 p - d (k - 1) - 1) / s) + 1            Gaba Th 4.3, Groudiev 4.2.7
    field     r_l = r_{l-1} + d (k - 1) j_{l-1},   j_l = s j_{l-1}    Gaba Rem 4.6, Ex 4.5; Van Schependom 5.4

r is the receptive field in input pixels, j their distance between neighboring outputs. `trace_receptive_fields` follows
both through any network, along all its branches.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from didact.errors import ImageTooSmallError, UsageError


@dataclass(frozen=True)
class SlidingWindow:
    """A convolution or pooling along one axis."""

    kernel_size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def output_size(self, i: int) -> int:
        """Number of outputs for i inputs."""
        o = (i + 2 * self.padding - self.dilation * (self.kernel_size - 1) - 1) // self.stride + 1
        if o < 1:
            raise UsageError(
                f"a window of {self.dilation * (self.kernel_size - 1) + 1} does not fit into {i} + 2·{self.padding} "
                "pixels"
            )
        return o


@dataclass(frozen=True)
class ReceptiveField:
    """Along one axis: r and j; after upsampling, where neighboring outputs share inputs, also r and j before it."""

    r: Fraction = Fraction(1)
    j: Fraction = Fraction(1)
    coarse_r: Fraction = Fraction(0)
    coarse_j: Fraction = Fraction(0)

    @property
    def pixels(self) -> int:
        """Inputs that one output depends on: r; after upsampling r grows in steps of the coarse pixels only."""
        if not self.coarse_j:
            return int(self.r)
        return int(self.coarse_r + (self.r - self.coarse_r) // self.coarse_j * self.coarse_j)

    def after_layer(self, span: Fraction | int, scale: Fraction | int) -> "ReceptiveField":
        """The field after a layer with windows of `span` + 1 and one output per `scale` inputs.

        An upsampling layer has `scale` < 1: it inserts zeros between the inputs and slides its window over that.
        """
        j = self.j * scale
        if scale >= 1:
            return replace(self, r=self.r + span * self.j, j=j)
        if self.j > self.coarse_j:
            r = Fraction(self.pixels)
            return ReceptiveField(r + span * j, j, r, self.j)
        return replace(self, r=self.r + span * j, j=j)


def _merge_branches(branches: Iterable[ReceptiveField]) -> ReceptiveField:
    """Where branches meet: the largest field. Maps of one size share a grid, whose j is exact in a branch without
    upsampling.

    An upsampled map, 15 pixels from 8 that stood for 16, has an inexact j.
    """
    branches = list(branches)
    widest = max(branches, key=lambda f: (f.pixels, f.j))
    steps = [f.j for f in branches if not f.coarse_j]
    return replace(widest, j=max(steps)) if steps else widest


def output_size(size: int, windows: Iterable[SlidingWindow]) -> int:
    """The size after a chain of windows."""
    for w in windows:
        size = w.output_size(size)
    return size


def receptive_field(windows: Iterable[SlidingWindow]) -> int:
    """How many inputs one output of the chain depends on."""
    field = ReceptiveField()
    for w in windows:
        field = field.after_layer(w.dilation * (w.kernel_size - 1), w.stride)
    return field.pixels


def require_min_size(min_size: int, size: tuple[int, ...], network_name: str) -> None:
    """Refuse images that would shrink to nothing in the network."""
    if min(size) < min_size:
        h, w = size
        raise ImageTooSmallError(
            f"{network_name} needs images of at least {min_size}×{min_size} pixels, got {h}×{w}; resize them, or "
            "choose a smaller network",
            min_size,
        )


@dataclass(frozen=True)
class LayerGeometry:
    """Output size and receptive field of a layer; None: the whole image, or an output without positions."""

    name: str
    layer: str
    size: tuple[int, ...]            # H, W
    field: tuple[int, ...] | None
    jump: tuple[float, ...] | None


@torch.no_grad()
def trace_receptive_fields(network: nn.Module, x: Tensor) -> list[LayerGeometry]:
    """Every layer whose output is a feature map, in order of execution on images `x` (B, C, H, W)."""
    tracer, layers = ReceptiveFieldTracer(x), list[LayerGeometry]()

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(layer: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.ndim == 4:
                layers.append(
                    LayerGeometry(name, type(layer).__name__, tuple(output.shape[2:]), *tracer.field_of(output))
                )

        return record

    hooks = [m.register_forward_hook(hook(name)) for name, m in network.named_modules() if not any(m.children())]
    training = {m: m.training for m in network.modules()}
    network.eval()
    try:
        with tracer:
            network(x)
    finally:
        for m, mode in training.items():
            m.training = mode
        for h in hooks:
            h.remove()
    return layers


def effective_receptive_field(network: nn.Module, x: Tensor) -> Tensor:
    """|d y_center / d x|, summed over channels: the effective receptive field, smaller than the theoretical one.  Gaba
    Ex 4.5.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = network(x)                                                 # (B, C, H', W')
        (g,) = torch.autograd.grad(y[..., y.shape[-2] // 2, y.shape[-1] // 2].sum(), x)
    return g.abs().sum(dim=1).mean(dim=0)                              # (H, W)


_AxisStep = tuple[Fraction | int, Fraction | int]  # span and scale of `ReceptiveField.after_layer`


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))


def _conv_steps(
    y: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> list[_AxisStep]:
    return [(d * (k - 1), s) for k, s, d in zip(weight.shape[2:], _pair(stride), _pair(dilation), strict=True)]


def _conv_transpose_steps(
    y: Tensor, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> list[_AxisStep]:
    return [
        (d * (k - 1), Fraction(1, s)) for k, s, d in zip(weight.shape[2:], _pair(stride), _pair(dilation), strict=True)
    ]


def _max_pool_steps(
    y: Tensor,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *args: Any,
    **kwargs: Any,
) -> list[_AxisStep]:
    strides = _pair(stride or kernel_size)
    return [(d * (k - 1), s) for k, s, d in zip(_pair(kernel_size), strides, _pair(dilation), strict=True)]


def _avg_pool_steps(
    y: Tensor, input: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any
) -> list[_AxisStep]:
    return _max_pool_steps(y, input, kernel_size, stride)


def _adaptive_pool_steps(y: Tensor, input: Tensor, *args: Any, **kwargs: Any) -> list[_AxisStep]:
    """Output a averages floor(a i / o) ... ceil((a + 1) i / o)."""
    sizes = list(zip(input.shape[2:], y.shape[2:], strict=True))
    widest = [max(-(-(a + 1) * i // o) - a * i // o for a in range(o)) for i, o in sizes]
    return [
        (n - 1 if i >= o else Fraction(n * o, i) - 1, Fraction(i, o)) for n, (i, o) in zip(widest, sizes, strict=True)
    ]


def _interpolate_steps(
    y: Tensor,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    *args: Any,
    **kwargs: Any,
) -> list[_AxisStep]:
    taps = {"bilinear": 2, "bicubic": 4}.get(mode, 1)
    sizes = zip(input.shape[2:], y.shape[2:], strict=True)
    return [(taps - 1 if i >= o else Fraction(taps * o, i) - 1, Fraction(i, o)) for i, o in sizes]


def _slice_steps(y: Tensor, input: Tensor, index: Any) -> list[_AxisStep]:
    """x[:, :, ::s, ::s] keeps every s-th pixel."""
    axes = list(index) if isinstance(index, tuple) else [index]
    if any(a is Ellipsis for a in axes):
        ellipsis_index = next(i for i, a in enumerate(axes) if a is Ellipsis)
        axes[ellipsis_index : ellipsis_index + 1] = [slice(None)] * (input.ndim - len(axes) + 1)
    steps = [a.step or 1 if isinstance(a, slice) else 1 for a in axes]
    return [(0, s) for s in (*steps, 1, 1, 1, 1)[2:4]]


_STEP_RULES: dict[Any, Callable[..., list[_AxisStep]]] = {
    torch.conv2d: _conv_steps,
    torch.conv_transpose2d: _conv_transpose_steps,
    torch.max_pool2d: _max_pool_steps, F.max_pool2d: _max_pool_steps,
    F.avg_pool2d: _avg_pool_steps,
    F.adaptive_avg_pool2d: _adaptive_pool_steps, F.adaptive_max_pool2d: _adaptive_pool_steps,
    F.interpolate: _interpolate_steps,
    Tensor.__getitem__: _slice_steps,
}
_GLOBAL_FUNCTIONS = {  # an output of these depends on the whole input
    torch.mean, Tensor.mean, torch.sum, Tensor.sum, torch.amax, Tensor.amax,
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.einsum, F.scaled_dot_product_attention, F.grid_sample,
}


class ReceptiveFieldTracer(TorchFunctionMode):
    """Follows every function that torch runs, and records the receptive field of its outputs; branches merge to the
    largest.
    """

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.fields = WeakTensorKeyDictionary()
        if x.ndim == 4:
            self.fields[x] = (ReceptiveField(), ReceptiveField())

    def field_of(self, y: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Receptive field and j of a map, along height and width; None: the whole image, or no positions."""
        f = self.fields.get(y) if isinstance(y, Tensor) else None
        return (None, None) if f is None else (tuple(a.pixels for a in f), tuple(float(a.j) for a in f))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        input_fields = [self.fields[t] for t in _iterate_tensors((*args, *kwargs.values())) if t in self.fields]
        output = func(*args, **kwargs)
        for y in _iterate_tensors((output,)) if input_fields else ():
            if None in input_fields or y.ndim != 4 or func in _GLOBAL_FUNCTIONS:
                self.fields[y] = None
            elif func in _STEP_RULES:
                steps = _STEP_RULES[func](y, *args, **kwargs)
                self.fields[y] = tuple(f.after_layer(*step) for f, step in zip(input_fields[0], steps, strict=True))
            else:
                self.fields[y] = tuple(_merge_branches(axis) for axis in zip(*input_fields, strict=True))
        return output


def _iterate_tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _iterate_tensors(value)
