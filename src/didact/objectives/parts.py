"""The parts of a network that a layer table lists, and what they give while they run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.parametrize import ParametrizationList

Heard = Callable[[str, Any], None]      # the name of a part that has run, and what it gave


class Part(NamedTuple):
    """What has numbers of its own to learn, or nothing inside."""

    kind: str
    own: list[nn.Parameter]


def parts_of(network: nn.Module) -> dict[str, Part]:
    """By name, in the order in which they were built; layers that change nothing are left out.

    A weight that is computed (W0 + B A) belongs to its layer, and what it is computed with follows as a part that bears the weight's name.
    """
    found: dict[str, Part] = {}
    for name, module in network.named_modules():
        if ".parametrizations" in f".{name}" or idle(module):
            continue
        computed = dict(module.parametrizations.items()) if hasattr(module, "parametrizations") else {}
        own = direct(module) + [p for steps in computed.values() for p in direct(steps)]
        if own or not any(module.children()):
            found[name] = Part(type(module).__name__.removeprefix("Parametrized" if computed else ""), own)
        for weight, steps in computed.items():
            assert isinstance(steps, ParametrizationList)
            found |= {f"{name}.{weight}": Part(type(step).__name__, direct(step)) for step in steps if direct(step)}
    return found


def direct(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))


def idle(module: nn.Module) -> bool:
    """Dropout of nothing, and what stands where a layer could be."""
    return isinstance(module, nn.Identity) or (isinstance(module, _DropoutNd) and module.p == 0)


@contextmanager
def overheard(network: nn.Module, heard: Heard) -> Iterator[None]:
    """Whatever runs inside tells its name and what it gave."""
    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, inputs, output: heard(name, output)

    hooks = [module.register_forward_hook(hook(name)) for name, module in network.named_modules()]
    try:
        yield
    finally:
        for h in hooks:
            h.remove()
