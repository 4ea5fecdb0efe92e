"""Devices: choosing one, its memory, deterministic kernels."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from didact.data.storage import free_memory
from didact.errors import UsageError


def resolve_device(name: str, local_rank: int = 0, supported: tuple[str, ...] = ("cpu", "cuda", "mps")) -> torch.device:
    """The device for a name; `auto` is a GPU where there is one, else the CPU.

    `local_rank` is the number of this process on its machine, `supported` the device types of the objective.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() and "cuda" in supported else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device expects auto, cpu, cuda, cuda:N or mps, got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"--device {name}: no CUDA device is visible here; use --device cpu (`didact doctor` says why)"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: there are {torch.cuda.device_count()} CUDA devices, numbered from 0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("--device mps: Apple's Metal is not available here; use --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"--device expects auto, cpu, cuda, cuda:N or mps, got {name!r}")
    if device.type not in supported:
        raise UsageError(f"--device {name}: this recipe runs on {' or '.join(supported)} only; leave --device out")
    if name == "cuda" and local_rank >= torch.cuda.device_count():
        raise UsageError(
            f"process {local_rank} of this machine finds {torch.cuda.device_count()} CUDA devices; start as many, or "
            "--device cpu"
        )
    return torch.device("cuda", local_rank) if name == "cuda" else device


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"{device} ({threads} thread{'s' if threads > 1 else ''})" if device.type == "cpu" else str(device)


def memory_used(device: torch.device) -> int:
    """Peak memory in bytes: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def deterministic_kernels(enabled: bool = True) -> Iterator[None]:
    """Inside, PyTorch and cuDNN use deterministic kernels only: on one GPU, the same bytes again.

    Without it some gradients on CUDA (convolutions, embeddings) are summed in an order that changes from run to run. On
    a CPU the order is always the same.
    """
    if not enabled:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when its handle is created
    previous = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(previous[0])
        torch.backends.cudnn.benchmark = previous[1]


@contextmanager
def memory_guard() -> Iterator[None]:
    """Refuse networks that do not fit: weights are counted when they are allocated, before they are filled."""
    free_bytes, allocated = free_memory(), 0

    def count(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        nonlocal allocated
        allocated += 0 if parameter is None else parameter.nbytes
        if allocated > free_bytes:
            raise _too_large_error(f"its weights take more than {allocated / 2**30:,.1f} GiB", free_bytes)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    except RuntimeError as error:
        if "allocate memory" in str(error) or "overflowed" in str(error):  # torch has no exception class for it
            raise _too_large_error("a single layer cannot be allocated", free_bytes) from error
        raise
    finally:
        hook.remove()


def _too_large_error(reason: str, free_bytes: int) -> UsageError:
    return UsageError(
        f"the network is too large: {reason}, but {free_bytes / 2**30:.1f} GiB of memory are free; choose smaller sizes"
    )


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
