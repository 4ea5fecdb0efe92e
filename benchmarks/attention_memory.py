"""Peak memory of one forward and backward pass of attention over its length: explicit, local, linear, tiled, and
PyTorch's fused kernel.

    python benchmarks/attention_memory.py [--lengths 1024 … 16384] [--num-heads 1] [--head-dim 64] [--window 128]
        [--device cuda] [--output FOLDER]

Counted are the bytes that the allocator hands out beyond queries, keys and values: scores, softmax, outputs, gradients,
all that is alive at once. On CUDA it is the allocator's own peak; on a CPU the profiler records every allocation and
release. `power` is the slope between the last two lengths on logarithmic axes: 1 grows with the length, 2 with its
square. Writes a table and a plot.
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

from didact.charts import svg
from didact.charts.svg import Series
from didact.explain.page import make_standalone_svg
from didact.layers.attention.flash import flash_attention
from didact.layers.attention.linear_attention import causal_linear_attention, linear_attention
from didact.layers.attention.multihead import dot_product_attention
from didact.layers.attention.sparse import local_attention
from didact.run import git_state

LENGTHS = [1024, 2048, 4096, 8192, 16_384]
RESULTS = Path(__file__).parent / "results"
AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention_functions(window: int) -> dict[str, AttentionFunction]:
    return {
        "explicit": lambda q, k, v: dot_product_attention(q, k, v)[0],
        f"local, window {window}": partial(local_attention, radius=window),
        "linear": linear_attention,
        "linear, causal": causal_linear_attention,
        "tiled": flash_attention,
        "fused (PyTorch's)": F.scaled_dot_product_attention,
    }


def measure_peak_memory(
    attention: AttentionFunction, length: int, *, num_heads: int = 1, head_dim: int = 64, device: str = "cpu"
) -> int:
    """Bytes beyond the inputs that live at once in a forward and a backward pass."""
    inputs = [torch.randn(1, num_heads, length, head_dim, device=device, requires_grad=True) for _ in range(3)]

    def forward_backward() -> None:
        attention(*inputs).sum().backward()

    if device.startswith("cuda"):
        forward_backward()                               # workspaces of libraries are made once, and not counted
        for x in inputs:
            x.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        memory_before = torch.cuda.memory_allocated()
        forward_backward()
        return torch.cuda.max_memory_allocated() - memory_before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        forward_backward()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    allocations = sorted(
        (e.start_ns(), e.nbytes()) for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"
    )
    return max(accumulate((size for _, size in allocations), initial=0))


def measure_all(lengths: Sequence[int], args: argparse.Namespace) -> dict[str, dict[int, int]]:
    sizes_by_attention: dict[str, dict[int, int]] = {}
    for name, attention in attention_functions(args.window).items():
        sizes_by_attention[name] = {}
        for n in lengths:
            try:
                sizes_by_attention[name][n] = measure_peak_memory(
                    attention, n, num_heads=args.num_heads, head_dim=args.head_dim, device=args.device
                )
            except RuntimeError as error:  # out of memory, which is what this is about
                print(f"{name} at {n:,}: {str(error).splitlines()[0]}", flush=True)
                break
        print(
            json.dumps(
                {
                    "attention": name,
                    "bytes": sizes_by_attention[name],
                    "power": growth_exponent(sizes_by_attention[name]),
                }
            ),
            flush=True,
        )
    return sizes_by_attention


def growth_exponent(sizes: Mapping[int, int]) -> float | None:
    """log(m₂ / m₁) / log(n₂ / n₁) of the last two."""
    if len(sizes) < 2:
        return None
    (n1, m1), (n2, m2) = list(sizes.items())[-2:]
    return round(log2(m2 / m1) / log2(n2 / n1), 2)


def format_table(sizes_by_attention: Mapping[str, Mapping[int, int]], lengths: Sequence[int]) -> str:
    rows = ["| attention | " + " | ".join(f"{n:,}" for n in lengths) + " | power |", "|---" * (len(lengths) + 2) + "|"]
    for name, sizes in sizes_by_attention.items():
        cells = [f"{sizes[n] / 2**20:,.1f}" if n in sizes else "–" for n in lengths]
        rows.append(f"| {name} | {' | '.join(cells)} | {growth_exponent(sizes)} |")
    return "\n".join(rows)


def plot_sizes(sizes_by_attention: Mapping[str, Mapping[int, int]]) -> str:
    lines = [
        Series(name, list(sizes), [m / 2**20 for m in sizes.values()], color=k)
        for k, (name, sizes) in enumerate(sizes_by_attention.items())
    ]
    title = "Peak memory of attention, forward and backward"
    return make_standalone_svg(
        svg.draw_chart(title, lines, x="length", y="MiB", log_x=True, log_y=True, size=(560, 360))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--num-heads", type=int, default=1)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    sizes_by_attention = measure_all(args.lengths, args)
    cuda = args.device.startswith("cuda")
    device_name = torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})"
    setup = (
        f"{device_name}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')} (commit {git_state()['commit'][:7]})"
    )
    description = f"{args.num_heads} heads of dimension {args.head_dim}, float32"
    stem = "attention_memory_cuda" if cuda else "attention_memory"
    paragraphs = [
        f"# Memory of attention over its length, {setup}",
        "`python benchmarks/attention_memory.py`: MiB at the peak of a forward and backward pass, less queries, keys "
        f"and values; {description}.",
        format_table(sizes_by_attention, args.lengths),
        "`power` is the slope between the last two lengths on logarithmic axes: 1 grows with the length, 2 with its "
        "square.",
        f"![Peak memory over length]({stem}.svg)",
    ]
    (args.output / f"{stem}.svg").write_text(plot_sizes(sizes_by_attention), encoding="utf-8")
    (args.output / f"{stem}.md").write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
