"""Numerical precision: fp32, or mixed precision with bf16 or fp16."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from didact.errors import UsageError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
AUTO_BF16_MIN_PARAMETERS = 5_000_000  # from here on halved memory traffic outweighs the casts of autocast


class Precision:
    """The autocast context of the forward pass, and the loss scaling of fp16."""

    def __init__(self, name: str, device: torch.device, module: nn.Module):
        self.name = _choose_precision(name, device, sum(p.numel() for p in module.parameters()))
        is_recurrent = any(isinstance(m, nn.LSTM) for m in module.modules())
        if is_recurrent and self.name != "fp32" and device.type == "cpu" and not supports_lstm(self.name):
            raise UsageError(f"--precision {self.name} is not supported by this CPU's LSTM; use fp32")
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.name == "fp16")
        if device.type == "cuda":
            # TF32 tensor cores for matrix products, as PyTorch uses for convolutions
            torch.set_float32_matmul_precision("high")

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide gradients by the loss scale of fp16."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def autocast(self) -> AbstractContextManager[object]:
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, DTYPES[self.name])


def _choose_precision(name: str, device: torch.device, num_parameters: int) -> str:
    """What `auto` means: bf16 for large networks on a GPU that supports it, else fp32. CPUs emulate bf16 slowly."""
    if name == "auto":
        return (
            "bf16"
            if device.type == "cuda" and num_parameters >= AUTO_BF16_MIN_PARAMETERS and torch.cuda.is_bf16_supported()
            else "fp32"
        )
    if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise UsageError("--precision bf16 is not supported by this GPU; use fp16 or fp32")
    return name


def supports_lstm(name: str) -> bool:
    """Whether the CPU has an LSTM in half precision; only running the kernel tells."""
    try:
        with torch.no_grad(), torch.autocast("cpu", DTYPES[name]):
            nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True
