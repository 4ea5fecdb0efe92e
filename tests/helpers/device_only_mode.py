"""A dispatch mode that refuses what a CUDA graph cannot hold."""

from torch.utils._python_dispatch import TorchDispatchMode

HOST_OPS = {
    "aten::lift_fresh",
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::equal",
}


class DeviceOnlyMode(TorchDispatchMode):
    """Refuses what a captured step could not do."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.name().split(".")[0] not in HOST_OPS, f"{func} inside the loss: a CUDA graph cannot hold it"
        return func(*args, **(kwargs or {}))
