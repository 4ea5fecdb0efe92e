"""Confusion matrices: how often each true class (row) was predicted as each class (column)."""

import torch
from torch import Tensor


def confusion_matrix(predicted: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Counts (K, K): row the true class, column the predicted one."""
    cells = torch.zeros(num_classes * num_classes, dtype=torch.int64, device=y.device)
    # not bincount: on a GPU it waits for the host to learn the largest index
    return cells.index_add_(0, y * num_classes + predicted, torch.ones_like(y)).view(num_classes, num_classes)


def confusion_matrices(predicted: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Pixel counts of each example: (B, …), (B, …) -> (B, K, K). Pixels whose y is no class, such as VOC's 255, are
    ignored.
    """
    cells = torch.zeros(len(y) * num_classes * num_classes, dtype=torch.int64, device=y.device)
    example = torch.arange(len(y), device=y.device).view(-1, *[1] * (y.ndim - 1))
    valid = y < num_classes
    index = ((example * num_classes + torch.where(valid, y, 0)) * num_classes + predicted).flatten()
    return cells.index_add_(0, index, valid.flatten().long()).view(len(y), num_classes, num_classes)
