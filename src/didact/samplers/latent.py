"""Latent spaces: interpolation, traversals and grids of latent codes; and grids of images (rows, columns, C, H, W)."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from didact.errors import UsageError

GRID_SIZE = 8  # images along a side


def seeded_generator(like: Tensor, seed: int = 0) -> Generator:
    """A generator on the tensor's device, with a fixed seed."""
    return torch.Generator(like.device).manual_seed(seed)


def standard_normal(n: int, d: int, generator: Generator) -> Tensor:
    """(n, d) from N(0, 1), on the generator's device."""
    return torch.randn(n, d, generator=generator, device=generator.device)


def labels_to_sample(n: int, label: int | None, num_classes: int, device: torch.device) -> Tensor | None:
    """Classes to sample: `label` n times, or each class in turn; None for a model that is not class-conditional."""
    if label is not None and not num_classes:
        raise UsageError(
            f"this model is not class-conditional, so no class can be sampled, got {label}; train with --conditional"
        )
    if label is not None and not 0 <= label < num_classes:
        raise UsageError(f"the class must be from 0 to {num_classes - 1}, got {label}")
    if not num_classes:
        return None
    return torch.arange(n, device=device) % num_classes if label is None else torch.full((n,), label, device=device)


def sample_grid(sample: Callable[..., Tensor], num_classes: int, generator: Generator) -> Tensor:
    """A grid of samples; of a class-conditional model, a row for each class."""
    if not num_classes:
        return to_grid(sample(GRID_SIZE * GRID_SIZE, generator))
    return torch.stack(
        [sample(GRID_SIZE, generator, label=k).clamp(0, 1) for k in range(min(num_classes, 2 * GRID_SIZE))]
    )


def to_grid(images: Tensor, columns: int = GRID_SIZE) -> Tensor:
    """(N, C, H, W) -> (N // columns, columns, C, H, W)."""
    n = max(1, len(images) // columns)
    grid: Tensor = images[: n * columns].unflatten(0, (n, -1))
    return grid.clamp(0, 1)


def lerp(a: Tensor, b: Tensor, steps: int = GRID_SIZE) -> Tensor:
    """Linear interpolation (1 − t) a + t b of each a and its b: (n, d) -> (n steps, d).  Gaba Ex 9.6, Groudiev 11.6."""
    t = torch.linspace(0, 1, steps, device=a.device)[:, None]
    return ((1 - t) * a[:, None] + t * b[:, None]).flatten(0, 1)


def slerp(a: Tensor, b: Tensor, steps: int = GRID_SIZE) -> Tensor:
    """Spherical interpolation (sin((1 − t) θ) a + sin(t θ) b) / sin θ, θ the angle between a and b.  Shoemake 1985.

    Between two vectors of noise it keeps the norm that noise has; a straight line would pass through shorter ones.
    """
    p, q = a.flatten(1), b.flatten(1)
    theta = torch.acos(torch.cosine_similarity(p, q, dim=1).clamp(-0.999, 0.999))[:, None, None]
    t = torch.linspace(0, 1, steps, device=a.device)[:, None]
    interpolated = (torch.sin((1 - t) * theta) * p[:, None] + torch.sin(t * theta) * q[:, None]) / torch.sin(theta)
    latents: Tensor = interpolated.flatten(0, 1).unflatten(1, a.shape[1:])
    return latents


def side_mask(size: tuple[int, int], num_known: int, side: str, device: torch.device) -> Tensor:
    """(H, W): true on the first `num_known` rows from the top or bottom, or columns from the left or right."""
    axis = 0 if side in ("top", "bottom") else 1
    lines = torch.arange(size[axis], device=device)
    mask = (lines if side in ("top", "left") else lines.flip(0)) < num_known
    return mask.unsqueeze(1 - axis).expand(size)


def latent_traversal(z: Tensor, dimensions: Tensor, steps: int = GRID_SIZE, extent: float = 3.0) -> Tensor:
    """One code (d,) with one coordinate at a time from −extent to extent: (dimensions · steps, d).  Gaba Ex 9.4."""
    latents = z.repeat(len(dimensions), steps, 1)
    t = torch.linspace(-extent, extent, steps, device=z.device)
    return latents.scatter(
        2, dimensions[:, None, None].expand(-1, steps, 1), t[None, :, None].expand(len(dimensions), -1, 1)
    ).flatten(0, 1)


def latent_grid(side: int = 2 * GRID_SIZE) -> Tensor:
    """Codes over a plane, evenly spaced in probability under N(0, 1), the first coordinate rightwards: (side², 2)."""
    t = torch.special.ndtri(torch.linspace(0.02, 0.98, side))
    down, right = torch.meshgrid(-t, t, indexing="ij")
    return torch.stack([right, down], dim=-1).flatten(0, 1)
