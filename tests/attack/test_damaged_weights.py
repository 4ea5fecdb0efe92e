"""Weights files that are damaged, odd or made to do harm: read, or refused in one line; nothing runs, nothing hangs."""

import json
import os
import pickle
import struct
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from damage import SECONDS, SEED, damage_bytes, damage_tree, read_or_refused
from safetensors.torch import save_file
from torch import Tensor, nn

from didact.errors import UsageError
from didact.models.weights import load_weights

PICKLED = (".pth", ".pt", ".bin", ".ckpt")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


class Evil:
    """Says by a file that it was run."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def write_pickle(random: Random, folder: Path) -> Path:
    """PyTorch's own format, old and new, with damaged bytes."""
    path = folder / f"w{random.choice(PICKLED)}"
    torch.save(network().state_dict(), path, _use_new_zipfile_serialization=random.random() < 0.5)
    path.write_bytes(damage_bytes(random, path.read_bytes()))
    return path


def write_pickle_inside(random: Random, folder: Path) -> Path:
    """A sound zip file around a damaged pickle: nothing but the unpickler looks at it."""
    whole, path = folder / "whole.pth", folder / f"w{random.choice(PICKLED)}"
    torch.save(network().state_dict(), whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, damage_bytes(random, content) if name.endswith("data.pkl") else content)
    return path


def write_safetensors(random: Random, folder: Path) -> Path:
    """A header that says something else than the numbers behind it."""
    path = folder / "w.safetensors"
    save_file(network().state_dict(), path)
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.dumps(damage_tree(random, json.loads(raw[8 : 8 + size]))).encode()
    if random.random() < 0.3:
        header = damage_bytes(random, header)
    said = len(header) if random.random() < 0.8 else random.choice((0, 10**9, 2**63, 2**64 - 1))
    path.write_bytes(struct.pack("<Q", said) + header + raw[8 + size :])
    return path


def write_evil(random: Random, folder: Path) -> Path:
    """A pickle that runs a command where it may."""
    path, evil = folder / f"w{random.choice(PICKLED)}", Evil(folder / "owned")
    content = random.choice((evil, {"0.weight": evil}, [evil]))
    if random.random() < 0.5:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, random.choice((0, 2, 4))))
    return path


WRITERS = (write_pickle, write_pickle_inside, write_safetensors, write_evil)


def attack(folder: Path, random: Random, name: str) -> None:
    write = random.choice(WRITERS)
    with read_or_refused(f"{write.__name__}, seed {name}"):
        load_weights(network(), write(random, folder))
    assert not (folder / "owned").exists(), f"{write.__name__}, seed {name}: its command was run"


def test_damaged_files_are_read_or_refused(tmp_path):
    for case in range(1200):
        attack(tmp_path, Random(f"{SEED}/{case}"), f"{SEED}/{case}")


@pytest.mark.slow
def test_damaged_files_for_long(tmp_path):
    end, case = time.time() + SECONDS, 0
    while time.time() < end:
        attack(tmp_path, Random(f"long/{SEED}/{case}"), f"long/{SEED}/{case}")
        case += 1
    assert case > 100


def with_weight(tensor: Tensor) -> dict[str, Tensor]:
    return {**network().state_dict(), "0.weight": tensor}


@pytest.mark.parametrize(("make", "what"), [
    (lambda: torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8), "quantized"),
    (lambda: torch.ones(4, 3).to_sparse(), "sparse"),
    (lambda: torch.ones(4, 3).to_sparse_csr(), "sparse"),
    (lambda: torch.empty(4, 3, device="meta"), "without numbers"),
    (lambda: torch.ones(4, 3, dtype=torch.complex64), "complex"),
])
@pytest.mark.filterwarnings("ignore::UserWarning")                # of PyTorch, which would rather have no such tensors
def test_tensors_of_another_kind_are_refused_by_name(tmp_path, make, what):
    """They pass for tensors until they are copied."""
    path = tmp_path / "w.pth"
    torch.save(with_weight(make()), path)
    with pytest.raises(UsageError, match=rf"w\.pth: 0\.weight is {what}.*; save plain numbers") as error:
        load_weights(network(), path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tensor", [
    torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.bfloat16), torch.ones(4, 3, dtype=torch.int8),
    torch.ones(3, 4).T, torch.ones(4, 3).to(torch.float8_e4m3fn), nn.Parameter(torch.ones(4, 3)),
    torch.ones(1, 3).expand(4, 3),
])
def test_plain_numbers_of_any_width_are_read(tmp_path, tensor):
    torch.save(with_weight(tensor), tmp_path / "w.pth")
    model = network()
    assert "0.weight" in load_weights(model, tmp_path / "w.pth").matched
    assert torch.equal(model[0].weight, torch.ones(4, 3))


def test_a_tensor_that_claims_more_than_its_file_holds_is_refused(tmp_path):
    """One number under strides of zero stands for a hundred thousand million: what copies it would fill the memory."""
    torch.save(with_weight(torch.zeros(1).expand(10**6, 10**5)), tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"0\.weight claims 400,000,000,000 bytes, the whole file has \d"):
        load_weights(network(), tmp_path / "w.pth")


def test_a_zip_file_that_unpacks_to_much_more_is_refused_unread(tmp_path):
    path = tmp_path / "w.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("w/data.pkl", pickle.dumps(OrderedDict()))
        file.writestr("w/data/0", bytes(50_000_000))
    with pytest.raises(UsageError, match=r"unpacks to 50,000,0\d\d bytes, the whole file has 4\d,\d\d\d"):
        load_weights(network(), path)


def test_very_many_names_take_no_longer(tmp_path):
    """Prefixes are looked for in the names: one pass over them, not one for each prefix."""
    save_file({f"part{i}.{j}": torch.zeros(0) for i in range(10_000) for j in range(2)}, tmp_path / "w.safetensors")
    with read_or_refused("20,000 names"), pytest.raises(UsageError, match="another architecture"):
        load_weights(network(), tmp_path / "w.safetensors")


GPT = {"wte.weight": (7, 8), "wpe.weight": (5, 8)}


def readers() -> dict[str, tuple[Callable[[Path], object], dict[str, tuple[int, ...]]]]:
    """Every way that a weights file goes into a network: what reads it, and the tensors that it looks at first."""
    from didact.models import ResNet, ViT
    from didact.recipes.adapting import from_file
    from didact.recipes.vision import start_from, stem_of
    from didact.samplers.judging import Inception

    def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
        return {name: tuple(t.shape) for name, t in model.state_dict().items()}

    table = nn.ModuleDict({name.partition(".")[0]: nn.Embedding(*shape) for name, shape in GPT.items()})
    table.requires_grad_(False)
    front = {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}
    resnet = ResNet(depths=(1, 1), width=4, size=(16, 16), classes=5, **front)
    vit = ViT(size=(16, 16), patch=4, dim=6, depth=1, heads=2, hidden=8)
    return {
        "load_weights": (lambda path: load_weights(resnet, path), shapes(resnet)),
        "positions": (lambda path: load_weights(vit, path), shapes(vit) | {"encoder.pos_embedding": (1, 26, 6)}),
        "start_from": (lambda path: start_from(resnet, str(path), ""), shapes(resnet) | {"conv1.weight": (4, 1, 3, 3)}),
        "stem_of": (lambda path: stem_of(str(path), "resnet18", "auto"), {"conv1.weight": (4, 3, 7, 7)}),
        "from_file": (lambda path: from_file(table, path), GPT),
        "Inception": (Inception, {"fc.weight": (9, 2048), "fc.bias": (9,)}),
    }


@pytest.mark.parametrize("reader", ["load_weights", "positions", "start_from", "stem_of", "from_file", "Inception"])
def test_every_reader_survives_every_shape(tmp_path, reader):
    """Numbers, rows, empty tensors with absurd counts and other types under the names that it looks for."""
    read, shapes = readers()[reader]
    assert set(readers()) == {"load_weights", "positions", "start_from", "stem_of", "from_file", "Inception"}
    shaped = {name: torch.zeros(shape) for name, shape in shapes.items()}
    odd = [(), (0,), (1,), (10**9, 0), (0, 10**9), (1, 1, 6), (1, 0, 6), (0, 26, 6), (1, 26, 0), (1, 2, 3, 4), (0, 0, 0, 0), (4, 0, 3, 3)]
    types = [torch.float8_e4m3fn, torch.float16, torch.int8, torch.bool, torch.uint16]
    random = Random(f"{SEED}/{reader}")
    for case in range(60 if reader != "Inception" else 12):
        changed = random.choice(list(shapes))
        other = torch.zeros(random.choice(odd)) if case % 2 else shaped[changed].to(random.choice(types))
        save_file({**shaped, changed: other}, tmp_path / "w.safetensors")
        with read_or_refused(f"{changed} of {tuple(other.shape)} {other.dtype}"):
            read(tmp_path / "w.safetensors")
