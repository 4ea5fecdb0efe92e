"""Language modeling: windows of one long token stream; the target of each token is the next one."""

import json
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

from didact.data.core import SPLITS, Batch, Data, Decode, Given, MissingSplit
from didact.data.datasets.archives import find_possible_files, inside
from didact.data.datasets.download import DownloadProgress, cache_folder
from didact.data.folder_tree import FolderTree
from didact.data.text import gpt2_bpe, tokenizers
from didact.data.text.tokenizers import BPETokenizer, CharTokenizer, Tokenizer, WordTokenizer
from didact.errors import UsageError, look_up
from didact.files import atomic_write, write_text

_DEFAULT_CONTEXT_LENGTH = 64     # where a recipe does not choose
MIN_WINDOWS = 20                # windows that a text needs for three splits
MAX_EVALUATED_TOKENS = {"validation": 2**17, "test": 2**19}     # at each evaluation, and at the end
MIN_MAPPED_CHARS = 4 * 2**20    # characters above which token ids are memory-mapped from a cached file
PIECE_CHARS = 2**20             # characters that are tokenized at once
_PIECE_BORDER = re.compile(r"(?<=\S)(?=[ \n])")
_CACHE_VERSION = 1
TEXT_SUFFIXES = (".txt", ".md")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class TokenWindows:
    """A split that is a part of a token stream: example i is the `context_length` tokens from start + i · stride, its
    target the same shifted by one."""

    stream: Tensor           # (N,) token ids of the whole text
    start: int               # of this split's part
    stop: int
    context_length: int
    stride: int
    device: torch.device = _CPU

    def __len__(self) -> int:
        return max(0, (self.stop - self.start - 1 - self.context_length) // self.stride + 1)

    def select(self, index: Tensor) -> Batch:
        positions = (
            self.start + index[:, None] * self.stride + torch.arange(self.context_length + 1, device=index.device)
        )
        ids = self.stream[positions]
        batch = {"x": ids[:, :-1], "y": ids[:, 1:], "row": index}
        return {name: column.to(self.device, non_blocking=True) for name, column in batch.items()}

    def batches(self, chunks: Sequence[Tensor]) -> Iterator[Batch]:
        index = torch.cat(list(chunks)).to(self.stream.device)
        return map(self.select, index.split([len(chunk) for chunk in chunks]))

    def decode(self, stored: Batch) -> Batch:
        return {name: column.long() for name, column in stored.items()}

    def to(self, device: torch.device) -> Self:
        """This split's part on the device, or on the host where it would take more than half of the free memory."""
        own_stream = self.stream[self.start : self.stop]
        if (
            device.type == "cuda"
            and own_stream.numel() * own_stream.element_size() > torch.cuda.mem_get_info(device)[0] // 2
        ):
            return replace(self, device=device)
        return replace(self, stream=own_stream.to(device), start=0, stop=len(own_stream), device=device)

    def batch(self, index: Tensor) -> Batch:
        """A few decoded examples."""
        return self.decode(self.select(index))


@dataclass(frozen=True)
class TextEncoder:
    """Prompts as tokens. `chars_per_token` is the mean number of characters in a token of the training text."""

    tokenizer: Tokenizer
    context_length: int
    chars_per_token: float = 1.0

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": Tensor.long}

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Prompts: texts, or as paths text files. The last `context_length` tokens of each, padded behind, and their
        number."""
        rows = [self.tokenizer.encode(read_if_path(text))[-self.context_length :] for text in inputs]
        empty = [text for text, row in zip(inputs, rows, strict=True) if not row]
        if empty:
            raise UsageError(f"a prompt needs at least one token, got {str(empty[0])!r}")
        return list(map(str, inputs)), {"x": pad_rows(rows), "length": torch.tensor([len(row) for row in rows])}

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """Texts that may be file names."""
        return find_possible_files(inputs, TEXT_SUFFIXES)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "stream",
            "tokenizer": self.tokenizer.spec(),
            "window": self.context_length,
            "rate": self.chars_per_token,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TextEncoder":
        return cls(tokenizers.tokenizer_from_spec(spec["tokenizer"]), spec["window"], spec["rate"])


def pad_rows(rows: Sequence[Sequence[int]], *, pad: int = 0, length: int | None = None) -> Tensor:
    """(N, L) int32 token ids, each row padded behind with `pad`."""
    x = np.full((len(rows), length or max(map(len, rows), default=1)), pad, dtype=np.int32)
    for i, row in enumerate(rows):
        x[i, : len(row)] = row[: x.shape[1]]
    return torch.from_numpy(x)


def _smallest_int_dtype(tokenizer: Tokenizer) -> type[np.integer[Any]]:
    """The smallest integer type that holds the ids of its tokens."""
    return next(k for k in (np.uint8, np.int16, np.int32) if len(tokenizer.vocab) - 1 <= np.iinfo(k).max)


def split_pieces(text: str) -> Iterator[str]:
    """Pieces of about a million characters that end before a space or line end behind a word: no token crosses such a
    border."""
    start = 0
    while start < len(text):
        border = _PIECE_BORDER.search(text, min(start + PIECE_CHARS, len(text)))
        stop = border.start() if border else len(text)
        yield text[start:stop]
        start = stop


def _encode_pieces(tokenizer: Tokenizer, text: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """The number of characters and the token ids of each piece."""
    kind = _smallest_int_dtype(tokenizer)
    lookup_table = np.zeros(0, dtype=kind)
    if isinstance(tokenizer, CharTokenizer):                    # a table look-up
        lookup_table = np.zeros(max(map(ord, tokenizer.characters), default=0) + 1, dtype=kind)
        for c, i in tokenizer.token_to_id.items():
            lookup_table[ord(c)] = i
    for piece in split_pieces(text):
        if len(lookup_table):
            yield len(piece), lookup_table[np.frombuffer(piece.encode("utf-32-le"), dtype=np.uint32)]
        else:
            yield len(piece), np.array(tokenizer.encode(piece), dtype=kind)


def encode_ids(tokenizer: Tokenizer, text: str) -> Tensor:
    """The token ids of a text, in the smallest integers that hold them."""
    return torch.from_numpy(
        np.concatenate(
            [ids for _, ids in _encode_pieces(tokenizer, text)] or [np.zeros(0, dtype=_smallest_int_dtype(tokenizer))]
        )
    )


_TOKENIZER_FITS: dict[str, Callable[[str, int], Tokenizer]] = {
    "characters": lambda text, vocabulary: CharTokenizer.fit([text]),
    "words": lambda text, vocabulary: WordTokenizer.fit(split_pieces(text), vocabulary, lowercase=False, min_count=1),
    "bpe": lambda text, vocabulary: BPETokenizer.fit(split_pieces(text), vocabulary),
    "gpt2": lambda text, vocabulary: gpt2_bpe.load_gpt2_tokenizer(),
}


def fit_tokenizer(text: str, kind: tokenizers.TokenizerKind, vocab_size: int) -> Tokenizer:
    """The tokenizer of a text; other than characters, it is learned from the first nine tenths, the training part."""
    train_text = text if kind == "characters" else text[: len(text) * 9 // 10]
    return look_up("tokenizer", kind, _TOKENIZER_FITS)(train_text, vocab_size) if text else CharTokenizer("")


def _tokenize_cached(
    name: str, text: str, kind: tokenizers.TokenizerKind, vocab_size: int, progress: DownloadProgress | None
) -> tuple[Tokenizer, Tensor]:
    """The tokenizer of a text and its token ids. Those of a long text are in a file of the cache, found by the text's
    digest, and memory-mapped; where no file can be written, they are in memory.
    """
    if len(text) < MIN_MAPPED_CHARS:
        tokenizer = fit_tokenizer(text, kind, vocab_size)
        return tokenizer, encode_ids(tokenizer, text)
    digest = blake2b(f"{_CACHE_VERSION} {kind} {vocab_size}".encode(), digest_size=16)
    for piece in split_pieces(text):
        digest.update(piece.encode())
    path = cache_folder("streams") / f"{digest.hexdigest()}.bin"
    with suppress(OSError, ValueError, KeyError):            # absent, cut short or of another version: tokenized anew
        return _read_cache(path)
    tokenizer = fit_tokenizer(text, kind, vocab_size)

    def write(temporary: Path) -> None:
        num_done = 0
        with temporary.open("wb") as file:
            for num_chars, ids in _encode_pieces(tokenizer, text):
                ids.tofile(file)
                num_done += num_chars
                if progress:
                    progress(f"{name} in {kind}", num_done, len(text))

    try:
        atomic_write(path, write)
        write_text(
            path.with_suffix(".json"),
            json.dumps(
                {
                    "tokenizer": tokenizer.spec(),
                    "type": _smallest_int_dtype(tokenizer).__name__,
                    "bytes": path.stat().st_size,
                }
            ),
        )
        return _read_cache(path)
    except UsageError:
        return tokenizer, encode_ids(tokenizer, text)


def _read_cache(path: Path) -> tuple[Tokenizer, Tensor]:
    """The tokenizer and token ids of the cache."""
    metadata = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    kind, size = getattr(torch, str(metadata["type"])), path.stat().st_size
    if size != metadata["bytes"]:
        raise ValueError(f"{path} is cut short")
    return tokenizers.tokenizer_from_spec(metadata["tokenizer"]), torch.from_file(
        str(path), shared=False, size=size // kind.itemsize, dtype=kind
    )


def build_language_modeling_data(
    name: str,
    text: str,
    *,
    kind: tokenizers.TokenizerKind = "characters",
    vocab_size: int = 4096,
    context_length: int = _DEFAULT_CONTEXT_LENGTH,
    notes: Sequence[str] = (),
    progress: DownloadProgress | None = None,
) -> Data:
    """Running text as Data: the first nine tenths for training, then half a tenth each for validation and test."""
    tokenizer, stream = _tokenize_cached(name, text, kind, vocab_size, progress)
    num_windows = (len(stream) - 1) // context_length
    if num_windows < MIN_WINDOWS:
        raise UsageError(
            f"{name} holds {len(text):,} characters, {len(stream):,} tokens; a running text needs at least "
            f"{MIN_WINDOWS * context_length + 1} (many short texts with labels: save it as CSV)"
        )
    digest = blake2b(stream.numpy().data, digest_size=8)
    digest.update(repr(tokenizer.spec()).encode())
    num_held_out = max(1, num_windows // 20)
    ends = [0, num_windows - 2 * num_held_out, num_windows - num_held_out, num_windows]
    indices = {part: torch.arange(a, b) for part, (a, b) in zip(SPLITS, pairwise(ends), strict=True)}
    train, validation, test = (
        TokenWindows(stream, a * context_length, b * context_length + 1, context_length, context_length)
        for a, b in pairwise(ends)
    )
    summary = f"{len(text):,} characters as {len(stream):,} tokens ({kind}, {len(tokenizer.vocab):,} different)"
    return Data(
        name=name,
        kind="text",
        task="language",
        shape=(context_length,),
        class_names=tokenizer.vocab,
        target="next token",
        encoder=TextEncoder(tokenizer, context_length, len(text) / len(stream)),
        indices=indices,
        fingerprint=digest.hexdigest(),
        source={"name": name},
        notes=(summary, *notes),
        train=train,
        validation=validation,
        test=test,
    )


def with_context(data: Data, context_length: int, *, stride: int | None = None) -> Data:
    """The same text in windows of another length; training ones may overlap, beginning every `stride` tokens.

    Of a long validation or test split some windows are kept, evenly spaced: the standard error of their mean loss is a
    few thousandths, and to read them all at each evaluation would take longer than the training between two.
    """
    if not isinstance(data.encoder, TextEncoder):
        raise UsageError(
            f"a language model needs running text, but {data.name!r} is not: give a .txt file or a folder of them"
        )
    parts: dict[str, Any] = {}
    notes: list[str] = []
    for part in SPLITS:
        step = stride if stride and part == "train" else context_length
        split = data.split(part)
        num_windows = (
            len(replace(split, context_length=context_length, stride=step))
            if isinstance(split, TokenWindows)
            else max(1, len(split) * data.encoder.context_length // step)
        )
        max_windows = max(1, MAX_EVALUATED_TOKENS[part] // context_length) if part in MAX_EVALUATED_TOKENS else 0
        if max_windows and num_windows > max_windows:
            step *= -(-num_windows // max_windows)
            num_kept = -(-num_windows * context_length // step)
            notes.append(f"{part}: {num_kept:,} of {num_windows:,} windows are evaluated, evenly spaced")
            num_windows = num_kept
        parts[part] = (
            replace(split, context_length=context_length, stride=step)
            if isinstance(split, TokenWindows)
            else MissingSplit(num_windows)
        )
        if not len(parts[part]):
            raise UsageError(
                f"the {part} split of {data.name!r} is shorter than a context of {context_length} tokens; choose a "
                "smaller one"
            )
    encoder = replace(data.encoder, context_length=context_length)
    return replace(data, shape=(context_length,), encoder=encoder, notes=(*data.notes, *notes), **parts)


def retokenize(data: Data, kind: tokenizers.TokenizerKind, *, vocab_size: int = 4096) -> Data:
    """The same text in other tokens."""
    if not isinstance(data.encoder, TextEncoder) or not isinstance(data.train, TokenWindows):
        raise UsageError(
            f"--tokens is for running text, but {data.name!r} is {data.kind} for {data.task}; leave it out"
        )
    text = data.encoder.tokenizer.decode(data.train.stream.tolist())
    return build_language_modeling_data(data.name, text, kind=kind, vocab_size=vocab_size, notes=data.notes[1:])


def is_text_path(path: Path | str | FolderTree) -> bool:
    """Whether it is a file of running text, or a folder that holds such and no images."""
    tree = FolderTree.of(path)
    if tree.root.is_dir():
        return bool(_list_texts(tree)) and not tree.list_images()[0]
    return tree.root.name.lower().endswith(TEXT_SUFFIXES)


def _list_texts(tree: FolderTree) -> list[Path]:
    """The texts below a folder, sorted."""
    return sorted(path for path in tree.list_files(TEXT_SUFFIXES, hidden_folders=True) if path.is_file())


def load_text_files(
    path: Path | FolderTree,
    *,
    kind: tokenizers.TokenizerKind = "characters",
    progress: DownloadProgress | None = None,
) -> Data:
    """A text file, or a folder of them, concatenated."""
    tree = FolderTree.of(path)
    path = tree.root
    paths = [Path(inside(str(file), path)) for file in _list_texts(tree)] if path.is_dir() else [path]
    text = "\n\n".join(map(read_text_file, paths))
    notes = [f"{len(paths)} texts, in the order of their names"] if len(paths) > 1 else []
    return replace(
        build_language_modeling_data(str(path), text, kind=kind, notes=notes, progress=progress), name=path.stem
    )


def read_text_file(path: Path) -> str:
    """A text file, without a byte order mark and with \\n as line ends."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read the text {path}: {error.strerror}") from None


def read_if_path(text: Given) -> str:
    """A text, or that of the file at a path."""
    return read_text_file(text) if isinstance(text, Path) else text
