"""Seconds of training until CIFAR-10 is at 94 %: ResNet-9 through `didact train cnn`, over several seeds.

    python benchmarks/cifar_speed.py [--seeds 3] [--setting wide] [--list]

The data set keeps 5,000 of its 50,000 training images for validation, which chooses the state that is tested once,
on the 10,000 test
images. Seconds are the run's own: all training steps and the reading of batches, without validation, files and
report, and without the
first three rounds, in which kernels are chosen and compiled. One JSON line a seed to stdout, then mean and spread.
"""

import argparse
import json
import tempfile
from statistics import fmean, stdev
from typing import Any

import torch

import didact
import didact.recipes
from didact.data.load import load
from didact.registry import RECIPES
from didact.run import git_state
from didact.training.prepare import prepare
from didact.training.run_training import reproduce_command

COMMON: dict[str, Any] = {
    "model": "resnet9",
    "augment": ("flip", "crop", "cutout"),
    "label_smoothing": 0.2,
    "flip_tta": True,
    "clip_norm": None,
    "precision": "bf16",
    "optimizer": "nesterov",
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "warmup_cosine",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "page": {"batch_size": 512, "lr": 0.4, "epochs": 30, "ema": 0.995},      # the rates of Page 2018, averaged weights
    "large": {"batch_size": 768, "lr": 0.6, "epochs": 30, "ema": 0.99},      # fewer, fuller steps
    "compiled": {"batch_size": 768, "lr": 0.6, "epochs": 36, "ema": 0.99, "compile": True},
}


def format_command(setting: dict[str, Any]) -> str:
    """The setting as one would type it."""
    return reproduce_command(prepare(RECIPES["cnn"], {**COMMON, **setting, "data": "cifar10"}, data=load("cifar10")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="page")
    parser.add_argument("--list", action="store_true", help="print the settings as commands and end")
    args = parser.parse_args()
    if args.list:
        for name, setting in SETTINGS.items():
            print(f"{name:<6} {format_command(setting)}")
        return
    options, data = {**COMMON, **SETTINGS[args.setting]}, load("cifar10")
    device_name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows = []
    with tempfile.TemporaryDirectory() as runs:
        didact.train(
            RECIPES["cnn"], data=data, runs=runs, steps=8, **{k: v for k, v in options.items() if k != "epochs"}
        )
        for seed in range(args.seeds):
            metadata = didact.train(RECIPES["cnn"], data=data, runs=runs, seed=seed, **options).metadata
            rows.append(
                {
                    "seed": seed,
                    "seconds": metadata["seconds"] - metadata["warmup_seconds"],
                    "accuracy": metadata["test"]["accuracy"],
                }
            )
            print(
                json.dumps({**rows[-1], "setting": args.setting, "device": device_name, "torch": torch.__version__}),
                flush=True,
            )
    for name in ("seconds", "accuracy"):
        values = [row[name] for row in rows]
        spread = stdev(values) if len(values) > 1 else 0.0
        print(
            json.dumps(
                {
                    "setting": args.setting,
                    name: fmean(values),
                    "spread": spread,
                    "seeds": args.seeds,
                    "git": git_state(),
                }
            )
        )


if __name__ == "__main__":
    main()
