"""Splits that do not fit into memory: examples are read from files during training, behind the contract of `Split`."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from didact.data.core import SPLITS, Batch, Data, Decode, TensorSplit
from didact.errors import UsageError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class FileSplit:
    """A split with only the small columns in memory; "x" is read file by file, by `num_workers` processes."""

    files: tuple[str, ...]
    read_file: Callable[[str], Tensor]     # one file -> its stored input; pickled where workers are spawned
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    decoders: Mapping[str, Decode] = field(default_factory=dict)
    num_workers: int = 0
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.files)

    def select(self, index: Tensor) -> Batch:
        x = torch.stack([self.read_file(self.files[i]) for i in index.tolist()])
        return {"x": x, **{name: column.index_select(0, index) for name, column in self.columns.items()}, "row": index}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        loader = DataLoader(
            _BatchDataset(self, [chunk.cpu() for chunk in chunks]),
            batch_size=None,                   # a chunk is a batch already
            num_workers=self.num_workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),       # else it samples from the global one, and dropout would change
        )
        with warnings.catch_warnings():        # Python 3.12 warns of forks while threads run; workers only decode
            warnings.simplefilter("ignore", DeprecationWarning)
            batches = iter(loader)
        try:
            for batch in batches:
                if "error" in batch:
                    raise UsageError(batch["error"])
                yield {name: column.to(self.device, non_blocking=True) for name, column in batch.items()}
        finally:
            del batches                        # ends the workers now, not when the traceback is forgotten

    def decode(self, stored: Batch) -> Batch:
        return {name: self.decoders[name](v) if name in self.decoders else v for name, v in stored.items()}

    def to(self, device: torch.device) -> Self:
        return replace(self, device=torch.device(device))

    def subset(self, index: Tensor) -> Self:
        """The split made of these examples; one may be taken more than once."""
        files = tuple(self.files[i] for i in index.tolist())
        return replace(self, files=files, columns={name: column[index] for name, column in self.columns.items()})

    def batch(self, index: Tensor) -> Batch:
        """A few decoded examples."""
        return self.decode({name: column.to(self.device) for name, column in self.select(index.cpu()).items()})


@dataclass(frozen=True)
class PinnedSplit:
    """A split in main memory, too large for the accelerator: each batch is gathered, pinned and copied."""

    split: TensorSplit
    device: torch.device

    def __len__(self) -> int:
        return len(self.split)

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        for batch in self.split.batches(chunks):
            if self.device.type == "cuda":
                batch = {name: column.pin_memory() for name, column in batch.items()}
            yield {name: column.to(self.device, non_blocking=True) for name, column in batch.items()}

    def decode(self, stored: Batch) -> Batch:
        return self.split.decode(stored)

    def to(self, device: torch.device) -> Self:
        return replace(self, device=device)


def to_device(data: Data, device: torch.device) -> Data:
    """The data on the device where they take at most half of its free memory, else in pinned memory of the host."""
    splits = {part: data.split(part) for part in SPLITS}
    num_bytes = sum(
        c.numel() * c.element_size() for s in splits.values() if isinstance(s, TensorSplit) for c in s.columns.values()
    )
    if device.type != "cuda" or num_bytes <= torch.cuda.mem_get_info(device)[0] // 2:
        return data.to(device)
    train, validation, test = (
        PinnedSplit(s, device) if isinstance(s, TensorSplit) else s.to(device) for s in splits.values()
    )
    return replace(data, train=train, validation=validation, test=test)


class _BatchDataset(Dataset[dict[str, Any]]):
    """Batch i is the examples of chunk i. A UsageError is returned as a value: raised in a worker, it would be many
    lines."""

    def __init__(self, split: FileSplit, chunks: Sequence[Tensor]):
        self.split, self.chunks = split, chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, i: int) -> dict[str, Any]:
        try:
            return self.split.select(self.chunks[i])
        except UsageError as error:
            return {"error": str(error)}


def in_memory_limit() -> int:
    """Bytes above which images are read during training: DIDACT_RESIDENT_BYTES, or else half of the free memory."""
    setting = os.environ.get("DIDACT_RESIDENT_BYTES")
    if setting is not None:
        if not setting.isdigit():
            raise UsageError(f"DIDACT_RESIDENT_BYTES expects a number of bytes, got {setting!r}")
        return int(setting)
    return free_memory() // 2


def free_memory() -> int:
    """Bytes of main memory that are available; 8 GiB where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):           # not Linux
        return 8 * 2**30
