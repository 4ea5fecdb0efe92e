"""Checks of the machine for `didact doctor`: Python, PyTorch, GPUs, memory, packages, datasets, disk."""

import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from didact.errors import format_count

_OPTIONAL_PACKAGES = {
    "tensorboardX": "TensorBoard logs of a run (pip install 'didact[logs]')",
    "openpyxl": "tables in Excel workbooks (pip install 'didact[tables]')",
    "statsmodels": "exponential smoothing among the baselines of time series (pip install 'didact[series]')",
    "gguf": "published decoders in GGUF files (pip install 'didact[gguf]')",
}
_REQUIRED_PACKAGES = ("numpy", "click", "rich", "safetensors", "PIL", "pandas", "sklearn")  # and torch, by itself


def run_checks() -> list[dict[str, Any]]:
    """The findings in order of weight, each with check, result, ok and advice."""
    return [
        *_check_python(),
        *_check_torch(),
        *_check_memory(),
        *_check_packages(),
        *_check_data(),
        *_check_run_folder(),
    ]


def _make_finding(name: str, result: str, *, ok: bool = True, advice: str = "") -> dict[str, Any]:
    return {"check": name, "result": result, "ok": ok, "advice": advice}


def _check_python() -> list[dict[str, Any]]:
    python_version = platform.python_version()
    is_too_old = tuple(map(int, platform.python_version_tuple()[:2])) < (3, 11)
    return [
        _make_finding(
            "python",
            python_version,
            ok=not is_too_old,
            advice="didact needs Python 3.11 or newer" if is_too_old else "",
        )
    ]


def _check_torch() -> list[dict[str, Any]]:
    if importlib.util.find_spec("torch") is None:
        return [_make_finding("torch", "missing", ok=False, advice="install it as pytorch.org says for this machine")]
    import torch

    threads, cores = format_count(torch.get_num_threads(), "thread"), format_count(os.cpu_count() or 1, "core")
    findings = [_make_finding("torch", f"{torch.__version__}, {threads} on {cores}")]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            findings.append(_make_finding(f"cuda:{index}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB"))
    else:
        has_cuda_build = torch.version.cuda is not None
        reason = (
            "PyTorch sees no CUDA device: check the driver with nvidia-smi"
            if has_cuda_build
            else "this PyTorch is built without CUDA"
        )
        findings.append(_make_finding("cuda", "none", advice=f"training runs on the CPU; {reason}"))
    cpu = torch.backends.cpu.get_cpu_capability()
    findings.append(
        _make_finding("cpu", cpu, advice="" if "AMX" in cpu else "bf16 is slow on this CPU: fp32 is the default")
    )
    return findings


def _check_memory() -> list[dict[str, Any]]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return [_make_finding("memory", "unknown")]
    is_short = free < 2
    return [
        _make_finding(
            "memory",
            f"{free:.1f} of {total:.1f} GiB free",
            ok=not is_short,
            advice="larger datasets are streamed from disk" if is_short else "",
        )
    ]


def _check_packages() -> list[dict[str, Any]]:
    findings = []
    for name in _REQUIRED_PACKAGES:
        is_installed = importlib.util.find_spec(name) is not None
        findings.append(
            _make_finding(
                name,
                _get_version(name) if is_installed else "missing",
                ok=is_installed,
                advice="" if is_installed else f"pip install {name}",
            )
        )
    for name, purpose in _OPTIONAL_PACKAGES.items():
        is_installed = importlib.util.find_spec(name) is not None
        findings.append(
            _make_finding(
                name,
                _get_version(name) if is_installed else "not installed",
                advice="" if is_installed else f"optional: {purpose}",
            )
        )
    return findings


def _get_version(module: str) -> str:
    names = {"PIL": "pillow", "sklearn": "scikit-learn"}
    try:
        return version(names.get(module, module))
    except PackageNotFoundError:
        return "installed"


def _check_data() -> list[dict[str, Any]]:
    from didact.data.datasets.download import find_missing_files
    from didact.data.load import list_datasets

    folder = os.environ.get("DIDACT_DATA")
    is_folder = folder is not None and Path(folder).is_dir()
    findings = [
        _make_finding("DIDACT_DATA", folder or "not set", ok=folder is None or is_folder, advice="" if is_folder else
                "that folder does not exist" if folder else "public datasets come from the cache or are downloaded")
    ]
    for source in list_datasets().values():
        if source.files:
            missing_files = find_missing_files(source)
            advice = f"{format_count(len(missing_files), 'file')} downloaded on first use" if missing_files else ""
            findings.append(
                _make_finding(f"data {source.name}", "not here yet" if missing_files else "available", advice=advice)
            )
    return findings


def _check_run_folder() -> list[dict[str, Any]]:
    folder = Path.cwd()
    is_writable = os.access(folder, os.W_OK)
    free = shutil.disk_usage(folder).free / 2**30
    advice = "" if is_writable and free > 1 else "runs cannot be written here: give --runs FOLDER"
    return [
        _make_finding(
            "runs folder", f"{folder / 'runs'}, {free:.0f} GiB free", ok=is_writable and free > 0.1, advice=advice
        )
    ]
