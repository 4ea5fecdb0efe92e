"""The parts of a network that a layer table lists, and what they give while they run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.parametrize import ParametrizationList

OutputCallback = Callable[[str, Any], None]      # the name of a part that has run, and what it gave


class LayerEntry(NamedTuple):
    """What has numbers of its own to learn, or nothing inside."""

    kind: str
    parameters: list[nn.Parameter]


def collect_layer_entries(network: nn.Module) -> dict[str, LayerEntry]:
    """By name, in the order in which they were built; layers that change nothing are left out.

    A weight that is computed (W0 + B A) belongs to its layer, and what it is computed with follows as a part that
    bears the weight's name.
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
    """Dropout of nothing, and what stands where a layer could be."""
    return isinstance(module, nn.Identity) or (isinstance(module, _DropoutNd) and module.p == 0)


@contextmanager
def hook_outputs(network: nn.Module, callback: OutputCallback) -> Iterator[None]:
    """Whatever runs inside tells its name and what it gave."""
    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, inputs, output: callback(name, output)

    handles = [module.register_forward_hook(hook(name)) for name, module in network.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
