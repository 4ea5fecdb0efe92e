"""A look at the machine: what is there, what is not, and what that means."""

import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from didact.errors import counted

OPTIONAL = {
    "tensorboardX": "TensorBoard events of a run (pip install 'didact[logs]')",
    "gguf": "decoders in GGUF files (pip install 'didact[gguf]')",
}
NEEDED = ("torch", "numpy", "click", "rich", "safetensors", "PIL", "pandas", "sklearn")


def examine() -> list[dict[str, Any]]:
    """Findings in the order in which they matter: what was looked at, what was found, whether all is well, what to do."""
    return [*python(), *accelerators(), *memory(), *packages(), *data(), *writable()]


def finding(what: str, found: str, *, ok: bool = True, then: str = "") -> dict[str, Any]:
    return {"what": what, "found": found, "ok": ok, "then": then}


def python() -> list[dict[str, Any]]:
    found = platform.python_version()
    old = tuple(map(int, platform.python_version_tuple()[:2])) < (3, 11)
    return [finding("python", found, ok=not old, then="didact needs Python 3.11 or newer" if old else "")]


def accelerators() -> list[dict[str, Any]]:
    import torch

    threads, cores = counted(torch.get_num_threads(), "thread"), counted(os.cpu_count() or 1, "core")
    found = [finding("torch", f"{torch.__version__}, {threads} on {cores}")]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            found.append(finding(f"cuda:{number}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB"))
    else:
        built = torch.version.cuda is not None
        why = "torch sees no CUDA device: check the driver with nvidia-smi" if built else "this torch is built without CUDA"
        found.append(finding("cuda", "none", then=f"training runs on the CPU; {why}"))
    cpu = torch.backends.cpu.get_cpu_capability()
    found.append(finding("cpu", cpu, then="" if "AMX" in cpu else "bf16 is emulated on this CPU and slow: fp32 is used"))
    return found


def memory() -> list[dict[str, Any]]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return [finding("memory", "unknown")]
    short = free < 2
    return [finding("memory", f"{free:.1f} of {total:.1f} GiB free", ok=not short, then="data beyond that are streamed" if short else "")]


def packages() -> list[dict[str, Any]]:
    found = []
    for name in NEEDED:
        there = importlib.util.find_spec(name) is not None
        found.append(finding(name, installed(name) if there else "missing", ok=there, then="" if there else f"pip install {name}"))
    for name, purpose in OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        found.append(finding(name, installed(name) if there else "not installed", then="" if there else f"without it: no {purpose}"))
    return found


def installed(module: str) -> str:
    names = {"PIL": "pillow", "sklearn": "scikit-learn"}
    try:
        return version(names.get(module, module))
    except PackageNotFoundError:
        return "there"


def data() -> list[dict[str, Any]]:
    from didact.data.fetch import missing
    from didact.data.load import sources

    folder = os.environ.get("DIDACT_DATA")
    there = folder is not None and Path(folder).is_dir()
    found = [
        finding("DIDACT_DATA", folder or "not set", ok=folder is None or there, then="" if there else
                "that folder does not exist" if folder else "public sets come from the cache or are downloaded")
    ]
    for source in sources().values():
        if source.files:
            lacking = missing(source)
            then = f"will be downloaded when used: {', '.join(f.name for f in lacking)}" if lacking else ""
            found.append(finding(f"data {source.name}", "to be downloaded" if lacking else "at hand", then=then))
    return found


def writable() -> list[dict[str, Any]]:
    here = Path.cwd()
    ok = os.access(here, os.W_OK)
    free = shutil.disk_usage(here).free / 2**30
    then = "" if ok and free > 1 else "runs cannot be written here: use --runs FOLDER"
    return [finding("runs folder", f"{here / 'runs'}, {free:.0f} GiB free", ok=ok and free > 0.1, then=then)]
