"""Layers of a network as a layer table lists them, and hooks on their outputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.parametrize import ParametrizationList

OutputCallback = Callable[[str, Any], None]      # name of a module that has run, and its output


class LayerEntry(NamedTuple):
    """A module with parameters of its own, or without children."""

    kind: str
    parameters: list[nn.Parameter]


def collect_layer_entries(network: nn.Module) -> dict[str, LayerEntry]:
    """Layers by name, in order of creation; modules that change nothing are left out.

    A parametrized weight (W0 + B A) belongs to its layer; its parametrization follows as an entry with the weight's
    name.
    """
    entries: dict[str, LayerEntry] = {}
    for name, module in network.named_modules():
        if ".parametrizations" in f".{name}" or _is_noop(module):
            continue
        computed = dict(module.parametrizations.items()) if hasattr(module, "parametrizations") else {}
        parameters = _own_parameters(module) + [p for steps in computed.values() for p in _own_parameters(steps)]
        if parameters or not any(module.children()):
            entries[name] = LayerEntry(
                type(module).__name__.removeprefix("Parametrized" if computed else ""), parameters
            )
        for weight, steps in computed.items():
            assert isinstance(steps, ParametrizationList)
            entries |= {
                f"{name}.{weight}": LayerEntry(type(step).__name__, _own_parameters(step))
                for step in steps
                if _own_parameters(step)
            }
    return entries


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    return list(module.parameters(recurse=False))


def _is_noop(module: nn.Module) -> bool:
    """Identity, or dropout with probability 0."""
    return isinstance(module, nn.Identity) or (isinstance(module, _DropoutNd) and module.p == 0)


@contextmanager
def hook_outputs(network: nn.Module, callback: OutputCallback) -> Iterator[None]:
    """Context in which the callback receives name and output of every module that runs."""
    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, inputs, output: callback(name, output)

    handles = [module.register_forward_hook(hook(name)) for name, module in network.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
