"""How well the recipes do on real data: a test metric over seeds 0-2, as a Markdown table.

    python benchmarks/quality.py vision|text|generative [--device cuda] [--only pennfudan] [--seeds 3] [--beside 8] [--to FILE]

Each row is one command with its seeds; the test split is read once, at the best validation state. A set whose files are not at hand
is left out and said. `--beside` trains so many at once, each in a process of its own: then the seconds say little and are left out.
Every training adds a line to a .jsonl file beside the table, and the table is written anew from all of them: `--only` changes its own
rows alone, and nothing is lost when it is stopped. A row that stands in the table without such lines is kept as it is.
"""

import argparse
import json
import subprocess
import sys
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
    """A recipe with its options, the metric that counts and what it should reach; `most` where less is better."""

    recipe: Any
    metric: str
    target: float | None
    options: dict[str, Any]
    most: bool = False


RESNET = {
    "model": "resnet18", "augment": ("flip", "crop", "cutout"), "optimizer": "nesterov", "lr": 0.1, "weight_decay": 5e-4, "batch": 256,
    "ema": 0.995,
}
VISION = [
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
IMDB = {"data": "imdb", "vocabulary": 20_000, "batch": 64}
PAIRS = {"layers": 3, "width": 256, "hidden": 512, "dropout": 0.3, "smoothing": 0.1, "epochs": 30}
TEXT = [
    Row(recipes.text_rnn, "accuracy", 0.86, {**IMDB, "length": 400, "dropout": 0.5, "lr": 1e-3, "epochs": 5}),
    Row(recipes.text_transformer, "accuracy", 0.87, {
        **IMDB, "layers": 2, "hidden": 256, "length": 500, "dropout": 0.4, "augment": ("deletion",), "lr": 4e-4, "weight_decay": 0.1,
        "epochs": 8,
    }),
    Row(recipes.translate, "bleu", 50, {"data": "multi30k_fr", **PAIRS}),
    Row(recipes.translate, "bleu", 33, {"data": "multi30k_de", **PAIRS}),
    Row(recipes.seq2seq, "bleu", None, {"data": "multi30k_fr", "width": 256, "hidden": 512, "dropout": 0.3, "lr": 1e-3, "epochs": 12}),
    Row(recipes.seq2seq, "exact", 0.99, {"data": "number_words"}),
]
GENERATIVE = [
    Row(recipes.vae, "loss", 106.6, {"data": "mnist", "epochs": 30}, most=True),
    Row(recipes.vae, "reconstruction", 74, {"data": "mnist", "network": "conv", "epochs": 30}, most=True),
    Row(recipes.pixelcnn, "bits_per_dim", 0.15, {"data": "mnist", "levels": 2, "epochs": 12}, most=True),
    Row(recipes.realnvp, "bits_per_dim", None, {"data": "mnist", "epochs": 20}, most=True),
    Row(recipes.wgan, "class_coverage", 1.0, {"data": "mnist", "epochs": 25}),
    Row(recipes.diffusion, "confidence", 0.95, {"data": "mnist"}),
    Row(recipes.diffusion, "confidence", 0.95, {"data": "fashion_mnist"}),
]
TABLES = {"vision": VISION, "text": TEXT, "generative": GENERATIVE}


def spoken(row: Row, seeds: int) -> str:
    """The command that repeats a row."""
    words = []
    for name, value in row.options.items():
        said = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{name.replace('_', '-')} {said}")
    return f"`didact train {row.recipe.name} {' '.join(words)} --seed 0…{seeds - 1}`"


def told(row: Row, found: list[dict[str, Any]]) -> str:
    test, worst = [one["test"][row.metric] for one in found], max if row.most else min
    spread = f" ± {stdev(test):.4f}" if len(test) > 1 else ""
    target = "" if row.target is None else f"{'≤' if row.most else '≥'} {row.target:g}"
    timed = [one["seconds"] for one in found if one["seconds"] is not None]
    seconds = f"{mean(timed):.1f}" if len(timed) == len(found) else ""
    where = "; ".join(sorted({one["where"] for one in found}))
    cells = [f"{mean(test):.4f}{spread}", f"{worst(test):.4f}", target, str(len(test)), seconds, where]
    return f"| {' | '.join([spoken(row, len(found)), row.metric, *cells])} |"


def where(words: argparse.Namespace) -> str:
    """On what, with what and when, as each row of the table says it of itself."""
    git = git_state()
    commit = git["commit"][:12] + (" with changes" if git["dirty"] else "") if git else "unknown"
    return f"{describe(pick_device(words.device))}, torch {torch.__version__}, commit {commit}, {time.strftime('%Y-%m-%d')}"


def command(line: str) -> str:
    """What a row of the table trains, however many seeds."""
    return line.removeprefix("| ").partition(" --seed ")[0]


def table(name: str, rows: list[Row], to: Path) -> str:
    """All that was ever trained, the newest of each row and seed; of rows that only the table knows, what it says."""
    log = to.with_suffix(".jsonl")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    old = to.read_text(encoding="utf-8").splitlines() if to.exists() else []
    kept = {command(line): line for line in old if line.startswith("| `didact train")}
    for row in rows:
        newest = {one["seed"]: one for one in lines if one["command"] == command(spoken(row, 1))}
        if newest:
            kept[command(spoken(row, 1))] = told(row, [newest[seed] for seed in sorted(newest)])
    shown = [kept[command(spoken(row, 1))] for row in rows if command(spoken(row, 1)) in kept]
    head = (
        f"# {name.capitalize()} recipes on real data\n\n"
        "Mean ± standard deviation over seeds; seconds are those of training, compilation and validation apart.\n\n"
        "| command | metric | test | worst | target | seeds | seconds | measured |\n|---|---|---|---|---|---|---|---|\n"
    )
    ends = [i for i, line in enumerate(old) if line.startswith("|")]
    return head + "\n".join([*shown, *old[ends[-1] + 1 :]] if ends else shown) + "\n"      # what is said below the table stays


def train(row: Row, seed: int, words: argparse.Namespace) -> dict[str, Any]:
    """One training's facts, or why there are none."""
    given = row.options | ({"epochs": words.epochs} if words.epochs else {})
    try:
        facts = didact.train(row.recipe, **given, seed=seed, device=words.device, runs=words.runs).facts
    except UsageError as error:
        return {"left out": f"{row.options['data']}: {error}"}
    return {"test": facts["test"], "seconds": facts["seconds"]}


def apart(jobs: list[tuple[int, int]], words: argparse.Namespace) -> Any:
    """Every job in a process of its own, `--beside` of them at once; yields what each found as it ends."""
    waiting, running = list(jobs), list[tuple[int, int, subprocess.Popen[str]]]()
    while waiting or running:
        while waiting and len(running) < words.beside:
            number, seed = waiting.pop(0)
            command = [sys.executable, __file__, words.table, "--one", str(number), str(seed), "--device", words.device]
            command += ["--runs", words.runs, *(["--epochs", str(words.epochs)] if words.epochs else [])]
            running.append((number, seed, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        for job in [job for job in running if job[2].poll() is not None]:
            running.remove(job)
            said = job[2].communicate()[0].strip().split("\n")[-1]
            yield job[0], job[1], json.loads(said) if said.startswith("{") else {"left out": f"a training ended with {job[2].returncode}"}
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="rows whose command holds this word")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of each row's, to see whether all of it runs: nothing is kept")
    parser.add_argument("--beside", type=int, default=1, help="trainings at once")
    parser.add_argument("--one", type=int, nargs=2, metavar=("ROW", "SEED"), help="a single training, its facts as JSON")
    parser.add_argument("--runs", default="runs/quality")
    parser.add_argument("--to", type=Path)
    words = parser.parse_args()
    rows, to = TABLES[words.table], words.to or Path(__file__).parent / "results" / f"{words.table}_quality.md"
    if words.one:
        print(json.dumps(train(rows[words.one[0]], words.one[1], words)), flush=True)
        return
    jobs = [(n, seed) for n, row in enumerate(rows) if words.only in spoken(row, words.seeds) for seed in range(words.seeds)]
    ended = apart(jobs, words) if words.beside > 1 else ((n, seed, train(rows[n], seed, words)) for n, seed in jobs)
    for number, seed, facts in ended:
        print(f"{spoken(rows[number], words.seeds)} seed {seed}: {json.dumps(facts)}", flush=True)
        if "test" in facts and not words.epochs:
            seconds = None if words.beside > 1 else facts["seconds"]
            named = {"command": command(spoken(rows[number], 1)), "seed": seed}
            line = named | {"test": facts["test"], "seconds": seconds, "where": where(words)}
            with to.with_suffix(".jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
            to.write_text(table(words.table, rows, to), encoding="utf-8")


if __name__ == "__main__":
    main()
