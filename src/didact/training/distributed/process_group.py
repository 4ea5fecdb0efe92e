"""Data parallelism under torchrun: each process computes its share of a batch, gradients are summed, rank 0 writes.

Gradients are weighed by the share, so the sum is the gradient of the whole batch whatever the sizes: one process and
many take the same path. PyTorch's DistributedDataParallel averages equal shares of one forward pass; here a game of
several players has several.
"""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from didact.data.core import Batch

BUCKET_BYTES = 25 * 2**20  # bytes per all-reduce: enough to use the bandwidth, few enough to start early


@dataclass(frozen=True)
class Group:
    """This process among the others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0   # rank on this machine, which chooses the GPU

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def shard(self, chunk: Tensor) -> Tensor:
        """The examples of a batch that this process computes."""
        return chunk[self.rank :: self.world_size]

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """g ← sum over processes of g. A gradient missing here counts as zero; one missing everywhere stays missing."""
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
        if missing:  # a zero gradient would still let weight decay act
            for i in (i for i in missing if not has_gradient[i]):
                parameters[i].grad = None

    def all_reduce(self, values: Tensor) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def gather_rows(self, rows: Batch, num_rows: int) -> Batch:
        """All outputs in their own order, from the shares that `shard` gave out."""
        if self.world_size == 1:
            return rows
        shard_size = -(-num_rows // self.world_size)
        return {
            name: _gather_interleaved(column, shard_size, num_rows, self.world_size) for name, column in rows.items()
        }

    def broadcast(self, module: nn.Module) -> None:
        """Every process starts from the weights of rank 0."""
        if self.world_size > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def all_gather_object(self, value: Any) -> list[Any]:
        """The value of each process, by rank."""
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def any_rank(self, value: bool) -> bool:
        """Whether it is true in any process; all of them must call it."""
        return value if self.world_size == 1 else any(self.all_gather_object(value))

    def broadcast_object(self, value: Any) -> Any:
        """The value of rank 0, for all."""
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
    return torch.stack(parts, dim=1).flatten(0, 1)[:num_rows]  # row i is in share i mod size, at position i div size


def _fill_zero_grad(p: nn.Parameter) -> Tensor:
    p.grad = torch.zeros_like(p)
    return p.grad


def make_buckets(gradients: list[Tensor]) -> list[list[Tensor]]:
    """Gradients in groups of about BUCKET_BYTES and one dtype each."""
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
    """The group that torchrun started, joined once; a group of one elsewhere."""
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        return Group()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank % torch.cuda.device_count())
        # one backend per device type, since --device is known later
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Group(dist.get_rank(), dist.get_world_size(), local_rank)


def leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
