"""How well the recipes do on real data: a test metric over seeds 0-2, as a Markdown table.

    python benchmarks/quality.py vision|text|generative [--device cuda] [--only pennfudan] [--seeds 3] [--jobs 8]
    [--output FILE] [--quick]

Each row is one command with its seeds; the test split is evaluated once, at the best validation state. A dataset whose
files are missing is left out, with a message. `--jobs` runs trainings in parallel, each in a process of its own: their
seconds mean little and are left out. Every training adds a line to a .jsonl file next to the table, and the table is
written again from all of them: `--only` changes only its own rows, and nothing is lost when it is stopped. A row of the
table without such lines stays as it is. Some rows of the generative table sample from the trained model with options of
their own, timed, or evaluated by the `cnn` of the vision table for the same data, which is trained first and saved
under --runs. `--quick` tries every row of it on a small scale, on digits, and saves nothing.
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
from didact.inference.evaluate_samples import quality_vs_classifier
from didact.inference.sample_images import sample_images
from didact.run import Run, git_state
from didact.training.device import describe_device, resolve_device, synchronize
from didact.training.restore import load_model

# images that are judged, whose drawing is timed, that are judged in a quick try
NUM_JUDGED, NUM_TIMED, NUM_QUICK = 2_000, 64, 100


class SamplingSetup(NamedTuple):
    """How images are drawn from a model when it is trained; where it is judged beside another way, `ratio` is of
    both distances."""

    num_images: int
    sampler_options: dict[str, Any]
    baseline_options: dict[str, Any] | None = None


class BenchmarkRow(NamedTuple):
    """A recipe with its options, the metric that counts and what it should reach; `most` where less is better."""

    recipe: Any
    metric: str
    target: float | None
    options: dict[str, Any]
    lower_is_better: bool = False
    sampling: SamplingSetup | None = None


RESNET_OPTIONS = {
    "model": "resnet18",
    "augment": ("flip", "crop", "cutout"),
    "optimizer": "nesterov",
    "lr": 0.1,
    "weight_decay": 5e-4,
    "batch_size": 256,
    "ema": 0.995,
}
VISION = [
    BenchmarkRow(
        recipes.cnn,
        "accuracy",
        0.995,
        {"data": "mnist", "model": "cifar_resnet20", "augment": ("affine",), "epochs": 20, "lr": 3e-3, "ema": 0.995},
    ),
    BenchmarkRow(recipes.cnn, "accuracy", 0.93, {"data": "fashion_mnist", "epochs": 30, **RESNET_OPTIONS}),
    BenchmarkRow(recipes.cnn, "accuracy", 0.94, {"data": "cifar10", "epochs": 50, **RESNET_OPTIONS}),
    BenchmarkRow(recipes.segmentation, "mean_iou", 0.90, {"data": "shapes"}),
    # 120 photographs: many passes, each over other windows, sizes and colours of them; an average of the weights
    # steadies the end
    BenchmarkRow(
        recipes.segmentation,
        "mean_iou",
        0.75,
        {
            "data": "pennfudan",
            "channels": (32, 64, 128, 256, 512),
            "augment": ("flip", "zoom", "jitter", "noise"),
            "lr": 2e-3,
            "weight_decay": 0.05,
            "ema": 0.99,
            "clip_norm": 1.0,
            "epochs": 200,
            "batch_size": 8,
        },
    ),
    BenchmarkRow(recipes.detection, "map50", 0.85, {"data": "bccd", "augment": ("flips", "zoom", "jitter")}),
    BenchmarkRow(recipes.denoising, "psnr_gain", None, {"data": "shapes"}),
    BenchmarkRow(
        recipes.denoising,
        "psnr_gain",
        None,
        {"data": "cifar10", "channels": (32, 64, 128), "epochs": 10, "batch_size": 128},
    ),
    *[  # what another task taught against nothing, with few labels: didact's own glyphs, and ImageNet
        BenchmarkRow(
            recipes.transfer,
            "accuracy",
            None,
            {"data": data, "weights": weights, "labels_per_class": labels, "mode": mode},
        )
        for data, weights, labels in (("mnist", "glyphs", 5), ("cifar10", "lite0", 25))
        for mode in ("scratch", "features", "full")
    ],
]
IMDB_OPTIONS = {"data": "imdb", "vocab_size": 20_000, "batch_size": 64}
TRANSLATION_OPTIONS = {
    "num_layers": 3,
    "embed_dim": 256,
    "ffn_dim": 512,
    "dropout": 0.3,
    "label_smoothing": 0.1,
    "epochs": 30,
}
TEXT = [
    BenchmarkRow(
        recipes.text_rnn, "accuracy", 0.86, {**IMDB_OPTIONS, "max_length": 400, "dropout": 0.5, "lr": 1e-3, "epochs": 5}
    ),
    BenchmarkRow(
        recipes.text_transformer,
        "accuracy",
        0.87,
        {
            **IMDB_OPTIONS,
            "num_layers": 2,
            "ffn_dim": 256,
            "max_length": 500,
            "dropout": 0.4,
            "augment": ("deletion",),
            "lr": 4e-4,
            "weight_decay": 0.1,
            "epochs": 8,
        },
    ),
    BenchmarkRow(recipes.translate, "bleu", 50, {"data": "multi30k_fr", **TRANSLATION_OPTIONS}),
    BenchmarkRow(recipes.translate, "bleu", 33, {"data": "multi30k_de", **TRANSLATION_OPTIONS}),
    BenchmarkRow(
        recipes.seq2seq,
        "bleu",
        None,
        {"data": "multi30k_fr", "embed_dim": 256, "hidden_size": 512, "dropout": 0.3, "lr": 1e-3, "epochs": 12},
    ),
    BenchmarkRow(recipes.seq2seq, "exact", 0.99, {"data": "number_words"}),
]
DDPM, DDIM = {"steps": 1000, "eta": 1.0}, {"steps": 50, "eta": 0.0, "solver_order": 1}
SECOND_ORDER, STOCHASTIC = DDIM | {"solver_order": 2}, {"steps": 50, "eta": 1.0}       # two more ways of few steps
GUIDED = {"conditional": True, "guidance": 0.5}
EARLY_EPOCHS = 2    # epochs from whose distance that of the whole training must have fallen
GENERATIVE = [
    BenchmarkRow(recipes.vae, "loss", 106.6, {"data": "mnist", "epochs": 30}, lower_is_better=True),
    BenchmarkRow(
        recipes.vae, "reconstruction", 74, {"data": "mnist", "network": "conv", "epochs": 30}, lower_is_better=True
    ),
    BenchmarkRow(
        recipes.pixelcnn, "bits_per_dim", 0.15, {"data": "mnist", "levels": 2, "epochs": 12}, lower_is_better=True
    ),
    *[
        BenchmarkRow(
            recipes.realnvp, "bits_per_dim", None, {"data": "mnist", **flow_options, "epochs": 20}, lower_is_better=True
        )
        for flow_options in ({}, {"levels": 256})
    ],
    BenchmarkRow(recipes.wgan, "class_coverage", 1.0, {"data": "mnist", "epochs": 25}),
    *[
        row
        for data in ("mnist", "fashion_mnist")
        for guidance_options in (GUIDED, {})
        for row in (
            BenchmarkRow(
                recipes.diffusion,
                "confidence",
                0.95,
                {"data": data, **guidance_options},
                sampling=SamplingSetup(NUM_JUDGED, DDPM),
            ),
            BenchmarkRow(
                recipes.diffusion,
                "confidence_in_real",
                None,
                {"data": data, **guidance_options},
                sampling=SamplingSetup(NUM_JUDGED, DDPM),
            ),
            BenchmarkRow(
                recipes.diffusion,
                "evenness",
                0.5,
                {"data": data, **guidance_options},
                sampling=SamplingSetup(NUM_JUDGED, DDPM),
            ),
            BenchmarkRow(
                recipes.diffusion,
                "frechet",
                None,
                {"data": data, **guidance_options},
                lower_is_better=True,
                sampling=SamplingSetup(NUM_JUDGED, DDPM),
            ),
            *[
                BenchmarkRow(
                    recipes.diffusion,
                    metric,
                    target,
                    {"data": data, **guidance_options},
                    True,
                    SamplingSetup(NUM_JUDGED, sampler_options, baseline_options=DDPM),
                )
                for sampler_options, metric, target in (
                    (DDIM, "ratio", 1.2),
                    (DDIM, "frechet", None),
                    (SECOND_ORDER, "ratio", None),
                    (STOCHASTIC, "ratio", None),
                )
            ],
            BenchmarkRow(
                recipes.diffusion,
                "frechet",
                None,
                {"data": data, **guidance_options, "epochs": EARLY_EPOCHS},
                lower_is_better=True,
                sampling=SamplingSetup(NUM_JUDGED, DDIM),
            ),
        )
    ],
    BenchmarkRow(
        recipes.diffusion,
        "seconds_of_drawing",
        0.5,
        {"data": "mnist"},
        lower_is_better=True,
        sampling=SamplingSetup(NUM_TIMED, DDIM),
    ),
    BenchmarkRow(
        recipes.diffusion,
        "seconds_of_drawing",
        None,
        {"data": "mnist"},
        lower_is_better=True,
        sampling=SamplingSetup(NUM_TIMED, DDPM),
    ),
    BenchmarkRow(
        recipes.pixelcnn,
        "seconds_of_drawing",
        None,
        {"data": "mnist", "levels": 2, "epochs": 12},
        lower_is_better=True,
        sampling=SamplingSetup(NUM_TIMED, {}),
    ),
]
TABLES = {"vision": VISION, "text": TEXT, "generative": GENERATIVE}


def format_command(row: BenchmarkRow, seeds: int) -> str:
    """The command that repeats a row."""
    text = f"didact train {row.recipe.name} {format_flags(row.options)}"
    if row.sampling is not None:
        text += (
            f"; didact sample RUN -n {row.sampling.num_images} {format_flags(row.sampling.sampler_options)}".rstrip()
        )
        text += "" if row.sampling.num_images == NUM_TIMED else " --classifier CNN"
        text += f", against {format_flags(row.sampling.baseline_options)}" if row.sampling.baseline_options else ""
    return f"`{text} --seed 0…{seeds - 1}`"


def format_flags(options: dict[str, Any]) -> str:
    flags = []
    for name, value in options.items():
        value_text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flags.append(f"--{name.replace('_', '-')}" + (f" {value_text}" if value is not True else ""))
    return " ".join(flags)


def format_row(row: BenchmarkRow, results: list[dict[str, Any]]) -> str:
    values, find_worst = [result["test"][row.metric] for result in results], max if row.lower_is_better else min
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    target = "" if row.target is None else f"{'≤' if row.lower_is_better else '≥'} {row.target:g}"
    seconds_known = [result["seconds"] for result in results if result["seconds"] is not None]
    seconds = f"{mean(seconds_known):.1f}" if len(seconds_known) == len(results) else ""
    setups = "; ".join(sorted({result["where"] for result in results}))
    cells = [f"{mean(values):.4f}{spread}", f"{find_worst(values):.4f}", target, str(len(values)), seconds, setups]
    return f"| {' | '.join([format_command(row, len(results)), row.metric, *cells])} |"


def describe_setup(args: argparse.Namespace) -> str:
    """On what, with what and when, as each row of the table says it of itself."""
    git = git_state()
    commit = git["commit"][:12] + (" with changes" if git["dirty"] else "") if git else "unknown"
    return (
        f"{describe_device(resolve_device(args.device))}, torch {torch.__version__}, commit {commit}, "
        f"{time.strftime('%Y-%m-%d')}"
    )


def strip_seeds(line: str) -> str:
    """What a row of the table trains and draws, however many seeds."""
    return line.removeprefix("| ").partition(" --seed ")[0]


def row_key(line: str) -> tuple[str, str]:
    """Which row of the table it is: what is trained, and the metric."""
    return strip_seeds(line), line.split(" | ")[1]


def write_table(name: str, rows: list[BenchmarkRow], output: Path) -> str:
    """All that was ever trained, the newest of each row and seed; of rows that only the table knows, what it says."""
    log = output.with_suffix(".jsonl")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    old_lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    lines_by_key = {row_key(line): line for line in old_lines if line.startswith("| `didact train")}
    for row in rows:
        newest = {
            result["seed"]: result
            for result in lines
            if result["command"] == strip_seeds(format_command(row, 1)) and row.metric in result["test"]
        }
        if newest:
            lines_by_key[strip_seeds(format_command(row, 1)), row.metric] = format_row(
                row, [newest[seed] for seed in sorted(newest)]
            )
    table_lines = [
        lines_by_key[row_id]
        for row in rows
        if (row_id := (strip_seeds(format_command(row, 1)), row.metric)) in lines_by_key
    ]
    head = (
        f"# {name.capitalize()} recipes on real data\n\n"
        "Mean ± standard deviation over seeds; seconds are those of training, compilation and validation apart, "
        "and left out where several trained at once.\n\n"
        "| command | metric | test | worst | target | seeds | seconds | measured |\n|---|---|---|---|---|---|---|---|\n"
    )
    table_line_numbers = [i for i, line in enumerate(old_lines) if line.startswith("|")]
    # what is said below the table stays
    return (
        head
        + "\n".join([*table_lines, *old_lines[table_line_numbers[-1] + 1 :]] if table_line_numbers else table_lines)
        + "\n"
    )


def train_row(row: BenchmarkRow, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One training's facts, or why there are none."""
    options = row.options | ({"epochs": args.epochs} if args.epochs else {})
    try:
        run = train_once(row.recipe, options, seed, args)
        metrics = (
            run.metadata["test"]
            if row.sampling is None
            else evaluate_samples(run, row.sampling, options["data"], seed, args)
        )
    except UsageError as error:
        return {"left out": f"{row.options['data']}: {error}"}
    return {"test": metrics, "seconds": run.metadata["seconds"]}


TRAINED_RUNS: dict[str, Run] = {}    # rows that draw in several ways draw from one model,
JUDGED_SAMPLES: dict[str, dict[str, Any]] = {}    # and what is drawn in one way is judged once


def train_once(recipe: Any, options: dict[str, Any], seed: int, args: argparse.Namespace) -> Run:
    run_key = f"{recipe.name} {format_flags(options)} --seed {seed}"
    if run_key not in TRAINED_RUNS:
        settings = {"seed": seed, "device": args.device, "compile": args.compile}
        TRAINED_RUNS[run_key] = didact.train(recipe, **options, **settings, runs=args.runs)
    return TRAINED_RUNS[run_key]


# the best that didact has for the set
CLASSIFIER_OPTIONS = {str(row.options["data"]): row.options for row in VISION[:2]}


def get_classifier(data: str, args: argparse.Namespace) -> Run:
    """The classifier that judges what is drawn of these data: trained once for all rows and seeds, and kept."""
    path_file = Path(args.runs) / f"judge-{data}"
    if not path_file.exists():
        run = train_once(
            recipes.cnn,
            CLASSIFIER_OPTIONS.get(data, {"data": data}) | ({"epochs": args.epochs} if args.epochs else {}),
            0,
            args,
        )
        path_file.write_text(str(run.folder), encoding="utf-8")
    return Run.open(path_file.read_text(encoding="utf-8"))


def evaluate_samples(
    run: Run, sampling: SamplingSetup, data: str, seed: int, args: argparse.Namespace
) -> dict[str, Any]:
    """What is drawn in that way: judged where there are many, else timed, the first time apart."""
    if sampling.num_images == NUM_TIMED:
        seconds = [time_sampling(run, sampling, seed, args.device) for _ in range(4)][1:]
        return {"seconds_of_drawing": sorted(seconds)[1]}
    classifier, results = get_classifier(data, args), []
    for options in [sampling.sampler_options] + ([sampling.baseline_options] if sampling.baseline_options else []):
        sample_key = f"{run.folder} {sampling.num_images} {format_flags(options)} --seed {seed}"
        if sample_key not in JUDGED_SAMPLES:
            JUDGED_SAMPLES[sample_key] = quality_vs_classifier(
                run,
                classifier,
                sample_images(run, sampling.num_images, seed=seed, device=args.device, **options),
                device=args.device,
            )
        results.append(JUDGED_SAMPLES[sample_key])
    numeric_results = {name: value for name, value in results[0].items() if isinstance(value, int | float)}
    return numeric_results | (
        {"ratio": results[0]["frechet"] / results[1]["frechet"]} if sampling.baseline_options else {}
    )


def time_sampling(run: Run, sampling: SamplingSetup, seed: int, device_name: str) -> float:
    """Seconds of drawing alone: the run is read and its weights are moved before."""
    objective, device = load_model(run)[0], resolve_device(device_name)
    objective.to(device)
    generator = torch.Generator(device).manual_seed(seed)
    synchronize(device)
    start = time.perf_counter()
    with torch.no_grad():
        objective.sample(sampling.num_images, generator, **sampling.sampler_options)  # type: ignore[operator]
    synchronize(device)
    return time.perf_counter() - start


def make_quick(row: BenchmarkRow) -> BenchmarkRow:
    """The same on digits, of few steps and images."""
    small_options = {"data": "digits", "epochs": 1 if row.options.get("epochs") == EARLY_EPOCHS else 6}
    diffusion_options = {"timesteps": 100} if row.recipe is recipes.diffusion else {}
    row = row._replace(options=row.options | small_options | diffusion_options)
    if row.sampling is None:
        return row
    option_pairs = (row.sampling.sampler_options, row.sampling.baseline_options or {})
    sampler_options, baseline_options = (
        {name: min(value, 100) if name == "steps" else value for name, value in options.items()}
        for options in option_pairs
    )
    return row._replace(
        sampling=SamplingSetup(min(row.sampling.num_images, NUM_QUICK), sampler_options, baseline_options or None)
    )


Jobs = list[tuple[list[int], int]]     # numbers of rows that share a training, and a seed


def group_jobs(rows: list[BenchmarkRow], args: argparse.Namespace) -> Jobs:
    """What is to be trained: of rows with one command the first alone, and those that draw from one model together."""
    first_rows = {
        strip_seeds(format_command(row, 1)): row_number for row_number, row in reversed(list(enumerate(rows)))
    }
    rows_by_training: dict[str, list[int]] = {}
    for row_number in sorted(first_rows.values()):
        if args.only in format_command(rows[row_number], args.seeds) and not (
            args.jobs > 1 and is_timed(rows[row_number])
        ):
            rows_by_training.setdefault(
                f"{rows[row_number].recipe.name} {format_flags(rows[row_number].options)}", []
            ).append(row_number)
    return [(row_numbers, seed) for row_numbers in rows_by_training.values() for seed in range(args.seeds)]


def is_timed(row: BenchmarkRow) -> bool:
    """Whether seconds are what the row asks for: others in parallel would change them."""
    return row.sampling is not None and row.sampling.num_images == NUM_TIMED


def needs_classifier(row: BenchmarkRow) -> bool:
    return row.sampling is not None and row.sampling.num_images != NUM_TIMED


def run_parallel(jobs: Jobs, args: argparse.Namespace) -> Any:
    """Every job in a process of its own, `--jobs` of them in parallel; yields the answer of each when it ends."""
    waiting, running = list(jobs), list[tuple[list[int], int, subprocess.Popen[str]]]()
    rows = TABLES[args.table]
    for data in sorted(
        {
            "digits" if args.quick else rows[row_number].options["data"]
            for row_numbers, _ in jobs
            for row_number in row_numbers
            if needs_classifier(rows[row_number])
        }
    ):
        get_classifier(data, args)
    while waiting or running:
        while waiting and len(running) < args.jobs:
            row_numbers, seed = waiting.pop(0)
            command = [
                sys.executable,
                __file__,
                args.table,
                "--rows",
                *map(str, row_numbers),
                "--seed",
                str(seed),
                "--device",
                args.device,
            ]
            command += ["--runs", args.runs, *(["--epochs", str(args.epochs)] if args.epochs else [])]
            command += ["--quick"] * args.quick + ["--compile"] * bool(args.compile)
            running.append((row_numbers, seed, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        for job in [job for job in running if job[2].poll() is not None]:
            running.remove(job)
            answers = {
                answer["row"]: answer for line in job[2].communicate()[0].splitlines() if (answer := parse_answer(line))
            }
            yield from (
                (
                    row_number,
                    job[1],
                    answers.get(row_number, {"left out": f"a training ended with {job[2].returncode}"}),
                )
                for row_number in job[0]
            )
        time.sleep(0.2)


def parse_answer(line: str) -> dict[str, Any] | None:
    return json.loads(line) if line.startswith('{"row"') else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="rows whose command holds this word")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--epochs", type=int, help="instead of each row's, to see whether all of it runs: nothing is kept"
    )
    parser.add_argument(
        "--quick", action="store_true", help="each generative row small, on digits, under one seed: nothing is kept"
    )
    parser.add_argument("--jobs", "-j", type=int, default=1, help="parallel trainings")
    parser.add_argument(
        "--rows", type=int, nargs="+", help="these alone, under --seed: their facts as lines of JSON, nothing is kept"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", default=None, help="torch.compile what is trained")
    parser.add_argument("--runs", default="runs/quality")
    parser.add_argument("--output", "-o", type=Path)
    args = parser.parse_args()
    rows, output = TABLES[args.table], args.output or Path(__file__).parent / "results" / f"{args.table}_quality.md"
    if args.quick:
        if args.table != "generative":
            parser.error(f"--quick is for the generative table, got {args.table}; try others with --epochs 1")
        rows, args.seeds = [make_quick(row) for row in rows], 1
    if args.rows:
        for row_number in args.rows:
            print(json.dumps({"row": row_number} | train_row(rows[row_number], args.seed, args)), flush=True)
        return
    jobs = group_jobs(rows, args)
    for row in rows if args.jobs > 1 else ():
        if is_timed(row) and args.only in format_command(row, args.seeds):
            print(f"{format_command(row, args.seeds)} left out: its seconds are measured without --jobs", flush=True)
    results = (
        run_parallel(jobs, args)
        if args.jobs > 1
        else ((n, seed, train_row(rows[n], seed, args)) for row_numbers, seed in jobs for n in row_numbers)
    )
    for row_number, seed, facts in results:
        print(f"{format_command(rows[row_number], args.seeds)} seed {seed}: {json.dumps(facts)}", flush=True)
        if "test" in facts and not args.epochs and not args.quick:
            seconds = None if args.jobs > 1 else facts["seconds"]
            row_id = {"command": strip_seeds(format_command(rows[row_number], 1)), "seed": seed}
            line = row_id | {"test": facts["test"], "seconds": seconds, "where": describe_setup(args)}
            with output.with_suffix(".jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
            output.write_text(write_table(args.table, rows, output), encoding="utf-8")


if __name__ == "__main__":
    main()
