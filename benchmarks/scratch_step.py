"""A training step on the NumPy engine beside PyTorch eager, micrograd and tinygrad, in one run: ratios, not seconds.

    python benchmarks/scratch_step.py [--rounds 5] [--without tinygrad]

The contenders take turns, so that a noisy neighbour meets all of them; the ratio is that of the shortest. micrograd
works number
by number: it is given one example instead of 128, and its time is multiplied by 128 (said in its row).
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from didact import scratch
from didact.models import scratch_twins
from didact.run import git_state
from didact.scratch import networks, optim
from didact.scratch.losses import cross_entropy

Step = Callable[[], None]


def make_steps(scratch_model: Any, torch_model: Any, x: torch.Tensor, y: torch.Tensor, classes: int) -> dict[str, Step]:
    """One Adam step of both engines on the same batch, and its two halves on ours."""
    scratch_optimizer, torch_optimizer = (
        optim.Adam(list(scratch_model.parameters()), 1e-3),
        torch.optim.Adam(torch_model.parameters(), lr=1e-3),
    )
    scratch_x = scratch.tensor(x.numpy()) if x.is_floating_point() else x.numpy()
    target = y.numpy().reshape(-1)

    def loss() -> scratch.Tensor:
        return cross_entropy(scratch_model(scratch_x).reshape(-1, classes), target)

    def step() -> None:
        scratch_optimizer.zero_grad()
        loss().backward()
        scratch_optimizer.step()

    def torch_step() -> None:
        torch_optimizer.zero_grad()
        F.cross_entropy(torch_model(x).reshape(-1, classes), y.reshape(-1)).backward()
        torch_optimizer.step()

    return {
        "scratch": step,
        "torch": torch_step,
        "forward": lambda: discard(loss()),
        "both ways": lambda: loss().backward(),
    }


def discard(_: object) -> None:
    """Let a result go."""


def mlp_steps() -> dict[str, Step]:
    x, y = torch.rand(128, 784), torch.randint(10, (128,))
    return make_steps(networks.MLP(784, (256, 128), 10, rng=0), scratch_twins.TwinMLP(784, (256, 128), 10), x, y, 10)


def lenet_steps() -> dict[str, Step]:
    x, y = torch.rand(128, 1, 28, 28), torch.randint(10, (128,))
    return make_steps(networks.LeNet(1, 28, 10, rng=0), scratch_twins.TwinLeNet(1, 28, 10), x, y, 10)


def gpt_steps() -> dict[str, Step]:
    x, y = torch.randint(65, (16, 64)), torch.randint(65, (16, 64))
    scratch_model = networks.GPT(65, context_length=64, embed_dim=128, num_heads=4, num_layers=2, rng=0)
    return make_steps(
        scratch_model, scratch_twins.TwinGPT(65, context_length=64, embed_dim=128, num_heads=4, num_layers=2), x, y, 65
    )


def micrograd_step() -> tuple[Step, float]:
    """Its own MLP of the same widths, one example: the factor makes it a batch."""
    from micrograd.nn import MLP

    model, x = MLP(784, [256, 128, 10]), list(np.random.default_rng(0).random(784))

    def step() -> None:
        scores = model(x)
        loss = sum((score * score for score in scores), scores[0])  # cheaper than a cross-entropy: it has no exp
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data -= 1e-3 * p.grad

    return step, 128.0


def tinygrad_step() -> tuple[Step, float]:
    import os

    os.environ.setdefault("DEV", "CPU")
    os.environ["TRAINING"] = "1"
    from tinygrad import Tensor, TinyJit, nn

    layers = [nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=1e-3)
    x, y = Tensor.rand(128, 784).realize(), Tensor(np.random.default_rng(0).integers(0, 10, 128)).realize()

    @TinyJit
    def jitted_step() -> Any:
        optimizer.zero_grad()
        loss = layers[2](layers[1](layers[0](x).relu()).relu()).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: discard(jitted_step().item()), 1.0


def measure_seconds(step: Step, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def measure_interleaved(steps: dict[str, Step], rounds: int, repeats: int) -> dict[str, float]:
    for step in steps.values():
        step(), step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(measure_seconds(step, repeats))
    return {name: min(values) for name, values in seconds.items()}


PEAK_MEMORY_PROGRAM = """
import resource, sys
sys.path.insert(0, "benchmarks")
import torch, numpy as np
from scratch_step import *
rows = 20_000
x, y = torch.rand(rows, 784), torch.randint(10, (rows,))
scratch_model, torch_model = (
    networks.MLP(784, (1024, 1024, 1024), 10, rng=0), scratch_twins.TwinMLP(784, (1024, 1024, 1024), 10)
)
steps = make_steps(scratch_model, torch_model, x, y, 10)
memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
steps[sys.argv[1]]()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before)
"""


def measure_peak_memory() -> dict[str, float]:
    """Peak kilobytes that one step of a wide MLP on many rows adds, each engine in a process of its own."""
    kilobytes = {}
    for name in ("scratch", "torch"):
        process = subprocess.run(
            [sys.executable, "-c", PEAK_MEMORY_PROGRAM, name], capture_output=True, text=True, check=True
        )
        kilobytes[name] = float(process.stdout)
    return kilobytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--without", nargs="*", default=[])
    args = parser.parse_args()
    metadata = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
        "git": git_state(),
    }
    for name, make_contender, repeats in (("mlp", mlp_steps, 10), ("lenet", lenet_steps, 3), ("gpt", gpt_steps, 3)):
        seconds_by_step = measure_interleaved(make_contender(), args.rounds, repeats)
        backward = (seconds_by_step["both ways"] - seconds_by_step["forward"]) / seconds_by_step["forward"]
        row = {
            "network": name,
            "to_torch": seconds_by_step["scratch"] / seconds_by_step["torch"],
            "backward_to_forward": backward,
        }
        print(
            json.dumps(
                row
                | {"scratch_ms": 1e3 * seconds_by_step["scratch"], "torch_ms": 1e3 * seconds_by_step["torch"]}
                | metadata
            )
        )
    peak_kilobytes = measure_peak_memory()
    print(
        json.dumps(
            {
                "memory_to_torch": peak_kilobytes["scratch"] / peak_kilobytes["torch"],
                **{f"{k}_kb": v for k, v in peak_kilobytes.items()},
            }
        )
    )
    scratch_seconds = measure_interleaved({"scratch": mlp_steps()["scratch"]}, 3, 10)["scratch"]
    for name, make_contender in (("tinygrad", tinygrad_step), ("micrograd", micrograd_step)):
        if name not in args.without:
            step, factor = make_contender()
            seconds = factor * measure_interleaved({name: step}, 1 if name == "micrograd" else 3, 1)[name]
            print(
                json.dumps({"peer": name, "to_scratch": seconds / scratch_seconds, "examples_measured": 128 / factor})
            )


if __name__ == "__main__":
    main()
