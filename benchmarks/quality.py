"""How well the recipes do on real data: a test metric over seeds 0-2, as a Markdown table.

    python benchmarks/quality.py vision|text|generative [--device cuda] [--only pennfudan] [--seeds 3] [--beside 8] [--to FILE] [--quick]

Each row is one command with its seeds; the test split is read once, at the best validation state. A set whose files are not at hand
is left out and said. `--beside` trains so many at once, each in a process of its own: then the seconds say little and are left out.
Every training adds a line to a .jsonl file beside the table, and the table is written anew from all of them: `--only` changes its own
rows alone, and nothing is lost when it is stopped. A row that stands in the table without such lines is kept as it is.
Some rows of the generative table draw from the trained model in a way of their own, timed, or judged by the `cnn` that the vision table
has for the same data: trained first and kept under --runs.
`--quick` tries every row of it small, on digits, and keeps nothing.
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
from didact.run import Run, git_state
from didact.samplers.draw import draw
from didact.samplers.judging import judged
from didact.train.machine import describe, pick_device, synchronise
from didact.train.session import restored

MANY, SHEET, QUICK = 2_000, 64, 100     # images that are judged, whose drawing is timed, that are judged in a quick try


class Drawn(NamedTuple):
    """How images are drawn from a model when it is trained; where it is judged beside another way, `ratio` is of both distances."""

    n: int
    way: dict[str, Any]
    beside: dict[str, Any] | None = None


class Row(NamedTuple):
    """A recipe with its options, the metric that counts and what it should reach; `most` where less is better."""

    recipe: Any
    metric: str
    target: float | None
    options: dict[str, Any]
    most: bool = False
    drawn: Drawn | None = None


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
    *[      # what another task taught against nothing, with few labels: didact's own glyphs, and ImageNet
        Row(recipes.transfer, "accuracy", None, {"data": data, "weights": weights, "labels": labels, "mode": mode})
        for data, weights, labels in (("mnist", "glyphs", 5), ("cifar10", "lite0", 25)) for mode in ("scratch", "features", "full")
    ],
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
DDPM, DDIM = {"steps": 1000, "eta": 1.0}, {"steps": 50, "eta": 0.0, "order": 1}
SECOND, NOISY = DDIM | {"order": 2}, {"steps": 50, "eta": 1.0}       # two more ways of few steps
GUIDED = {"conditional": True, "guidance": 0.5}
EARLY = 2    # epochs from whose distance that of the whole training must have fallen
GENERATIVE = [
    Row(recipes.vae, "loss", 106.6, {"data": "mnist", "epochs": 30}, most=True),
    Row(recipes.vae, "reconstruction", 74, {"data": "mnist", "network": "conv", "epochs": 30}, most=True),
    Row(recipes.pixelcnn, "bits_per_dim", 0.15, {"data": "mnist", "levels": 2, "epochs": 12}, most=True),
    *[Row(recipes.realnvp, "bits_per_dim", None, {"data": "mnist", **given, "epochs": 20}, most=True) for given in ({}, {"levels": 256})],
    Row(recipes.wgan, "class_coverage", 1.0, {"data": "mnist", "epochs": 25}),
    *[row for data in ("mnist", "fashion_mnist") for told in (GUIDED, {}) for row in (
        Row(recipes.diffusion, "confidence", 0.95, {"data": data, **told}, drawn=Drawn(MANY, DDPM)),
        Row(recipes.diffusion, "confidence_in_real", None, {"data": data, **told}, drawn=Drawn(MANY, DDPM)),
        Row(recipes.diffusion, "evenness", 0.5, {"data": data, **told}, drawn=Drawn(MANY, DDPM)),
        Row(recipes.diffusion, "frechet", None, {"data": data, **told}, most=True, drawn=Drawn(MANY, DDPM)),
        *[Row(recipes.diffusion, metric, target, {"data": data, **told}, True, Drawn(MANY, way, beside=DDPM))
          for way, metric, target in ((DDIM, "ratio", 1.2), (DDIM, "frechet", None), (SECOND, "ratio", None), (NOISY, "ratio", None))],
        Row(recipes.diffusion, "frechet", None, {"data": data, **told, "epochs": EARLY}, most=True, drawn=Drawn(MANY, DDIM)),
    )],
    Row(recipes.diffusion, "seconds_of_drawing", 0.5, {"data": "mnist"}, most=True, drawn=Drawn(SHEET, DDIM)),
    Row(recipes.diffusion, "seconds_of_drawing", None, {"data": "mnist"}, most=True, drawn=Drawn(SHEET, DDPM)),
    Row(recipes.pixelcnn, "seconds_of_drawing", None, {"data": "mnist", "levels": 2, "epochs": 12}, most=True, drawn=Drawn(SHEET, {})),
]
TABLES = {"vision": VISION, "text": TEXT, "generative": GENERATIVE}


def spoken(row: Row, seeds: int) -> str:
    """The command that repeats a row."""
    said = f"didact train {row.recipe.name} {flags(row.options)}"
    if row.drawn is not None:
        said += f"; didact sample RUN -n {row.drawn.n} {flags(row.drawn.way)}".rstrip()
        said += "" if row.drawn.n == SHEET else " --judge CNN"
        said += f", beside {flags(row.drawn.beside)}" if row.drawn.beside else ""
    return f"`{said} --seed 0…{seeds - 1}`"


def flags(options: dict[str, Any]) -> str:
    words = []
    for name, value in options.items():
        said = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{name.replace('_', '-')}" + (f" {said}" if value is not True else ""))
    return " ".join(words)


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
    """What a row of the table trains and draws, however many seeds."""
    return line.removeprefix("| ").partition(" --seed ")[0]


def key(line: str) -> tuple[str, str]:
    """Which row of the table it is: what is trained, and the metric."""
    return command(line), line.split(" | ")[1]


def table(name: str, rows: list[Row], to: Path) -> str:
    """All that was ever trained, the newest of each row and seed; of rows that only the table knows, what it says."""
    log = to.with_suffix(".jsonl")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    old = to.read_text(encoding="utf-8").splitlines() if to.exists() else []
    kept = {key(line): line for line in old if line.startswith("| `didact train")}
    for row in rows:
        newest = {one["seed"]: one for one in lines if one["command"] == command(spoken(row, 1)) and row.metric in one["test"]}
        if newest:
            kept[command(spoken(row, 1)), row.metric] = told(row, [newest[seed] for seed in sorted(newest)])
    shown = [kept[place] for row in rows if (place := (command(spoken(row, 1)), row.metric)) in kept]
    head = (
        f"# {name.capitalize()} recipes on real data\n\n"
        "Mean ± standard deviation over seeds; seconds are those of training, compilation and validation apart, "
        "and left out where several trained at once.\n\n"
        "| command | metric | test | worst | target | seeds | seconds | measured |\n|---|---|---|---|---|---|---|---|\n"
    )
    ends = [i for i, line in enumerate(old) if line.startswith("|")]
    return head + "\n".join([*shown, *old[ends[-1] + 1 :]] if ends else shown) + "\n"      # what is said below the table stays


def train(row: Row, seed: int, words: argparse.Namespace) -> dict[str, Any]:
    """One training's facts, or why there are none."""
    given = row.options | ({"epochs": words.epochs} if words.epochs else {})
    try:
        run = trained(row.recipe, given, seed, words)
        found = run.facts["test"] if row.drawn is None else look(run, row.drawn, given["data"], seed, words)
    except UsageError as error:
        return {"left out": f"{row.options['data']}: {error}"}
    return {"test": found, "seconds": run.facts["seconds"]}


TRAINED: dict[str, Run] = {}    # rows that draw in several ways draw from one model,
JUDGED: dict[str, dict[str, Any]] = {}    # and what is drawn in one way is judged once


def trained(recipe: Any, given: dict[str, Any], seed: int, words: argparse.Namespace) -> Run:
    what = f"{recipe.name} {flags(given)} --seed {seed}"
    if what not in TRAINED:
        settings = {"seed": seed, "device": words.device, "compile": words.compile}
        TRAINED[what] = didact.train(recipe, **given, **settings, runs=words.runs)
    return TRAINED[what]


JUDGES = {str(row.options["data"]): row.options for row in VISION[:2]}    # the best that didact has for the set


def judge_of(data: str, words: argparse.Namespace) -> Run:
    """The classifier that judges what is drawn of these data: trained once for all rows and seeds, and kept."""
    kept = Path(words.runs) / f"judge-{data}"
    if not kept.exists():
        run = trained(recipes.cnn, JUDGES.get(data, {"data": data}) | ({"epochs": words.epochs} if words.epochs else {}), 0, words)
        kept.write_text(str(run.folder), encoding="utf-8")
    return Run.open(kept.read_text(encoding="utf-8"))


def look(run: Run, drawn: Drawn, data: str, seed: int, words: argparse.Namespace) -> dict[str, Any]:
    """What is drawn in that way: judged where there are many, else timed, the first time apart."""
    if drawn.n == SHEET:
        took = [timed(run, drawn, seed, words.device) for _ in range(4)][1:]
        return {"seconds_of_drawing": sorted(took)[1]}
    by, found = judge_of(data, words), []
    for way in [drawn.way] + ([drawn.beside] if drawn.beside else []):
        what = f"{run.folder} {drawn.n} {flags(way)} --seed {seed}"
        if what not in JUDGED:
            JUDGED[what] = judged(run, by, draw(run, drawn.n, seed=seed, device=words.device, **way), device=words.device)
        found.append(JUDGED[what])
    numbers = {name: value for name, value in found[0].items() if isinstance(value, int | float)}
    return numbers | ({"ratio": found[0]["frechet"] / found[1]["frechet"]} if drawn.beside else {})


def timed(run: Run, drawn: Drawn, seed: int, device: str) -> float:
    """Seconds of drawing alone: the run is read and its weights are moved before."""
    objective, place = restored(run)[0], pick_device(device)
    objective.to(place)
    generator = torch.Generator(place).manual_seed(seed)
    synchronise(place)
    started = time.perf_counter()
    with torch.no_grad():
        objective.sample(drawn.n, generator, **drawn.way)  # type: ignore[operator]
    synchronise(place)
    return time.perf_counter() - started


def quick(row: Row) -> Row:
    """The same on digits, of few steps and images."""
    few = {"data": "digits", "epochs": 1 if row.options.get("epochs") == EARLY else 6}
    row = row._replace(options=row.options | few | ({"T": 100} if row.recipe is recipes.diffusion else {}))
    if row.drawn is None:
        return row
    ways = (row.drawn.way, row.drawn.beside or {})
    way, beside = ({name: min(value, 100) if name == "steps" else value for name, value in given.items()} for given in ways)
    return row._replace(drawn=Drawn(min(row.drawn.n, QUICK), way, beside or None))


Jobs = list[tuple[list[int], int]]     # numbers of rows that share a training, and a seed


def together(rows: list[Row], words: argparse.Namespace) -> Jobs:
    """What is to be trained: of rows with one command the first alone, and those that draw from one model together."""
    first = {command(spoken(row, 1)): n for n, row in reversed(list(enumerate(rows)))}
    shared: dict[str, list[int]] = {}
    for n in sorted(first.values()):
        if words.only in spoken(rows[n], words.seeds) and not (words.beside > 1 and timed_alone(rows[n])):
            shared.setdefault(f"{rows[n].recipe.name} {flags(rows[n].options)}", []).append(n)
    return [(numbers, seed) for numbers in shared.values() for seed in range(words.seeds)]


def timed_alone(row: Row) -> bool:
    """Whether seconds are what the row asks for: others beside would change them."""
    return row.drawn is not None and row.drawn.n == SHEET


def judges(row: Row) -> bool:
    return row.drawn is not None and row.drawn.n != SHEET


def apart(jobs: Jobs, words: argparse.Namespace) -> Any:
    """Every job in a process of its own, `--beside` of them at once; yields what each found as it ends."""
    waiting, running = list(jobs), list[tuple[list[int], int, subprocess.Popen[str]]]()
    rows = TABLES[words.table]
    for data in sorted({"digits" if words.quick else rows[n].options["data"] for numbers, _ in jobs for n in numbers if judges(rows[n])}):
        judge_of(data, words)
    while waiting or running:
        while waiting and len(running) < words.beside:
            numbers, seed = waiting.pop(0)
            command = [sys.executable, __file__, words.table, "--rows", *map(str, numbers), "--seed", str(seed), "--device", words.device]
            command += ["--runs", words.runs, *(["--epochs", str(words.epochs)] if words.epochs else [])]
            command += ["--quick"] * words.quick + ["--compile"] * bool(words.compile)
            running.append((numbers, seed, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        for job in [job for job in running if job[2].poll() is not None]:
            running.remove(job)
            said = {one["row"]: one for line in job[2].communicate()[0].splitlines() if (one := answer(line))}
            yield from ((n, job[1], said.get(n, {"left out": f"a training ended with {job[2].returncode}"})) for n in job[0])
        time.sleep(0.2)


def answer(line: str) -> dict[str, Any] | None:
    return json.loads(line) if line.startswith('{"row"') else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="rows whose command holds this word")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of each row's, to see whether all of it runs: nothing is kept")
    parser.add_argument("--quick", action="store_true", help="each generative row small, on digits, under one seed: nothing is kept")
    parser.add_argument("--beside", type=int, default=1, help="trainings at once")
    parser.add_argument("--rows", type=int, nargs="+", help="these alone, under --seed: their facts as lines of JSON, nothing is kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", default=None, help="torch.compile what is trained")
    parser.add_argument("--runs", default="runs/quality")
    parser.add_argument("--to", type=Path)
    words = parser.parse_args()
    rows, to = TABLES[words.table], words.to or Path(__file__).parent / "results" / f"{words.table}_quality.md"
    if words.quick:
        if words.table != "generative":
            parser.error(f"--quick is for the generative table, got {words.table}; try others with --epochs 1")
        rows, words.seeds = [quick(row) for row in rows], 1
    if words.rows:
        for number in words.rows:
            print(json.dumps({"row": number} | train(rows[number], words.seed, words)), flush=True)
        return
    jobs = together(rows, words)
    for row in rows if words.beside > 1 else ():
        if timed_alone(row) and words.only in spoken(row, words.seeds):
            print(f"{spoken(row, words.seeds)} left out: its seconds are measured without --beside", flush=True)
    ended = apart(jobs, words) if words.beside > 1 else ((n, seed, train(rows[n], seed, words)) for numbers, seed in jobs for n in numbers)
    for number, seed, facts in ended:
        print(f"{spoken(rows[number], words.seeds)} seed {seed}: {json.dumps(facts)}", flush=True)
        if "test" in facts and not words.epochs and not words.quick:
            seconds = None if words.beside > 1 else facts["seconds"]
            named = {"command": command(spoken(rows[number], 1)), "seed": seed}
            line = named | {"test": facts["test"], "seconds": seconds, "where": where(words)}
            with to.with_suffix(".jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
            to.write_text(table(words.table, rows, to), encoding="utf-8")


if __name__ == "__main__":
    main()
