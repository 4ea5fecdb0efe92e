"""How well the vision recipes do on real data: the test metric over seeds 0-2, as a Markdown table.

    python benchmarks/vision_quality.py [--device cuda] [--only pennfudan] [--seeds 3] [--to benchmarks/results/vision_quality.md]

Each row is one command with its seeds; the test split is read once, at the best validation state. A set whose files are not at hand
is left out and said. The table is written anew after every run, so that nothing is lost when it is stopped.
"""

import argparse
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch

import didact
from didact import recipes
from didact.errors import UsageError
from didact.run import git_state
from didact.train.machine import describe, pick_device


class Row(NamedTuple):
    """A recipe with its options, the metric that counts and what it should reach."""

    recipe: Any
    metric: str
    target: float | None
    options: dict[str, Any]


RESNET = {
    "model": "resnet18", "augment": ("flip", "crop", "cutout"), "optimizer": "nesterov", "lr": 0.1, "weight_decay": 5e-4, "batch": 256,
    "ema": 0.995,
}
ROWS = [
    Row(recipes.cnn, "accuracy", 0.995, {
        "data": "mnist", "model": "cifar_resnet20", "augment": ("affine",), "epochs": 20, "lr": 3e-3, "ema": 0.995,
    }),
    Row(recipes.cnn, "accuracy", 0.93, {"data": "fashion_mnist", "epochs": 30, **RESNET}),
    Row(recipes.cnn, "accuracy", 0.94, {"data": "cifar10", "epochs": 50, **RESNET}),
    Row(recipes.segmentation, "mean_iou", 0.90, {"data": "shapes"}),
    # 120 photographs: many passes, each over other windows, sizes and colours of them; an average of the weights steadies the end
    Row(recipes.segmentation, "mean_iou", 0.75, {
        "data": "pennfudan", "widths": (32, 64, 128, 256, 512), "augment": ("flip", "zoom", "jitter", "noise"),
        "lr": 2e-3, "weight_decay": 0.05, "ema": 0.99, "clip_norm": 1.0, "epochs": 200, "batch": 8,
    }),
    Row(recipes.detection, "map50", 0.85, {"data": "bccd", "augment": ("flips", "zoom", "jitter")}),
    Row(recipes.denoising, "psnr_gain", None, {"data": "shapes"}),
    Row(recipes.denoising, "psnr_gain", None, {"data": "cifar10", "widths": (32, 64, 128), "epochs": 10, "batch": 128}),
]


def spoken(row: Row, seeds: int) -> str:
    """The command that repeats a row."""
    words = []
    for name, value in row.options.items():
        said = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{name.replace('_', '-')} {said}")
    return f"`didact train {row.recipe.name} {' '.join(words)} --seed 0…{seeds - 1}`"


def told(row: Row, found: list[float], seconds: list[float], seeds: int) -> str:
    spread = f" ± {stdev(found):.4f}" if len(found) > 1 else ""
    target = "" if row.target is None else f"{row.target:g}"
    cells = [f"{mean(found):.4f}{spread}", f"{min(found):.4f}", target, str(len(found)), f"{mean(seconds):.1f}"]
    return f"| {' | '.join([spoken(row, seeds), row.metric, *cells])} |"


def head(device: torch.device) -> str:
    git = git_state()
    commit = git["commit"][:12] + (" with changes" if git["dirty"] else "") if git else "unknown"
    return (
        f"# Vision recipes on real data\n\n{describe(device)}, torch {torch.__version__}, commit {commit}, {time.strftime('%Y-%m-%d')}."
        " Mean ± standard deviation over seeds; seconds are those of training, compilation and validation apart.\n\n"
        "| command | metric | test | lowest | target | seeds | seconds |\n|---|---|---|---|---|---|---|\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="rows whose command holds this word")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of each row's, to see whether all of it runs")
    parser.add_argument("--runs", default="runs/vision_quality")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "results" / "vision_quality.md")
    words = parser.parse_args()
    lines: list[str] = []
    for row in ROWS:
        if words.only not in spoken(row, words.seeds):
            continue
        given = row.options | ({"epochs": words.epochs} if words.epochs else {})
        found: list[float] = []
        seconds: list[float] = []
        for seed in range(words.seeds):
            try:
                run = didact.train(row.recipe, **given, seed=seed, device=words.device, runs=words.runs)
            except UsageError as error:
                print(f"left out: {row.options['data']}: {error}", flush=True)
                break
            found.append(run.facts["test"][row.metric])
            seconds.append(run.facts["seconds"])
            table = [*lines, told(row, found, seconds, words.seeds)]
            words.to.write_text(head(pick_device(words.device)) + "\n".join(table) + "\n", encoding="utf-8")
        if found:
            lines.append(told(row, found, seconds, words.seeds))
            print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
