"""RealNVP (Dinh et al. 2017): a normalizing flow, an invertible network that maps data to Gaussian codes.

    table   x -> [coupling on every other number] x steps -> z
    image   x -> [coupling on a checkerboard] x steps -> squeeze -> [coupling on every other channel] x steps -> z
    scales  x -> [as above, then half of the channels are finished: z_1] -> [… z_2] -> [checkerboard couplings] -> z_3
    number  x -> Φ⁻¹ of its CDF under a mixture of logistics -> z: one number alone has none to condition a coupling on
"""

from math import log, pi, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact.errors import UsageError
from didact.layers.autoencoder_blocks import Shape
from didact.layers.coupling import AffineCoupling, FlowSequential, Squeeze, alternating_mask, checkerboard_mask
from didact.layers.mlp import make_mlp_layers
from didact.registry import register_model

_BISECTION_STEPS = 60     # more than float32 has digits
_MAX_ABS_LOGIT = 15.0     # logits up to which Φ⁻¹(sigmoid) is distinguishable: five standard deviations


def _dense_coupling_net(n: int, hidden: int) -> nn.Sequential:
    """n -> hidden -> hidden -> s and t."""
    return nn.Sequential(*make_mlp_layers((n, hidden, hidden)), nn.Linear(hidden, 2 * n))


def _conv_coupling_net(channels: int, hidden: int) -> nn.Sequential:
    """3×3, 1×1, 3×3 convolutions to s and t."""
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(),
        nn.Conv2d(hidden, 2 * channels, 3, padding=1),
    )


def _checkerboard_couplings(shape: Shape, hidden: int, num_couplings: int) -> list[nn.Module]:
    c, h, w = shape
    return [AffineCoupling(checkerboard_mask(h, w, k), _conv_coupling_net(c, hidden)) for k in range(num_couplings)]


def _channel_couplings(channels: int, hidden: int, num_couplings: int) -> list[nn.Module]:
    return [
        AffineCoupling(alternating_mask(channels, k)[:, None, None], _conv_coupling_net(channels, hidden))
        for k in range(num_couplings)
    ]


class NormalizingFlow(nn.Module):
    """log p(x) = log N(f(x); 0, I) + log |det df/dx|.  Groudiev 12.3; Dinh et al. 2017, eq. 3."""

    shape: tuple[int, ...]  # of the codes

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f(x) and log |det df/dx|."""
        raise NotImplementedError

    def decode(self, z: Tensor) -> Tensor:
        """x = f⁻¹(z)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """log p(x), (B,)."""
        z, log_det = self.encode(x)
        return log_det - 0.5 * (z.square().flatten(1).sum(1) + prod(self.shape) * log(2 * pi))


@register_model("realnvp", hidden=64, num_couplings=6)
class RealNVP(NormalizingFlow):
    """Single-scale RealNVP: every number passes through every step."""

    def __init__(self, *, shape: tuple[int, ...], hidden: int, num_couplings: int):
        super().__init__()
        if len(shape) == 1:
            self.shape = shape
            self.layers = FlowSequential(
                AffineCoupling(alternating_mask(shape[0], k), _dense_coupling_net(shape[0], hidden))
                for k in range(num_couplings)
            )
            return
        c, h, w = shape
        layers = _checkerboard_couplings((c, h, w), hidden, num_couplings)
        while h % 2 == 0 and w % 2 == 0 and c < 16:
            c, h, w = 4 * c, h // 2, w // 2
            layers += [Squeeze(), *_channel_couplings(c, hidden, num_couplings)]
        self.shape, self.layers = (c, h, w), FlowSequential(layers)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self.layers(x)
        return z, log_det

    def decode(self, z: Tensor) -> Tensor:
        return self.layers.inverse(z)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (1, 4, 6), "hidden": 8, "num_couplings": 2}, torch.randn(batch_size, 1, 4, 6)


def count_halvings(height: int, width: int) -> int:
    """How often both sides can be halved so that at least two pixels are left."""
    return next(
        n
        for n in range(height + 1)
        if height % 2 ** (n + 1) or width % 2 ** (n + 1) or min(height, width) < 2 ** (n + 2)
    )


@register_model("realnvp_multiscale", hidden=64, num_couplings=4, num_scales=3)
class MultiScaleRealNVP(NormalizingFlow):
    """(z_s, h_s) = f_s(h_(s−1)), z = (z_1, …, z_S).  Dinh et al. 2017, eqs. 13-16.

    At each scale half of the channels are finished, which hold fine detail; the other half passes to the next scale.
    """

    def __init__(self, *, shape: Shape, hidden: int, num_couplings: int, num_scales: int):
        super().__init__()
        c, h, w = shape
        if num_scales > (max_scales := 1 + count_halvings(h, w)):
            raise UsageError(
                f"{num_scales} scales need images with sides that are multiples of {2 ** (num_scales - 1)} and at "
                f"least {2**num_scales} pixels, got {w}×{h}; choose at most {max_scales}, or another size"
            )
        self.shape, self.sizes = (prod(shape),), list[Shape]()     # of the codes finished at each scale
        self.scales = nn.ModuleList()
        for _ in range(num_scales - 1):
            squares = _checkerboard_couplings((c, h, w), hidden, num_couplings)
            channels = _channel_couplings(4 * c, hidden, num_couplings)
            self.scales.append(FlowSequential([*squares, Squeeze(), *channels]))
            c, h, w = 2 * c, h // 2, w // 2
            self.sizes.append((c, h, w))
        self.scales.append(FlowSequential(_checkerboard_couplings((c, h, w), hidden, num_couplings)))
        self.sizes.append((c, h, w))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = [], torch.zeros(len(x), device=x.device)
        for scale in self.scales:
            x, step_log_det = scale(x)
            log_det = log_det + step_log_det
            if scale is not self.scales[-1]:
                x, finished = x[:, ::2], x[:, 1::2]                     # every other channel: all colors pass on
                z.append(finished.flatten(1))
        return torch.cat([*z, x.flatten(1)], dim=1), log_det

    def decode(self, z: Tensor) -> Tensor:
        parts = z.split([prod(size) for size in self.sizes], dim=1)
        maps: list[Tensor] = [part.unflatten(1, size) for part, size in zip(parts, self.sizes, strict=True)]
        x = maps.pop()
        for scale in reversed(self.scales):
            assert isinstance(scale, FlowSequential)
            if scale is not self.scales[-1]:
                x = torch.stack([x, maps.pop()], dim=2).flatten(1, 2)
            x = scale.inverse(x)
        return x

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"shape": (1, 8, 12), "hidden": 8, "num_couplings": 2, "num_scales": 3}, torch.randn(
            batch_size, 1, 8, 12
        )


@register_model("monotone_flow", components=16)
class MonotoneFlow(NormalizingFlow):
    """z = Φ⁻¹(F(x)), F(x) = Σ_k π_k sigmoid((x − μ_k)/s_k), so that p(x) = F′(x).

    A flow of a single number.  Ho et al. 2019 (Flow++), section 3.2.
    """

    def __init__(self, *, components: int = 16):
        super().__init__()
        self.shape = (1,)
        self.weight = nn.Parameter(0.1 * torch.randn(components))
        self.mu = nn.Parameter(torch.linspace(-2, 2, components))
        self.log_s = nn.Parameter(torch.full((components,), -1.0))

    def mixture_terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log π and (x − μ)/s: (K,), (B, K)."""
        return self.weight.log_softmax(0), (x - self.mu) * (-self.log_s).exp()

    def logit(self, x: Tensor) -> Tensor:
        """log F/(1 − F), (B, 1), as the difference of two logarithms, each of which is exact far out."""
        log_pi, a = self.mixture_terms(x)
        return ((log_pi + F.logsigmoid(a)).logsumexp(1) - (log_pi + F.logsigmoid(-a)).logsumexp(1))[:, None]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t = self.logit(x).clamp(-_MAX_ABS_LOGIT, _MAX_ABS_LOGIT)
        # from the tail, where the probability is small and keeps its digits
        z = t.sign() * -torch.special.ndtri((-t.abs()).sigmoid())
        log_pi, a = self.mixture_terms(x)
        log_p = (log_pi - self.log_s + F.logsigmoid(a) + F.logsigmoid(-a)).logsumexp(1)
        return z, log_p + 0.5 * (z[:, 0].square() + log(2 * pi))

    def decode(self, z: Tensor) -> Tensor:
        target_logit = z.sign() * -torch.special.ndtr(-z.abs()).logit()
        margin = 2 * _MAX_ABS_LOGIT * self.log_s.exp().max()
        low, high = (self.mu.min() - margin).expand_as(z), (self.mu.max() + margin).expand_as(z)
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            below = self.logit(middle) < target_logit
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        return {"components": 4}, torch.randn(batch_size, 1)
