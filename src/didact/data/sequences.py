"""Running text: windows cut from one long stream of tokens, each asking for the next. What a language model reads."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from didact.data import tokens
from didact.data.core import SPLITS, Absent, Batch, Data, Decode
from didact.data.fetch import cache
from didact.data.folder import images
from didact.data.tokens import BytePairs, Characters, Tokenizer, Words
from didact.errors import UsageError, pick

WINDOW = 64              # tokens that are read at once, where a recipe does not choose
FEWEST = 20              # windows of which the three splits can be made
MAPPED = 64 * 2**20      # bytes of token numbers above which they are mapped from a file
SUFFIXES = (".txt", ".md")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Windows:
    """A split that is a part of a stream: example i is the `window` tokens from first + i · stride, its target the same one further on."""

    stream: Tensor           # (N,) token numbers of the whole text
    first: int
    stop: int                # of this split's part
    window: int
    stride: int
    device: torch.device = CPU

    def __len__(self) -> int:
        return max(0, (self.stop - self.first - 1 - self.window) // self.stride + 1)

    def gather(self, index: Tensor) -> Batch:
        at = self.first + index[:, None] * self.stride + torch.arange(self.window + 1, device=index.device)
        ids = self.stream[at]
        found = {"x": ids[:, :-1], "y": ids[:, 1:], "row": index}
        return {name: column.to(self.device, non_blocking=True) for name, column in found.items()}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        whole = torch.cat(list(chunks)).to(self.stream.device)
        return map(self.gather, whole.split([len(chunk) for chunk in chunks]))

    def decode(self, stored: Batch) -> Batch:
        return {name: column.long() for name, column in stored.items()}

    def to(self, device: torch.device) -> Self:
        """This split's part on the device, or beside it where it would take more than half of the free memory."""
        part = self.stream[self.first : self.stop]
        if device.type == "cuda" and part.numel() * part.element_size() > torch.cuda.mem_get_info(device)[0] // 2:
            return replace(self, device=device)
        return replace(self, stream=part.to(device), first=0, stop=len(part), device=device)

    def batch(self, index: Tensor) -> Batch:
        """Decoded rows, for looking at a few."""
        return self.decode(self.gather(index))


@dataclass(frozen=True)
class StreamEncoder:
    """Text as the tokens that a language model continues; `rate` is how many characters a token of the training text has."""

    tokenizer: Tokenizer
    window: int
    rate: float = 1.0

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": Tensor.long}

    def read(self, inputs: Sequence[str]) -> tuple[list[str], Batch]:
        """Beginnings to be continued: texts or .txt files. The last window of each, padded behind, and its length."""
        rows = [self.tokenizer.encode(opened(text))[-self.window :] for text in inputs]
        empty = [text for text, row in zip(inputs, rows, strict=True) if not row]
        if empty:
            raise UsageError(f"a text to be continued needs at least one token, got {empty[0]!r}")
        return list(inputs), {"x": padded(rows), "length": torch.tensor([len(row) for row in rows])}

    def spec(self) -> dict[str, Any]:
        return {"kind": "stream", "tokenizer": self.tokenizer.spec(), "window": self.window, "rate": self.rate}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "StreamEncoder":
        return cls(tokens.from_spec(spec["tokenizer"]), spec["window"], spec["rate"])


def padded(rows: Sequence[Sequence[int]], *, pad: int = 0, length: int | None = None) -> Tensor:
    """(N, L) int32, each row behind its tokens filled with `pad`."""
    x = np.full((len(rows), length or max(map(len, rows), default=1)), pad, dtype=np.int32)
    for i, row in enumerate(rows):
        x[i, : len(row)] = row[: x.shape[1]]
    return torch.from_numpy(x)


def numbered(tokenizer: Tokenizer, text: str) -> Tensor:
    """The token numbers of a long text, in the smallest integers that hold them."""
    kind = next(k for k in (np.uint8, np.int16, np.int32) if len(tokenizer.names) - 1 <= np.iinfo(k).max)
    if isinstance(tokenizer, Characters):                    # a table look-up: a million characters a blink
        codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        table = np.zeros(int(codes.max()) + 1, dtype=kind)
        for c, i in tokenizer.number.items():
            table[ord(c)] = i
        return torch.from_numpy(table[codes])
    return torch.from_numpy(np.array(tokenizer.encode(text), dtype=kind))


def mapped(ids: Tensor, digest: str) -> Tensor:
    """The same numbers from a file in the cache, which the system pages in as they are read; in memory where none can be written."""
    path = cache("streams") / f"{digest}.bin"
    try:
        if not path.is_file() or path.stat().st_size != ids.numel() * ids.element_size():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(f".{os.getpid()}")
            ids.numpy().tofile(beside)
            beside.replace(path)
        return torch.from_file(str(path), shared=False, size=len(ids), dtype=ids.dtype)
    except OSError:
        return ids


FIT: dict[str, Callable[[str, int], Tokenizer]] = {
    "characters": lambda text, vocabulary: Characters.fit([text]),
    "words": lambda text, vocabulary: Words.fit([text], vocabulary, lower=False, least=1),
    "bpe": lambda text, vocabulary: BytePairs.fit([text], vocabulary),
}


def running_text(
    name: str, text: str, *, kind: tokens.Kind = "characters", vocabulary: int = 4096, window: int = WINDOW, notes: Sequence[str] = ()
) -> Data:
    """The first nine tenths to learn from, then half a tenth each for validation and test: no tested line was read before.

    Tokens other than characters are learned from the first part alone.
    """
    known = text if kind == "characters" else text[: len(text) * 9 // 10]
    tokenizer = pick("tokenizer", kind, FIT)(known, vocabulary) if text else Characters("")
    ids = numbered(tokenizer, text) if text else torch.zeros(0)
    n = (len(ids) - 1) // window
    if n < FEWEST:
        raise UsageError(
            f"{name} holds {len(text):,} characters, {len(ids):,} tokens; a running text needs at least {FEWEST * window + 1}"
            " (many short texts with labels: save it as CSV)"
        )
    digest = blake2b(ids.numpy().tobytes() + repr(tokenizer.spec()).encode(), digest_size=8).hexdigest()
    stream = mapped(ids, digest) if ids.numel() * ids.element_size() > MAPPED else ids
    held = max(1, n // 20)
    ends = [0, n - 2 * held, n - held, n]
    indices = {part: torch.arange(a, b) for part, (a, b) in zip(SPLITS, pairwise(ends), strict=True)}
    train, validation, test = (Windows(stream, a * window, b * window + 1, window, window) for a, b in pairwise(ends))
    about = f"{len(text):,} characters as {len(ids):,} tokens ({kind}, {len(tokenizer.names):,} different)"
    return Data(
        name=name, kind="text", task="language", shape=(window,), labels=tokenizer.names, target="next token",
        encoder=StreamEncoder(tokenizer, window, len(text) / len(ids)), indices=indices, fingerprint=digest,
        source={"name": name}, notes=(about, *notes), train=train, validation=validation, test=test,
    )


def windows(data: Data, window: int, *, stride: int | None = None) -> Data:
    """The same text in windows of another length; training ones may overlap, beginning every `stride` tokens."""
    if not isinstance(data.encoder, StreamEncoder):
        raise UsageError(f"windows are cut from running text, but {data.name!r} is not: give a .txt file or a folder of them")
    parts: dict[str, Any] = {}
    for part in SPLITS:
        step = stride if stride and part == "train" else window
        split = data.split(part)
        if isinstance(split, Windows):
            parts[part] = replace(split, window=window, stride=step)
        else:
            parts[part] = Absent(max(1, len(split) * data.encoder.window // step))
        if not len(parts[part]):
            raise UsageError(f"the {part} part of {data.name!r} is shorter than a context of {window} tokens; choose a smaller one")
    return replace(data, shape=(window,), encoder=replace(data.encoder, window=window), **parts)


def retold(data: Data, kind: tokens.Kind, *, vocabulary: int = 4096) -> Data:
    """The same text in other tokens."""
    if not isinstance(data.encoder, StreamEncoder) or not isinstance(data.train, Windows):
        raise UsageError(f"--tokens is for running text, but {data.name!r} is {data.kind} for {data.task}; leave it out")
    text = data.encoder.tokenizer.decode(data.train.stream.tolist())
    return running_text(data.name, text, kind=kind, vocabulary=vocabulary, notes=data.notes[1:])


def is_text(path: str | Path) -> bool:
    """Whether a person's word means a file of running text, or a folder that holds such and no images."""
    where = Path(path)
    if where.is_dir():
        return bool(files(where)) and not images(where)[0]
    return where.name.lower().endswith(SUFFIXES)


def files(folder: Path) -> list[Path]:
    """The texts below a folder, sorted; hidden ones do not count."""
    return sorted(p for p in folder.rglob("*") if p.name.lower().endswith(SUFFIXES) and not p.name.startswith(".") and p.is_file())


def load(path: Path) -> Data:
    """One's own book, or a folder of them, one behind the other."""
    found = files(path) if path.is_dir() else [path]
    text = "\n\n".join(map(read, found))
    notes = [f"{len(found)} texts, in the order of their names"] if len(found) > 1 else []
    return replace(running_text(str(path), text, notes=notes), name=path.stem)


def read(path: Path) -> str:
    """A text file; a byte order mark and Windows' line ends are taken off."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read the text {path}: {error.strerror}") from None


def opened(text: str) -> str:
    """A text as it is, or what the file of that name holds."""
    return read(Path(text)) if text.lower().endswith(SUFFIXES) and os.path.isfile(text) else text
