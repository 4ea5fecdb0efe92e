"""Weights files that are damaged, odd or malicious: read, or refused in one line; nothing is executed, nothing hangs.
"""

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
from safetensors.torch import save_file
from torch import Tensor, nn

from didact.errors import UsageError
from didact.models.pretrained.weights import load_weights
from helpers.fuzzing import FUZZ_SECONDS, SEED, damage_bytes, damage_tree, reads_or_raises_usage_error

PICKLE_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt")


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


class MaliciousPickle:
    """Creates a file if it is executed."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def write_pickle(random: Random, folder: Path) -> Path:
    """PyTorch's own format, old and new, with damaged bytes."""
    path = folder / f"w{random.choice(PICKLE_SUFFIXES)}"
    torch.save(make_network().state_dict(), path, _use_new_zipfile_serialization=random.random() < 0.5)
    path.write_bytes(damage_bytes(random, path.read_bytes()))
    return path


def write_zip_with_damaged_pickle(random: Random, folder: Path) -> Path:
    """A valid zip file around a damaged pickle, which only the unpickler reads."""
    valid_path, path = folder / "whole.pth", folder / f"w{random.choice(PICKLE_SUFFIXES)}"
    torch.save(make_network().state_dict(), valid_path)
    with zipfile.ZipFile(valid_path) as valid_zip, zipfile.ZipFile(path, "w") as damaged_zip:
        for name in valid_zip.namelist():
            content = valid_zip.read(name)
            damaged_zip.writestr(name, damage_bytes(random, content) if name.endswith("data.pkl") else content)
    return path


def write_safetensors(random: Random, folder: Path) -> Path:
    """A header that disagrees with the data."""
    path = folder / "w.safetensors"
    save_file(make_network().state_dict(), path)
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.dumps(damage_tree(random, json.loads(raw[8 : 8 + size]))).encode()
    if random.random() < 0.3:
        header = damage_bytes(random, header)
    header_size = len(header) if random.random() < 0.8 else random.choice((0, 10**9, 2**63, 2**64 - 1))
    path.write_bytes(struct.pack("<Q", header_size) + header + raw[8 + size :])
    return path


def write_malicious_pickle(random: Random, folder: Path) -> Path:
    """A pickle that runs a command where it is allowed to."""
    path, payload = folder / f"w{random.choice(PICKLE_SUFFIXES)}", MaliciousPickle(folder / "owned")
    content = random.choice((payload, {"0.weight": payload}, [payload]))
    if random.random() < 0.5:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, random.choice((0, 2, 4))))
    return path


WRITERS = (write_pickle, write_zip_with_damaged_pickle, write_safetensors, write_malicious_pickle)


def check_random_damage(folder: Path, random: Random, name: str) -> None:
    write = random.choice(WRITERS)
    with reads_or_raises_usage_error(f"{write.__name__}, seed {name}"):
        load_weights(make_network(), write(random, folder))
    assert not (folder / "owned").exists(), f"{write.__name__}, seed {name}: its command was run"


def test_damaged_weights_are_read_or_refused(tmp_path):
    for case in range(1200):
        check_random_damage(tmp_path, Random(f"{SEED}/{case}"), f"{SEED}/{case}")


@pytest.mark.slow
def test_damaged_weights_are_read_or_refused_for_minutes(tmp_path):
    end, case = time.time() + FUZZ_SECONDS, 0
    while time.time() < end:
        check_random_damage(tmp_path, Random(f"long/{SEED}/{case}"), f"long/{SEED}/{case}")
        case += 1
    assert case > 100


def with_weight(tensor: Tensor) -> dict[str, Tensor]:
    return {**make_network().state_dict(), "0.weight": tensor}


@pytest.mark.parametrize(("make_tensor", "description"), [
    (lambda: torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8), "quantized"),
    (lambda: torch.ones(4, 3).to_sparse(), "sparse"),
    (lambda: torch.ones(4, 3).to_sparse_csr(), "sparse"),
    (lambda: torch.empty(4, 3, device="meta"), "without numbers"),
    (lambda: torch.ones(4, 3, dtype=torch.complex64), "complex"),
])
@pytest.mark.filterwarnings("ignore::UserWarning")                # warnings of PyTorch about such tensors
def test_quantized_sparse_and_complex_tensors_are_refused_by_name(tmp_path, make_tensor, description):
    """They look like tensors until they are copied."""
    path = tmp_path / "w.pth"
    torch.save(with_weight(make_tensor()), path)
    with pytest.raises(UsageError, match=rf"w\.pth: 0\.weight is {description}.*; save plain numbers") as error:
        load_weights(make_network(), path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tensor", [
    torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.bfloat16), torch.ones(4, 3, dtype=torch.int8),
    torch.ones(3, 4).T, torch.ones(4, 3).to(torch.float8_e4m3fn), nn.Parameter(torch.ones(4, 3)),
    torch.ones(1, 3).expand(4, 3),
])
def test_load_weights_reads_any_real_dtype(tmp_path, tensor):
    torch.save(with_weight(tensor), tmp_path / "w.pth")
    model = make_network()
    assert "0.weight" in load_weights(model, tmp_path / "w.pth").matched
    assert torch.equal(model[0].weight, torch.ones(4, 3))


def test_tensor_larger_than_its_file_is_refused(tmp_path):
    """One number with strides of zero stands for a hundred billion: a copy would fill the memory."""
    torch.save(with_weight(torch.zeros(1).expand(10**6, 10**5)), tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"0\.weight claims 400,000,000,000 bytes, the whole file has \d"):
        load_weights(make_network(), tmp_path / "w.pth")


def test_zip_bomb_of_weights_is_refused_unread(tmp_path):
    path = tmp_path / "w.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("w/data.pkl", pickle.dumps(OrderedDict()))
        file.writestr("w/data/0", bytes(50_000_000))
    with pytest.raises(UsageError, match=r"unpacks to 50,000,0\d\d bytes, the whole file has 4\d,\d\d\d"):
        load_weights(make_network(), path)


def test_many_tensor_names_are_matched_quickly(tmp_path):
    """Prefixes are found in one pass over the names, not one pass for each prefix."""
    save_file({f"part{i}.{j}": torch.zeros(0) for i in range(10_000) for j in range(2)}, tmp_path / "w.safetensors")
    with reads_or_raises_usage_error("20,000 names"), pytest.raises(UsageError, match="another architecture"):
        load_weights(make_network(), tmp_path / "w.safetensors")


GPT_SHAPES = {"wte.weight": (7, 8), "wpe.weight": (5, 8)}


def list_weight_readers() -> dict[str, tuple[Callable[[Path], object], dict[str, tuple[int, ...]]]]:
    """Every way that a weights file goes into a network: the reader, and the tensors that it reads first."""
    from didact.inference.evaluate_samples import InceptionFeatures
    from didact.models import ResNet, ViT
    from didact.recipes._initial_weights import load_published_weights
    from didact.recipes.cnn import infer_stem, load_pretrained

    def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
        return {name: tuple(t.shape) for name, t in model.state_dict().items()}

    embeddings = nn.ModuleDict({name.partition(".")[0]: nn.Embedding(*shape) for name, shape in GPT_SHAPES.items()})
    embeddings.requires_grad_(False)
    standardization = {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}
    resnet = ResNet(depths=(1, 1), width=4, size=(16, 16), num_classes=5, **standardization)
    vit = ViT(size=(16, 16), patch_size=4, embed_dim=6, depth=1, num_heads=2, ffn_dim=8)
    return {
        "load_weights": (lambda path: load_weights(resnet, path), shapes(resnet)),
        "positions": (lambda path: load_weights(vit, path), shapes(vit) | {"encoder.pos_embedding": (1, 26, 6)}),
        "start_from": (
            lambda path: load_pretrained(resnet, str(path), ""),
            shapes(resnet) | {"conv1.weight": (4, 1, 3, 3)},
        ),
        "stem_of": (lambda path: infer_stem(str(path), "resnet18", "auto"), {"conv1.weight": (4, 3, 7, 7)}),
        "from_file": (lambda path: load_published_weights(embeddings, path), GPT_SHAPES),
        "Inception": (InceptionFeatures, {"fc.weight": (9, 2048), "fc.bias": (9,)}),
    }


@pytest.mark.parametrize("reader", ["load_weights", "positions", "start_from", "stem_of", "from_file", "Inception"])
def test_every_weight_reader_handles_every_shape(tmp_path, reader):
    """Numbers, rows, empty tensors with absurd counts and other types under the names that it expects."""
    load_file, shapes = list_weight_readers()[reader]
    assert set(list_weight_readers()) == {
        "load_weights",
        "positions",
        "start_from",
        "stem_of",
        "from_file",
        "Inception",
    }
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items()}
    odd_shapes = [
        (),
        (0,),
        (1,),
        (10**9, 0),
        (0, 10**9),
        (1, 1, 6),
        (1, 0, 6),
        (0, 26, 6),
        (1, 26, 0),
        (1, 2, 3, 4),
        (0, 0, 0, 0),
        (4, 0, 3, 3),
    ]
    odd_dtypes = [torch.float8_e4m3fn, torch.float16, torch.int8, torch.bool, torch.uint16]
    random = Random(f"{SEED}/{reader}")
    for case in range(60 if reader != "Inception" else 12):
        changed_name = random.choice(list(shapes))
        changed_tensor = (
            torch.zeros(random.choice(odd_shapes)) if case % 2 else tensors[changed_name].to(random.choice(odd_dtypes))
        )
        save_file({**tensors, changed_name: changed_tensor}, tmp_path / "w.safetensors")
        with reads_or_raises_usage_error(f"{changed_name} of {tuple(changed_tensor.shape)} {changed_tensor.dtype}"):
            load_file(tmp_path / "w.safetensors")
