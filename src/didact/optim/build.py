"""From a factory to an optimizer that suits the device: one fused kernel, a step that a CUDA graph can hold."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adagrad, Optimizer

from didact.optim.several import Several

Factory = Callable[[Any], Optimizer]
OF_THE_MACHINE = ("fused", "foreach", "capturable")


def build(factory: Factory, params: Iterable[Any], device: torch.device | str) -> Optimizer:
    """factory(params), fused where it can be (AdamW on two CPU cores: 20 % faster); on CUDA ready to be captured.

    There the learning rate is a number on the device, since a graph would keep one of the host for ever. The rate that
    schedules multiply is group["initial_lr"]. A state saved on one kind of device loads on another.
    """
    device = torch.device(device)
    optimizer = tuned(factory, device)(list(params))
    for group in optimizer.param_groups:
        group["initial_lr"] = float(group["lr"])
    on_device = device.type == "cuda" and reads_device_only(optimizer)

    def at_home(lr: float | Tensor) -> float | Tensor:
        return torch.tensor(float(lr), device=device) if on_device else float(lr)

    for group in optimizer.param_groups:
        group["lr"] = at_home(group["lr"])
    ours = [{key: group[key] for key in OF_THE_MACHINE if key in group} for group in optimizer.param_groups]

    def settle(_: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
        groups = [
            {**group, **mine, "lr": at_home(group["lr"])}
            for group, mine in zip(saved["param_groups"], ours, strict=False)  # PyTorch itself refuses another number
        ]
        return {**saved, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(settle)
    optimizer.register_load_state_dict_post_hook(restore_layout)
    return optimizer


def restore_layout(optimizer: Optimizer) -> None:
    """Give each tensor of the state the strides of its weight again.

    Files hold numbers in row-major order, but the weights of convolutions may lie in channels_last. A fused kernel walks
    a weight and its moments by their memory: with unequal strides it moves each number by another one's moments (CPU) or
    refuses (CUDA).
    """
    for weight, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                state[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def tuned(factory: Factory, device: torch.device) -> Factory:
    """The factory with `fused` and `capturable` where its class knows them and the caller did not choose."""
    make: Any = factory.func if isinstance(factory, partial) else factory
    given = factory.keywords if isinstance(factory, partial) else {}
    if "base" in given:
        return partial(make, **{**given, "base": tuned(given["base"], device)})
    if not inspect.isclass(make):
        return factory
    known = inspect.signature(make).parameters
    extra: dict[str, bool] = {}
    chosen = given.keys() & {"fused", "foreach", "differentiable"}
    where = ("cpu",) if make is Adagrad else ("cpu", "cuda")  # Adagrad's kernel for CUDA came after torch 2.11
    if "fused" in known and device.type in where and not chosen:
        extra["fused"] = True
    if "capturable" in known and device.type == "cuda" and "capturable" not in given:
        extra["capturable"] = True
    return partial(factory, **extra)


def reads_device_only(optimizer: Optimizer) -> bool:
    """Does step() take all its numbers, the learning rate too, from the device? PyTorch's Adagrad does not."""
    if isinstance(optimizer, Several):
        return all(map(reads_device_only, optimizer.parts))
    if getattr(optimizer, "capturable", False):
        return True
    # SGD has no `capturable`: its fused kernel is the one that does
    return all(bool(group.get("capturable", group.get("fused"))) for group in optimizer.param_groups)


def can_capture(optimizer: Optimizer) -> bool:
    """May a CUDA graph hold step()? Momentum stays what it was at the capture: a schedule that moves it may not."""
    rates = [group["lr"] for group in optimizer.param_groups]
    return all(isinstance(lr, Tensor) and lr.is_cuda for lr in rates) and reads_device_only(optimizer)


def set_lr(optimizer: Optimizer, factor: float, momentum: float | None = None) -> None:
    """η = factor × initial η, without waiting for the device; momentum (or β1) only where the optimizer uses one."""
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
