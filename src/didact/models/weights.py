"""Weights that others trained: read without executing anything, and a report of what fitted.

Published files hold one network; files of a run may put a prefix before each name. A head for other classes, a first layer for
other channels, or a position table of another length may differ, and stays as it was initialised.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from didact.errors import UsageError
from didact.files import read_tensors

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]  # torchvision's published weights, pixels in [0, 1]
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
LITE_MEAN = torch.full((3, 1, 1), 127 / 255)                        # EfficientNet-Lite: (v - 127) / 128 of bytes v
LITE_STD = torch.full((3, 1, 1), 128 / 255)
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")       # where training scripts put the network among other things


@dataclass(frozen=True)
class WeightsReport:
    """What became of a file's tensors."""

    path: Path
    matched: tuple[str, ...]
    missing: tuple[str, ...]         # in the network only
    unused: tuple[str, ...]          # in the file only
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # name, the network's shape, the file's

    def __str__(self) -> str:
        parts = [f"{self.path.name}: {len(self.matched)} tensors loaded"]
        if self.reshaped:
            shapes = (f"{name} ({size(ours)}, in the file {size(theirs)})" for name, ours, theirs in self.reshaped)
            parts.append("of another shape and left as they were: " + some(shapes))
        if self.missing:
            parts.append("not in the file: " + some(self.missing))
        if self.unused:
            parts.append("not in the network: " + some(self.unused))
        return "; ".join(parts)


def size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"


def some(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def load_weights(model: nn.Module, path: str | Path) -> WeightsReport:
    """Copy a file's tensors into the model where name and shape agree. A file of another architecture changes nothing and is refused."""
    path = Path(path)
    own = model.state_dict()
    theirs = without_prefix(read_weights(path), own)
    matched = tuple(n for n, t in own.items() if n in theirs and theirs[n].shape == t.shape)
    reshaped = tuple((n, tuple(t.shape), tuple(theirs[n].shape)) for n, t in own.items() if n in theirs and n not in matched)
    missing = tuple(n for n in own if n not in theirs and not n.startswith("standardise.") and not n.endswith("num_batches_tracked"))
    unused = tuple(n for n in theirs if n not in own)

    ends = {layer(next(iter(own), "")), *(layer(next(reversed(d), "")) for d in (own, theirs))}
    differ = [*missing, *unused, *(name for name, _, _ in reshaped)]
    strange = [n for n in differ if layer(n) not in ends]
    if len(strange) > 0.1 * max(len(own), len(theirs)) or not matched:
        raise UsageError(
            f"{path} holds another architecture than this {type(model).__name__}: of {len(theirs)} tensors in the file and"
            f" {len(own)} in the network {len(matched)} agree, but not {some(strange or differ, 2)}; choose the network it was saved from"
        )
    model.load_state_dict({n: theirs[n] for n in matched}, strict=False)
    return WeightsReport(path, matched, missing, unused, reshaped)


def layer(name: str) -> str:
    """The part that holds a tensor: features.0 of features.0.weight."""
    return name.rpartition(".")[0]


def without_prefix(theirs: dict[str, Tensor], own: Mapping[str, Any]) -> dict[str, Tensor]:
    """The file's tensors under the model's names: `module.` of parallel training or `network.` of an objective go, if that fits better."""
    prefixes = dict.fromkeys(["", *(n.partition(".")[0] + "." for n in theirs)])
    candidates = ({n.removeprefix(p): t for n, t in theirs.items() if n.startswith(p)} for p in prefixes)
    return max(candidates, key=lambda named: sum(n in own for n in named))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors or PyTorch file."""
    if not path.is_file():
        raise UsageError(f"no weights file {path}; give a .safetensors or .pth file")
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    if path.suffix not in (".pth", ".pt", ".bin", ".ckpt"):
        raise UsageError(f"weights come as .safetensors or .pth, got {path.name!r}")
    try:
        with warnings.catch_warnings(action="ignore"):  # of other pickle protocols: what it cannot read, it raises
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        if "Unsupported global" in str(error):
            raise UsageError(f"{path} holds more than tensors, which is not run here; save its state_dict as .safetensors") from None
        raise UsageError(f"{path} cannot be read; it is damaged or not a PyTorch file") from None
    while isinstance(content, Mapping) and (inner := next((k for k in WRAPPERS if isinstance(content.get(k), Mapping)), None)):
        content = content[inner]
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise UsageError(f"{path} holds no named tensors; save the network's state_dict")
    return tensors
