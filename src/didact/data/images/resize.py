"""Images of a known dataset in another size, for pretraining before images of that size."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from didact.data.build import compute_mean_std
from didact.data.core import SPLITS, Data, TensorSplit
from didact.data.images.image_folder import ImageEncoder


def resize_dataset(data: Data, side: int | None) -> Data:
    """Images resized to side × side, by area where they shrink, bilinearly where they grow; new statistics.

    The encoder reads new images in that size too.
    """
    if side is None or data.shape[1:] == (side, side):
        return data
    parts: dict[str, TensorSplit] = {}
    for part in SPLITS:
        split = data.split(part)
        assert isinstance(split, TensorSplit), "datasets known by name are in memory"
        x = F.interpolate(
            split.columns["x"].float(), size=(side, side), mode="area" if side < min(data.shape[1:]) else "bilinear"
        )
        parts[part] = replace(split, columns={**split.columns, "x": x.round().clamp(0, 255).to(torch.uint8)})
    mean, std = compute_mean_std(parts["train"])
    shape = (data.shape[0], side, side)
    note = f"resized from {data.shape[2]}×{data.shape[1]} to {side}×{side} pixels"
    return replace(
        data, shape=shape, mean=mean, std=std, encoder=ImageEncoder(shape), notes=(*data.notes, note),
        train=parts["train"], validation=parts["validation"], test=parts["test"],
    )
