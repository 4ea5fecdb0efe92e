"""Latent interpolation and traversal: between random codes or those of images, or along one dimension of a code."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from didact.data.core import Data
from didact.errors import UsageError
from didact.inference.sample_images import check_sampling_options, class_index, recipes_with
from didact.objectives.abilities import CanDecodeLatents, CanEncode
from didact.run import Run
from didact.samplers.latent import labels_to_sample, latent_traversal, lerp, slerp
from didact.training.device import resolve_device
from didact.training.restore import load_model

# Up to this latent dimension random codes are interpolated linearly; longer ones all have about the same norm, which
# spherical interpolation keeps.
_MAX_LINEAR_DIM = 2


def interpolate_latents(
    run: Run,
    n: int,
    images: Sequence[str] = (),
    *,
    seed: int = 0,
    label: str | None = None,
    device: str = "cpu",
    **sampling_options: Any,
) -> Tensor:
    """n interpolations between two random codes, eight steps each: (n · 8, …). Both ends have the same class.

    Where images are given, linear interpolations from each image's code to the next one's.  Groudiev 10.2.7
    """
    objective, data = _load_decoder(run)
    torch_device = resolve_device(device)
    if images:
        if len(images) < 2:
            raise UsageError(f"--interpolate needs two or more images, or none, got {images[0]}")
        z = _encode_images(run, objective, data, images, label, torch_device)
        latents = lerp(z[:-1].flatten(1), z[1:].flatten(1)).unflatten(1, z.shape[1:])
        return _decode_latents(run, objective, data, latents, len(images) - 1, label=label, **sampling_options)
    a, b = objective.sample_latents(2 * n, torch.Generator(torch_device).manual_seed(seed)).chunk(2)
    interpolate = lerp if a[0].numel() <= _MAX_LINEAR_DIM else slerp
    return _decode_latents(run, objective, data, interpolate(a, b), n, label=label, **sampling_options)


def traverse_latents(
    run: Run, dims: str, images: Sequence[str] = (), *,
    extent: float = 3.0, seed: int = 0, label: str | None = None, device: str = "cpu", **sampling_options: Any,
) -> Tensor:
    """A code, of an image or random; in each row one dimension goes from −extent to extent: (rows · 8, …)."""
    objective, data = _load_decoder(run)
    torch_device = resolve_device(device)
    if len(images) > 1:
        raise UsageError(f"--traverse starts from one image, got {len(images)}; name one")
    if images:
        z = _encode_images(run, objective, data, images, label, torch_device)[0]
    else:
        z = objective.sample_latents(1, torch.Generator(torch_device).manual_seed(seed))[0]
    indices = _parse_dimensions(dims, z.numel())
    latents = latent_traversal(z.flatten(), torch.tensor(indices, device=torch_device), extent=extent).unflatten(
        1, z.shape
    )
    return _decode_latents(run, objective, data, latents, 1, label=label, **sampling_options)


def _load_decoder(run: Run) -> tuple[CanDecodeLatents, Data]:
    objective, data = load_model(run)
    if not isinstance(objective, CanDecodeLatents):
        raise UsageError(
            f"recipe {run.metadata['recipe']!r} has no latent codes to decode; {recipes_with('walk')} have"
        )
    return objective, data


@torch.no_grad()
def _encode_images(
    run: Run,
    objective: CanDecodeLatents,
    data: Data,
    images: Sequence[str],
    label: str | None,
    torch_device: torch.device,
) -> Tensor:
    """The codes of image files."""
    if not isinstance(objective, CanEncode):
        if data.kind == "table":
            raise UsageError(f"{run.folder} was trained on a table, but {images[0]} is an image; leave it out")
        raise UsageError(
            f"recipe {run.metadata['recipe']!r} cannot encode an image; {recipes_with('encode')} can"
        )
    if data.encoder is None:
        raise UsageError(f"the run was trained on {data.name!r}, whose inputs cannot be read from files")
    if objective.num_classes and label is None:
        raise UsageError(f"this model is class-conditional: give the class of {' and '.join(images)} with --class")
    x = data.encoder.decoders["x"](data.encoder.read(images)[1]["x"]).to(torch_device)
    y = labels_to_sample(len(x), class_index(label, data, run), objective.num_classes, torch_device)
    objective.to(torch_device)  # type: ignore[attr-defined]
    return objective.encode({"x": x} if y is None else {"x": x, "y": y})


@torch.no_grad()
def _decode_latents(
    run: Run,
    objective: CanDecodeLatents,
    data: Data,
    z: Tensor,
    num_paths: int,
    *,
    label: str | None,
    **sampling_options: Any,
) -> Tensor:
    """The decoded codes; of a conditional model, each path has one class."""
    options = check_sampling_options(sampling_options, objective.walk, run)
    y = labels_to_sample(num_paths, class_index(label, data, run), objective.num_classes, z.device)
    objective.to(z.device)  # type: ignore[attr-defined]
    steps_per_path = len(z) // num_paths
    return objective.walk(z, None if y is None else y.repeat_interleave(steps_per_path), **options).float().cpu()


def _parse_dimensions(text: str, size: int) -> list[int]:
    """The dimensions in dim=3, or dim=0,3,5."""
    name, _, listed = text.partition("=")
    numbers = listed.split(",")
    if name != "dim" or not all(number.strip().isdecimal() and int(number) < size for number in numbers):
        raise UsageError(
            f"--traverse expects dim=k or dim=k,l,… of the {size} latent dimensions, 0 to {size - 1}, got {text!r}"
        )
    return [int(number) for number in numbers]

