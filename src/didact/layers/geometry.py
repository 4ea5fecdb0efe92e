"""What windows do to sizes, and how much of the input each output sees.

    size      o = floor((i + 2 p - d (k - 1) - 1) / s) + 1            Gaba Th 4.3, Groudiev 4.2.7
    field     r_l = r_{l-1} + d (k - 1) j_{l-1},   j_l = s j_{l-1}    Gaba Rem 4.6, Ex 4.5; Van Schependom 5.4

r is the receptive field in input pixels, j how many of them lie between neighbouring outputs. `trace` follows both
through any network, along all its branches.
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

from didact.errors import UsageError


@dataclass(frozen=True)
class Window:
    """A convolution or pooling along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def size(self, i: int) -> int:
        """Outputs for i inputs."""
        o = (i + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1
        if o < 1:
            raise UsageError(f"a window of {self.dilation * (self.kernel - 1) + 1} does not fit into {i} + 2·{self.padding} pixels")
        return o


@dataclass(frozen=True)
class Field:
    """Along one axis: r and j, and since an enlargement, whose outputs share inputs, the r and j from which it started."""

    r: Fraction = Fraction(1)
    j: Fraction = Fraction(1)
    coarse_r: Fraction = Fraction(0)
    coarse_j: Fraction = Fraction(0)

    @property
    def pixels(self) -> int:
        """Inputs that one output sees: r, where an enlarged map widens the view in steps of its coarse pixels only."""
        if not self.coarse_j:
            return int(self.r)
        return int(self.coarse_r + (self.r - self.coarse_r) // self.coarse_j * self.coarse_j)

    def through(self, span: Fraction | int, scale: Fraction | int) -> "Field":
        """Behind a layer of windows `span` + 1 wide that keeps one output for each `scale` inputs.

        One with `scale` < 1 enlarges: it spreads the inputs, zeros between, and slides its window over that.
        """
        j = self.j * scale
        if scale >= 1:
            return replace(self, r=self.r + span * self.j, j=j)
        if self.j > self.coarse_j:
            r = Fraction(self.pixels)
            return Field(r + span * j, j, r, self.j)
        return replace(self, r=self.r + span * j, j=j)


def joined(branches: Iterable[Field]) -> Field:
    """Where branches meet: the widest view. Maps of one size lie on one grid: where a branch was never enlarged, its j is exact.

    An enlarged map, 15 pixels from 8 that stood for 16, has lost count.
    """
    branches = list(branches)
    widest = max(branches, key=lambda f: (f.pixels, f.j))
    steps = [f.j for f in branches if not f.coarse_j]
    return replace(widest, j=max(steps)) if steps else widest


def output_size(size: int, windows: Iterable[Window]) -> int:
    """The size behind a chain of windows."""
    for w in windows:
        size = w.size(size)
    return size


def receptive_field(windows: Iterable[Window]) -> int:
    """How many inputs one output of the chain sees."""
    field = Field()
    for w in windows:
        field = field.through(w.dilation * (w.kernel - 1), w.stride)
    return field.pixels


def at_least(least: int, size: tuple[int, ...], owner: str) -> None:
    """Refuse images that shrink to nothing on their way through the network."""
    if min(size) < least:
        h, w = size
        raise UsageError(f"{owner} needs images of at least {least}×{least} pixels, got {h}×{w}; resize them, or choose a smaller network")


@dataclass(frozen=True)
class Sight:
    """One layer of a network: its output's size, and how far it sees; None: the whole image, or positions are gone."""

    name: str
    layer: str
    size: tuple[int, ...]            # H, W
    field: tuple[int, ...] | None
    jump: tuple[float, ...] | None


@torch.no_grad()
def trace(network: nn.Module, x: Tensor) -> list[Sight]:
    """Every layer that answers with feature maps, in the order in which it ran on images `x` (B, C, H, W)."""
    follow, rows = Follow(x), list[Sight]()

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(layer: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.ndim == 4:
                rows.append(Sight(name, type(layer).__name__, tuple(output.shape[2:]), *follow.sees(output)))
        return note

    hooks = [m.register_forward_hook(hook(name)) for name, m in network.named_modules() if not any(m.children())]
    training = {m: m.training for m in network.modules()}
    network.eval()
    try:
        with follow:
            network(x)
    finally:
        for m, mode in training.items():
            m.training = mode
        for h in hooks:
            h.remove()
    return rows


def footprint(network: nn.Module, x: Tensor) -> Tensor:
    """|d y_centre / d x|, summed over channels: the effective receptive field, smaller than the theoretical.  Gaba Ex 4.5."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = network(x)                                                 # (B, C, H', W')
        (g,) = torch.autograd.grad(y[..., y.shape[-2] // 2, y.shape[-1] // 2].sum(), x)
    return g.abs().sum(dim=1).mean(dim=0)                              # (H, W)


Step = tuple[Fraction | int, Fraction | int]  # span and scale of `Field.through`


def pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))


def conv(
    y: Tensor, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> list[Step]:
    return [(d * (k - 1), s) for k, s, d in zip(weight.shape[2:], pair(stride), pair(dilation), strict=True)]


def transposed(
    y: Tensor, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> list[Step]:
    return [(d * (k - 1), Fraction(1, s)) for k, s, d in zip(weight.shape[2:], pair(stride), pair(dilation), strict=True)]


def max_pool(
    y: Tensor, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, *more: Any, **named: Any
) -> list[Step]:
    strides = pair(stride or kernel_size)
    return [(d * (k - 1), s) for k, s, d in zip(pair(kernel_size), strides, pair(dilation), strict=True)]


def mean_pool(y: Tensor, input: Tensor, kernel_size: Any, stride: Any = None, *more: Any, **named: Any) -> list[Step]:
    return max_pool(y, input, kernel_size, stride)


def adaptive(y: Tensor, input: Tensor, *more: Any, **named: Any) -> list[Step]:
    """Output a averages floor(a i / o) ... ceil((a + 1) i / o)."""
    sizes = list(zip(input.shape[2:], y.shape[2:], strict=True))
    widest = [max(-(-(a + 1) * i // o) - a * i // o for a in range(o)) for i, o in sizes]
    return [(n - 1 if i >= o else Fraction(n * o, i) - 1, Fraction(i, o)) for n, (i, o) in zip(widest, sizes, strict=True)]


def resized(
    y: Tensor, input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *more: Any, **named: Any
) -> list[Step]:
    taps = {"bilinear": 2, "bicubic": 4}.get(mode, 1)
    sizes = zip(input.shape[2:], y.shape[2:], strict=True)
    return [(taps - 1 if i >= o else Fraction(taps * o, i) - 1, Fraction(i, o)) for i, o in sizes]


def sliced(y: Tensor, input: Tensor, index: Any) -> list[Step]:
    """x[:, :, ::s, ::s] keeps every s-th pixel."""
    axes = list(index) if isinstance(index, tuple) else [index]
    if any(a is Ellipsis for a in axes):
        at = next(i for i, a in enumerate(axes) if a is Ellipsis)
        axes[at : at + 1] = [slice(None)] * (input.ndim - len(axes) + 1)
    steps = [a.step or 1 if isinstance(a, slice) else 1 for a in axes]
    return [(0, s) for s in (*steps, 1, 1, 1, 1)[2:4]]


STEPS: dict[Any, Callable[..., list[Step]]] = {
    torch.conv2d: conv,
    torch.conv_transpose2d: transposed,
    torch.max_pool2d: max_pool, F.max_pool2d: max_pool,
    F.avg_pool2d: mean_pool,
    F.adaptive_avg_pool2d: adaptive, F.adaptive_max_pool2d: adaptive,
    F.interpolate: resized,
    Tensor.__getitem__: sliced,
}
MIXES = {  # an output of these may come from anywhere
    torch.mean, Tensor.mean, torch.sum, Tensor.sum, torch.amax, Tensor.amax,
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.einsum, F.scaled_dot_product_attention, F.grid_sample,
}


class Follow(TorchFunctionMode):
    """Watches every function that torch runs and notes what its outputs see of the images x; where branches meet, the widest view."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.fields = WeakTensorKeyDictionary()
        if x.ndim == 4:
            self.fields[x] = (Field(), Field())

    def sees(self, y: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Receptive field and jump of a map, each along height and width; None: the whole image, or no positions."""
        f = self.fields.get(y) if isinstance(y, Tensor) else None
        return (None, None) if f is None else (tuple(a.pixels for a in f), tuple(float(a.j) for a in f))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        seen = [self.fields[t] for t in tensors((*args, *kwargs.values())) if t in self.fields]
        output = func(*args, **kwargs)
        for y in tensors((output,)) if seen else ():
            if None in seen or y.ndim != 4 or func in MIXES:
                self.fields[y] = None
            elif func in STEPS:
                steps = STEPS[func](y, *args, **kwargs)
                self.fields[y] = tuple(f.through(*step) for f, step in zip(seen[0], steps, strict=True))
            else:
                self.fields[y] = tuple(joined(axis) for axis in zip(*seen, strict=True))
        return output


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)
