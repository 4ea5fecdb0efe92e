"""Atomic files: written beside, flushed, then renamed. Trees of tensors without pickle.

torch is imported where tensors are used: reading JSON, as a list of runs does, need not wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from didact.errors import UsageError, refuse_damaged
from didact.options import to_json_value
from didact.schema import ANY, Shape, find_mismatch, parse_json

if TYPE_CHECKING:
    from torch import Tensor

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
WRONG_PLACE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, flush it to the disk, then rename it in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent, path.name)
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        advice = "choose another place with --runs or --output"
        raise UsageError(f"cannot write {path}: {reason(error, advice)}") from error


def reason(error: OSError, then: str, *, here: bool = False) -> str:
    """The system's message, with advice: `then` where the place is at fault, free space where there is none."""
    hint = (
        f"; free space, or {then}"
        if error.errno in NO_SPACE
        else f"; {then}"
        if here or error.errno in WRONG_PLACE
        else ""
    )
    return f"{error.strerror or error}{hint}"


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk: without it a power cut may undo a rename whose file was flushed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path, name: str = "") -> None:
    """Remove what killed writes left in a folder; with a name, those of that file only.

    safetensors first fills a `.tmpXXXXXX` of its own, which does not name its writer: those are removed only without a
    name, by the process that holds the lock of the folder.
    """
    for leftover in folder.glob(f".{name or '*'}.*.tmp"):
        writer = leftover.name.removesuffix(".tmp").rpartition(".")[2]
        if not (writer.isdigit() and _is_running(int(writer))):
            leftover.unlink(missing_ok=True)
    for leftover in () if name else folder.glob(".tmp??????"):
        leftover.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    """Whether a process runs. False for this one: it is not in the middle of a write when it asks."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, as another user
        return True
    return True


def write_text(path: Path, text: str) -> None:
    atomic_write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    atomic_write(path, lambda temporary: temporary.write_bytes(content))


def write_json(path: Path, value: Any) -> None:
    write_text(path, to_json(value, indent=1) + "\n")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that UTF-8 can hold: lone surrogates of file names that are not UTF-8 are written as escapes."""
    text = json.dumps(to_json_value(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()


def read_json(path: Path, shape: Shape = ANY) -> Any:
    """The content of a JSON file, checked against a shape."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; the run's folder is not whole: put it back, or train anew") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); the run's folder is damaged: train anew") from error
    if mismatch := find_mismatch(value, shape):
        raise UsageError(
            f"{path}{' ' if mismatch.startswith('lacks') else ': '}{mismatch}; the run's folder is damaged: train anew"
        )
    return value


def write_tensors(path: Path, tensors: dict[str, Tensor], **header: str) -> None:
    """Named tensors as safetensors, with strings in the header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def write(temporary: Path) -> None:
        try:
            save_file({k: v.detach().contiguous() for k, v in tensors.items()}, temporary, metadata=header or None)
        except SafetensorError as error:  # safetensors wraps the system's error in its own class
            number = re.search(r"os error (\d+)", str(error))
            raise (OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))) from error

    atomic_write(path, write)


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header strings."""
    with _open_tensors(path, device) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118 (not a dict)


def read_header(path: Path) -> dict[str, str]:
    """The header strings only."""
    with _open_tensors(path) as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _open_tensors(path: Path, device: str = "cpu") -> Iterator[Any]:
    from safetensors import safe_open

    if not path.is_file():
        raise UsageError(f"{path} is missing; the run's folder is not whole: put it back, or train anew")
    with refuse_damaged(path, "a safetensors file"), safe_open(path, "pt", device=device) as file:
        yield file


def write_tree(path: Path, tree: Any) -> None:
    """Nested dicts and lists of tensors and plain values: tensors as safetensors, the skeleton as JSON in the header.
    """
    import torch

    tensors: dict[str, Tensor] = {}
    skeleton = _split_tensors(tree, tensors)
    tensors.setdefault("_", torch.zeros(1))  # safetensors needs at least one
    write_tensors(path, tensors, tree=json.dumps(skeleton))


def _split_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    from torch import Tensor

    if isinstance(tree, Tensor):
        key = f"t{len(tensors)}"
        tensors[key] = tree.detach().cpu().clone()
        return {"tensor": key}
    if isinstance(tree, dict):
        return {"dict": [[_split_tensors(k, tensors), _split_tensors(v, tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        return {"list" if isinstance(tree, list) else "tuple": [_split_tensors(v, tensors) for v in tree]}
    assert tree is None or isinstance(tree, bool | int | float | str), f"{type(tree)} cannot be saved"
    return tree


def read_tree(path: Path) -> Any:
    tensors, header = read_tensors(path)
    try:
        return _join_tensors(parse_json(header["tree"]), tensors)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{path} holds no state to resume from ({error!r}); it is damaged: train anew") from error


def _join_tensors(node: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    (kind, content), = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_join_tensors(k, tensors): _join_tensors(v, tensors) for k, v in content}
    values = [_join_tensors(v, tensors) for v in content]
    return values if kind == "list" else tuple(values)
