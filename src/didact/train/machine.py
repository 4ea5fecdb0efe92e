"""What this runs on."""

import resource
import sys

import torch

from didact.errors import UsageError


def pick_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that a word means; `auto` is the first GPU there is, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device expects auto, cpu, cuda, cuda:N or mps, got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: no CUDA device is visible here; use --device cpu (`didact doctor` says why)")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: there are {torch.cuda.device_count()} CUDA devices, numbered from 0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("--device mps: Apple's Metal is not available here; use --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"--device expects auto, cpu, cuda, cuda:N or mps, got {name!r}")
    return torch.device("cuda", local_rank) if name == "cuda" else device


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)


def memory_used(device: torch.device) -> int:
    """Most bytes held so far: on the GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
