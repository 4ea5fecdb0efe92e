"""A folder with small data of every kind, sound and damaged, and small runs, sound and damaged."""

import gzip
import json
import os
import shutil
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from didact import recipes
from didact.training.run_training import train

SMALL = {"hidden": (4,), "epochs": 2, "batch_size": 64, "device": "cpu"}

COLOR_ROWS = "".join(f"{i % 7}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60))
NUMBER_ROWS = "".join(f"{i},{i % 11}.25,{0.5 * i + 0.125}\n" for i in range(60))
REVIEW_ROWS = "".join(
    f"a {'good' if i % 2 else 'bad'} film number {i % 5},{'pos' if i % 2 else 'neg'}\n" for i in range(40)
)

TABLE_FILES = {
    "own.csv": "size,colour,sold\n" + COLOR_ROWS,
    "numbers.csv": "a,b,price\n" + NUMBER_ROWS,
    "texts.csv": "review,mood\n" + REVIEW_ROWS,
    "empty.csv": "",
    "blank.csv": "\n  \n",
    "mark.csv": b"\xef\xbb\xbf",
    "header.csv": "a,b,y\n",
    "binary.csv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 20,
    "truncated.csv.gz": gzip.compress(("a,b,y\n" + NUMBER_ROWS).encode())[:60],
    "not-packed.csv.gz": b"\x1f\x8ba,b,y\n1,2,3\n",
    "ragged.csv": "a,b,y\n1,2,0\n3,4,1,5\n",
    "short.csv": "a,b,y\n1,2,0\n3,4\n",
    "delimiter.csv": "a b y\n1 2 0\n3 4 1\n",
    "quote.csv": 'a,b,y\n1,"2,0\n3,4,1\n',
    "headless.csv": "5.1,3.5,0\n4.9,3.0,1\n",
    "twins.csv": "a,b,a\n1,2,0\n3,4,1\n",
    "one-class.csv": "a,y\n" + "1,cat\n2,cat\n" * 6,
    "constant.csv": "a,y\n" + "1,3.5\n2,3.5\n" * 6,
    "rare.csv": "a,y\n" + "1,cat\n2,dog\n" * 6 + "3,owl\n",
    "two-rows.csv": "a,y\n1,2.5\n2,3.5\n",
    "no-target.csv": "a,y\n" + "1,\n2,\n" * 6,
    "gaps.csv": "a,y\n1,cat\n2,dog\n" + "3,\n" * 11,
    "nan-column.csv": "a,y\n" + ",cat\n,dog\n" * 6,
    "infinite.csv": "a,y\n" + "1,cat\n2,dog\n" * 6 + "inf,cat\n",
    "infinite-target.csv": "a,y\n" + "".join(f"{i},{i}.5\n" for i in range(40)) + "3,-inf\n",
    "words.csv": "a,y\n" + "".join(f"{i},{i}.5\n" for i in range(40)) + "3,many\n",
    "names.csv": "a,y\n" + "".join(f"{i},person {i}\n" for i in range(40)),
    "identifiers.csv": "name,y\n" + "".join(f"person {i},{'cat' if i % 2 else 'dog'}\n" for i in range(40)),
    "wordless.csv": "review,mood\n" + "...,pos\n!!,neg\n" * 20,
    "other.json": '{"a": 1}',
    "all.coco.json": '{"images": [], "annotations": []}',
    "table.xlsx": b"PK\x03\x04rest of an archive",
    "other-columns.csv": "width,shade\n1,red\n",
    "note.txt": "A good film.\n",
    "latin.txt": "caf\xe9 ".encode("latin-1") * 500,
}


def build_zoo(folder: Path) -> None:
    """Everything, below `folder`, which is the current one."""
    write_tables(folder)
    write_image_folders(folder)
    train_runs(folder)
    write_damaged_runs(folder)


def write_tables(folder: Path) -> None:
    """CSV files, sound and damaged, and some that cannot be read."""
    for name, content in TABLE_FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "gone.csv").symlink_to("nowhere.csv")
    (folder / "folder.csv").mkdir()
    (folder / "locked").mkdir()
    (folder / "secret.csv").write_text(TABLE_FILES["own.csv"])
    (folder / "spoilt" / "mnist").mkdir(parents=True)
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / "spoilt" / "mnist" / name).write_bytes(b"\0" * 64)


def write_image(path: Path, seed: int, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)).save(path)


def write_image_folders(folder: Path) -> None:
    """Image folders: a sound one, and copies with one defect each."""
    for seed in range(12):
        write_image(folder / "pics" / "ab"[seed % 2] / f"{seed}.png", seed)
    for defect in ("zero", "cut", "fake", "hollow", "single"):
        shutil.copytree(folder / "pics", folder / defect)
    (folder / "zero" / "a" / "0.png").write_bytes(b"")
    (folder / "cut" / "a" / "0.png").write_bytes((folder / "pics" / "a" / "0.png").read_bytes()[:60])
    (folder / "fake" / "a" / "0.png").write_text("this is no picture")
    shutil.rmtree(folder / "single" / "b")
    (folder / "hollow" / "c").mkdir()
    (folder / "lonely" / "a").mkdir(parents=True)
    write_image(folder / "lone" / "0.png", 0)
    for seed in range(3):
        write_image(folder / "loose" / f"{seed}.png", seed)
        write_image(folder / "few" / "ab"[seed % 2] / f"{seed}.png", seed)


class StopTraining(Exception):
    """Ends a training in the middle."""


def train_interrupted_run(folder: Path, evaluations: int) -> None:
    """A run on the table that was interrupted at its evaluation number `evaluations`."""
    remaining, folders_before = evaluations, set(folder.parent.iterdir())

    def stop_at_evaluation(event: str, payload: dict) -> None:
        nonlocal remaining
        remaining -= event == "evaluate"
        if not remaining:
            raise StopTraining

    with suppress(StopTraining):
        train(
            recipes.mlp,
            data="own.csv",
            save_every=1e-6,
            on_event=stop_at_evaluation,
            **SMALL | {"batch_size": 8, "epochs": 3},
        )
    (run_folder,) = set(folder.parent.iterdir()) - folders_before
    run_folder.rename(folder)


def train_runs(folder: Path) -> None:
    """Finished runs on images, tables and texts; one interrupted before it had a model, one after."""
    for name, keywords in {
        "digits": {"data": "digits", "dropout": 0.5},
        "table": {"data": "own.csv"},
        "price": {"data": "numbers.csv"},
        "plain": {"data": "own.csv", "dropout": 0.0},
        "texts": {"data": "texts.csv", "text": "review"},
    }.items():
        run = train(recipes.mlp, **SMALL | keywords)
        (run.folder / "report.html").touch()               # a run without its report is not whole
        run.folder.rename(folder / "runs" / "mlp" / name)
    train_interrupted_run(folder / "runs" / "mlp" / "cut", 1)
    train_interrupted_run(folder / "runs" / "mlp" / "half", 2)


def write_damaged_runs(folder: Path) -> None:
    """Copies of runs, each with one defect."""
    finished_run, interrupted_run = folder / "runs" / "mlp" / "table", folder / "runs" / "mlp" / "cut"

    def copy_run(name: str, source: Path = finished_run) -> Path:
        return Path(shutil.copytree(source, folder / "damaged" / name))

    def rewrite_metadata(name: str, source: Path = finished_run, **changes: object) -> None:
        path = copy_run(name, source) / "run.json"
        metadata = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in metadata.items() if value is not None}))

    metadata = json.loads((finished_run / "run.json").read_text())
    (copy_run("no-facts") / "run.json").unlink()
    (copy_run("garbled-facts") / "run.json").write_bytes(os.urandom(200))
    (copy_run("cut-facts") / "run.json").write_text((finished_run / "run.json").read_text()[:300])
    (copy_run("empty-facts") / "run.json").write_text("")
    (copy_run("listed-facts") / "run.json").write_text("[1, 2]")
    rewrite_metadata("few-facts", arguments=None, data=None)
    rewrite_metadata("strange-recipe", recipe="mpl")
    rewrite_metadata("strange-argument", arguments=metadata["arguments"] | {"hiden": [4]})
    rewrite_metadata("bad-argument", arguments=metadata["arguments"] | {"dropout": "lots"})
    rewrite_metadata("bad-settings", settings="none")
    rewrite_metadata("bad-seed", settings=metadata["settings"] | {"seed": "one"})
    rewrite_metadata("bad-data", data={key: value for key, value in metadata["data"].items() if key != "encoder"})
    rewrite_metadata("bad-source", data=metadata["data"] | {"source": {"seed": 0}})
    rewrite_metadata(
        "moved-data",
        data=metadata["data"] | {"source": metadata["data"]["source"] | {"path": str(folder / "moved.csv")}},
    )
    rewrite_metadata(
        "changed-data", data=metadata["data"] | {"source": metadata["data"]["source"] | {"fingerprint": "0" * 16}}
    )
    rewrite_metadata(
        "other-data",
        interrupted_run,
        data=metadata["data"] | {"source": metadata["data"]["source"] | {"path": str(folder / "numbers.csv")}},
    )
    (copy_run("no-model") / "model.safetensors").unlink()
    (copy_run("empty-model") / "model.safetensors").write_bytes(b"")
    (copy_run("cut-model") / "model.safetensors").write_bytes((finished_run / "model.safetensors").read_bytes()[:300])
    (copy_run("garbled-model") / "model.safetensors").write_bytes(os.urandom(2000))
    shutil.copy(folder / "runs" / "mlp" / "digits" / "model.safetensors", copy_run("other-model") / "model.safetensors")
    save_file({}, copy_run("void-model") / "model.safetensors")
    weights = load_file(finished_run / "model.safetensors")
    save_file(
        {k: torch.full_like(v, float("nan")) for k, v in weights.items()}, copy_run("nan-model") / "model.safetensors"
    )
    (copy_run("no-indices") / "indices.safetensors").unlink()
    (copy_run("cut-indices") / "indices.safetensors").write_bytes(
        (finished_run / "indices.safetensors").read_bytes()[:100]
    )
    save_file({"train": torch.arange(60)}, copy_run("few-indices") / "indices.safetensors")
    save_file({"train": torch.arange(40), "validation": torch.arange(9), "test": torch.arange(11) + 1000},
              copy_run("wild-indices") / "indices.safetensors")
    (copy_run("cut-test") / "test.safetensors").write_bytes((finished_run / "test.safetensors").read_bytes()[:100])
    (copy_run("no-state", interrupted_run) / "state.safetensors").unlink()
    (copy_run("cut-state", interrupted_run) / "state.safetensors").write_bytes(
        (interrupted_run / "state.safetensors").read_bytes()[:-200]
    )
    (copy_run("garbled-state", interrupted_run) / "state.safetensors").write_bytes(os.urandom(3000))
    shutil.copy(interrupted_run / "indices.safetensors", copy_run("no-tree", interrupted_run) / "state.safetensors")
    save_file(
        {"_": torch.zeros(1)}, copy_run("bad-tree", interrupted_run) / "state.safetensors", metadata={"tree": "{{{"}
    )
    save_file(
        {"_": torch.zeros(1)},
        copy_run("void-tree", interrupted_run) / "state.safetensors",
        metadata={"tree": '{"dict": []}'},
    )
    shutil.copy(
        folder / "runs" / "mlp" / "digits" / "state.safetensors",
        copy_run("other-state", interrupted_run) / "state.safetensors",
    )
    (copy_run("no-indices-cut", interrupted_run) / "indices.safetensors").unlink()
    (copy_run("no-best", folder / "runs" / "mlp" / "half") / "model.safetensors").unlink()
    (folder / "hollow-run").mkdir()
    (folder / "hollow-run" / "run.json").mkdir()


def fingerprint_files(folder: Path) -> dict[str, object]:
    """Every file and folder below: of runs a hash of the bytes, of the rest size and time of writing."""
    fingerprints: dict[str, object] = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if name.startswith("runs") and path.is_file():
            fingerprints[name] = blake2b(path.read_bytes(), digest_size=8).hexdigest()
        else:
            fingerprints[name] = None if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return fingerprints
