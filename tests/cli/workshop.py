"""A folder with small data of every kind, sound and spoilt, and small runs, whole and damaged."""

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
from didact.train.session import train

SMALL = {"hidden": (4,), "epochs": 2, "batch": 64, "device": "cpu"}

COLOURS = "".join(f"{i % 7}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60))
NUMBERS = "".join(f"{i},{i % 11}.25,{0.5 * i + 0.125}\n" for i in range(60))
REVIEWS = "".join(f"a {'good' if i % 2 else 'bad'} film number {i % 5},{'pos' if i % 2 else 'neg'}\n" for i in range(40))

TABLES = {
    "own.csv": "size,colour,sold\n" + COLOURS,
    "numbers.csv": "a,b,price\n" + NUMBERS,
    "texts.csv": "review,mood\n" + REVIEWS,
    "empty.csv": "",
    "blank.csv": "\n  \n",
    "mark.csv": b"\xef\xbb\xbf",
    "header.csv": "a,b,y\n",
    "binary.csv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 20,
    "latin.csv": "stadt,y\nKöln,1\n".encode("latin-1"),
    "utf16.csv": "a,y\n1,2\n".encode("utf-16"),
    "truncated.csv.gz": gzip.compress(("a,b,y\n" + NUMBERS).encode())[:60],
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
    "gaps.csv": "a,y\n" + "1,cat\n2,dog\n" * 6 + "3,\n",
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


def build(where: Path) -> None:
    """Everything, below the current folder, which is `where`."""
    tables(where)
    pictures(where)
    runs(where)
    damaged(where)


def tables(where: Path) -> None:
    """Files that should be tables, and some that may not be read."""
    for name, content in TABLES.items():
        (where / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (where / "gone.csv").symlink_to("nowhere.csv")
    (where / "folder.csv").mkdir()
    (where / "locked").mkdir()
    (where / "secret.csv").write_text(TABLES["own.csv"])
    (where / "spoilt" / "mnist").mkdir(parents=True)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (where / "spoilt" / "mnist" / name).write_bytes(b"\0" * 64)


def picture(path: Path, seed: int, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)).save(path)


def pictures(where: Path) -> None:
    """Image folders: a sound one, and copies with one thing wrong."""
    for seed in range(12):
        picture(where / "pics" / "ab"[seed % 2] / f"{seed}.png", seed)
    for wrong in ("zero", "cut", "fake", "hollow", "single"):
        shutil.copytree(where / "pics", where / wrong)
    (where / "zero" / "a" / "0.png").write_bytes(b"")
    (where / "cut" / "a" / "0.png").write_bytes((where / "pics" / "a" / "0.png").read_bytes()[:60])
    (where / "fake" / "a" / "0.png").write_text("this is no picture")
    shutil.rmtree(where / "single" / "b")
    (where / "hollow" / "c").mkdir()
    (where / "lonely" / "a").mkdir(parents=True)
    picture(where / "lone" / "0.png", 0)
    for seed in range(3):
        picture(where / "loose" / f"{seed}.png", seed)
        picture(where / "few" / "ab"[seed % 2] / f"{seed}.png", seed)


class Stop(Exception):
    """Someone pulled the plug."""


def cut_off(folder: Path, evaluations: int) -> None:
    """A run on the table that ended in the middle, at the so-many-th evaluation."""
    left, before = evaluations, set(folder.parent.iterdir())

    def tell(event: str, facts: dict) -> None:
        nonlocal left
        left -= event == "evaluate"
        if not left:
            raise Stop

    with suppress(Stop):
        train(recipes.mlp, data="own.csv", save_every=1e-6, tell=tell, **SMALL | {"batch": 8, "epochs": 3})
    (made,) = set(folder.parent.iterdir()) - before
    made.rename(folder)


def runs(where: Path) -> None:
    """Finished runs on images, a table, numbers and texts; one cut off before it had a model, one after."""
    for name, keywords in {
        "digits": {"data": "digits", "dropout": 0.5},
        "table": {"data": "own.csv"},
        "price": {"data": "numbers.csv"},
        "plain": {"data": "own.csv", "dropout": 0.0},
        "texts": {"data": "texts.csv", "text": "review"},
    }.items():
        run = train(recipes.mlp, **SMALL | keywords)
        run.folder.rename(where / "runs" / "mlp" / name)
    cut_off(where / "runs" / "mlp" / "cut", 1)
    cut_off(where / "runs" / "mlp" / "half", 2)


def damaged(where: Path) -> None:
    """Copies of runs, each spoilt in one way."""
    whole, cut = where / "runs" / "mlp" / "table", where / "runs" / "mlp" / "cut"

    def copy(name: str, of: Path = whole) -> Path:
        return Path(shutil.copytree(of, where / "damaged" / name))

    def rewrite(name: str, of: Path = whole, **changes: object) -> None:
        path = copy(name, of) / "run.json"
        facts = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))

    facts = json.loads((whole / "run.json").read_text())
    (copy("no-facts") / "run.json").unlink()
    (copy("garbled-facts") / "run.json").write_bytes(os.urandom(200))
    (copy("cut-facts") / "run.json").write_text((whole / "run.json").read_text()[:300])
    (copy("empty-facts") / "run.json").write_text("")
    (copy("listed-facts") / "run.json").write_text("[1, 2]")
    rewrite("few-facts", arguments=None, data=None)
    rewrite("strange-recipe", recipe="mpl")
    rewrite("strange-argument", arguments=facts["arguments"] | {"hiden": [4]})
    rewrite("bad-argument", arguments=facts["arguments"] | {"dropout": "lots"})
    rewrite("bad-settings", settings="none")
    rewrite("bad-seed", settings=facts["settings"] | {"seed": "one"})
    rewrite("bad-data", data={key: value for key, value in facts["data"].items() if key != "encoder"})
    rewrite("bad-source", data=facts["data"] | {"source": {"seed": 0}})
    rewrite("moved-data", data=facts["data"] | {"source": facts["data"]["source"] | {"path": str(where / "moved.csv")}})
    rewrite("changed-data", data=facts["data"] | {"source": facts["data"]["source"] | {"fingerprint": "0" * 16}})
    rewrite("other-data", cut, data=facts["data"] | {"source": facts["data"]["source"] | {"path": str(where / "numbers.csv")}})
    (copy("no-model") / "model.safetensors").unlink()
    (copy("empty-model") / "model.safetensors").write_bytes(b"")
    (copy("cut-model") / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes()[:300])
    (copy("garbled-model") / "model.safetensors").write_bytes(os.urandom(2000))
    shutil.copy(where / "runs" / "mlp" / "digits" / "model.safetensors", copy("other-model") / "model.safetensors")
    save_file({}, copy("void-model") / "model.safetensors")
    weights = load_file(whole / "model.safetensors")
    save_file({k: torch.full_like(v, float("nan")) for k, v in weights.items()}, copy("nan-model") / "model.safetensors")
    (copy("no-indices") / "indices.safetensors").unlink()
    (copy("cut-indices") / "indices.safetensors").write_bytes((whole / "indices.safetensors").read_bytes()[:100])
    save_file({"train": torch.arange(60)}, copy("few-indices") / "indices.safetensors")
    save_file({"train": torch.arange(40), "validation": torch.arange(9), "test": torch.arange(11) + 1000},
              copy("wild-indices") / "indices.safetensors")
    (copy("cut-test") / "test.safetensors").write_bytes((whole / "test.safetensors").read_bytes()[:100])
    (copy("no-state", cut) / "state.safetensors").unlink()
    (copy("cut-state", cut) / "state.safetensors").write_bytes((cut / "state.safetensors").read_bytes()[:-200])
    (copy("garbled-state", cut) / "state.safetensors").write_bytes(os.urandom(3000))
    shutil.copy(cut / "indices.safetensors", copy("no-tree", cut) / "state.safetensors")
    save_file({"_": torch.zeros(1)}, copy("bad-tree", cut) / "state.safetensors", metadata={"tree": "{{{"})
    save_file({"_": torch.zeros(1)}, copy("void-tree", cut) / "state.safetensors", metadata={"tree": '{"dict": []}'})
    shutil.copy(where / "runs" / "mlp" / "digits" / "state.safetensors", copy("other-state", cut) / "state.safetensors")
    (copy("no-indices-cut", cut) / "indices.safetensors").unlink()
    (copy("no-best", where / "runs" / "mlp" / "half") / "model.safetensors").unlink()
    (where / "hollow-run").mkdir()
    (where / "hollow-run" / "run.json").mkdir()


def digest(where: Path) -> dict[str, object]:
    """Every file and folder below: of runs their bytes, of the rest their size and when they were written."""
    found: dict[str, object] = {}
    for path in where.rglob("*"):
        name, facts = str(path.relative_to(where)), path.lstat()
        if name.startswith("runs") and path.is_file():
            found[name] = blake2b(path.read_bytes(), digest_size=8).hexdigest()
        else:
            found[name] = None if path.is_dir() else (facts.st_size, facts.st_mtime_ns)
    return found
