"""Images a second while training ResNet-50 and ViT-B/16 at 224 pixels: didact's networks beside torchvision's, in
one run.

    python benchmarks/vision_throughput.py [--models resnet50 vit_b_16] [--batch 256] [--size 224] [--compile]
    [--device cuda]

bf16, channels last, SGD with momentum, one synthetic batch that stays on the device: the network alone, no data.
The two take
turns and the best round of each counts. One JSON line a network to stdout; `ratio` is didact's to torchvision's.
Where torchvision
is not installed, didact's stands alone.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import didact.models  # noqa: F401 (registers the families)
from didact.registry import create_model
from didact.run import git_state


def make_torchvision_model(name: str) -> nn.Module | None:
    try:
        import torchvision
    except ImportError:
        return None
    return torchvision.models.get_model(name, weights=None)


def make_step(network: nn.Module, args: argparse.Namespace) -> Callable[[], None]:
    """One whole step: forward, backward, optimizer."""
    device = torch.device(args.device)
    network = network.to(device, memory_format=torch.channels_last).train()
    x = torch.rand(args.batch, 3, args.size, args.size, device=device).contiguous(memory_format=torch.channels_last)
    y = torch.randint(1000, (args.batch,), device=device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    forward = torch.compile(network) if args.compile else network

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(forward(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def images_per_second(step: Callable[[], None], args: argparse.Namespace) -> float:
    """Images a second over `--steps` steps."""
    synchronize = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    synchronize()
    start = time.perf_counter()
    for _ in range(args.steps):
        step()
    synchronize()
    return args.batch * args.steps / (time.perf_counter() - start)


def compare_networks(name: str, args: argparse.Namespace) -> dict[str, object]:
    networks = {
        "didact": create_model(name, num_classes=1000, size=(args.size, args.size)),
        "torchvision": make_torchvision_model(name),
    }
    steps = {library: make_step(network, args) for library, network in networks.items() if network is not None}
    for step in steps.values():      # autotuning and compilation are over before the clock runs
        for _ in range(args.warm):
            step()
    best_rate = dict.fromkeys(steps, 0.0)
    for _ in range(args.rounds):
        for library, step in steps.items():
            best_rate[library] = max(best_rate[library], images_per_second(step, args))
    row: dict[str, object] = {f"{library}_images_s": round(speed) for library, speed in best_rate.items()}
    if "torchvision" in best_rate:
        row["ratio"] = round(best_rate["didact"] / best_rate["torchvision"], 3)
    return {"model": name, **row, "batch": args.batch, "size": args.size, "compile": args.compile}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "vit_b_16"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    device_name = (
        torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.processor() or platform.machine()
    )
    for name in args.models:
        print(
            json.dumps(
                {**compare_networks(name, args), "device": device_name, "torch": torch.__version__, "git": git_state()}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
