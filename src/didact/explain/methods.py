"""The explanation methods by name, for images and for rows of features: their functions, titles and descriptions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from didact.errors import UsageError, suggest_nearest
from didact.explain.explained_model import ExplainedModel
from didact.explain.feature_maps import feature_maps, find_last_map_layer, find_layer
from didact.explain.grad_cam import grad_cam
from didact.explain.gradients import gradient_times_input, saliency, smooth_grad
from didact.explain.occlusion import occlusion, patch_grid, score_masked_inputs
from didact.explain.shapley import MAX_EXACT_PLAYERS, shapley

NETWORK_VIEWS = ("filters", "feature_maps")   # of the network, not of a class
_SHAPLEY_NOTE = (
    f"what it adds to the others, averaged over random permutations; for at most {MAX_EXACT_PLAYERS} parts exact, over "
    "all coalitions"
)


@dataclass(frozen=True)
class MethodOptions:
    """Options of the methods: the layer of Grad-CAM and feature maps, patches per side, permutations."""

    layer: nn.Module | None = None
    patches: int | None = None
    num_samples: int = 32

    def patches_per_side(self, size: tuple[int, int]) -> int:
        """Patches per side: 4 for tiny images, 7 for others, unless chosen."""
        if self.patches is None:
            return 4 if min(size) < 16 else 7
        if self.patches > min(size):
            raise UsageError(
                f"--patches {self.patches} is more than the {min(size)} pixels per side of these images; choose fewer"
            )
        return self.patches


_MapFn = Callable[[ExplainedModel, Tensor, int, MethodOptions], Tensor]


@dataclass(frozen=True)
class _Method:
    """`compute` gives (H, W) for an image or (d,) for the d parts of other inputs; signed: for or against the class."""

    title: str
    description: str
    compute: _MapFn
    is_signed: bool = False
    needs_gradient: bool = False


def _compute_grad_cam(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    return grad_cam(
        model.scores, x[None], c, layer=options.layer or find_last_map_layer(model.objective, model.scores, x[None])
    )[0]


def _compute_occlusion(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    side = max(1, round(min(x.shape[1:]) / options.patches_per_side((x.shape[1], x.shape[2]))))
    return occlusion(model.scores, x[None], c, patch=side, baseline=model.baseline)[0]


def _compute_shapley(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    size = x.shape[1], x.shape[2]
    patch_index = patch_grid(size, options.patches_per_side(size))
    values = shapley(
        model.scores,
        x[None],
        c,
        players=patch_index,
        baseline=model.baseline,
        num_samples=options.num_samples,
        generator=_make_generator(),
    )[0]
    return values[patch_index.to(values.device)]


def _compute_smooth_grad(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    return smooth_grad(model.scores, x[None], c, generator=_make_generator(x.device))[0]


def _make_generator(device: torch.device | None = None) -> torch.Generator:
    """A generator with a fixed seed, so that the same call gives the same result."""
    return torch.Generator(device=device or "cpu").manual_seed(0)


IMAGE_METHODS = {
    "saliency": _Method(
        "saliency",
        "|∂s/∂x|: the pixels whose small changes change the score most (Simonyan et al. 2014; Gaba 12.5.1)",
        lambda model, x, c, options: saliency(model.scores, x[None], c)[0],
        needs_gradient=True,
    ),
    "smooth_grad": _Method(
        "SmoothGrad",
        "the mean saliency of 32 noisy copies, in which noise averages out (Smilkov et al. 2017)",
        _compute_smooth_grad,
        needs_gradient=True,
    ),
    "grad_cam": _Method(
        "Grad-CAM",
        "relu(Σ α_k A_k): where a layer found evidence for the class (Selvaraju et al. 2017; Gaba 12.5.2)",
        _compute_grad_cam,
        needs_gradient=True,
    ),
    "occlusion": _Method(
        "occlusion",
        "what the score loses when a gray square covers the pixels (Zeiler and Fergus 2014)",
        _compute_occlusion,
        is_signed=True,
    ),
    "shapley": _Method(
        "Shapley values",
        f"each patch's share of the score: {_SHAPLEY_NOTE} (Gaba 12.5.3)",
        _compute_shapley,
        is_signed=True,
    ),
}


def _reduce_by_part(values: Tensor, model: ExplainedModel, x: Tensor, *, take_max: bool = False) -> Tensor:
    """Values of features -> values of the parts they encode: the sum, or the maximum."""
    names, members = model.get_parts(x)
    in_part = members >= 0
    zeros = torch.zeros(len(names), dtype=values.dtype, device=values.device)
    return zeros.scatter_reduce(0, members[in_part], values[in_part], "amax" if take_max else "sum")


def _compute_part_saliency(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    """For tables per standard deviation of the feature: per meter and per millimeter could not be compared."""
    std = model.data.std.float().to(x.device) if model.data.kind == "table" else 1.0
    return _reduce_by_part(std * saliency(model.scores, x[None], c)[0], model, x, take_max=True)


def _compute_gradient_times_input(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    return _reduce_by_part(gradient_times_input(model.scores, x[None], c, baseline=model.baseline)[0], model, x)


def _compute_leave_one_out(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    names, members = model.get_parts(x)
    # row 0 leaves out nothing
    keep_masks = members != torch.arange(-1, len(names), device=x.device)[:, None]
    keep_masks[0] = True
    scores = score_masked_inputs(model.scores, x, c, keep_masks, model.baseline)
    return scores[0] - scores[1:]


def _compute_part_shapley(model: ExplainedModel, x: Tensor, c: int, options: MethodOptions) -> Tensor:
    _, members = model.get_parts(x)
    return shapley(
        model.scores,
        x[None],
        c,
        players=members,
        baseline=model.baseline,
        num_samples=options.num_samples,
        generator=_make_generator(),
    )[0]


FEATURE_METHODS = {
    "saliency": _Method(
        "saliency",
        "|∂s/∂x| times the feature's standard deviation: which small change changes the score most (Gaba 12.5.1)",
        _compute_part_saliency,
        needs_gradient=True,
    ),
    "gradient_times_input": _Method(
        "gradient × input",
        "(x − mean) ∂s/∂x: the score's parts if it were linear (Shrikumar et al. 2017)",
        _compute_gradient_times_input,
        is_signed=True,
        needs_gradient=True,
    ),
    "occlusion": _Method(
        "occlusion",
        "what the score loses when the value is replaced by the training mean; in a text, when the word is left out",
        _compute_leave_one_out,
        is_signed=True,
    ),
    "shapley": _Method(
        "Shapley values",
        f"each value's share of the score: {_SHAPLEY_NOTE} (Gaba 12.5.3)",
        _compute_part_shapley,
        is_signed=True,
    ),
}


def resolve_methods(requested: Sequence[str], model: ExplainedModel, x: Tensor) -> list[str]:
    """The chosen methods. `all` means those that the network supports; an unsupported one by name is refused."""
    available = [*IMAGE_METHODS, *NETWORK_VIEWS] if model.is_image else list(FEATURE_METHODS)
    unavailable = _find_unavailable(model, x)
    if "all" in requested:
        return [name for name in available if name not in unavailable]
    for name in requested:
        if name not in available:
            suffix = "" if name not in {*IMAGE_METHODS, *NETWORK_VIEWS, *FEATURE_METHODS} else f" for {model.data.kind}"
            raise UsageError(f"no method{suffix} named {name!r}; {suggest_nearest(name, [*available, 'all'])}")
        if name in unavailable:
            raise UsageError(unavailable[name])
    return list(dict.fromkeys(requested))


def _find_unavailable(model: ExplainedModel, x: Tensor) -> dict[str, str]:
    """The methods that this network does not support, with the reason."""
    methods = IMAGE_METHODS if model.is_image else FEATURE_METHODS
    if not model.is_differentiable(x):
        reason = "this run's network gives no gradient of its input; choose occlusion or shapley"
        return {name: reason for name, m in methods.items() if m.needs_gradient} | dict.fromkeys(
            NETWORK_VIEWS, "this run's network gives no access to its layers"
        )
    if model.is_image:
        try:
            find_last_map_layer(model.objective, model.scores, x)
        except UsageError as error:
            return dict.fromkeys(("grad_cam", "feature_maps"), str(error))
    return {}



def find_map_layer(model: ExplainedModel, name: str | None, x: Tensor) -> nn.Module | None:
    """The layer of a name, checked to give feature maps."""
    if name is None:
        return None
    layer = find_layer(model.objective, name)
    try:
        feature_maps(model.scores, x[:1], layer)
    except UsageError as error:
        raise UsageError(f"--layer {name}: {error}") from None
    return layer


def find_first_convolution(model: ExplainedModel) -> nn.Module:
    """The first convolution of the network."""
    return next(m for m in model.objective.modules() if isinstance(m, nn.Conv2d))
