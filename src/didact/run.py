"""A run: a folder with everything that rebuilds, resumes and explains one training.

    run.json             recipe, arguments, settings, versions, seed, device, git state, data, layers, results
    metrics.jsonl        a line for each logged step and each evaluation
    model.safetensors    the weights of the best validation state
    state.safetensors    the last checkpoint, for `resume`
    indices.safetensors  the examples of the training, validation and test splits
    test.safetensors     outputs for each test example, for the report
    examples.safetensors the test examples with the lowest and highest loss
    gallery.safetensors  pictures of what was learned
    training_samples.safetensors  samples from the same noise at several steps
    report.html          the report, one file
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didact import files
from didact.errors import UsageError, shorten, suggest_nearest
from didact.options import to_json_value
from didact.schema import METRICS_LINE, RUN_METADATA, find_mismatch, parse_json

if TYPE_CHECKING:
    from torch import Tensor

LATEST = "latest"
UNLINKED = getattr(os, "O_NOFOLLOW", 0)  # symbolic links in a run's folder are not followed when writing


@dataclass(frozen=True)
class Run:
    """One folder. Reading it never needs the data or a GPU."""

    folder: Path

    @classmethod
    def at_new_path(cls, root: Path | str, recipe: str) -> Run:
        """A run that does not exist yet: runs/<recipe>/<time>-<id>."""
        return cls(Path(root) / recipe / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}")

    @classmethod
    def create(cls, root: Path | str, recipe: str) -> Run:
        """A new, empty folder."""
        run = cls.at_new_path(root, recipe)
        run.make_folder()
        return run

    @classmethod
    def open(cls, location: Path | str, root: Path | str = "runs") -> Run:
        """A run by its folder, by the end of its name, or `latest`."""
        folder = Path(location)
        if not os.path.isdir(folder):  # Path.is_dir raises where a name is too long
            folder = find_run(str(location), Path(root))
        if not (folder / "run.json").is_file():
            raise UsageError(
                f"{folder} is not a run: it holds no run.json; give a run's folder, the end of its name, or {LATEST}"
            )
        run = cls(folder)
        _ = run.metadata  # refuses a run.json that does not describe a run
        return run

    @property
    def metadata(self) -> dict[str, Any]:
        """run.json."""
        metadata: dict[str, Any] = files.read_json(self.folder / "run.json", RUN_METADATA)
        return metadata

    @property
    def status(self) -> str:
        """running, finished, stopped, diverged; or killed, if run.json says running and no process holds the lock."""
        noted: str = self.metadata.get("status", "")
        return "killed" if noted == "running" and not self.is_held() else noted

    def initialize(self, metadata: dict[str, Any], indices: dict[str, Tensor]) -> None:
        """Write the first files, all of them or no folder at all."""
        self.make_folder()
        try:
            self.save("indices", indices)  # before run.json, which makes the folder a run
            self.update_metadata(**metadata)
        except UsageError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def make_folder(self) -> None:
        """Make the folder, which must be new."""
        try:
            str(self.folder).encode()                   # safetensors opens no other path
        except UnicodeEncodeError:
            raise UsageError(f"--runs expects a path in UTF-8, got {self.folder}; choose another place") from None
        try:
            self.folder.mkdir(parents=True)
            files.sync_folder(self.folder.parent)
        except FileExistsError:
            raise UsageError(
                f"{self.folder} exists already, of a run that started in the same second; start again"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {self.folder}: {files.reason(error, 'choose another place with --runs', here=True)}"
            ) from error

    def update_metadata(self, **entries: Any) -> None:
        """Add entries to run.json."""
        path = self.folder / "run.json"
        files.write_json(path, (self.metadata if path.exists() else {}) | entries)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for training. The system releases the lock however the process ends."""
        import fcntl

        lock = os.open(self.folder, os.O_RDONLY)  # the folder itself: its files are replaced while training
        try:
            for patience in range(20, -1, -1):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not patience:
                        raise UsageError(
                            f"{self.folder} is being trained by another process; wait for it, or stop it first"
                        ) from None
                time.sleep(0.01)  # another process may be in `is_held`, which releases the lock at once
            files.remove_unfinished(self.folder)
            yield
        finally:
            os.close(lock)

    def is_held(self) -> bool:
        """Whether a process trains in this folder. The shared lock lets several processes ask at once."""
        import fcntl

        lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # held; or a file system without locks, where run.json is all there is
            return True
        finally:
            os.close(lock)
        return False

    @property
    def log_size(self) -> int:
        path = self.folder / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    @contextmanager
    def open_log(self) -> Iterator[int]:
        """The descriptor of metrics.jsonl, to append to it; a symbolic link in its place is not followed."""
        path = self.folder / "metrics.jsonl"
        try:
            descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_APPEND | UNLINKED, 0o666)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            room = "free space, then " if error.errno in files.NO_SPACE else ""
            then = f"{room}continue with: didact resume {self.folder}"
            raise UsageError(f"cannot write {path}: {error.strerror}; {then}") from error

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Append lines to metrics.jsonl."""
        lines = "".join(json.dumps(to_json_value(row), allow_nan=False) + "\n" for row in rows).encode()
        with self.open_log() as descriptor:
            while lines:
                lines = lines[os.write(descriptor, lines):]

    def sync_log(self) -> None:
        """Flush metrics.jsonl to the disk, before a checkpoint counts on its lines."""
        if self.has("metrics.jsonl"):
            with self.open_log() as descriptor:
                os.fsync(descriptor)

    def truncate_log(self, size: int) -> int:
        """Drop lines logged after the checkpoint; returns how many bytes logged before it are missing.

        If some are, the last line may be incomplete: it is dropped, or the next line would continue it.
        """
        if not self.has("metrics.jsonl"):
            return size
        with self.open_log() as descriptor:
            actual_size = self.log_size
            keep = size if actual_size >= size else (self.folder / "metrics.jsonl").read_bytes().rfind(b"\n") + 1
            if actual_size > keep:
                os.ftruncate(descriptor, keep)
        return max(0, size - actual_size)

    def cut_log_after(self, step: int) -> None:
        """Drop lines of later steps."""
        later = [number for number, row in enumerate(self.metrics) if row["step"] > step]
        if later:
            lines = (self.folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
            self.truncate_log(len(b"".join(lines[: later[0]])))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line cut short by a crash is skipped."""
        path = self.folder / "metrics.jsonl"
        try:
            *lines, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror}); the run's folder is damaged: train anew"
            ) from error
        return [self.read_line(path, number, line) for number, line in enumerate(lines, 1)]

    @staticmethod
    def read_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
        try:
            row: dict[str, Any] = parse_json(line.decode())
            wrong = find_mismatch(row, METRICS_LINE)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            raise UsageError(f"{path}, line {number}: {wrong}; the run's folder is damaged: train anew")
        return row

    def save(self, name: str, tensors: dict[str, Tensor], **header: str) -> None:
        # one string alone: safetensors writes several in any order, and equal runs have equal bytes
        files.write_tensors(self.folder / f"{name}.safetensors", tensors, **(header or {"file": name}))

    def load(self, name: str) -> dict[str, Tensor]:
        path = self.folder / f"{name}.safetensors"
        tensors, header = files.read_tensors(path)
        if (written_as := header.get("file", name)) != name:
            raise UsageError(f"{path} holds what belongs into {written_as}.safetensors; the run's folder is damaged")
        return tensors

    def read_header(self, name: str) -> dict[str, str]:
        """The header strings of a tensor file."""
        return files.read_header(self.folder / f"{name}.safetensors")

    def example_names(self, which: str) -> list[str]:
        """Names of the saved test examples, "worst" or "best": the user's file or line, else their number."""
        names: list[str] = self.metadata.get("examples", {}).get(which, [])
        examples = {} if names else self.load("examples")
        return names or [f"test example {row:,}" for row in (examples[which].tolist() if which in examples else ())]

    def load_indices(self) -> dict[str, Tensor]:
        """The indices of each split."""
        from didact.data.core import SPLITS

        indices = self.load("indices")
        missing = [part for part in SPLITS if part not in indices]
        if missing:
            raise UsageError(
                f"{self.folder / 'indices.safetensors'} lacks {', '.join(missing)}; the run's folder is damaged: train "
                "anew"
            )
        return indices

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def save_state(self, state: dict[str, Any]) -> None:
        files.write_tree(self.folder / "state.safetensors", state)

    def load_state(self) -> dict[str, Any]:
        state: dict[str, Any] = files.read_tree(self.folder / "state.safetensors")
        return state


def folders(root: Path) -> list[Path]:
    """Every run below a folder, the oldest first."""
    return sorted((p.parent for p in root.glob("*/*/run.json")), key=lambda p: p.name) if os.path.isdir(root) else []


def find_run(name: str, root: Path) -> Path:
    """The run that a short name means: `latest`, `mlp/latest`, `runs/mlp/latest`, or the end of a folder's name."""
    runs = folders(root)
    name = name.removeprefix(f"{root}/")
    recipe, _, last = name.rpartition("/")
    if last == LATEST:
        return _find_latest_run(runs, recipe, root)
    matches = [r for r in runs if str(r).endswith(name)]
    if len(matches) != 1:
        problem = f"{len(matches)} runs end in" if matches else "no run named"
        choices = [str(r.relative_to(root)) for r in matches or runs] + [LATEST]
        raise UsageError(f"{problem} {shorten(name)!r} under {shorten(str(root))}; {suggest_nearest(name, choices)}")
    return matches[0]


def _find_latest_run(runs: list[Path], recipe: str, root: Path) -> Path:
    """The last run of a recipe, or of all. Runs that were trained as the source of another do not count."""
    candidates = [r for r in runs if not recipe or r.parent.name == recipe]
    for run in sorted(candidates, key=lambda r: (r / "run.json").stat().st_mtime, reverse=True):
        if "trained_for" not in Run(run).metadata:
            return run
    other_recipes = sorted({r.parent.name for r in runs if r not in candidates})
    if not other_recipes:
        raise UsageError(f"there is no run under {shorten(str(root))} yet; train one first")
    raise UsageError(
        f"no run of {recipe!r} under {root}, which holds runs of {', '.join(other_recipes)}; train one first"
    )


def environment() -> dict[str, Any]:
    """Versions, machine and git state: what else could make a difference."""
    import torch

    packages: dict[str, str | None] = {}
    for package in ("didact", "torch", "numpy", "scikit-learn", "pandas"):
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = None
    return {
        "versions": {"python": platform.python_version(), **packages},
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "git": git_state(),
        "command": _get_command(),
    }


def _get_command() -> str:
    import shlex

    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def git_state(folder: Path | None = None, *, excluded: str = "") -> dict[str, Any] | None:
    """Commit and whether files differ from it, of the working folder, or of another; None outside of git."""
    def run_git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=5, check=True, cwd=folder
        ).stdout.strip()

    try:
        # installed into an environment inside of a repository
        if folder is not None and not run_git("ls-files", "."):
            return None
        pathspecs = [".", *([f":(exclude){excluded}"] if excluded else [])] if folder else []
        return {"commit": run_git("rev-parse", "HEAD"), "dirty": bool(run_git("status", "--porcelain", *pathspecs))}
    except (OSError, subprocess.SubprocessError):
        return None
