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

BUCKET_BYTES = 25 * 2**20  # bytes sent at once: large enough to fill a link, small enough to start early


@dataclass(frozen=True)
class Group:
    """This process among its fellows."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0   # among the processes of this machine: which of its GPUs is ours

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def shard(self, chunk: Tensor) -> Tensor:
        """The rows of a batch that this process computes."""
        return chunk[self.rank :: self.world_size]

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """g <- sum over processes of g. What got no gradient here counts as zero; what got none anywhere keeps none."""
        if self.world_size == 1 or not parameters:
            return
        has_gradient = parameters[0].new_tensor([p.grad is not None for p in parameters])
        missing = [i for i, p in enumerate(parameters) if p.grad is None]
        for bucket in make_buckets(
            [has_gradient, *(p.grad if p.grad is not None else _fill_zero_grad(p) for p in parameters)]
        ):
            flat = torch.cat([g.flatten() for g in bucket])
            dist.all_reduce(flat)
            for g, total in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                g.copy_(total.view_as(g))
        if missing:  # an optimizer would let a zero gradient decay the weight
            for i in (i for i in missing if not has_gradient[i]):
                parameters[i].grad = None

    def all_reduce(self, values: Tensor) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def gather_rows(self, rows: Batch, num_rows: int) -> Batch:
        """All rows in their own order, from the parts that `part` gave out."""
        if self.world_size == 1:
            return rows
        shard_size = -(-num_rows // self.world_size)
        return {
            name: _gather_interleaved(column, shard_size, num_rows, self.world_size) for name, column in rows.items()
        }

    def broadcast(self, module: nn.Module) -> None:
        """Every process starts from rank 0's weights."""
        if self.world_size > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Each process's value, in their order."""
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def any_rank(self, value: bool) -> bool:
        """Whether it is so in some process; all of them must ask."""
        return value if self.world_size == 1 else any(self.all_gather_object(value))

    def broadcast_object(self, value: Any) -> Any:
        """Rank 0's value, for everyone."""
        if self.world_size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier()


def _gather_interleaved(column: Tensor, shard_size: int, num_rows: int, world_size: int) -> Tensor:
    padded = column.new_zeros((shard_size, *column.shape[1:]))
    padded[: len(column)] = column
    parts = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(parts, padded)
    return torch.stack(parts, dim=1).flatten(0, 1)[:num_rows]  # row i lies in part i mod size, at i div size


def _fill_zero_grad(p: nn.Parameter) -> Tensor:
    p.grad = torch.zeros_like(p)
    return p.grad


def make_buckets(gradients: list[Tensor]) -> list[list[Tensor]]:
    """Gradients in groups of about BUCKET bytes, of one type each."""
    buckets: list[list[Tensor]] = []
    num_bytes = BUCKET_BYTES
    for g in gradients:
        if num_bytes >= BUCKET_BYTES or buckets[-1][0].dtype != g.dtype:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(g)
        num_bytes += g.numel() * g.element_size()
    return buckets


def join_group() -> Group:
    """The group that torchrun made, joined once; a group of one everywhere else."""
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        return Group()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank % torch.cuda.device_count())
        # each kind of device has a backend of its own: --device is known later
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Group(dist.get_rank(), dist.get_world_size(), local_rank)


def leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
