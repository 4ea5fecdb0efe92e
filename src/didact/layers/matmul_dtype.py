"""The data type in which matrices are multiplied."""

import torch
from torch import Tensor


def matmul_dtype(x: Tensor) -> torch.dtype:
    """The data type of matrix products: autocast's where it is on, else the tensor's."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
