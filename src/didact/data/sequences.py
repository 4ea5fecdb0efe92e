"""Running text: windows cut from one long stream of tokens, each asking for the next. What a language model reads."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data import published, tokens
from didact.data.core import SPLITS, Absent, Batch, Data, Decode
from didact.data.fetch import Progress, cache
from didact.data.folder import images
from didact.data.readers import inside
from didact.data.tokens import BytePairs, Characters, Tokenizer, Words
from didact.errors import UsageError, pick
from didact.files import replace_with as write_beside
from didact.files import write_text

WINDOW = 64              # tokens that are read at once, where a recipe does not choose
FEWEST = 20              # windows of which the three splits can be made
LONG = 4 * 2**20         # characters from which on token numbers are mapped from a file
PIECE = 2**20            # characters that are cut into tokens at once
BORDER = re.compile(r"(?<=\S)(?=[ \n])")
VERSION = 1              # of what is kept in the cache
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


def narrow(tokenizer: Tokenizer) -> type[np.integer[Any]]:
    """The smallest integers that hold the numbers of its tokens."""
    return next(k for k in (np.uint8, np.int16, np.int32) if len(tokenizer.names) - 1 <= np.iinfo(k).max)


def cut(text: str) -> Iterator[str]:
    """Pieces of about a million characters that end before a space or a line end behind a word: no token reaches across such a border."""
    start = 0
    while start < len(text):
        border = BORDER.search(text, min(start + PIECE, len(text)))
        stop = border.start() if border else len(text)
        yield text[start:stop]
        start = stop


def told(tokenizer: Tokenizer, text: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """Piece by piece how many characters it has, and its token numbers."""
    kind = narrow(tokenizer)
    table = np.zeros(0, dtype=kind)
    if isinstance(tokenizer, Characters):                    # a table look-up: a million characters a blink
        table = np.zeros(max(map(ord, tokenizer.characters), default=0) + 1, dtype=kind)
        for c, i in tokenizer.number.items():
            table[ord(c)] = i
    for piece in cut(text):
        if len(table):
            yield len(piece), table[np.frombuffer(piece.encode("utf-32-le"), dtype=np.uint32)]
        else:
            yield len(piece), np.array(tokenizer.encode(piece), dtype=kind)


def numbered(tokenizer: Tokenizer, text: str) -> Tensor:
    """The token numbers of a text, in the smallest integers that hold them."""
    return torch.from_numpy(np.concatenate([ids for _, ids in told(tokenizer, text)] or [np.zeros(0, dtype=narrow(tokenizer))]))


FIT: dict[str, Callable[[str, int], Tokenizer]] = {
    "characters": lambda text, vocabulary: Characters.fit([text]),
    "words": lambda text, vocabulary: Words.fit(cut(text), vocabulary, lower=False, least=1),
    "bpe": lambda text, vocabulary: BytePairs.fit(cut(text), vocabulary),
    "gpt2": lambda text, vocabulary: published.gpt2(),
}


def fitted(text: str, kind: tokens.Kind, vocabulary: int) -> Tokenizer:
    """Tokens other than characters are learned from the first nine tenths, those of the training part."""
    known = text if kind == "characters" else text[: len(text) * 9 // 10]
    return pick("tokenizer", kind, FIT)(known, vocabulary) if text else Characters("")


def streamed(name: str, text: str, kind: tokens.Kind, vocabulary: int, progress: Progress | None) -> tuple[Tokenizer, Tensor]:
    """The tokens of a text and their numbers. Those of a long one lie in a file of the cache, found again by the text's digest.

    The system pages them in as they are read; where no file can be written, they are in memory.
    """
    if len(text) < LONG:
        tokenizer = fitted(text, kind, vocabulary)
        return tokenizer, numbered(tokenizer, text)
    digest = blake2b(f"{VERSION} {kind} {vocabulary}".encode(), digest_size=16)
    for piece in cut(text):
        digest.update(piece.encode())
    path = cache("streams") / f"{digest.hexdigest()}.bin"
    with suppress(OSError, ValueError, KeyError):            # absent, cut short, or written otherwise: made anew
        return kept(path)
    tokenizer = fitted(text, kind, vocabulary)

    def write(beside: Path) -> None:
        done = 0
        with beside.open("wb") as file:
            for characters, ids in told(tokenizer, text):
                ids.tofile(file)
                done += characters
                if progress:
                    progress(f"{name} in {kind}", done, len(text))

    try:
        write_beside(path, write)
        write_text(path.with_suffix(".json"), json.dumps(
            {"tokenizer": tokenizer.spec(), "type": narrow(tokenizer).__name__, "bytes": path.stat().st_size}
        ))
        return kept(path)
    except UsageError:
        return tokenizer, numbered(tokenizer, text)


def kept(path: Path) -> tuple[Tokenizer, Tensor]:
    """What was written of a text before."""
    facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    kind, size = getattr(torch, str(facts["type"])), path.stat().st_size
    if size != facts["bytes"]:
        raise ValueError(f"{path} is cut short")
    return tokens.from_spec(facts["tokenizer"]), torch.from_file(str(path), shared=False, size=size // kind.itemsize, dtype=kind)


def running_text(
    name: str, text: str, *, kind: tokens.Kind = "characters", vocabulary: int = 4096, window: int = WINDOW, notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Data:
    """The first nine tenths to learn from, then half a tenth each for validation and test: no tested line was read before."""
    tokenizer, stream = streamed(name, text, kind, vocabulary, progress)
    n = (len(stream) - 1) // window
    if n < FEWEST:
        raise UsageError(
            f"{name} holds {len(text):,} characters, {len(stream):,} tokens; a running text needs at least {FEWEST * window + 1}"
            " (many short texts with labels: save it as CSV)"
        )
    digest = blake2b(stream.numpy().data, digest_size=8)
    digest.update(repr(tokenizer.spec()).encode())
    held = max(1, n // 20)
    ends = [0, n - 2 * held, n - held, n]
    indices = {part: torch.arange(a, b) for part, (a, b) in zip(SPLITS, pairwise(ends), strict=True)}
    train, validation, test = (Windows(stream, a * window, b * window + 1, window, window) for a, b in pairwise(ends))
    about = f"{len(text):,} characters as {len(stream):,} tokens ({kind}, {len(tokenizer.names):,} different)"
    return Data(
        name=name, kind="text", task="language", shape=(window,), labels=tokenizer.names, target="next token",
        encoder=StreamEncoder(tokenizer, window, len(text) / len(stream)), indices=indices, fingerprint=digest.hexdigest(),
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


def load(path: Path, *, kind: tokens.Kind = "characters", progress: Progress | None = None) -> Data:
    """One's own book, or a folder of them, one behind the other."""
    found = [Path(inside(str(file), path)) for file in files(path)] if path.is_dir() else [path]
    text = "\n\n".join(map(read, found))
    notes = [f"{len(found)} texts, in the order of their names"] if len(found) > 1 else []
    return replace(running_text(str(path), text, kind=kind, notes=notes, progress=progress), name=path.stem)


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
    named = text.lower().endswith(SUFFIXES)
    if named and not os.path.exists(text) and not re.search(r"\s", text):
        raise UsageError(f"there is no file {text}: expected a text, or a file of one ({', '.join(SUFFIXES)})")
    return read(Path(text)) if named and os.path.isfile(text) else text
