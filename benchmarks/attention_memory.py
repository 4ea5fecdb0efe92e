"""Peak memory of one forward and backward pass of attention over its length: explicit, local, linear, tiled, and PyTorch's fused kernel.

    python benchmarks/attention_memory.py [--lengths 1024 … 16384] [--heads 1] [--width 64] [--reach 128] [--device cuda]

Counted are the bytes that the allocator hands out beyond queries, keys and values: scores, softmax, outputs, gradients, all that lives at
once. On CUDA they are the allocator's own peak; on a CPU every allocation and release is recorded by the profiler. `power` is the slope
between the last two lengths on logarithmic axes: 1 grows with the length, 2 with its square. Writes a table and a plot.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import log2
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from didact.explain.page import alone
from didact.layers.attention import attention
from didact.layers.linear_attention import causal_linear_attention, linear_attention
from didact.layers.sparse import local_attention
from didact.layers.tiled import tiled_attention
from didact.report import svg
from didact.report.svg import Series
from didact.run import git_state

LENGTHS = [1024, 2048, 4096, 8192, 16_384]
RESULTS = Path(__file__).parent / "results"
Kind = Callable[[Tensor, Tensor, Tensor], Tensor]


def kinds(reach: int) -> dict[str, Kind]:
    return {
        "explicit": lambda q, k, v: attention(q, k, v)[0],
        f"local, reach {reach}": partial(local_attention, reach=reach),
        "linear": linear_attention,
        "linear, causal": causal_linear_attention,
        "tiled": tiled_attention,
        "fused (PyTorch's)": F.scaled_dot_product_attention,
    }


def peak(f: Kind, length: int, *, heads: int = 1, width: int = 64, device: str = "cpu") -> int:
    """Bytes beyond the inputs that live at once in a forward and a backward pass."""
    inputs = [torch.randn(1, heads, length, width, device=device, requires_grad=True) for _ in range(3)]

    def both() -> None:
        f(*inputs).sum().backward()

    if device.startswith("cuda"):
        both()                               # workspaces of libraries are made once, and not counted
        for x in inputs:
            x.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        both()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        both()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    moves = sorted((e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]")
    return max(accumulate((size for _, size in moves), initial=0))


def measure(lengths: Sequence[int], args: argparse.Namespace) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name, f in kinds(args.reach).items():
        found[name] = {}
        for n in lengths:
            try:
                found[name][n] = peak(f, n, heads=args.heads, width=args.width, device=args.device)
            except RuntimeError as error:    # out of memory, which is what this is about
                print(f"{name} at {n:,}: {str(error).splitlines()[0]}", flush=True)
                break
        print(json.dumps({"attention": name, "bytes": found[name], "power": power(found[name])}), flush=True)
    return found


def power(sizes: Mapping[int, int]) -> float | None:
    """log(m₂ / m₁) / log(n₂ / n₁) of the last two."""
    if len(sizes) < 2:
        return None
    (n1, m1), (n2, m2) = list(sizes.items())[-2:]
    return round(log2(m2 / m1) / log2(n2 / n1), 2)


def table(found: Mapping[str, Mapping[int, int]], lengths: Sequence[int]) -> str:
    rows = ["| attention | " + " | ".join(f"{n:,}" for n in lengths) + " | power |", "|---" * (len(lengths) + 2) + "|"]
    for name, sizes in found.items():
        cells = [f"{sizes[n] / 2**20:,.1f}" if n in sizes else "–" for n in lengths]
        rows.append(f"| {name} | {' | '.join(cells)} | {power(sizes)} |")
    return "\n".join(rows)


def plot(found: Mapping[str, Mapping[int, int]]) -> str:
    lines = [Series(name, list(sizes), [m / 2**20 for m in sizes.values()], tone=k) for k, (name, sizes) in enumerate(found.items())]
    title = "Peak memory of attention, forward and backward"
    return alone(svg.chart(title, lines, x="length", y="MiB", log_x=True, log_y=True, size=(560, 360)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--reach", type=int, default=128)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--to", type=Path, default=RESULTS)
    args = parser.parse_args()
    found = measure(args.lengths, args)
    cuda = args.device.startswith("cuda")
    place = torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})"
    where = f"{place}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')} (commit {git_state()['commit'][:7]})"
    about = f"{args.heads} × {args.width} numbers a token, float32"
    stem = "attention_memory_cuda" if cuda else "attention_memory"
    words = [
        f"# Memory of attention over its length, {where}",
        f"`python benchmarks/attention_memory.py`: MiB at the peak of a forward and backward pass, less queries, keys and values; {about}.",
        table(found, args.lengths),
        "`power` is the slope between the last two lengths on logarithmic axes: 1 grows with the length, 2 with its square.",
        f"![Peak memory over length]({stem}.svg)",
    ]
    (args.to / f"{stem}.svg").write_text(plot(found), encoding="utf-8")
    (args.to / f"{stem}.md").write_text("\n\n".join(words) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
