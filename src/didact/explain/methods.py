"""The methods by name, each for images and for rows of features: what it computes, and in which words it is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from didact.errors import UsageError, nearest
from didact.explain.cam import grad_cam
from didact.explain.coalitions import EXACT, shapley
from didact.explain.gradients import gradient_times_input, saliency, smooth_grad
from didact.explain.inside import feature_maps, last_maps, named
from didact.explain.occlude import covered_scores, occlusion, partition
from didact.explain.subject import Subject

VIEWS = ("filters", "feature_maps")   # of the network, not of a class
AVERAGED = f"what it adds when it comes, averaged over random orders; of at most {EXACT} parts, exactly, over all coalitions"


@dataclass(frozen=True)
class How:
    """What can be chosen: the layer of Grad-CAM and feature maps, patches on a side, orders that Shapley values are sampled from."""

    layer: nn.Module | None = None
    patches: int | None = None
    samples: int = 32

    def grid(self, size: tuple[int, int]) -> int:
        """Patches on a side: 4 on tiny images, 7 on others, unless told."""
        if self.patches is None:
            return 4 if min(size) < 16 else 7
        if self.patches > min(size):
            raise UsageError(f"--patches {self.patches} is more than the {min(size)} pixels on a side of these images; choose fewer")
        return self.patches


Map = Callable[[Subject, Tensor, int, How], Tensor]


@dataclass(frozen=True)
class Method:
    """`compute` gives (H, W) of an image or (d,) of a row's d parts; signed values speak for the class or against it."""

    title: str
    about: str
    compute: Map
    signed: bool = False
    slopes: bool = False   # needs gradients


def grad_cam_map(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    return grad_cam(s.scores, x[None], c, layer=how.layer or last_maps(s.objective, s.scores, x[None]))[0]


def slid_patch(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    side = max(1, round(min(x.shape[1:]) / how.grid((x.shape[1], x.shape[2]))))
    return occlusion(s.scores, x[None], c, patch=side, baseline=s.baseline)[0]


def patch_values(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    size = x.shape[1], x.shape[2]
    where = partition(size, how.grid(size))
    values = shapley(s.scores, x[None], c, players=where, baseline=s.baseline, samples=how.samples, generator=seeded())[0]
    return values[where.to(values.device)]


def smooth(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    return smooth_grad(s.scores, x[None], c, generator=seeded(x.device))[0]


def seeded(device: torch.device | None = None) -> torch.Generator:
    """The same call draws the same picture."""
    return torch.Generator(device=device or "cpu").manual_seed(0)


IMAGES = {
    "saliency": Method(
        "saliency", "|∂s/∂x|: pixels whose small change moves the score most (Simonyan et al. 2014; Gaba 12.5.1)",
        lambda s, x, c, how: saliency(s.scores, x[None], c)[0], slopes=True,
    ),
    "smooth_grad": Method(
        "SmoothGrad", "the mean saliency of 32 noisy copies: what flickers averages out (Smilkov et al. 2017)", smooth, slopes=True,
    ),
    "grad_cam": Method(
        "Grad-CAM", "relu(Σ α_k A_k): where a layer found what speaks for the class (Selvaraju et al. 2017; Gaba 12.5.2)",
        grad_cam_map, slopes=True,
    ),
    "occlusion": Method(
        "occlusion", "what the score loses when a grey square covers the place (Zeiler and Fergus 2014)", slid_patch, signed=True,
    ),
    "shapley": Method(
        "Shapley values", f"each patch's share of the score: {AVERAGED} (Gaba 12.5.3)", patch_values, signed=True,
    ),
}


def by_part(values: Tensor, s: Subject, x: Tensor, *, largest: bool = False) -> Tensor:
    """Numbers of features -> of the parts they encode: their sum, or the largest."""
    names, members = s.parts(x)
    kept = members >= 0
    start = torch.zeros(len(names), dtype=values.dtype, device=values.device)
    return start.scatter_reduce(0, members[kept], values[kept], "amax" if largest else "sum")


def steps(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    """Of a table in deviations of each feature: slopes of a length in metres and in millimetres could not be compared."""
    spread = s.data.std.float().to(x.device) if s.data.kind == "table" else 1.0
    return by_part(spread * saliency(s.scores, x[None], c)[0], s, x, largest=True)


def linear_share(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    return by_part(gradient_times_input(s.scores, x[None], c, baseline=s.baseline)[0], s, x)


def without_part(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    names, members = s.parts(x)
    there = members != torch.arange(-1, len(names), device=x.device)[:, None]      # row 0 leaves out what is in no part: nothing
    there[0] = True
    found = covered_scores(s.scores, x, c, there, s.baseline)
    return found[0] - found[1:]


def part_values(s: Subject, x: Tensor, c: int, how: How) -> Tensor:
    _, members = s.parts(x)
    return shapley(s.scores, x[None], c, players=members, baseline=s.baseline, samples=how.samples, generator=seeded())[0]


FEATURES = {
    "saliency": Method(
        "saliency", "|∂s/∂x| times the feature's deviation: which small change moves the score most (Gaba 12.5.1)", steps, slopes=True,
    ),
    "gradient_times_input": Method(
        "gradient × input", "(x − mean) ∂s/∂x: the score's parts if it were linear (Shrikumar et al. 2017)",
        linear_share, signed=True, slopes=True,
    ),
    "occlusion": Method(
        "occlusion", "what the score loses when the value is replaced by the training mean; of a text, when the word is left out",
        without_part, signed=True,
    ),
    "shapley": Method(
        "Shapley values", f"each value's share of the score: {AVERAGED} (Gaba 12.5.3)", part_values, signed=True,
    ),
}


def asked(words: Sequence[str], subject: Subject, x: Tensor) -> list[str]:
    """The methods that are meant. `all` leaves out what this network cannot give; one asked for by name is refused instead."""
    known = [*IMAGES, *VIEWS] if subject.pictures else list(FEATURES)
    lacking = why_not(subject, x)
    if "all" in words:
        return [name for name in known if name not in lacking]
    for name in words:
        if name not in known:
            fit = "" if name not in {*IMAGES, *VIEWS, *FEATURES} else f" for {subject.data.kind}"
            raise UsageError(f"no method{fit} named {name!r}; {nearest(name, [*known, 'all'])}")
        if name in lacking:
            raise UsageError(lacking[name])
    return list(dict.fromkeys(words))


def why_not(subject: Subject, x: Tensor) -> dict[str, str]:
    """The methods that this network cannot give, each with the reason."""
    table = IMAGES if subject.pictures else FEATURES
    if not subject.differentiable(x):
        closed = "this run's network hands out no gradient of its input; choose occlusion or shapley"
        return {name: closed for name, m in table.items() if m.slopes} | dict.fromkeys(VIEWS, "this run's layers cannot be looked into")
    if subject.pictures:
        try:
            last_maps(subject.objective, subject.scores, x)
        except UsageError as error:
            return dict.fromkeys(("grad_cam", "feature_maps"), str(error))
    return {}



def layer_named(subject: Subject, name: str | None, x: Tensor) -> nn.Module | None:
    """The layer that a person means, once it is known to give maps."""
    if name is None:
        return None
    layer = named(subject.objective, name)
    try:
        feature_maps(subject.scores, x[:1], layer)
    except UsageError as error:
        raise UsageError(f"--layer {name}: {error}") from None
    return layer


def first_convolution(subject: Subject) -> nn.Module:
    """What the filters answer to the image."""
    return next(m for m in subject.objective.modules() if isinstance(m, nn.Conv2d))
