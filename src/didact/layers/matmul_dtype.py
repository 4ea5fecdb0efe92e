"""The precision that matrices are multiplied in."""

import torch
from torch import Tensor


def matmul_dtype(x: Tensor) -> torch.dtype:
    """What autocast would multiply matrices in."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
