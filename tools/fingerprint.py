"""Fingerprints of every recipe and of every verb's answer, to prove that a refactoring changes no behavior.

    python tools/fingerprint.py record before.json       on the commit before
    python tools/fingerprint.py record again.json        a second time: what differs between the two (clocks,
    memory) is left out
    python tools/fingerprint.py record after.json        on the commit after
    python tools/fingerprint.py compare before.json again.json after.json

Names may change, numbers may not: weights are compared as the set of their tensors' hashes, answers as the numbers
in them.
A recipe that is renamed is matched by --renamed old=new.
"""

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
NUM_STEPS = 100
RECORDED_STEPS = (1, 10, 100)

# What is asked of the run of each recipe; a refusal is an answer, too.
COMMANDS_BY_RUN = {
    "evaluate": ["evaluate", "{run}", "--json"],
    "sample": ["sample", "{run}", "--n", "2", "--seed", "1", "--json"],
    "explain": ["explain", "{run}", "--json"],
    "predict": ["predict", "{run}", "1,2", "--json"],
    "report": ["report", "{run}", "--json"],
}
COMMANDS = {
    "list": ["list", "--json"],
    "list data": ["list", "--data", "--json"],
    "show mlp": ["show", "mlp", "--json"],
    "show cnn": ["show", "cnn", "--json"],
    "show gpt": ["show", "gpt", "--json"],
    "check": ["check", "--course", "gaba", "--json"],
    "check exact": ["check", "--kind", "exact", "--json"],
    "reproduce": ["reproduce", "1.6", "--saved", "--json"],
    "graph": ["graph", "(x+y)*z", "x=-2", "y=5", "z=-4", "--json"],
    "gradcheck": ["gradcheck", "x*sin(y)", "x=2", "y=0.5", "--json"],
    "gradcheck scratch_mlp": ["gradcheck", "scratch_mlp", "--json"],
    "compare": ["compare", "scratch_mlp", "--steps", "20", "--json"],
    "sweep": ["sweep", "approximate", "width=2,4", "steps=20", "--json"],
    "train": ["train", "mlp", "--data", "iris", "--epochs", "2", "--json"],
    "predict rows": [
        "predict",
        "mlp/latest",
        "sepal length (cm)=5.1,sepal width (cm)=3.5,petal length (cm)=1.4,petal width (cm)=0.2",
        "--json",
    ],
    "evaluate int8": ["evaluate", "mlp/latest", "--int8", "--json"],
    "report two": ["report", "cnn/latest", "mlp/latest", "--json"],
    "resume": ["resume", "mlp/latest", "--json"],
    "sample text": ["sample", "gpt/latest", "--prompt", "import", "--tokens", "20", "--json"],
    "sample char": ["sample", "char_rnn/latest", "--prompt", "the", "--tokens", "20", "--json"],
    "predict text": ["predict", "text_rnn/latest", "a good film", "--json"],
    "predict translation": ["predict", "translate/latest", "one two", "--beam", "2", "--json"],
    "doctor": ["doctor", "--json"],
}


def hash_tensors(file: Path) -> list[str]:
    from safetensors.torch import load_file

    hashes = []
    for tensor in load_file(file).values():
        raw = tensor.contiguous().flatten().view(dtype=bytes_dtype()).numpy().tobytes() if tensor.numel() else b""
        hashes.append(hashlib.sha256(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + raw).hexdigest()[:16])
    return sorted(hashes)


def bytes_dtype() -> Any:
    import torch

    return torch.uint8


def record_recipe(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    import didact

    run = didact.train(name, **{**arguments, "steps": NUM_STEPS, "log_every": 1, "seed": 0, "device": "cpu"})
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    by_step: dict[str, Any] = {}
    for row in rows:
        if row.get("step") in RECORDED_STEPS:
            by_step.setdefault(str(row["step"]), []).extend(list_numbers(row))
    return {
        "losses": by_step,
        "weights": hash_tensors(run.folder / "model.safetensors"),
        "test": hash_tensors(run.folder / "test.safetensors"),
        "folder": str(run.folder),
    }


def list_numbers(value: Any) -> list[str]:
    """Every number in an answer, as it is written to the last bit."""
    if isinstance(value, dict):
        return [n for key, v in value.items() if key not in ("seconds", "time") for n in list_numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in list_numbers(v)]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    return [repr(float(value)) if math.isfinite(value) else str(value)]


def run_command(argv: list[str]) -> dict[str, Any]:
    main = importlib.import_module("didact.cli.main").main
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv)
        except Exception as error:  # a traceback is recorded as what it is
            code = 1
            err.write(f"{type(error).__name__}: {error}")
    text = out.getvalue()
    try:
        answer = json.loads(text) if text.strip() else None
    except json.JSONDecodeError:
        answer = None
    return {"code": code, "numbers": sorted(list_numbers(answer)), "answer": answer, "error": err.getvalue()[-300:]}


def record_all(target: Path, only: list[str]) -> None:
    from helpers.smallest_runs import SMALLEST_RUNS

    target = target.resolve()
    fingerprints: dict[str, Any] = {"recipes": {}, "answers": {}}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, arguments in SMALLEST_RUNS.items():
            if only and name not in only:
                continue
            start = time.time()
            fingerprints["recipes"][name] = record_recipe(name, arguments)
            for label, argv in COMMANDS_BY_RUN.items():
                answer = run_command([word.replace("{run}", f"{name}/latest") for word in argv])
                fingerprints["answers"][f"{name}: {label}"] = answer
            print(f"{name}: {time.time() - start:.1f} s", file=sys.stderr, flush=True)
            target.write_text(json.dumps(fingerprints, indent=1))
        for label, argv in {} if only else COMMANDS.items():
            fingerprints["answers"][label] = run_command(argv)
            print(
                label,
                fingerprints["answers"][label]["code"],
                fingerprints["answers"][label]["error"],
                file=sys.stderr,
                flush=True,
            )
        target.write_text(json.dumps(fingerprints, indent=1))


def compare_fingerprints(
    before: dict[str, Any], again: dict[str, Any], after: dict[str, Any], renamed: dict[str, str]
) -> int:
    num_different = num_equal = 0
    for name, old in before["recipes"].items():
        new = after["recipes"].get(renamed.get(name, name))
        for part in ("losses", "weights", "test"):
            if old[part] != again["recipes"][name][part]:
                print(f"{name}: {part} differ between two recordings of one commit")
            if new is None or old[part] != new[part]:
                num_different += 1
                print(f"{name}: {part} differ" if new else f"{name} is missing")
            else:
                num_equal += 1
    for label, old in before["answers"].items():
        recipe, _, verb = label.partition(": ")
        new = after["answers"].get(f"{renamed.get(recipe, recipe)}: {verb}" if verb else label)
        stable = Counter(old["numbers"]) & Counter(again["answers"][label]["numbers"])
        missing = stable - Counter(new["numbers"]) if new else stable
        if new is None or old["code"] != new["code"] or missing:
            num_different += 1
            print(
                f"{label}: code {old['code']} -> {new and new['code']}, numbers missing: {list(missing)[:5]} "
                f"{new and new['error']}"
            )
        else:
            num_equal += 1
    print(f"{num_equal} fingerprints equal, {num_different} different")
    return int(num_different > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="recipes, with commas")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    args = parser.parse_args()
    if args.verb == "record":
        record_all(args.files[0], [name for name in args.only.split(",") if name])
        return 0
    before, again, after = (json.loads(file.read_text()) for file in args.files)
    return compare_fingerprints(before, again, after, dict(pair.split("=") for pair in args.renamed))


if __name__ == "__main__":
    sys.exit(main())
