"""A network as a tree of modules that own their parameters (Groudiev 1.3.2, Lhotte 1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from didact.scratch.autograd.tensor import Array, ScratchError, Tensor

_CALL_LISTENERS: list[Callable[[Module, Any], None]] = []  # called after every forward pass with module and output


@contextmanager
def listen_to_calls(listener: Callable[[Module, Any], None]) -> Iterator[None]:
    """Call `listener` with every module that is called inside, and with its output."""
    _CALL_LISTENERS.append(listener)
    try:
        yield
    finally:
        _CALL_LISTENERS.remove(listener)


class Module:
    """Base class of layers and networks: its attributes are what it is made of.

    Tensors are parameters, arrays are buffers, modules are submodules.
    """

    forward: Callable[..., Any]

    def __init__(self) -> None:
        self.training = True

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        output = self.forward(*args, **keywords)
        for listener in _CALL_LISTENERS:
            listener(self, output)
        return output

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module, under an empty name, and all its submodules: `blocks.0`."""
        yield prefix.rstrip("."), self
        for name, part in vars(self).items():
            if isinstance(part, Module):
                yield from part.named_modules(f"{prefix}{name}.")

    def own_tensors(self) -> dict[str, Tensor]:
        """Its own parameters, without those of its submodules."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def named_values(self, kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """All attributes of one kind, here and in the submodules: `blocks.0.weight`."""
        for name, value in vars(self).items():
            if isinstance(value, kind):
                yield prefix + name, value
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.named_values(kind, f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Each parameter once: a tensor that two modules share (tied weights) has its first name."""
        visited: set[int] = set()
        for name, p in self.named_values(Tensor):
            if id(p) not in visited:
                visited.add(id(p))
                yield name, p

    def parameters(self) -> Iterator[Tensor]:
        return (p for _, p in self.named_parameters())

    def train(self, mode: bool = True) -> Module:
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self) -> None:
        for p in self.parameters():
            p.grad = None

    def state_dict(self) -> dict[str, Array]:
        """Parameters and buffers by name, copied."""
        return {name: np.array(value) for name, value in self.named_values((Tensor, np.ndarray))}  # type: ignore[arg-type]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy values by name; PyTorch's own `state_dict()` will do, as NumPy can read its tensors.

        Every name must be there, with its shape, and no other.
        """
        parameters_by_name: dict[str, Tensor | Array] = dict(self.named_values((Tensor, np.ndarray)))  # type: ignore[arg-type]
        if parameters_by_name.keys() != state.keys():
            raise ScratchError(
                f"load_state_dict: missing {sorted(parameters_by_name.keys() - state.keys())}, unknown "
                f"{sorted(state.keys() - parameters_by_name.keys())}"
            )
        for name, target in parameters_by_name.items():
            value = np.asarray(state[name])
            if value.shape != target.shape:
                raise ScratchError(f"load_state_dict: {name} has shape {target.shape}, got {value.shape}")
            if isinstance(target, Tensor):
                target.detach().copy_(value)
            else:
                target[...] = value


def parameter(value: Array) -> Tensor:
    return Tensor(value, requires_grad=True)


class Sequential(Module):
    """f_L ∘ … ∘ f_1, the modules named 0, 1, 2 …"""

    def __init__(self, *parts: Module):
        super().__init__()
        for i, part in enumerate(parts):
            setattr(self, str(i), part)

    def __iter__(self) -> Iterator[Module]:
        return (part for part in vars(self).values() if isinstance(part, Module))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, i: int) -> Module:
        return list(self)[i]

    def forward(self, x: Any) -> Any:
        for part in self:
            x = part(x)
        return x
