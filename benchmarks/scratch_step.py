"""A training step on the NumPy engine beside PyTorch eager, micrograd and tinygrad, in one run: ratios, not seconds.

    python benchmarks/scratch_step.py [--rounds 5] [--without tinygrad]

The contenders take turns, so that a noisy neighbour meets all of them; the ratio is that of the shortest. micrograd works number
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
from didact.models import twins
from didact.run import git_state
from didact.scratch import networks, optim
from didact.scratch.losses import cross_entropy

Step = Callable[[], None]


def pair(ours: Any, theirs: Any, x: torch.Tensor, y: torch.Tensor, classes: int) -> dict[str, Step]:
    """One Adam step of both engines on the same batch, and its two halves on ours."""
    a, b = optim.Adam(list(ours.parameters()), 1e-3), torch.optim.Adam(theirs.parameters(), lr=1e-3)
    given = scratch.tensor(x.numpy()) if x.is_floating_point() else x.numpy()
    target = y.numpy().reshape(-1)

    def loss() -> scratch.Tensor:
        return cross_entropy(ours(given).reshape(-1, classes), target)

    def step() -> None:
        a.zero_grad()
        loss().backward()
        a.step()

    def reference() -> None:
        b.zero_grad()
        F.cross_entropy(theirs(x).reshape(-1, classes), y.reshape(-1)).backward()
        b.step()

    return {"scratch": step, "torch": reference, "forward": lambda: void(loss()), "both ways": lambda: loss().backward()}


def void(_: object) -> None:
    """Let a result go."""


def mlp() -> dict[str, Step]:
    x, y = torch.rand(128, 784), torch.randint(10, (128,))
    return pair(networks.MLP(784, (256, 128), 10, rng=0), twins.TwinMLP(784, (256, 128), 10), x, y, 10)


def lenet() -> dict[str, Step]:
    x, y = torch.rand(128, 1, 28, 28), torch.randint(10, (128,))
    return pair(networks.LeNet(1, 28, 10, rng=0), twins.TwinLeNet(1, 28, 10), x, y, 10)


def gpt() -> dict[str, Step]:
    x, y = torch.randint(65, (16, 64)), torch.randint(65, (16, 64))
    ours = networks.GPT(65, context=64, width=128, heads=4, depth=2, rng=0)
    return pair(ours, twins.TwinGPT(65, context=64, width=128, heads=4, depth=2), x, y, 65)


def micrograd() -> tuple[Step, float]:
    """Its own MLP of the same widths, one example: the factor makes it a batch."""
    from micrograd.nn import MLP

    model, x = MLP(784, [256, 128, 10]), list(np.random.default_rng(0).random(784))

    def step() -> None:
        scores = model(x)
        loss = sum((s * s for s in scores), scores[0])  # cheaper than a cross-entropy: it has no exp
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data -= 1e-3 * p.grad

    return step, 128.0


def tinygrad() -> tuple[Step, float]:
    import os

    os.environ.setdefault("DEV", "CPU")
    os.environ["TRAINING"] = "1"
    from tinygrad import Tensor, TinyJit, nn

    layers = [nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)]
    optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=1e-3)
    x, y = Tensor.rand(128, 784).realize(), Tensor(np.random.default_rng(0).integers(0, 10, 128)).realize()

    @TinyJit
    def jitted() -> Any:
        optimizer.zero_grad()
        loss = layers[2](layers[1](layers[0](x).relu()).relu()).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: void(jitted().item()), 1.0


def timed(step: Step, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def race(steps: dict[str, Step], rounds: int, repeats: int) -> dict[str, float]:
    for step in steps.values():
        step(), step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(timed(step, repeats))
    return {name: min(values) for name, values in seconds.items()}


PEAK = """
import resource, sys
sys.path.insert(0, "benchmarks")
import torch, numpy as np
from scratch_step import *
rows = 20_000
x, y = torch.rand(rows, 784), torch.randint(10, (rows,))
steps = pair(networks.MLP(784, (1024, 1024, 1024), 10, rng=0), twins.TwinMLP(784, (1024, 1024, 1024), 10), x, y, 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
steps[sys.argv[1]]()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory() -> dict[str, float]:
    """Peak kilobytes that one step of a wide MLP on many rows adds, each engine in a process of its own."""
    found = {}
    for name in ("scratch", "torch"):
        done = subprocess.run([sys.executable, "-c", PEAK, name], capture_output=True, text=True, check=True)
        found[name] = float(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--without", nargs="*", default=[])
    words = parser.parse_args()
    facts = {"torch": torch.__version__, "numpy": np.__version__, "threads": torch.get_num_threads(), "git": git_state()}
    for name, make, repeats in (("mlp", mlp, 10), ("lenet", lenet, 3), ("gpt", gpt, 3)):
        found = race(make(), words.rounds, repeats)
        backward = (found["both ways"] - found["forward"]) / found["forward"]
        row = {"network": name, "to_torch": found["scratch"] / found["torch"], "backward_to_forward": backward}
        print(json.dumps(row | {"scratch_ms": 1e3 * found["scratch"], "torch_ms": 1e3 * found["torch"]} | facts))
    peak = memory()
    print(json.dumps({"memory_to_torch": peak["scratch"] / peak["torch"], **{f"{k}_kb": v for k, v in peak.items()}}))
    ours = race({"scratch": mlp()["scratch"]}, 3, 10)["scratch"]
    for name, make in (("tinygrad", tinygrad), ("micrograd", micrograd)):
        if name not in words.without:
            step, factor = make()
            seconds = factor * race({name: step}, 1 if name == "micrograd" else 3, 1)[name]
            print(json.dumps({"peer": name, "to_scratch": seconds / ours, "examples_measured": 128 / factor}))


if __name__ == "__main__":
    main()
