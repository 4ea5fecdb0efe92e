"""Images of a known dataset in another size, for pretraining before images of that size."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from didact.data.build import compute_mean_std
from didact.data.core import SPLITS, Data, TensorSplit
from didact.data.images.image_folder import ImageEncoder
from didact.data.storage import free_memory
from didact.errors import UsageError

_BYTES_AT_ONCE = 2**28     # of images as floats


def resize_dataset(data: Data, side: int | None) -> Data:
    """Images resized to side × side, by area where they shrink, bilinearly where they grow; new statistics.

    The encoder reads new images in that size too.
    """
    if side is None or data.shape[1:] == (side, side):
        return data
    num_bytes = sum(len(data.split(part)) for part in SPLITS) * data.shape[0] * side * side
    if num_bytes > free_memory() // 2:
        raise UsageError(
            f"--size {side}: {data.name!r} would take {num_bytes / 2**30:,.1f} GiB, more than half of the "
            f"{free_memory() / 2**30:.1f} GiB of memory that are free; choose a smaller size"
        )
    parts: dict[str, TensorSplit] = {}
    for part in SPLITS:
        split = data.split(part)
        assert isinstance(split, TensorSplit), "datasets known by name are in memory"
        x = torch.empty(len(split), data.shape[0], side, side, dtype=torch.uint8)
        chunk_size = max(1, _BYTES_AT_ONCE // (4 * data.shape[0] * side * side))
        for start in range(0, len(split), chunk_size):        # as floats, all of them would take four times the memory
            chunk = slice(start, start + chunk_size)
            x[chunk] = _resize(split.columns["x"][chunk], side)
        parts[part] = replace(split, columns={**split.columns, "x": x})
    mean, std = compute_mean_std(parts["train"])
    shape = (data.shape[0], side, side)
    note = f"resized from {data.shape[2]}×{data.shape[1]} to {side}×{side} pixels"
    return replace(
        data, shape=shape, mean=mean, std=std, encoder=ImageEncoder(shape), notes=(*data.notes, note),
        train=parts["train"], validation=parts["validation"], test=parts["test"],
    )


def _resize(images: Tensor, side: int) -> Tensor:
    mode = "area" if side < min(images.shape[2:]) else "bilinear"
    return F.interpolate(images.float(), size=(side, side), mode=mode).round().clamp(0, 255).to(torch.uint8)
