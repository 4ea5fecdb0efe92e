"""Data parallelism under torchrun: every process takes its part of each batch, gradients are summed, rank 0 writes.

The share of each part weighs its gradient, so the sum is the gradient of the whole batch whatever the parts' sizes:
one and many processes walk the same path. PyTorch's DistributedDataParallel averages equal parts only and wraps one
forward pass; a game of several players has several.
"""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from didact.data.core import Batch

BUCKET = 25 * 2**20  # bytes sent at once: large enough to fill a link, small enough to start early


@dataclass(frozen=True)
class Group:
    """This process among its fellows."""

    rank: int = 0
    size: int = 1
    local: int = 0   # among the processes of this machine: which of its GPUs is ours

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def part(self, chunk: Tensor) -> Tensor:
        """The rows of a batch that this process computes."""
        return chunk[self.rank :: self.size]

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """g <- sum over processes of g. What got no gradient here counts as zero; what got none anywhere keeps none."""
        if self.size == 1 or not parameters:
            return
        used = parameters[0].new_tensor([p.grad is not None for p in parameters])
        absent = [i for i, p in enumerate(parameters) if p.grad is None]
        for bucket in buckets([used, *(p.grad if p.grad is not None else zero_grad(p) for p in parameters)]):
            flat = torch.cat([g.flatten() for g in bucket])
            dist.all_reduce(flat)
            for g, summed in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                g.copy_(summed.view_as(g))
        if absent:  # an optimizer would let a zero gradient decay the weight
            for i in (i for i in absent if not used[i]):
                parameters[i].grad = None

    def sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def collect(self, rows: Batch, n: int) -> Batch:
        """All rows in their own order, from the parts that `part` gave out."""
        if self.size == 1:
            return rows
        longest = -(-n // self.size)
        return {name: interleave(column, longest, n, self.size) for name, column in rows.items()}

    def broadcast(self, module: nn.Module) -> None:
        """Every process starts from rank 0's weights."""
        if self.size > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def everyone(self, mine: Any) -> list[Any]:
        """Each process's value, in their order."""
        if self.size == 1:
            return [mine]
        values = [None] * self.size
        dist.all_gather_object(values, mine)
        return values

    def anyone(self, mine: bool) -> bool:
        """Whether it is so in some process; all of them must ask."""
        return mine if self.size == 1 else any(self.everyone(mine))

    def agree(self, mine: Any) -> Any:
        """Rank 0's value, for everyone."""
        if self.size == 1:
            return mine
        values = [mine]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def interleave(column: Tensor, longest: int, n: int, size: int) -> Tensor:
    padded = column.new_zeros((longest, *column.shape[1:]))
    padded[: len(column)] = column
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded)
    return torch.stack(parts, dim=1).flatten(0, 1)[:n]  # row i lies in part i mod size, at i div size


def zero_grad(p: nn.Parameter) -> Tensor:
    p.grad = torch.zeros_like(p)
    return p.grad


def buckets(gradients: list[Tensor]) -> list[list[Tensor]]:
    """Gradients in groups of about BUCKET bytes, of one type each."""
    groups: list[list[Tensor]] = []
    filled = BUCKET
    for g in gradients:
        if filled >= BUCKET or groups[-1][0].dtype != g.dtype:
            groups.append([])
            filled = 0
        groups[-1].append(g)
        filled += g.numel() * g.element_size()
    return groups


def join() -> Group:
    """The group that torchrun made, joined once; a group of one everywhere else."""
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        return Group()
    local = int(os.environ.get("LOCAL_RANK", 0))
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(local % torch.cuda.device_count())
        # each kind of device has a backend of its own: --device is known later
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Group(dist.get_rank(), dist.get_world_size(), local)


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
