"""Optimizers that suit the device: fused kernels where possible, and on CUDA a step that a CUDA graph can capture."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adagrad, Optimizer

from didact.optim.multi import MultiOptimizer

OptimizerFactory = Callable[[Any], Optimizer]
_DEVICE_FLAGS = ("fused", "foreach", "capturable")


def build_optimizer(factory: OptimizerFactory, params: Iterable[Any], device: torch.device | str) -> Optimizer:
    """factory(params), fused where possible (AdamW on two CPU cores: 20 % faster), capturable on CUDA.

    On CUDA the learning rate is a tensor on the device, since a graph would keep a number of the host for ever. The
    learning rate that schedules multiply is group["initial_lr"]. A state saved on one kind of device loads on another.
    """
    device = torch.device(device)
    optimizer = _with_device_flags(factory, device)(list(params))
    for group in optimizer.param_groups:
        group["initial_lr"] = float(group["lr"])
    on_device = device.type == "cuda" and _reads_device_only(optimizer)

    def place_lr(lr: float | Tensor) -> float | Tensor:
        return torch.tensor(float(lr), device=device) if on_device else float(lr)

    for group in optimizer.param_groups:
        group["lr"] = place_lr(group["lr"])
    device_flags = [{key: group[key] for key in _DEVICE_FLAGS if key in group} for group in optimizer.param_groups]

    def keep_device_flags(_: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
        groups = [
            {**group, **mine, "lr": place_lr(group["lr"])}
            # not strict: PyTorch itself reports another number of groups
            for group, mine in zip(saved["param_groups"], device_flags, strict=False)
        ]
        return {**saved, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(keep_device_flags)
    optimizer.register_load_state_dict_post_hook(_restore_layout)
    return optimizer


def _restore_layout(optimizer: Optimizer) -> None:
    """Give each tensor of the state the strides of its weight again.

    Files hold numbers in row-major order, but the weights of convolutions may be channels_last. A fused kernel walks a
    weight and its moments in memory order: with unequal strides it updates each number with another one's moments (CPU)
    or refuses (CUDA).
    """
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def _with_device_flags(factory: OptimizerFactory, device: torch.device) -> OptimizerFactory:
    """The factory with `fused` and `capturable`, where its class knows them and the caller did not set them."""
    make: Any = factory.func if isinstance(factory, partial) else factory
    keywords = factory.keywords if isinstance(factory, partial) else {}
    if "base" in keywords:
        return partial(make, **{**keywords, "base": _with_device_flags(keywords["base"], device)})
    if not inspect.isclass(make):
        return factory
    parameters = inspect.signature(make).parameters
    flags: dict[str, bool] = {}
    explicit_flags = keywords.keys() & {"fused", "foreach", "differentiable"}
    fused_devices = ("cpu",) if make is Adagrad else ("cpu", "cuda")  # Adagrad's kernel for CUDA came after torch 2.11
    if "fused" in parameters and device.type in fused_devices and not explicit_flags:
        flags["fused"] = True
    if "capturable" in parameters and device.type == "cuda" and "capturable" not in keywords:
        flags["capturable"] = True
    return partial(factory, **flags)


def _reads_device_only(optimizer: Optimizer) -> bool:
    """Whether step() reads all its numbers, the learning rate included, from the device. PyTorch's Adagrad does not."""
    if isinstance(optimizer, MultiOptimizer):
        return all(map(_reads_device_only, optimizer.optimizers))
    if getattr(optimizer, "capturable", False):
        return True
    # SGD has no `capturable`: its fused kernel reads the learning rate from the device
    return all(bool(group.get("capturable", group.get("fused"))) for group in optimizer.param_groups)


def can_capture_step(optimizer: Optimizer) -> bool:
    """Whether a CUDA graph can capture step(). A schedule must not change momentum then, which stays as it was at the
    capture.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    return all(isinstance(lr, Tensor) and lr.is_cuda for lr in rates) and _reads_device_only(optimizer)


def set_lr(optimizer: Optimizer, factor: float, momentum: float | None = None) -> None:
    """η = factor × initial η, without waiting for the device; momentum (or β1) only where the optimizer has one."""
    for group in optimizer.param_groups:
        lr = group["initial_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif momentum is not None and group.get("momentum"):
            group["momentum"] = momentum
